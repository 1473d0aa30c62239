"""The page of claims, from all that conf has, and runs that are in no table."""

import json
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hydra.errors import HydraException

from msbp.analysis.claims import forest_rows
from msbp.analysis.render import markdown
from msbp.analysis.report import (
    HEIGHT,
    WIDTH,
    document,
    listed,
    ordered,
    other,
    page,
    summary,
    tracked,
)
from msbp.analysis.runs import Sources, run_frame
from msbp.analysis.settings import CLAIMS, catalogue
from msbp.analysis.tables import by_layer
from msbp.config import CONF, ROOT
from msbp.measurements import validated_each
from msbp.record import Record

BASE, SBP, MSBP = (f"task=mnist method={method}" for method in ("baseline", "sbp", "msbp"))


@pytest.fixture(scope="module")
def conf():
    return catalogue(Path(CONF))


@pytest.fixture(scope="module")
def sources(record_of, runs_of, settle):
    runs = [record_of(words, seed, test=98 + seed / 10) for words in (BASE, MSBP) for seed in range(3)]
    runs += [record_of(SBP, seed, test=97 - seed / 9) for seed in range(3)]
    return Sources(runs_of(runs), settle)


@pytest.fixture(scope="module")
def documents(conf, sources):
    """Every table, every figure and the claims, by name."""
    return {name: document(config, sources) for name, config in conf.items()}


@pytest.fixture(scope="module")
def text(documents, sources):
    return page(documents.values(), sources)


def test_the_page_opens_without_a_network(text):
    addresses = re.findall(r"""(?:src|href)=["']([^"']+)""", text)
    assert addresses and all(address.startswith(("data:", "#")) for address in addresses)
    assert "url(" not in text and "@import" not in text and "<script" not in text


def test_every_link_has_its_target_and_every_claim_its_verdict(text, conf):
    targets = set(re.findall(r'id="([^"]+)"', text))
    assert {link.removeprefix("#") for link in re.findall(r'href="(#[^"]+)"', text)} <= targets
    assert set(conf[CLAIMS]["claims"]) <= targets
    assert text.count('<span class="verdict') == 2 * len(conf[CLAIMS]["claims"])


def test_the_summary_fits_the_width_of_a_terminal(documents):
    others = [f"mnist msbp method.gamma={i}: {'long ' * 30}" for i in range(40)]
    for more in ([], others[:3], others):
        lines = summary(ordered(documents.values()), more)
        assert len(lines) <= HEIGHT - 2 and max(map(len, lines)) <= WIDTH
        assert lines[0].startswith("Task ") and any(line.startswith("open: ") for line in lines)
    assert lines[-1].endswith("more settings")


def test_the_result_stands_first_and_compares_the_seeds_that_all_methods_have(
    record_of, runs_of, settle, conf
):
    runs = [record_of(words, seed, test=98 + seed) for words in (BASE, SBP) for seed in (0, 1)]
    runs += [record_of(MSBP, seed, test=90 + seed) for seed in (1, 2)]
    drawn = document(conf["headline"], Sources(runs_of(runs), settle))
    assert list(drawn.filled.blocks[0].iloc[0])[:-1] == [
        "MNIST (acc., n = 1)", "–", "1.0×", "99.00", "99.00", "91.00",
    ]  # fmt: skip


def test_speed_ups_of_the_total_are_those_of_runs_or_else_of_the_benchmark_as_of_bp(
    record_of, runs_of, settle, conf
):
    def result(rule):
        row = {"name": "msbp", "vs_dense": {"bp": 9.0, "bp_update": 8.0, "total": 3.04}}
        about = {"case": "mnist", "sweep": None, "threads": 1, "allocator": "keep", "timing_rule": rule}
        return about | {"rows": [row]}

    runs = runs_of([record_of(words, times_comparable=False) for words in (BASE, MSBP)])
    for rule, shown in ((2, ["9.0×", "3.0×*"]), (1, ["–", "–"])):
        drawn = document(conf["headline"], Sources(runs, settle, [result(rule)]))
        assert list(drawn.filled.blocks[0].iloc[0])[1:3] == shown


def test_a_baseline_that_is_stronger_than_the_papers_is_the_first_sentence(record_of, runs_of, settle, conf):
    scores = {BASE: 98.2, SBP: 97.82, MSBP: 98.2}
    runs = [record_of(words, seed, test=score) for words, score in scores.items() for seed in range(3)]
    for name in ("main", "headline"):
        first, *_ = document(conf[name], Sources(runs_of(runs), settle)).sheets[0].below
        assert first.startswith(
            "On MNIST our baseline is stronger than the paper's, 98.20 against 97.86. With the paper's"
        )
        scores = "SBP (r=0.04) 97.82 (97.84), MSBP (γ=0.8) 98.20 (98.23)"
        assert f"{scores}; within 0.1 points of the paper's: all." in first
        assert first.endswith(
            "MSBP (γ=0.8) gains +0.00 over our baseline; the paper's gains +0.37 over its own."
        )
    luckier = [*runs, *(record_of(BASE, seed, test=99) for seed in range(3, 6))]
    first, *_ = document(conf["main"], Sources(runs_of(luckier), settle)).sheets[0].below
    assert "over the 3 seeds that its rows share, our baseline is stronger than the paper's, 98.20" in first
    assert "gains +0.00 over our baseline" in first
    level = [run | {"test": 97.9} for run in runs]
    below = document(conf["main"], Sources(runs_of(level), settle)).sheets[0].below
    assert not any("stronger" in sentence for sentence in below)


def test_numbers_agree_in_every_format(documents, text):
    drawn = documents[CLAIMS]
    texts = drawn.texts()
    cells = list(drawn.sheets[1].blocks[0].iloc[1])
    assert cells[0] == "MNIST: MSBP (γ=0.8)" and cells[4] == "3"
    assert f"| {cells[0]} " in texts["md"] and f"{cells[1]} |" in texts["md"] and f">{cells[1]}<" in text
    assert cells[1] in texts["tex"] and cells[2] in texts["tex"]
    assert drawn.numbers.estimate[1] == pytest.approx(float(cells[1].split()[0]), abs=0.005)


def test_latex_is_ascii_so_that_any_engine_reads_it(documents):
    for name, drawn in documents.items():
        tex = drawn.texts()["tex"]
        assert all(letter.isascii() for letter in re.sub("(?m)^% .*", "", tex)), name


def test_an_installed_package_has_every_file_that_is_not_python():
    package = ROOT / "src" / "msbp"
    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    taken = {path for pattern in config["package-data"]["msbp"] for path in package.glob(pattern)}
    files = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert taken == {path for path in files if path.suffix != ".py"} and taken


def test_missing_results_are_listed_with_their_commands(text):
    assert "Not drawn: nothing was measured yet." in text
    assert "python -m src.bench case=mnist sweep=k" in text


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
    return "".join(markdown(sheet) for drawn in other(runs, []) for sheet in drawn.sheets)


def first_cells(text):
    """The first cell of each row of a Markdown table, the rule left out."""
    return [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]


def test_a_tiny_sample_has_a_block_of_its_own_with_a_remark(trial, runs_of):
    runs = runs_of([trial("baseline"), trial("msbp", r=0.04, gamma=0.8), trial("msbp", 1, r=0.04, gamma=0.8)])
    text = text_of(runs)
    assert first_cells(text) == [
        "mnist on its tiny synthetic sample (h=500, 0 epochs)", "baseline", "msbp (r=0.04, γ=0.8)",
    ]  # fmt: skip


def test_row_labels_are_distinct(trial, runs_of):
    kinds = [trial("msbp", r=0.04, gamma=0.8, memory=kind) for kind in ("shared", "per_slot")]
    assert first_cells(text_of(runs_of(kinds)))[2:] == [
        "msbp (r=0.04, γ=0.8, memory=per\\_slot)", "msbp (r=0.04, γ=0.8, memory=shared)",
    ]  # fmt: skip


def test_titles_of_blocks_of_the_same_task_name_the_keys_that_differ(trial, runs_of):
    runs = [trial("baseline", r=(i + 1) / 10) for i in range(3)]
    for run, (lr, size) in zip(runs, ((0.1, 16), (0.01, 16), (0.01, 32)), strict=True):
        run["config"] = run["config"] | {"optimizer": {"lr": lr}, "task": SHARED["task"] | {"size": size}}
    (drawn,) = other(runs_of(runs), [])
    common = "mnist on its tiny synthetic sample (h=500, 0 epochs)"
    titles = [block.columns[0].removeprefix(common) for block in drawn.sheets[0].blocks]
    assert sorted(titles) == [
        ", task.size=16, optimizer.lr=0.01", ", task.size=16, optimizer.lr=0.1",
        ", task.size=32, optimizer.lr=0.01",
    ]  # fmt: skip


def test_a_models_file_is_named_instead_of_all_its_keys(record_of, runs_of):
    def compose(words):
        chosen = dict(word.split("=") for word in words)
        model = {"name": chosen.get("model", "large"), "layers": 1 if chosen.get("model") == "small" else 3}
        return {"task": {"name": "en_vi"}, "method": {"name": "sbp"}, "model": model}

    small = compose(["model=small"])
    about = {"task": "en_vi", "method": "sbp", "model": "small"}
    runs = [record_of("a", **about, config=small), record_of("b", **about, config=small | {"lr": 5})]
    lines = [line.partition(":")[0] for line in listed(runs_of(runs), compose)]
    assert lines == ["en_vi sbp model=small", "en_vi sbp model=small lr=5"]


def test_without_a_baseline_nothing_is_compared(trial, runs_of):
    text = text_of(runs_of([trial("sbp", r=0.04, gamma=0.0)]))
    assert "×" not in text
    assert "| baseline " in text


def test_runs_that_a_table_shows_are_not_listed_again(trial, runs_of):
    runs = runs_of([trial("baseline")])
    assert other(runs, other(runs, [])) == []


ODD = (
    *(None, 0, 5, -1, -1.5, 2**63, 10**40, 10**400, 1e15, 1e308, True, [], [1], [[]]),
    *("", "x", "a|b", "\ud800", {"\ud800": 1}, {}, {"a": 1}, {"a": -1}, {"a": 10**40}, {"a": 10**400}),
    *({"a": {}}, {"a": {"entries": "x"}}, ...),
)
BLEU = {"metric": "bleu", "metric_signature": "bleu tok|x; detok|y", "best_epoch": 1}


def odd_records(record):
    """The record with one field at a time lacking or of an odd value, each with a seed of its own."""
    odd = [record | {key: value} for key in record if key != "seed" for value in ODD]
    odd += [record | {"config": record["config"] | {"size": value}} for value in ODD]
    odd += [record | {"history": [{"epoch": 1, "test_bleu_detok": value}]} for value in ODD]
    odd += [record | {"config": record["config"] | {"paths": value}} for value in ODD]
    lacking = [{key: value for key, value in run.items() if value is not ...} for run in odd]
    return [
        json.loads(json.dumps(run | {"seed": i}, default=lambda _: None)) for i, run in enumerate(lacking)
    ]


def nothing_composed(words):
    raise HydraException(str(words))


def test_a_record_with_any_value_in_a_field_is_shown_or_left_out(trial):
    records = odd_records(trial("baseline") | BLEU)
    damaged = []
    texts = [(f"record {number}", json.dumps(record)) for number, record in enumerate(records)]
    runs = run_frame(validated_each(Record, texts, damaged))
    assert len(runs) + len(damaged) == len(records)
    for field in (
        "metric_signature",
        "history",
        "dropped_fraction",
        "dropped_fraction.a.entries",
        "config.paths",
    ):
        assert any(field in sentence for sentence in damaged)
    for key in ("hidden", "sample", "resumed"):
        assert any(key not in record for record in runs.record)
    (drawn,) = other(runs, [])
    assert all(drawn.texts().values()) and by_layer(runs) == ""
    assert all("seed" in line for line in listed(runs, nothing_composed))


def test_a_forest_plot_is_an_image_that_names_its_estimates(documents):
    drawn = documents[CLAIMS]
    claim = next(claim for claim in drawn.claims if claim.name == "better_than_sbp")
    image = ElementTree.fromstring(drawn.forests[claim.name])
    words = ["".join(text.itertext()) for text in image.iter("{http://www.w3.org/2000/svg}text")]
    for row in forest_rows(claim):
        assert row["label"] in words and row["text"] in words
    assert drawn.files(draw=False)["better_than_sbp.svg"] == drawn.forests[claim.name]


def test_without_a_terminal_progress_is_a_line_for_each_tenth(capsys):
    assert list(tracked(range(20), "files")) == list(range(20))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "files: 2 of 20" and lines[-1] == "files: 20 of 20" and len(lines) == 10
