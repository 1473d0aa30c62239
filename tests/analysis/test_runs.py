"""Records, angles and benchmarks as they are read, and the DataFrame of all runs."""

import json
from pathlib import Path

import pytest

from msbp.analysis.runs import COLUMNS, frame, own, published, read_runs
from msbp.config import ROOT


def leave(folder, text):
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(text, encoding="utf-8")


def test_runs_are_read_at_any_depth_and_sorted_by_seed(tmp_path, record_of):
    for seed in (2, 0, 1):
        leave(tmp_path / "sweeps" / "x" / str(seed), json.dumps(record_of(seed=seed)))
    assert list(frame(tmp_path).seed) == [0, 1, 2]


def test_the_frame_has_fields_and_what_follows_from_them():
    published_records = ROOT / "outputs/published/records.jsonl"
    runs = frame(published_records)
    assert list(runs) == list(COLUMNS)
    assert len(runs) == len(published_records.read_text(encoding="utf-8").splitlines())
    assert (runs.bp_update_s == runs.bp_s + runs.update_s).all()
    assert not runs.duplicated(["signature", "seed"]).any()
    assert set(runs.method[runs.r.isna()]) == {"baseline", "adaptive"}  # of the latter k follows the gradient
    assert runs.r[runs.method.isin(["sbp", "msbp"])].notna().all()


@pytest.mark.parametrize(
    "cut",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"test": 98.2', '"test": NaN'),
        lambda text: text.replace('"test": 98.2', '"test": 1e999'),
        lambda text: text.replace('"test": 98.2', '"test": "98.2"'),
        lambda text: text.replace('"seed": 0', '"seed": true'),
        lambda text: text.replace('"commit"', '"comet"'),
        lambda text: text.replace('"resumed": false', '"disturbed": 5'),
        lambda text: text.replace('"EPYC"', r'"x\ud800"'),
    ],
    ids=["half", "empty", "list", "nan", "infinite", "text", "bool", "key", "disturbed", "half a letter"],
)
def test_a_damaged_record_is_named_once_and_the_others_are_read(tmp_path, record_of, caplog, cut):
    leave(tmp_path / "good", json.dumps(record_of(seed=1)))
    leave(tmp_path / "bad", cut(json.dumps(record_of(seed=0))))
    assert list(frame(tmp_path).seed) == [1]
    (warning,) = caplog.messages
    assert str(tmp_path / "bad" / "record.json") in warning


NEVER = {  # numbers that no run can have
    "seed": (-1, 2**63, 10**30), "r": (0, -1.0, 1.5), "gamma": (-0.1, 9.0), "hidden": (0, -5, 10**40),
    "k_per_layer": ({"a": -1}, {"a": 10**40}), "bp_s": (-1.0, 1e308), "total_s": (-1.0, 1e15),
    "timing_rule": (0,), "dev": (-5.0, 100.1), "test": (-5.0, 1e308), "test_last": (101,),
    "best_epoch": (0, -3, 10**40), "steps": (0, -1), "threads": (0, -1, 10**40),
    "history": ([{"test_bleu_tok": 1e308}], [{"loss": 10**400}]),
    "dropped_fraction": ({"a": {"entries": 1.5, "squared_norm": 0.0}},),
    "config": ({"method": {"name": "sbp", "r": 10**400}},),
}  # fmt: skip


@pytest.mark.parametrize(("key", "value"), [(key, value) for key in NEVER for value in NEVER[key]], ids=ascii)
def test_a_record_with_a_number_that_no_run_can_have_is_named_with_its_key(tmp_path, record_of, key, value):
    leave(tmp_path / "bad", json.dumps(record_of(**{"seed": 0} | {key: value})))
    damaged = []
    assert read_runs(tmp_path, damaged).empty
    (sentence,) = damaged
    assert str(tmp_path / "bad" / "record.json") in sentence and key in sentence


@pytest.mark.parametrize(("key", "value"), [("epoch", 10**40), ("epoch", 0), ("step", -1), ("seed", -7)])
def test_a_diverged_run_with_such_a_number_is_named(tmp_path, key, value):
    run = {"signature": "5e77e000", "seed": 3, "epoch": 1, "step": 2, "reason": "the loss is nan"}
    (tmp_path / "diverged.json").write_text(json.dumps(run | {key: value}), encoding="utf-8")
    sources = own(tmp_path, tmp_path / "published", lambda words: None)
    assert sources.diverged.empty and f"diverged.json: {key}" in sources.damaged[0]


def test_a_record_that_cannot_be_opened_is_named(tmp_path, caplog):
    (tmp_path / "record.json").mkdir()
    assert frame(tmp_path).empty and "record.json" in caplog.text


def test_diverged_runs_are_read_from_their_folders(tmp_path):
    measured = {"signature": "5e77e000", "seed": 3, "epoch": 1, "step": 2, "reason": "the loss is nan"}
    for name, text in (("a", json.dumps(measured)), ("b", "{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "diverged.json").write_text(text, encoding="utf-8")
    sources = own(tmp_path, tmp_path / "published", lambda words: None)
    assert sources.diverged.to_dict("records") == [measured]
    assert [sentence for sentence in sources.damaged if "diverged.json" in sentence]


def test_the_newer_of_two_runs_with_equal_seeds_is_used(tmp_path, record_of):
    leave(tmp_path / "a", json.dumps(record_of(test=98.5, started_at="2025-02-02T00:00:00+00:00")))
    leave(tmp_path / "b", json.dumps(record_of(test=97.5, started_at="2025-02-01T00:00:00+00:00")))
    assert list(frame(tmp_path).test) == [98.5]


def test_own_runs_and_published_ones_are_never_mixed(tmp_path, record_of):
    (tmp_path / "published").mkdir()
    lines = tmp_path / "published" / "records.jsonl"
    lines.write_text(json.dumps(record_of(seed=7)) + "\n", encoding="utf-8")
    leave(tmp_path / "runs" / "x", json.dumps(record_of(seed=8)))
    assert list(frame(tmp_path).seed) == [8] and list(frame(lines).seed) == [7]


def test_a_damaged_published_line_is_named_by_its_number(tmp_path, record_of):
    lines, damaged = tmp_path / "records.jsonl", []
    lines.write_text(json.dumps(record_of()) + '\n\n{"signature": "5e', encoding="utf-8")
    assert len(read_runs(lines, damaged)) == 1
    assert "records.jsonl line 3" in damaged[0]


def test_a_missing_folder_or_file_gives_no_runs(tmp_path):
    assert frame(tmp_path / "none").empty and frame(tmp_path / "none.jsonl").empty


def line(step=0, angle=1.0, **config):
    about = {"signature": "5e", "seed": 0, "method": "msbp"} | config
    angles = {"total": angle, "hidden": angle}
    return json.dumps({"config": about, "k": 5, "step": step, "epoch": 0.0, "angle": angles}) + "\n"


@pytest.fixture
def leave_run(tmp_path, record_of):
    """Write the record of a run into a folder, with angles of its seed at this step if any."""

    def leave_run(folder, step=None, **fields):
        record = record_of("5e", **fields)
        leave(tmp_path / folder, json.dumps(record))
        if step is not None:
            (tmp_path / folder / "angles.jsonl").write_text(line(step, seed=record["seed"]))

    return leave_run


def test_own_and_published_angles_are_never_mixed(tmp_path, settle, leave_run, monkeypatch):
    leave_run("runs/a", step=0)
    kept = tmp_path / "published"
    kept.mkdir()
    (kept / "angles.jsonl").write_text(line(seed=1))
    assert list(own(tmp_path, kept, settle).angles.seed) == [0]
    assert list(published(kept, settle).angles.seed) == [1]
    monkeypatch.chdir(tmp_path)  # one folder may be written in several ways
    assert list(own(Path("."), kept, settle).angles.seed) == [0]


def test_angles_are_those_of_the_run_that_counts(tmp_path, settle, leave_run):
    leave_run("sweeps/a/0", step=1, seed=0, started_at="2025-01-01T00:00:00+00:00")
    leave_run("runs/b", step=2, seed=0, started_at="2025-01-02T00:00:00+00:00")
    leave_run("runs/c", step=3, seed=1)
    (tmp_path / "runs/c/record.json").unlink()  # a run that was killed before its record was written
    measured = own(tmp_path, tmp_path / "published", settle)
    assert list(measured.angles.step) == [2]
    assert list(measured.runs.source) == [f"{tmp_path}/runs/b/record.json"]


def test_a_measurement_is_counted_once_and_a_damaged_line_is_named(tmp_path, settle):
    text = line(step=4) + line(step=0) + line(step=4) + '{"config": {"sig\n'
    (tmp_path / "angles.jsonl").write_text(text)
    measured = published(tmp_path, settle)
    assert list(measured.angles.step) == [0, 4]
    assert measured.damaged[0].startswith(f"{tmp_path / 'angles.jsonl'} line 4: no angle")


@pytest.mark.parametrize("newer", ["runs/a", "sweeps/a"])
def test_the_angles_beside_the_newest_record_of_a_run_count(newer, tmp_path, settle, record_of):
    for folder in ("runs/a", "sweeps/a", "sweeps/b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "angles.jsonl").write_text(line(angle=0.9 if folder == newer else 0.1))
    for folder in ("runs/a", "sweeps/a"):  # the run of the third goes on
        year = 2026 if folder == newer else 2025
        record = record_of("5e", started_at=f"{year}-01-01T00:00:00+00:00")
        (tmp_path / folder / "record.json").write_text(json.dumps(record))
    assert list(own(tmp_path, tmp_path / "published", settle).angles.total) == [0.9]


def test_no_measurements_are_no_error(tmp_path, settle):
    measured = own(tmp_path, tmp_path / "published", settle)
    assert measured.runs.empty and not measured.benchmarks and measured.angles.empty


def test_an_incomplete_line_of_angles_is_named_and_the_others_are_read(tmp_path, settle, leave_run):
    whole = json.loads(line())
    bad = [{key: value for key, value in whole.items() if key != without} for without in whole]
    bad += [whole | {key: odd} for key in whole for odd in (None, [], {}, "x")]
    text = "".join(json.dumps(each) + "\n" for each in bad).encode() + b"\xff\n[]\n5\n"
    (tmp_path / "angles.jsonl").write_bytes(text + line(step=7).encode())
    measured = published(tmp_path, settle)
    assert list(measured.angles.step) == [7]
    assert len(measured.damaged) == len(bad) + 3
    leave_run("runs")
    (tmp_path / "runs" / "angles.jsonl").mkdir()
    assert "angles.jsonl: " in own(tmp_path / "runs", tmp_path / "published", settle).damaged[0]
