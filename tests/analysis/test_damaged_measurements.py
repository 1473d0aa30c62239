"""Random changes to files of measurements: each is read, or named and left out, and the others are read.

A sample runs with the suite; MSBP_MUTATIONS=2000 makes it more.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from msbp.analysis import benchmarks, runs, theory
from msbp.analysis.figures import Plot
from msbp.analysis.report import benchmark, document, other
from msbp.analysis.settings import CLAIMS, catalogue
from msbp.config import CONF, ROOT
from msbp.measurements import read_benchmarks

MUTATIONS = int(os.environ.get("MSBP_MUTATIONS", "60"))
PUBLISHED = ROOT / "outputs/published"
VALUES = (
    *(None, True, 0, 5, -1, 2**70, 10**400, 1e300, [], [1], [[]], {}, {"a": 1}),
    *("", "x", "γ|`<b>", "\x00", "\ud800", "${nope:1}", "../../x"),
)


def first(name: str) -> object:
    with open(PUBLISHED / name, encoding="utf-8") as lines:
        return json.loads(next(lines))


def stored() -> dict[str, object]:
    """A file of each kind, as the entry points write them, by path below the outputs folder."""
    results = json.loads((PUBLISHED / "bench.json").read_text(encoding="utf-8"))
    with open(PUBLISHED / "angles.jsonl", encoding="utf-8") as lines:
        angle = next(each for each in map(json.loads, lines) if "departure" in each)
    kinds = {(result["sweep"] is not None, "parts" in result): result for result in results}
    diverged = {"signature": "5e77e000", "seed": 3, "epoch": 1, "step": 2, "reason": "the loss is nan"}
    return {
        "runs/a/record.json": first("records.jsonl"),
        "runs/a/angles.jsonl": angle,
        "runs/b/diverged.json": diverged,
        "bench/case.json": kinds[False, False],
        "bench/sweep.json": kinds[True, False],
        "bench/breakdown.json": kinds[False, True],
        "theory.json": json.loads((PUBLISHED / "theory.json").read_text(encoding="utf-8")),
    }


STORED = stored()
EVERY = catalogue(Path(CONF))
SHOWN = "theory", "bounds", "complexity", "departure", "angle", "bp_time", "tradeoff"
CLAIMED = {  # by benchmarks and angles; without tables, whose rows take seconds to compose
    name: EVERY[CLAIMS]["claims"][name] | {"tables": []}
    for name in ("acceleration", "angle", "forward", "gamma_time", "overhead", "proportional")
}


def locations(tree: object, at: tuple = ()) -> Iterator[tuple]:
    """Yield the paths to all values of a tree; of a list to the first three."""
    yield at
    items = tree.items() if isinstance(tree, dict) else enumerate(tree[:3]) if isinstance(tree, list) else ()
    for key, value in items:
        yield from locations(value, (*at, key))


@pytest.mark.parametrize("name", ["case", "sweep"])
def test_a_benchmark_without_rows_is_named_and_left_out(name, tmp_path):
    result = json.loads(json.dumps(STORED[f"bench/{name}.json"]))
    for part in result.get("points") or [result]:
        part["rows"] = []
    path = tmp_path / "bench" / f"{name}.json"
    path.parent.mkdir()
    path.write_text(json.dumps(result), encoding="utf-8")
    damaged: list[str] = []
    assert read_benchmarks(path.parent, damaged) == [] and str(path) in damaged[0]


def altered(tree: object, random: Random) -> tuple[object, str]:
    """The tree after one random change, and what that is."""
    tree, at = json.loads(json.dumps(tree)), random.choice(list(locations(tree)))
    value = random.choice(VALUES)
    if not at:
        return value, repr(value)
    above = tree
    for key in at[:-1]:
        above = above[key]
    if random.random() < 0.2:
        del above[at[-1]]
        return tree, f"without {at}"
    above[at[-1]] = value
    return tree, f"{at}: {value!r}"


def render(outputs: Path) -> runs.Sources:
    """Return the functions that read a file of each kind completely."""
    sources = runs.own(outputs, outputs / "published", lambda words: None)
    documents = other(sources.runs, [])
    documents += [document(EVERY[name], sources) for name in SHOWN]
    documents += [document(EVERY[CLAIMS] | {"claims": CLAIMED, "tables": {}}, sources)]
    for each in documents:
        if not isinstance(each, Plot):
            each.files()
    benchmarks.markdown(sources.benchmarks)
    for result in sources.breakdowns:
        benchmark(result)
    for result in sources.benchmarks:
        benchmark(result)
        benchmarks.table(result)
        benchmarks.comma_separated(result)
    if sources.theory:
        theory.terminal(sources.theory)
    return sources


@pytest.mark.parametrize("name", STORED)
def test_a_damaged_file_is_named_and_the_others_are_read(tmp_path, name):
    for file, value in STORED.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(json.dumps(value), encoding="utf-8")
    assert not render(tmp_path).damaged
    named = 0
    for seed in range(MUTATIONS // len(STORED)):
        tree, change = altered(STORED[name], Random(f"{name} {seed}"))
        (tmp_path / name).write_text(json.dumps(tree), encoding="utf-8")
        try:
            sources = render(tmp_path)
        except Exception as error:
            raise AssertionError(f"{name} {seed}, {change}: {error!r}") from error
        assert all(name in sentence and "\n" not in sentence for sentence in sources.damaged), change
        assert len(sources.runs) == (name != "runs/a/record.json" or not sources.damaged)
        named += bool(sources.damaged)
    assert named
