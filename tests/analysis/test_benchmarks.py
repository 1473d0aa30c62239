"""Results of the benchmark: their names, files, published form and tables."""

import csv
import json
import re
import subprocess
import sys

import pytest

from msbp.analysis import runs
from msbp.analysis.benchmarks import (
    breakdown_section,
    comma_separated,
    command,
    markdown,
    name,
    ratios,
    remarks,
    settings,
    summary,
    table,
    write,
)
from msbp.analysis.publish import with_benchmarks
from msbp.analysis.render import digits
from msbp.analysis.runs import Sources
from msbp.files import json_text, save
from msbp.measurements import checked, read_benchmarks


def publish_benchmarks(measured, path, **keys):
    results = with_benchmarks(measured, path, **keys)
    save({path: json_text(results, indent=1)})
    return results


def row(label, bp, update=1.0, forward=2.0, **more):
    times = {"data_ms": 0.1, "forward_ms": forward, "bp_ms": bp, "update_ms": update}
    total = sum(times.values())
    times |= {"bp_update_ms": bp + update, "total_ms": total, "bp_p10_ms": bp * 0.9, "bp_p90_ms": bp * 1.1}
    rest = {"bp_gflops": 51.234, "peak_mib": 12.3, "steps": 80}
    compared = {"bp": 4 / bp, "bp_update": 5 / (bp + update), "total": 7.1 / total}
    rest |= {"k_per_layer": {"net.0": 20, "net.3": 20}, "vs_torch": compared, "vs_dense": None}
    return {"name": label, **times, **rest, **more}


def result(**more):
    about = {"case": "mnist", "sweep": None, "threads": 1, "allocator": "keep", "cpu": "A 1", "torch": "2.6"}
    about |= {"blas": "mkl", "commit": "0123456789", "dirty": False, "cpu_share": 1.0, "timing_rule": 2}
    return about | {"rows": [row("torch", 4.0), row("msbp", 0.2), row("unified", 0.5)]} | more


def sweep():
    points = [
        {"value": r, "cpu_share": 1.0, "rows": [row("torch", 4.0), row("msbp", r * 10)]} for r in (0.01, 0.1)
    ]
    return result(sweep="k", key="paper.r", points=points)


def breakdown(**more):
    parts = [
        {"phase": "forward", "part": "products", "ms": 0.5, "bytes": 2_000_000, "flops": 20_000_000},
        {"phase": "forward", "part": "Python between", "ms": 0.1, "bytes": 0, "flops": 0},
        {"phase": "update", "part": "rows with gradient", "ms": 0.4, "bytes": 8_000_000, "flops": 1_000_000},
    ]
    about = {"row": "msbp", "steps": 90, "step_ms": 1.0, "peak_gflops": 80.0, "peak_gb_s": 40.0}
    kept = {name: value for name, value in result().items() if name != "rows"}
    return kept | about | {"parts": parts} | more


@pytest.mark.parametrize(
    ("more", "expected", "words"),
    [
        ({}, "mnist", " repetitions=1"),
        ({"threads": 2}, "mnist-2-threads", " threads=2 repetitions=1"),
        ({"allocator": "default"}, "mnist-default-allocator", " allocator=default repetitions=1"),
        ({"sweep": "k", "protocol": {"repetitions": 3}}, "mnist-by-k", " sweep=k repetitions=3"),
    ],
)
def test_a_results_name_and_command_have_the_settings_that_differ_from_the_defaults(more, expected, words):
    assert name(result(**more)) == expected
    assert command(result(**more)) == f"python -m src.bench case=mnist{words}"


def test_a_result_is_written_as_json_and_csv(tmp_path):
    paths = write(tmp_path / "bench", result())
    assert json.loads(paths[0].read_text()) == result()
    rows = list(csv.DictReader(paths[1].read_text().splitlines()))
    assert [float(row["bp_ms"]) for row in rows] == [4.0, 0.2, 0.5]
    assert rows[1]["vs_torch_bp"] == "20.0" and rows[1]["vs_dense_bp"] == "" and rows[1]["k"] == "20 20"


def test_the_csv_of_a_sweep_has_a_line_for_every_row_of_every_point():
    rows = list(csv.DictReader(comma_separated(sweep()).splitlines()))
    assert [(row["value"], row["name"]) for row in rows] == [
        ("0.01", "torch"), ("0.01", "msbp"), ("0.1", "torch"), ("0.1", "msbp"),
    ]  # fmt: skip


def test_publishing_replaces_what_has_the_same_name_and_keeps_the_rest(tmp_path):
    published = tmp_path / "published/bench.json"
    assert read_benchmarks(published, []) == []
    with pytest.raises(ValueError, match="no results in"):
        publish_benchmarks(tmp_path / "bench", published)
    write(tmp_path / "bench", result(commit="a" * 10))
    write(tmp_path / "bench", sweep())
    publish_benchmarks(tmp_path / "bench", published)
    write(tmp_path / "bench", result(commit="b" * 10))
    (tmp_path / "bench/mnist-by-k.json").unlink()
    publish_benchmarks(tmp_path / "bench", published)
    kept = read_benchmarks(published, [])
    assert [name(each) for each in kept] == ["mnist", "mnist-by-k"]
    assert kept[0]["commit"] == "b" * 10


def test_the_terminal_shows_every_row_and_the_platform():
    text = table(result(dirty=True))
    assert "A 1, 1 thread, allocator=keep, torch 2.6, mkl, commit 01234567 with changes" in text
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert "20.0×, 4.17×, 2.15×" in lines["msbp"] and "0.180-0.220" in lines["msbp"]
    assert "51.2" in lines["torch"] and "unified" in lines


def test_the_readme_shows_the_main_rows_with_their_command():
    text = markdown([result()])
    assert (
        "`python -m src.bench case=mnist repetitions=1`" in text
        and "| msbp" in text
        and "unified" not in text
    )
    assert "unified" in markdown([result()], rows=None)


def test_the_readme_shows_the_command_for_a_missing_measurement():
    assert "`python -m src.bench case=mnist`" in markdown([])


def test_a_sweep_becomes_a_table_of_bp_and_total_by_value():
    swept = sweep()
    lines = markdown([swept]).splitlines()
    header, first = ([cell.strip() for cell in lines[at].split("|")[1:-1]] for at in (2, 4))
    assert header == ["`paper.r`", "BP of torch", "BP of msbp", "total of torch", "total of msbp"]
    totals = [digits(row["total_ms"]) for row in swept["points"][0]["rows"]]
    assert first == ["0.01", "4.00", "0.100", *totals]
    assert "0.1  " in table(sweep())


def test_a_result_of_a_busy_machine_has_a_remark():
    assert remarks(result()) == []
    assert "had 80%" in remarks(result(cpu_share=0.8))[0]


def test_numbers_have_three_significant_digits():
    assert [digits(value) for value in (0.0123, 1.234, 12.34, 123.4)] == ["0.012", "1.23", "12.3", "123"]
    assert ratios(None) == ""


def test_tables_of_results_need_no_torch():
    code = "import sys, msbp.analysis.benchmarks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_results_of_uncommitted_code_are_published_only_with_allow_dirty(tmp_path):
    write(tmp_path / "bench", result(dirty=True))
    with pytest.raises(ValueError, match=r"mnist: measured on uncommitted code.*allow_dirty=true"):
        publish_benchmarks(tmp_path / "bench", tmp_path / "bench.json")
    assert not (tmp_path / "bench.json").exists()
    assert len(publish_benchmarks(tmp_path / "bench", tmp_path / "bench.json", allow_dirty=True)) == 1


def test_a_summary_has_a_line_for_each_case():
    lines = summary([result(), result(case="extreme")]).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:4]] == ["mnist", "extreme"]
    assert "| 0.200 | 1.20 | 3.30 | 20.0×, 4.17×, 2.15× |" in re.sub(" +", " ", lines[2])
    assert lines[-1].count("A 1, 1 thread") == 1


def test_a_full_result_replaces_a_partial_one_and_never_the_reverse(tmp_path, settle, runs_of):
    words = ["case=mnist", "paths.outputs=/tmp/x", "threads=1", "format=json"]
    assert settings(words) == ""
    part = result(settings=settings([*words, "only=[msbp]", "seconds=1"]))
    assert "gives way to a full one" in remarks(part)[0]
    assert command(part) == "python -m src.bench case=mnist 'only=[msbp]' seconds=1 repetitions=1"
    assert write(tmp_path, part) and write(tmp_path, part | {"commit": "b" * 10})
    assert read_benchmarks(tmp_path, []) == [part | {"commit": "b" * 10}]
    with pytest.raises(ValueError, match=r"mnist \('only=\[msbp\]' seconds=1\): only full benchmarks"):
        publish_benchmarks(tmp_path, tmp_path / "published/bench.json")
    wanted = {"benchmarks": [{"case": "mnist", "sweep": None}]}
    assert Sources(runs_of([]), settle, [part]).missing(wanted)
    assert write(tmp_path, result()) and write(tmp_path, part) == []
    assert read_benchmarks(tmp_path, []) == [result()]


@pytest.mark.parametrize("sweep", [None, "k"])
def test_tables_and_figures_use_the_result_with_default_options(sweep, settle, runs_of):
    usual, wanted = result(sweep=sweep), {"case": "mnist", "sweep": sweep}
    others = [{"threads": 2}, {"allocator": "default"}, {"settings": "seconds=1"}]
    others = [result(sweep=sweep, **more) for more in others]
    every = [*others, usual, *others]
    assert Sources(runs_of([]), settle, every).benchmark(**wanted) is usual
    without = Sources(runs_of([]), settle, others)
    assert without.benchmark(**wanted) is None and without.missing({"benchmarks": [wanted]})


def test_a_damaged_file_stops_publishing_and_is_not_changed(tmp_path):
    write(tmp_path / "bench", result())
    (tmp_path / "bench.json").write_text("[5]")
    with pytest.raises(ValueError, match=r"repair or remove first: .*bench.json result 1: Case: Input"):
        publish_benchmarks(tmp_path / "bench", tmp_path / "bench.json")
    assert (tmp_path / "bench.json").read_text() == "[5]"


GOOD = json.dumps(result())
POINTLESS = json.dumps(sweep() | {"points": [5]})


@pytest.mark.parametrize(
    "content",
    [
        b"{", b"", b"[]", b"5", b"null", b'{"a": 1}', b"\xff", b"[" * 10**5, GOOD[:300].encode(),
        *(GOOD.replace(old, new).encode() for old, new in (
            ("4.0", "NaN"), ('"bp_ms"', '"bq_ms"'), ('{"net.0": 20, "net.3": 20}', "[20, 20]"),
            ('"vs_dense": null', '"vs_dense": {}'), ('"threads": 1', '"threads": "1"'), ('"rows"', '"lines"'),
        )),
        POINTLESS.encode(), None,
    ],
)  # fmt: skip
def test_a_file_without_a_result_is_named_and_the_others_are_read(tmp_path, settle, content):
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "good.json").write_text(GOOD)
    bad = tmp_path / "bench" / "x.json"
    bad.mkdir() if content is None else bad.write_bytes(content)
    found = runs.own(tmp_path, tmp_path / "published", settle)
    assert found.benchmarks == [result()]
    (told,) = found.damaged
    assert told.startswith(f"{bad}: ")


def test_a_damaged_published_file_is_named(tmp_path, settle):
    (tmp_path / "bench.json").write_text(GOOD[:300])
    found = runs.published(tmp_path, settle)
    assert not found.benchmarks and found.damaged[0].startswith(f"{tmp_path / 'bench.json'}: not whole JSON")


@pytest.mark.parametrize(
    ("more", "expected", "words"),
    [
        ({}, "mnist-breakdown", " breakdown=true"),
        ({"row": "dense"}, "mnist-breakdown-of-dense", " breakdown=dense"),
        ({"threads": 2}, "mnist-breakdown-2-threads", " breakdown=true threads=2"),
    ],
)
def test_a_breakdown_is_named_and_repeated_by_its_row(more, expected, words):
    assert name(breakdown(**more)) == expected
    assert command(breakdown(**more)) == f"python -m src.bench case=mnist{words}"
    assert settings(words.split()) == "" and remarks(breakdown(**more)) == []


def test_a_breakdown_has_a_line_for_every_part_and_the_step():
    text = breakdown_section([breakdown()])
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    assert cells[2:] == [
        ["forward", "products", "0.500", "50.0%", "2.00", "20.0", "4.00", "40.0", "50% of GFLOP/s"],
        ["", "Python between", "0.100", "10.0%", "–", "–", "–", "–", "–"],
        ["update", "rows with gradient", "0.400", "40.0%", "8.00", "1.00", "20.0", "2.50", "50% of GB/s"],
        ["step", "", "1.00", "100.0%", "10.0", "21.0", "10.0", "21.0", "26% of GFLOP/s"],
    ]
    assert "## Where a step goes" in text and "rates 80.0 GFLOP/s and 40.0 GB/s" in text
    assert "products" in table(breakdown()) and breakdown_section([]) == ""


def test_a_breakdown_compares_rows_that_lie_apart_with_the_rate_of_such_rows():
    text = breakdown_section([breakdown(rows_gb_s=25.0)])
    shares = [line.split("|")[-2].strip() for line in text.splitlines() if "|" in line][2:]
    assert shares == ["50% of GFLOP/s", "–", "80% of GB/s", "26% of GFLOP/s"]
    assert "40.0 GB/s, 25.0 GB/s by rows" in text


def test_a_partial_benchmark_replaces_no_damaged_file(tmp_path, caplog):
    path = tmp_path / "mnist.json"
    path.write_text(json_text(result() | {"threads": "one"}))
    before = path.read_bytes()
    assert write(tmp_path, result(settings="seconds=1")) == []
    assert path.read_bytes() == before and str(path) in caplog.text
    assert path in write(tmp_path, result())


def test_breakdowns_are_published_beside_the_cases_and_read_separately(tmp_path, settle):
    write(tmp_path / "bench", result())
    write(tmp_path / "bench", breakdown())
    lines = list(csv.DictReader((tmp_path / "bench/mnist-breakdown.csv").read_text().splitlines()))
    assert [float(line["ms"]) for line in lines] == [0.5, 0.1, 0.4] and lines[0]["row"] == "msbp"
    publish_benchmarks(tmp_path / "bench", tmp_path / "published/bench.json")
    for found in (runs.published(tmp_path / "published", settle), runs.own(tmp_path, tmp_path / "x", settle)):
        assert found.benchmarks == [result()] and found.breakdowns == [breakdown()]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"step_ms": 1.1}, "parts sum to 1.00000 ms, and step_ms is 1.10000"),
        ({"parts": []}, "parts: "),
        ({"peak_gb_s": 0.0}, "peak_gb_s: "),
        ({"row": None}, "row: "),
        ({"parts": [breakdown()["parts"][0] | {"ms": -1.0}]}, "parts.0.ms: "),
        ({"parts": [breakdown()["parts"][0] | {"flops": 1.5}]}, "parts.0.flops: "),
    ],
)
def test_a_breakdown_that_does_not_add_up_is_refused(more, words):
    assert checked(breakdown())
    with pytest.raises(ValueError, match=words):
        checked(breakdown(**more))
