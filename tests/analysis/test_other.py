import pytest

from msbp.analysis.formats import markdown
from msbp.analysis.other import other

SHARED = {"task": {"name": "mnist", "sample": "tiny"}, "trainer": {"epochs": 2}}


@pytest.fixture
def trial(record_of):
    """A record on the tiny sample; a method's keys are its signature here."""

    def trial(method, seed=0, **keys):
        own = {"name": method, **keys}
        letters = {"r": keys.get("r"), "gamma": keys.get("gamma")}
        config = {**SHARED, "method": own}
        return record_of(repr(own), seed, method=method, sample="tiny", config=config, **letters)

    return trial


def text_of(runs):
    return "".join(markdown(sheet) for made in other(runs, []) for sheet in made.sheets)


def first_cells(text):
    """The first cell of each row of a Markdown table, the rule left out."""
    return [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]


def test_a_tiny_sample_has_a_block_of_its_own_that_says_so(trial, runs_of):
    runs = runs_of([trial("baseline"), trial("msbp", r=0.04, gamma=0.8), trial("msbp", 1, r=0.04, gamma=0.8)])
    text = text_of(runs)
    assert first_cells(text) == [
        "mnist on its tiny made-up sample (h=500, 0 epochs)", "baseline", "msbp (r=0.04, γ=0.8)",
    ]  # fmt: skip


def test_rows_differ_in_what_they_are_called(trial, runs_of):
    kinds = [trial("msbp", r=0.04, gamma=0.8, memory=kind) for kind in ("shared", "per_slot")]
    assert first_cells(text_of(runs_of(kinds)))[2:] == [
        "msbp (r=0.04, γ=0.8, memory=per\\_slot)", "msbp (r=0.04, γ=0.8, memory=shared)",
    ]  # fmt: skip


def test_without_a_baseline_nothing_is_compared(trial, runs_of):
    text = text_of(runs_of([trial("sbp", r=0.04, gamma=0.0)]))
    assert "×" not in text
    assert "| baseline " in text


def test_what_a_table_uses_is_not_told_twice(trial, runs_of):
    runs = runs_of([trial("baseline")])
    assert other(runs, other(runs, [])) == []
