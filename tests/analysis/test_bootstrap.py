"""Paired bootstrap of what runs left."""

import json
import random

import pytest

from msbp.analysis.bootstrap import paired_bootstrap

RULE = "bleu tokenised|nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2; detokenised|nrefs:1; beam:10"
chance = random.Random(0)
REFERENCE = [" ".join(chance.choice("abcdefgh") for _ in range(12)) for _ in range(60)]


@pytest.fixture
def run(tmp_path):
    """Makes the folder of a run whose translations have a share of wrong words."""

    def make(name, wrong, rule=RULE, reference=REFERENCE):
        chance = random.Random(name)
        lines = [
            " ".join("x" if chance.random() < wrong else word for word in line.split()) for line in REFERENCE
        ]
        (tmp_path / name).mkdir()
        texts = {"hypotheses.txt": lines, "references.0.txt": reference}
        for file, content in texts.items():
            (tmp_path / name / file).write_text("\n".join(content) + "\n")
        (tmp_path / name / "record.json").write_text(json.dumps({"metric_signature": rule}))
        return tmp_path / name

    return make


def test_a_worse_run_differs_and_an_equal_one_does_not(run):
    folders = [run("one", 0.1), run("alike", 0.1), run("worse", 0.3)]
    first, alike, worse = paired_bootstrap(folders, samples=200)
    assert first.p is None and worse.p < 0.01 < 0.05 < alike.p
    assert worse.bleu < alike.bleu and 0 < worse.interval < 20
    assert paired_bootstrap(folders, samples=200) == [first, alike, worse]
    assert [run.p for run in paired_bootstrap([folders[0]] * 3, samples=200)] == [None, 1.0, 1.0]


def test_bleu_counts_as_in_the_record(run):
    capitals = [line.upper() for line in REFERENCE]
    cased = RULE.replace("case:lc", "case:mixed")
    assert paired_bootstrap([run("a", 0.0, reference=capitals)] * 2, 10)[0].bleu == pytest.approx(100)
    assert paired_bootstrap([run("b", 0.0, cased, reference=capitals)] * 2, 10)[0].bleu < 1


def test_runs_that_cannot_be_paired_are_refused(run):
    folders = [run("a", 0.1), run("b", 0.1, reference=REFERENCE[::-1])]
    with pytest.raises(ValueError, match="differ in test set or BLEU"):
        paired_bootstrap(folders)
    (folders[0] / "hypotheses.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no hypotheses\.txt and references"):
        paired_bootstrap(folders)


def test_a_text_that_was_cut_is_refused(run):
    folder = run("a", 0.1)
    (folder / "hypotheses.txt").write_text("x\n")
    with pytest.raises(ValueError, match=r"not as many lines as the references"):
        paired_bootstrap([folder, run("b", 0.1)])
