"""Which files are read for own and for published measurements."""

import json
from pathlib import Path

from msbp.analysis.sources import own, published


def line(step=0, **config):
    about = {"signature": "5e", "seed": 0, "method": "msbp"} | config
    return (
        json.dumps(
            {"config": about, "k": 5, "step": step, "epoch": 0.0, "angle": {"total": 1.0, "hidden": 1.0}}
        )
        + "\n"
    )


def test_own_and_published_angles_are_never_mixed(tmp_path, settle, monkeypatch):
    for folder, seed in (("runs/a", 0), ("published", 1)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "angles.jsonl").write_text(line(seed=seed))
    kept = tmp_path / "published"
    assert [angle["config"]["seed"] for angle in own(tmp_path, kept, settle).angles] == [0]
    assert [angle["config"]["seed"] for angle in published(kept, settle).angles] == [1]
    monkeypatch.chdir(tmp_path)  # one folder may be written in several ways
    assert [angle["config"]["seed"] for angle in own(Path("."), kept, settle).angles] == [0]


def test_a_moment_counts_once_and_damage_is_named(tmp_path, settle):
    text = line(step=4) + line(step=0) + line(step=4) + '{"config": {"sig\n'
    (tmp_path / "angles.jsonl").write_text(text)
    found = published(tmp_path, settle)
    assert [angle["step"] for angle in found.angles] == [0, 4]
    assert found.runs.damaged[0].startswith(f"{tmp_path / 'angles.jsonl'} line 4: no angle")


def test_nothing_measured_is_no_error(tmp_path, settle):
    found = own(tmp_path, tmp_path / "published", settle)
    assert not found.runs.records and not found.benchmarks and not found.angles


def test_whatever_a_line_of_angles_lacks_it_is_named_and_the_others_count(tmp_path, settle):
    whole = json.loads(line())
    bad = [{key: value for key, value in whole.items() if key != without} for without in whole]
    bad += [whole | {key: odd} for key in whole for odd in (None, [], {}, "x")]
    text = "".join(json.dumps(each) + "\n" for each in bad).encode() + b"\xff\n[]\n5\n"
    (tmp_path / "angles.jsonl").write_bytes(text + line(step=7).encode())
    found = published(tmp_path, settle)
    assert [angle["step"] for angle in found.angles] == [7]
    assert len(found.runs.damaged) == len(bad) + 3
    (tmp_path / "runs" / "angles.jsonl").mkdir(parents=True)
    assert "angles.jsonl: " in own(tmp_path / "runs", tmp_path / "published", settle).runs.damaged[0]
