import json

import pytest

from msbp.analysis.runs import own_runs, published_runs


def leave(folder, text):
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(text, encoding="utf-8")


def test_runs_are_found_at_any_depth_and_sorted_by_seed(tmp_path, record_of):
    for seed in (2, 0, 1):
        leave(tmp_path / "sweeps" / "x" / str(seed), json.dumps(record_of(seed=seed)))
    assert [run["seed"] for run in own_runs(tmp_path).of("5e77e000")] == [0, 1, 2]


@pytest.mark.parametrize(
    "cut",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"test": 98.2', '"test": NaN'),
        lambda text: text.replace('"test": 98.2', '"test": "98.2"'),
        lambda text: text.replace('"seed": 0', '"seed": true'),
        lambda text: text.replace('"commit"', '"comet"'),
    ],
    ids=["half", "empty", "list", "nan", "text", "bool", "key"],
)
def test_a_damaged_record_is_named_and_the_others_count(tmp_path, record_of, cut):
    leave(tmp_path / "good", json.dumps(record_of(seed=1)))
    leave(tmp_path / "bad", cut(json.dumps(record_of(seed=0))))
    runs = own_runs(tmp_path)
    assert [run["seed"] for run in runs.of("5e77e000")] == [1]
    assert len(runs.damaged) == 1
    assert str(tmp_path / "bad" / "record.json") in runs.damaged[0]


def test_a_record_that_cannot_be_opened_is_named(tmp_path):
    (tmp_path / "record.json").mkdir()
    assert "record.json" in own_runs(tmp_path).damaged[0]


def test_of_two_runs_with_one_seed_the_newer_counts(tmp_path, record_of):
    leave(tmp_path / "a", json.dumps(record_of(test=98.5, started_at="2025-02-02T00:00:00+00:00")))
    leave(tmp_path / "b", json.dumps(record_of(test=97.5, started_at="2025-02-01T00:00:00+00:00")))
    assert [run["test"] for run in own_runs(tmp_path).of("5e77e000")] == [98.5]


def test_own_runs_and_published_ones_are_never_mixed(tmp_path, record_of):
    (tmp_path / "published").mkdir()
    lines = tmp_path / "published" / "records.jsonl"
    lines.write_text(json.dumps(record_of(seed=7)) + "\n", encoding="utf-8")
    leave(tmp_path / "runs" / "x", json.dumps(record_of(seed=8)))
    assert [run["seed"] for run in own_runs(tmp_path).of("5e77e000")] == [8]
    assert [run["seed"] for run in published_runs(lines).of("5e77e000")] == [7]


def test_a_damaged_published_line_is_named_by_its_number(tmp_path, record_of):
    lines = tmp_path / "records.jsonl"
    lines.write_text(json.dumps(record_of()) + '\n\n{"signature": "5e', encoding="utf-8")
    runs = published_runs(lines)
    assert len(runs.of("5e77e000")) == 1
    assert "records.jsonl line 3" in runs.damaged[0]


def test_no_folder_and_no_file_are_no_runs(tmp_path):
    assert own_runs(tmp_path / "none").records == published_runs(tmp_path / "none.jsonl").records == {}
