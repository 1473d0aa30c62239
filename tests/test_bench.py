"""The command line: `python -m src.bench`, its results, output and refusals."""

import csv
import json
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from overridden import overridden

from msbp import measurements
from msbp.analysis import benchmarks
from msbp.analysis.runs import own
from msbp.analysis.theory import complexity
from msbp.bench import case
from msbp.bench.case import BenchOptions, configuration, measure, refuse_idle
from msbp.bench.timed_model import Reporter
from msbp.config import CONF, compose
from msbp.tasks import mnist
from msbp.training import machine
from src.bench import main

QUICK = ("seconds=0", "repetitions=1", "block=2", "settle=1", "warmup=0", "paths.offline=true")
TINY = 'overrides=["task.sample=tiny","model.hidden=20","task.batch_size=8"]'
NUMBERS = {
    "forward_ms", "bp_ms", "update_ms", "total_ms", "bp_p10_ms", "bp_p90_ms", "bp_gflops", "peak_mib",
}  # fmt: skip
CASES = sorted(path.stem for path in Path(CONF, "case").glob("*.yaml"))
SWEEPS = sorted(path.stem for path in Path(CONF, "sweep").glob("*.yaml"))


def options(*overrides):
    return BenchOptions.of(compose(overrides, config="bench"))


def bench(*overrides):
    return measure(options(*QUICK, TINY, *overrides), Reporter())


@pytest.fixture(scope="module")
def result():
    return bench("only=[torch,dense,sbp,msbp,same_engine,unified]")


def test_stdout_is_one_json_object_and_the_files_hold_it(tmp_path, monkeypatch, capfd):
    words = [*QUICK, TINY, "format=json", "only=[torch,sbp]", f"paths.outputs={tmp_path}/out"]
    monkeypatch.setattr(sys, "argv", ["src.bench", *words])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    main()
    done = capfd.readouterr()
    printed = json.loads(done.out)
    assert printed == json.loads((tmp_path / "out/bench/mnist.json").read_text())
    rows = list(csv.DictReader((tmp_path / "out/bench/mnist.csv").read_text().splitlines()))
    assert [float(row["bp_ms"]) for row in rows] == [row["bp_ms"] for row in printed["rows"]]
    assert "warming up" in done.err and str(tmp_path / "out/bench/mnist.json") in done.err


def test_a_result_has_the_documented_rows_and_fields(result):
    assert {"torch", "dense", "sbp", "msbp"} <= {row["name"] for row in result["rows"]}
    for row in result["rows"]:
        assert all(row[number] > 0 for number in NUMBERS - {"peak_mib"}), row
        assert row["peak_mib"] >= 0 and row["bp_p10_ms"] <= row["bp_ms"] <= row["bp_p90_ms"]
        for comparison in ("vs_torch", "vs_dense"):
            assert set(row[comparison]) == {"bp", "bp_update", "total"}
    assert result["timing_rule"] == 2 and measurements.checked(result) is result


def test_a_result_says_where_it_was_measured(result):
    assert (result["case"], result["threads"], result["sweep"]) == ("mnist", 1, None)
    for fact in ("cpu", "machine", "torch", "blas", "allocator", "commit", "dirty", "started_at"):
        assert result[fact] not in (None, "")


def test_a_comparison_row_is_as_fast_as_itself(result):
    rows = {row["name"]: row for row in result["rows"]}
    for name in ("torch", "dense"):
        assert rows[name][f"vs_{name}"] == {"bp": 1, "bp_update": 1, "total": 1}
        assert rows["msbp"][f"vs_{name}"]["bp"] == pytest.approx(
            rows[name]["bp_ms"] / rows["msbp"]["bp_ms"], rel=1e-3
        )


def test_ratios_are_left_out_without_the_comparison_row():
    (row,) = bench("only=msbp")["rows"]
    assert row["vs_torch"] is None and row["vs_dense"] is None


def test_rows_keep_the_entries_that_they_name(result):
    kept = {row["name"]: set(row["k_per_layer"].values()) for row in result["rows"]}
    assert kept["sbp"] == kept["msbp"] == kept["unified"] == {1}  # .04 of 20
    assert kept["dense"] == kept["same_engine"] == {20}


def test_every_repetition_keeps_its_medians():
    result = bench("only=[torch,msbp]", "repetitions=2", "seed=5")
    assert [repetition["seed"] for repetition in result["repetitions"]] == [5, 6]
    for repetition in result["repetitions"]:
        assert [row["name"] for row in repetition["rows"]] == ["torch", "msbp"] and repetition[
            "cpu_share"
        ] > 0
        for row in repetition["rows"]:
            assert row["bp_ms"] + row["update_ms"] > 0 and row["total_ms"] > row["bp_update_ms"] > 0
    assert [row["steps"] for row in result["rows"]] == [2 * 3, 2 * 3]  # the three rounds of each
    assert result["protocol"]["repetitions"] == 2
    assert "repetitions=2" in benchmarks.command(result) and not benchmarks.settings(["repetitions=2"])


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
    chosen = options(f"sweep={sweep}")
    assert chosen.sweep.name == sweep
    if chosen.sweep.key == "threads":
        assert chosen.sweep.values == sorted(
            {min(count, machine.cores()) for count in (1, 2, machine.cores())}
        )
        return
    if chosen.sweep.key == "warmup":
        assert chosen.sweep.values == sorted(chosen.sweep.values)
        return
    last = chosen.sweep.values[-1]
    row = compose([*chosen.case.overrides, f"{chosen.sweep.key}={last}"])
    assert OmegaConf.select(row, chosen.sweep.key) == last and len(chosen.sweep.values) > 2


def test_a_breakdown_is_printed_and_left_beside_the_cases(tmp_path, monkeypatch, capfd):
    words = ["seconds=0", "warmup=0", "paths.offline=true", TINY, "breakdown=dense"]
    monkeypatch.setattr(sys, "argv", ["src.bench", *words, f"paths.outputs={tmp_path}/out"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    main()
    printed = capfd.readouterr().out
    left = json.loads((tmp_path / "out/bench/mnist-breakdown-of-dense.json").read_text())
    assert measurements.checked(left)["row"] == "dense" and "GFLOP/s and " in printed
    assert all(part["part"] in printed for part in left["parts"])
    assert (tmp_path / "out/bench/mnist-breakdown-of-dense.csv").exists()


def test_a_sweep_measures_every_value_and_keeps_more_with_a_larger_ratio():
    result = bench("sweep=k", "sweep.values=[0.1,0.5]", "only=[torch,msbp]", "seconds=0")
    assert [point["value"] for point in result["points"]] == [0.1, 0.5]
    kept = [point["rows"][1]["k_per_layer"]["net.0"] for point in result["points"]]
    assert kept == [2, 10] and result["key"] == "paper.r"
    assert benchmarks.name(result) == "mnist-by-k"


def test_a_sweep_over_warmup_trains_for_so_many_steps_before_the_first_timed_one(monkeypatch):
    begun, timed = [], case.interleave

    def recorded(models, *args):
        begun.append([model.run.state.step for model in models])
        return timed(models, *args)

    monkeypatch.setattr(case, "interleave", recorded)
    result = bench(
        "sweep=warmup", "sweep.values=[0,7]", "only=[dense,msbp]", "settling={msbp:3}", "seconds=0"
    )
    assert begun == [[0, 0], [7, 7]]
    assert result["key"] == "warmup" and benchmarks.name(result) == "mnist-by-warmup"
    assert result["protocol"].keys() == {"seconds", "repetitions", "block", "settle", "cycle"}
    earlier = result | {"protocol": result["protocol"] | {"warmup": 100, "settling": {"msbp": 700}}}
    assert measurements.checked(result) is result and measurements.checked(earlier) is earlier


IDLE = [  # words that choose what is measured, and those that have no effect on it
    (["sweep=warmup"], ["settling.msbp=5"]), (["sweep=warmup"], ["+settling.dense=5"]),
    (["sweep=warmup"], ["settling={msbp:5}"]), (["sweep=warmup"], ["~settling.msbp"]),
    (["sweep=warmup"], ["warmup=7"]), (["sweep=warmup"], ["settling.msbp=5", "warmup=7"]),
    (["breakdown=true"], ["only=[dense]"]), (["breakdown=dense"], ["only=dense"]),
    (["breakdown=true"], ["repetitions=9"]), (["breakdown=true"], ["block=20", "settle=5"]),
]  # fmt: skip


@pytest.mark.parametrize(("measured", "idle"), IDLE, ids=lambda words: " ".join(words))
def test_words_without_effect_are_refused_in_a_line_before_work(tmp_path, monkeypatch, measured, idle):
    monkeypatch.setattr(sys, "argv", ["src.bench", *measured, *idle, f"paths.outputs={tmp_path}/out"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ValueError) as refused:
        main()
    where = "where sweep.key=warmup" if measured == ["sweep=warmup"] else "on a breakdown"
    assert str(refused.value) == f"{' '.join(idle)} has no effect {where}; leave it out"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("measured", ["sweep=warmup", "breakdown=true"])
def test_a_case_may_set_what_has_no_effect_on_one_measurement_of_it(measured):
    words = ["case=extreme", measured, "seconds=3", 'overrides=["task.warmup=1"]']
    refuse_idle(options(*words), words)


def test_a_breakdown_may_have_any_cycle():
    assert options("breakdown=true", "cycle=3").cycle == 3


def test_an_interrupted_sweep_keeps_the_values_that_were_timed_as_a_partial_one(tmp_path, monkeypatch, capfd):
    def interrupted(options, setting, *args):
        if setting == ["paper.r=0.5"]:
            raise KeyboardInterrupt
        return timed(options, setting, *args)

    timed = case.point
    monkeypatch.setattr(case, "point", interrupted)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    words = [*QUICK, TINY, "only=[dense,msbp]", "sweep=k", f"paths.outputs={tmp_path}"]
    monkeypatch.setattr(sys, "argv", ["src.bench", *words, "sweep.values=[0.5,0.1]"])
    with pytest.raises(KeyboardInterrupt, match="^$"):  # nothing was timed before
        main()
    assert not list((tmp_path / "bench").iterdir())
    monkeypatch.setattr(sys, "argv", ["src.bench", *words, "sweep.values=[0.1,0.2,0.5,1.0]"])
    with pytest.raises(KeyboardInterrupt, match="of the sweep these values were timed: 0.1, 0.2$"):
        main()
    kept = json.loads((tmp_path / "bench/mnist-by-k.json").read_text())
    assert measurements.checked(kept) is kept and [point["value"] for point in kept["points"]] == [0.1, 0.2]
    assert kept["settings"].endswith(" 'sweep.values=[0.1,0.2]'")
    assert "a partial benchmark, for " in capfd.readouterr().err
    measured = own(tmp_path, tmp_path / "published", lambda words: None)
    lacking = measured.missing_benchmarks({"benchmarks": [{"case": "mnist", "sweep": "k"}]})
    assert lacking == ["python -m src.bench case=mnist sweep=k"]


@pytest.mark.parametrize(
    ("key", "values", "refusal"),
    [
        ("model.hidden", "[20,-3]", "model.hidden must be greater than or equal to 1, got -3"),
        ("model.dropout", "[0.1,5]", "model.dropout must be less than 1, got 5"),
        ("paper.r", "[0.1,2]", "method.r must be less than or equal to 1"),
        ("optimizer.lr", "[0.001,-1]", "optimizer: Invalid learning rate: -1"),
        ("task.batch_size", "[8,16]", "sweep.key=task.batch_size: row torch has 8 in place of 16"),
        ("seed", "[0,1]", "sweep.key=seed: row torch has 0 in place of 1"),
        ("trainer.threads", "[1,2]", "sweep.key=trainer.threads: row torch has 1 in place of 2"),
    ],
)
def test_a_sweep_refuses_a_value_that_no_row_can_have_before_it_times_the_first(
    monkeypatch, key, values, refusal
):
    monkeypatch.setattr(case, "point", lambda *_: pytest.fail("a point was timed"))
    overrides = 'overrides=["task.sample=tiny","task.batch_size=8"]'
    with pytest.raises(ValueError, match=re.escape(refusal)):
        measure(
            options(*QUICK, overrides, "sweep=k", f"sweep.key={key}", f"sweep.values={values}"), Reporter()
        )


def test_a_sweep_shows_each_value_when_it_has_been_timed(capfd):
    bench("sweep=warmup", "sweep.values=[0,1]", "only=[dense,msbp]", "seconds=0")
    lines = capfd.readouterr().err.splitlines()
    shown = [
        line for line in lines if re.match(r"warmup=[01]: BP dense \S+ of \S+ ms, msbp \S+ of \S+ ms$", line)
    ]
    assert [line[:9] for line in shown] == ["warmup=0:", "warmup=1:"]
    assert sum(line == "warming up dense, msbp" for line in lines) == 2


@pytest.mark.parametrize("value", ["-1", "0.5", "many"])
def test_a_sweep_over_warmup_refuses_what_is_no_number_of_steps(value):
    with pytest.raises(ValueError, match=r"sweep\.values must be numbers of steps where sweep\.key=warmup"):
        options("sweep=warmup", f"sweep.values=[{value}]")


def test_a_sweep_over_threads_sets_them_for_each_point(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 2)
    counts, set_up = [], machine.set_up

    def recorded(threads, *args, **kwargs):
        counts.append(threads)
        return set_up(threads, *args, **kwargs)

    monkeypatch.setattr(machine, "set_up", recorded)
    try:
        result = bench("sweep=threads", "only=msbp")
    finally:
        torch.set_num_threads(1)
    assert counts == [1, 1, 2] and [point["value"] for point in result["points"]] == [1, 2]
    assert result["key"] == "threads" and benchmarks.name(result) == "mnist-by-threads"


@pytest.mark.parametrize("words", [(), ("sweep=k", "sweep.values=[0.1,0.5]")], ids=["case", "sweep"])
def test_times_are_shown_and_written_where_memory_cannot_be_measured(tmp_path, monkeypatch, capfd, words):
    monkeypatch.setattr(case, "trial", lambda make: os.kill(os.getpid(), signal.SIGKILL))
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    given = [*QUICK, TINY, "only=[dense,msbp]", f"paths.outputs={tmp_path}", *words]
    monkeypatch.setattr(sys, "argv", ["src.bench", *given])
    main()
    assert "vs dense" in capfd.readouterr().out
    measured = own(tmp_path, tmp_path / "published", lambda overrides: None)
    assert not measured.damaged
    (found,) = measured.benchmarks
    assert {row["peak_mib"] for point in benchmarks.points(found) for row in point["rows"]} == {None}
    about = {"name": "c", "caption": "C", "inputs": 784, "outputs": 10}
    listed = {"benchmarks": [{"case": "mnist", "sweep": found["sweep"]}]}
    if words:
        whole = replace(measured, benchmarks=[found | {"settings": ""}])
        assert set(complexity(about | listed, whole).numbers.mib.isna()) == {True}
    assert benchmarks.markdown([found]) and benchmarks.comma_separated(found)


def test_names_of_cases_lead_to_no_other_folder():
    name = benchmarks.name(bench("case.name=../x/y", "only=torch"))
    assert name.endswith("x_y") and "/" not in name and ".." not in name


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("format=xml", "format must be 'table' or 'json', got 'xml'"),
        ("allocator=none", "allocator must be 'keep' or 'default', got 'none'"),
        ("seconds=-1", "seconds must be greater than or equal to 0, got -1"),
        ("seconds=inf", "seconds must be a finite number, got inf"),
        ("seconds=x", "seconds must be a number, got 'x'"),
        ("repetitions=0", "repetitions must be greater than 0, got 0"),
        ("block=1", "block must be greater than settle=1, got 1"),
        ("cycle=2", "cycle=2 must divide block - settle, which is 1"),
        ("warmup=1.5", "warmup must be a whole number, got 1.5"),
        ("only=[]", "only must be text or have at least 1 item"),
        ("only=[tensorflow]", "only: no row tensorflow; there are torch, dense"),
        ("only=tensorflow", "only: no row tensorflow; there are torch, dense"),
        ("only=3", "only must be text or a list, got 3; leave it out to measure all rows"),
        ("breakdown=mspb", "breakdown: no row mspb; there are torch, dense"),
        ("breakdown=3", "breakdown must be true or false or text, got 3; true, or a row whose step"),
        ("breakdown=null", "breakdown must be true or false or text, got None"),
        ("+settling.mspb=3", "settling: no row mspb; there are torch, dense"),
        ("threads=99999", "threads=99999, but"),
        ("threads=0", "threads must be a whole number of at least 1, got 0"),
        ("case.name=null", "case.name must be text, got None"),
        ("case.overrides=null", "case.overrides must be a list, got None"),
        ("~case", "case is missing"),
        ("rows=null", "rows must be a node of lists of overrides by name, got None"),
        ("rows.msbp=3", "rows.msbp must be a list, got 3"),
        ("+sweep={name:a,key:b,values:[]}", "sweep.values must have at least 1 item"),
        (
            "+sweep={name:a,key:threads,values:[0]}",
            "sweep.values must be a whole number of at least 1, got 0",
        ),
        ("+second=3", "there is no key second; there are "),
        ("+paths.anything=3", "there is no key paths.anything; there are "),
        ("seed=-1", "seed must be greater than or equal to 0, got -1"),
    ],
)
def test_a_wrong_option_is_refused_in_a_sentence_before_work(wrong, words):
    with pytest.raises(ValueError) as refusal:
        BenchOptions.of(overridden(*QUICK, TINY, wrong, config="bench"))
    assert str(refusal.value).startswith(words) and "\n" not in str(refusal.value)


def test_a_sweep_has_no_breakdown():
    with pytest.raises(ValueError, match="breakdown=True is of a case alone; leave sweep or breakdown out"):
        options("sweep=k", "breakdown=true")


def test_threads_are_not_set_beside_a_sweep_over_them(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 2)
    with pytest.raises(ValueError, match=r"threads=2 has no effect where sweep\.key=threads; leave it out"):
        options("sweep=threads", "threads=2")


def test_all_paths_of_a_run_can_be_given_and_reach_a_row(tmp_path):
    paths = set(compose().paths)
    given = [f"paths.{key}={tmp_path}/{key}" for key in paths - {"offline"}] + ["paths.offline=true"]
    row = configuration(options(*given), [], "msbp")
    assert row.paths == {key: f"{tmp_path}/{key}" for key in paths} | {"offline": True}


def test_missing_data_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "BUNDLED", tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"no train-images-idx3-ubyte\.gz"):
        bench("overrides=[]", "only=msbp", f"paths.data={tmp_path}")
