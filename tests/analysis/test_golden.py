"""Tables of runs with the paper's numbers, compared with those in tests/golden."""

from pathlib import Path

import pytest

from msbp.analysis.render import renderings
from msbp.analysis.runs import Sources
from msbp.analysis.settings import configs
from msbp.analysis.table_text import document_of
from msbp.analysis.tables import fill
from msbp.config import CONF

GOLDEN = Path(__file__).parents[1] / "golden"
CONFIGS = configs(Path(CONF), "table")


def printed_as_runs(config, record_of):
    """Five runs a row around what the paper prints, with 10 seconds of update."""
    for block in config["blocks"]:
        for row in block["rows"]:
            words = [f"task={block['task']}", *block.get("overrides", []), *row["overrides"]]
            paper = {"bp_s": 1.0, "total_s": 2.0, "dev": 90.0, **row.get("paper", {})}
            for seed, off in enumerate((-0.1, -0.05, 0.0, 0.05, 0.1)) if "paper" in row else ():
                scores = {"dev": paper["dev"] + off, "test": paper["score"] + off}
                times = {"bp_s": paper["bp_s"], "total_s": paper["total_s"], "update_s": 10.0}
                yield record_of(" ".join(words), seed, **scores, **times)


@pytest.fixture(scope="module", params=["main", "extreme", "textcnn", "seq2seq"])
def rendered(request, record_of, runs_of, settle):
    """The name of a table, and its text by file suffix."""
    config = CONFIGS[request.param]
    runs = runs_of(printed_as_runs(config, record_of))
    return request.param, renderings(document_of(fill(config, Sources(runs, settle))))


@pytest.mark.parametrize("suffix", ["md", "tex", "csv"])
def test_the_papers_cells_give_the_expected_table(rendered, suffix, tmp_path):
    name, texts = rendered
    actual = tmp_path / f"{name}.{suffix}"
    actual.write_text(texts[suffix], encoding="utf-8")
    golden = GOLDEN / actual.name
    assert actual.read_text("utf-8") == golden.read_text("utf-8"), f"if this is meant: cp {actual} {golden}"


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("main", ["9.45×", "9.74×", "97.34 (+0.07)"]),
        ("extreme", ["2.69×", "2.60×", "96.19 (-1.91)", "96.22 (-1.88)", "98.16 (+0.06)"]),
        ("textcnn", ["81.48 (+0.59)", "93.80 (+0.14)"]),
        ("seq2seq", ["28.94 (+0.49)", "26.53 (+0.66)", "35.98 (+0.12)"]),
    ],
)
def test_the_papers_own_ratios_and_differences_are_computed(name, cells, settle, runs_of):
    """Nine of those that it prints are wrong, such as 9.46×, 2.71×, +0.58 and +0.39."""
    text = renderings(document_of(fill(CONFIGS[name], Sources(runs_of([]), settle))))["md"]
    for cell in cells:
        assert f" {cell} |" in text
