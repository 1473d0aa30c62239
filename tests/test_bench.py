"""The command line: what `python -m src.bench` measures, prints, leaves and refuses."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from msbp.analysis import benchmarks
from msbp.bench.case import configuration, measure
from msbp.bench.progress import Voice
from msbp.config import CONF, compose
from msbp.tasks import mnist

ROOT = Path(__file__).resolve().parents[1]
QUICK = ("seconds=0", "block=2", "settle=1", "warmup=0", "paths.offline=true")
TINY = 'overrides=["task.sample=tiny","model.hidden=20","task.batch_size=8"]'
NUMBERS = {
    "forward_ms", "bp_ms", "update_ms", "total_ms", "bp_p10_ms", "bp_p90_ms", "bp_materialised_ms",
    "bp_gflops", "peak_mib",
}  # fmt: skip
CASES = sorted(path.stem for path in Path(CONF, "case").glob("*.yaml"))
SWEEPS = sorted(path.stem for path in Path(CONF, "sweep").glob("*.yaml"))


def bench(*overrides):
    return measure(compose([*QUICK, TINY, *overrides], config="bench"), Voice())


@pytest.fixture(scope="module")
def result():
    return bench("only=[torch,dense,sbp,msbp,same_engine,unified]")


def test_stdout_is_one_json_object_and_the_files_hold_it(tmp_path):
    command = [sys.executable, "-m", "src.bench", *QUICK, TINY, "format=json", "only=[torch,sbp]"]
    command += [f"paths.outputs={tmp_path}/out"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed == json.loads((tmp_path / "out/bench/mnist.json").read_text())
    rows = list(csv.DictReader((tmp_path / "out/bench/mnist.csv").read_text().splitlines()))
    assert [float(row["bp_ms"]) for row in rows] == [row["bp_ms"] for row in printed["rows"]]
    assert "warming up" in done.stderr and str(tmp_path / "out/bench/mnist.json") in done.stderr


def test_a_result_has_the_rows_and_fields_that_were_promised(result):
    assert {"torch", "dense", "sbp", "msbp"} <= {row["name"] for row in result["rows"]}
    for row in result["rows"]:
        assert all(row[number] > 0 for number in NUMBERS - {"peak_mib"}), row
        assert row["peak_mib"] >= 0 and row["bp_p10_ms"] <= row["bp_ms"] <= row["bp_p90_ms"]
        for opponent in ("vs_torch", "vs_dense"):
            assert set(row[opponent]) == {"bp", "bp_update", "total"}


def test_a_result_says_where_it_was_measured(result):
    assert (result["case"], result["threads"], result["sweep"]) == ("mnist", 1, None)
    for fact in ("cpu", "machine", "torch", "blas", "allocator", "commit", "dirty", "started_at"):
        assert result[fact] not in (None, "")


def test_an_opponent_is_as_fast_as_itself(result):
    rows = {row["name"]: row for row in result["rows"]}
    for name in ("torch", "dense"):
        assert rows[name][f"vs_{name}"] == {"bp": 1, "bp_update": 1, "total": 1}
        assert rows["msbp"][f"vs_{name}"]["bp"] == pytest.approx(
            rows[name]["bp_ms"] / rows["msbp"]["bp_ms"], rel=1e-3
        )


def test_ratios_are_left_out_without_the_opponent():
    (row,) = bench("only=msbp")["rows"]
    assert row["vs_torch"] is None and row["vs_dense"] is None


def test_rows_keep_the_entries_that_they_name(result):
    kept = {row["name"]: set(row["k_per_layer"].values()) for row in result["rows"]}
    assert kept["sbp"] == kept["msbp"] == kept["unified"] == {1}  # .04 of 20
    assert kept["dense"] == kept["same_engine"] == {20}


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_rows_that_compose(case):
    cfg = compose([f"case={case}"], config="bench")
    assert cfg.case.name == case
    usual = compose(config="bench")
    for name in cfg.only or cfg.rows:
        known = case != usual.case.name and cfg.rows[name] == usual.rows.get(name)
        if known and name not in ("dense", "msbp"):
            continue  # the usual case has shown that it composes
        row = compose([*cfg.case.overrides, *cfg.rows[name]])
        assert row.method._target_ and row.optimizer._target_


@pytest.mark.parametrize("sweep", SWEEPS)
def test_every_sweep_names_a_setting_of_training(sweep):
    cfg = compose([f"sweep={sweep}"], config="bench")
    assert cfg.sweep.name == sweep and len(cfg.sweep["values"]) > 2
    last = cfg.sweep["values"][-1]
    row = compose([*cfg.case.overrides, f"{cfg.sweep.key}={last}"])
    assert OmegaConf.select(row, cfg.sweep.key) == last


def test_a_sweep_measures_every_value_and_keeps_more_with_a_larger_ratio():
    result = bench("sweep=k", "sweep.values=[0.1,0.5]", "only=[torch,msbp]", "seconds=0")
    assert [point["value"] for point in result["points"]] == [0.1, 0.5]
    kept = [point["rows"][1]["k_per_layer"]["net.0"] for point in result["points"]]
    assert kept == [2, 10] and result["key"] == "paper.r"
    assert benchmarks.name(result) == "mnist-by-k"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("format=xml", "format must be one of table, json, got 'xml'"),
        ("allocator=none", "allocator must be one of keep, default"),
        ("seconds=-1", "seconds must be a number of at least 0"),
        ("block=1", "block must be a whole number above settle=1, got 1"),
        ("only=[tensorflow]", "no row tensorflow; there are torch, dense"),
        ("only=tensorflow", "no row tensorflow; there are torch, dense"),
        ("only=3", "only must be text or a list or null, got 3"),
        ("threads=99999", "^threads=99999, but"),
        ("threads=0", "^threads must be a whole number of at least 1, got 0"),
        ("rows.msbp=3", "rows.msbp must be a list, got 3"),
    ],
)
def test_a_wrong_setting_is_refused_in_a_sentence(wrong, words):
    with pytest.raises(Exception, match=words.replace(".", r"\.")):
        bench(wrong)


def test_every_place_of_a_run_can_be_named_and_reaches_a_row(tmp_path):
    places = set(compose().paths)
    given = [f"paths.{key}={tmp_path}/{key}" for key in places - {"offline"}] + ["paths.offline=true"]
    row = configuration(compose(given, config="bench"), [], "msbp")
    assert row.paths == {key: f"{tmp_path}/{key}" for key in places} | {"offline": True}


def test_missing_data_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "BUNDLED", tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="no train-images-idx3-ubyte.gz"):
        bench("overrides=[]", f"paths.data={tmp_path}")
