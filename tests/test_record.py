"""Records and signatures: what counts, what is written, and what is read back."""

import csv
import json
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from overridden import overridden

from msbp import record
from msbp.config import ROOT, compose
from msbp.record import Record, find, label, parse, settings, signature, summary, write

SAME = [
    "seed=7", "force=true", "paths.data=/x", "paths.outputs=y", "paths.offline=true", "trainer.device=auto",
    "trainer.save_every=5", "trainer.keep_checkpoint=true", "resume=a.pt", "paper.r=0.04", "method.r=0.040",
    "+task.fold=3", "+method.new_key=null", "optimizer.lr=1e-3",
]  # fmt: skip
OTHER = [
    "method.r=0.05", "method.gamma=0.7", "method.memory=per_slot", "method.bias=full", "model.hidden=501",
    "model.dropout=0", "trainer.epochs=21", "task.batch_size=33", "optimizer.lr=0.002", "task.sample=tiny",
    "optimizer._target_=msbp.optim.SGD", "method=sbp", "method=baseline", "method.layers=[net.0]",
    "trainer.clip={_target_:msbp.optim.clip_grad_norm_,_partial_:true,max_norm:5}",
]  # fmt: skip


with open(ROOT / "outputs/published/records.jsonl", encoding="utf-8") as lines:
    PUBLISHED = lines.readline()


def of(*overrides):
    words = ["task=mnist", "method=msbp", *overrides]
    chooses = not overrides or overrides[0] in ("method=sbp", "method=baseline")
    return signature(compose(words) if chooses else overridden(*words))


@pytest.fixture(scope="module")
def plain():
    return of()


@pytest.mark.parametrize("override", SAME)
def test_settings_without_effect_on_training_do_not_change_the_signature(plain, override):
    assert of(override) == plain


@pytest.mark.parametrize("override", OTHER)
def test_every_hyperparameter_changes_the_signature(plain, override):
    assert of(override) != plain


def test_all_hyperparameters_together_differ_pairwise():
    assert len({of(override) for override in OTHER}) == len(OTHER)


def test_rounding_errors_of_floats_do_not_change_the_signature(plain):
    assert signature({"r": 0.1 + 0.2}) == signature({"r": 0.3}) != signature({"r": 0.3001})
    assert signature({"r": 1}) == signature({"r": 1.0}) != signature({"r": True})


def test_the_order_of_keys_does_not_matter():
    cfg = settings(compose(["task=mnist"]))
    turned = {key: cfg[key] for key in reversed(cfg)}
    assert signature(turned) == signature(cfg)


def test_moving_a_class_to_another_module_keeps_old_records():
    one, other = ({"optimizer": {"_target_": f"msbp.{module}.Adam"}} for module in ("optim", "adam"))
    assert signature(one) == signature(other)
    assert signature({"optimizer": {"_target_": "torch.optim.Adam"}}) != signature(one)


def test_a_record_carries_the_settings_that_give_its_signature_and_no_path():
    cfg = compose(["task=mnist", "paths.data=/secret/place"])
    assert signature(settings(cfg)) == signature(cfg)
    assert "secret" not in json.dumps(settings(cfg)) and "outputs/" not in json.dumps(settings(cfg))


keys = st.text("abc", min_size=1, max_size=3)
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("xyz", max_size=3)
trees = st.recursive(values | st.lists(values, max_size=3), lambda t: st.dictionaries(keys, t, max_size=3))


@given(st.dictionaries(keys, trees, max_size=4))
def test_a_signature_is_8_hex_digits_and_survives_json(tree):
    result = signature(tree)
    assert len(result) == 8 and int(result, 16) >= 0
    assert signature(json.loads(json.dumps(tree))) == result


def finished(seed=0, started="2026-01-01T00:00:00+00:00", **fields):
    """A complete record: the fields of a published one, and a history."""
    rows = [{"epoch": 1, "loss": 0.5, "test": None}, {"epoch": 2, "loss": 0.25, "test": 97.5}]
    own = {"signature": "0123abcd", "seed": seed, "started_at": started, "history": rows}
    own |= {"best_epoch": 2, "data_digest": ""}  # that of the published one may change with what is published
    return json.loads(PUBLISHED) | own | fields


def test_a_record_and_its_csv_read_back(tmp_path):
    path = write(tmp_path, finished(note="γ=0.8"))
    assert json.loads(path.read_text(encoding="utf-8")) == finished(note="γ=0.8")
    rows = list(csv.reader((tmp_path / "history.csv").read_text().splitlines()))
    assert rows == [["epoch", "loss", "test"], ["1", "0.5", ""], ["2", "0.25", "97.5"]]


def test_texts_are_kept_beside_the_record_by_name(tmp_path):
    texts = {"hypotheses.txt": ["tôi", "", "last line\u2028 ."], "references.0.txt": []}
    write(tmp_path, finished(), texts=texts)
    assert (tmp_path / "hypotheses.txt").read_bytes().decode().split("\n")[:-1] == [
        "tôi",
        "",
        "last line\u2028 .",
    ]
    assert not (tmp_path / "references.0.txt").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_json_refuses_leaves_no_record(tmp_path, value):
    with pytest.raises(ValueError):
        write(tmp_path, finished(test=value))
    assert [path.name for path in tmp_path.iterdir()] == ["history.csv"]


def test_a_writer_that_is_killed_leaves_no_half_file(tmp_path):
    source = (
        "import os, signal, sys; from pathlib import Path; from msbp.files import written_whole\n"
        "with written_whole(Path(sys.argv[1]) / 'record.json') as file:\n"
        "    file.write(b'{'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", source, str(tmp_path)])
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "record.json").exists() and find(tmp_path, "0123abcd", 0) is None


def test_a_failed_write_leaves_the_previous_record(tmp_path):
    path = write(tmp_path, finished())
    with pytest.raises(TypeError):
        write(tmp_path, finished(config=object()))
    assert json.loads(path.read_bytes()) == finished() and len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(OSError, match=r"cannot write.*history\.csv"):
        write(tmp_path / "missing", finished())


def test_the_newest_whole_record_of_a_request_is_returned(tmp_path):
    for name, started in (("a", "2026-01-02"), ("b", "2026-01-03"), ("r=0.04, γ", "2026-01-01")):
        (tmp_path / name).mkdir()
        write(tmp_path / name, finished(started=started))
    (tmp_path / "b/record.json").write_bytes((tmp_path / "b/record.json").read_bytes()[:40])
    path, result = find(tmp_path, "0123abcd", 0)
    assert path == tmp_path / "a/record.json" and result["started_at"] == "2026-01-02"
    assert find(tmp_path, "0123abcd", 1) is None and find(tmp_path, "ffffffff", 0) is None
    assert find(tmp_path / "none", "0123abcd", 0) is None


NEEDED = [name for name, field in Record.model_fields.items() if field.is_required()]
WRONG = {
    "r": "0.04", "gamma": [], "test": None, "test_last": float("nan"), "k_per_layer": 3, "bp_s": "abc",
    "steps": 1.5, "started_at": 5, "threads": True, "config": {"a": 1}, "history": {},
    "disturbed": 5, "timing_rule": "2", "data_digest": 7, "dropped_fraction": {"a": {"entries": "x"}},
    "total_s": -1.0, "metric_signature": 3,
}  # fmt: skip


INTERPOLATION = {"method": {"name": "sbp"}, "task": {"words": ["${nope:1}"]}}  # it would be resolved
CHANGES = [
    *({key: ...} for key in NEEDED), *({k: v} for k, v in WRONG.items()),
    {"config": INTERPOLATION}, {"best_epoch": 999},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_record_with_a_field_missing_or_of_the_wrong_type_is_skipped_and_logged(tmp_path, caplog, change):
    damaged = {key: value for key, value in (finished() | change).items() if value is not ...}
    (tmp_path / record.NAME).write_text(json.dumps(damaged))
    assert find(tmp_path, "0123abcd", 0) is None
    assert f"{tmp_path}/record.json does not count as a record: " in caplog.text


def test_the_required_fields_alone_make_a_record_with_a_summary(tmp_path):
    needed = {key: value for key, value in finished().items() if key in NEEDED}
    assert Record.parse(json.dumps(needed)).timing_rule == 1
    assert Record.parse(json.dumps(needed)).data_digest is None
    for whole in (needed, needed | {"r": None, "gamma": None}, finished(k_per_layer={})):
        assert "BP + update" in summary(tmp_path, parse(json.dumps(whole)))


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["method=baseline"], "baseline"),
        (["method=msbp"], "msbp (r=0.04, gamma=0.8)"),
        (["method=sbp", "method.sparsifier=random"], "sbp (r=0.04, gamma=0, sparsifier=random)"),
        (["method.memory_control=noise"], "msbp (r=0.04, gamma=0.8, memory_control=noise)"),
        (
            ["method.memory=per_slot", "method.layers=[net.0]"],
            "msbp (r=0.04, gamma=0.8, layers=['net.0'], memory=per_slot)",
        ),
        (["method=adaptive"], "adaptive (r_min=0.01, r_max=0.1, energy=0.8, gamma=1)"),
    ],
)
def test_a_label_names_the_settings_in_which_methods_differ(overrides, name):
    assert label(settings(compose(overrides))["method"]) == name


def test_methods_that_differ_have_different_labels():
    values = {
        "sparsifier": ["top_k", "random", "importance", "threshold", "energy", "block", "block_64"],
        "memory_control": ["permuted", "noise", "masked"], "memory": ["per_slot", "sequential"],
        "selection": ["per_position", "pooled", "unified"], "bias": ["full"], "gates": ["joint"],
        "carry": ["batch"], "schedule": ["alternate"], "skip_zero_rows": [True],
    }  # fmt: skip
    method = settings(compose([]))["method"]
    labels = [label(method | {key: value}) for key, some in values.items() for value in some]
    assert len({*labels}) == len(labels)


def test_every_published_record_is_whole_and_keeps_its_signature():
    with open(ROOT / "outputs/published/records.jsonl", encoding="utf-8") as lines:
        for line in lines:
            result = Record.parse(line)
            assert result.model_dump(exclude_unset=True) == json.loads(line)
            assert signature(result.config) == result.signature


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{}", b'{"signature": "0123abcd"}', b"\xff"])
def test_a_file_of_another_program_is_no_record(tmp_path, content):
    (tmp_path / record.NAME).write_bytes(content)
    assert find(tmp_path, "0123abcd", 0) is None


def test_records_need_no_torch():
    source = "import sys, msbp.record; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", source], env=dict(os.environ)).returncode == 0
