"""Checkpoints: written whole, read without code, restored exactly, refused where they do not fit."""

import errno
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from msbp.methods import FullBackprop, SparseBackprop
from msbp.models.mlp import MLP
from msbp.optim import Adam
from msbp.training.checkpoint import Checkpoint, capture, drop_finished, restore, save_weights

SETTINGS = {"seed": 0, "method": {"name": "msbp", "r": 0.04, "gamma": 0.8}, "model": {"hidden": 8}}
STATE = {"state": {"step": 3}, "model": {"w": torch.arange(1000.0)}}


def checkpoint(tmp_path, settings=SETTINGS, **options):
    return Checkpoint(tmp_path / "checkpoints/key.pt", settings, **options)


def test_a_checkpoint_restores_the_saved_values(tmp_path):
    assert checkpoint(tmp_path).load() is None
    checkpoint(tmp_path).save(STATE)
    kept = checkpoint(tmp_path).load()
    assert kept["state"] == STATE["state"] and torch.equal(kept["model"]["w"], STATE["model"]["w"])
    assert kept["settings"] == SETTINGS


def test_a_checkpoint_holds_only_plain_data(tmp_path):
    """The default of torch.load, weights_only, reads it."""
    checkpoint(tmp_path).save(STATE)
    assert torch.load(tmp_path / "checkpoints/key.pt")["settings"] == SETTINGS


OTHERS = {
    "method": ("method.name: msbp, not sbp", {"method": {"name": "sbp", "r": 0.04, "gamma": 0.0}}),
    "k": ("method.r: 0.04, not 0.1", {"method": {"name": "msbp", "r": 0.1, "gamma": 0.8}}),
    "hidden": ("model.hidden: 8, not 16", {"model": {"hidden": 16}}),
    "seed": ("seed: 0", {"seed": 1}),
}


@pytest.mark.parametrize(("message", "change"), OTHERS.values(), ids=OTHERS)
def test_another_runs_checkpoint_is_refused_with_the_difference(tmp_path, message, change):
    checkpoint(tmp_path).save(STATE)
    with pytest.raises(ValueError, match=r"key\.pt is the checkpoint of another run") as refusal:
        checkpoint(tmp_path, SETTINGS | change).load()
    assert message in str(refusal.value)


def test_the_checkpoint_of_other_data_is_refused_in_a_line_and_one_without_a_digest_is_not(tmp_path):
    for ours, theirs in (("", "b"), ("a", ""), ("a", "a")):
        checkpoint(tmp_path, data_digest=theirs).save(STATE)
        assert checkpoint(tmp_path, data_digest=ours).load()["state"] == STATE["state"]
    with pytest.raises(
        ValueError, match=r"key\.pt is of other data \(digest a, not b\): point paths.data"
    ) as refusal:
        checkpoint(tmp_path, data_digest="b").load()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("epochs", "fits"), [(3, True), (2, True), (1, False), (None, False)])
def test_a_checkpoint_named_in_resume_may_have_fewer_epochs_but_the_requests_own_may_not(
    tmp_path, epochs, fits
):
    def of(epochs, path="key", **options):
        trainer = {} if epochs is None else {"epochs": epochs}
        return Checkpoint(tmp_path / f"{path}.pt", SETTINGS | {"trainer": trainer}, **options)

    of(2).save(STATE)
    resumed = of(epochs, "new", resume=tmp_path / "key.pt")
    if fits:
        assert resumed.load()["state"] == STATE["state"]
    else:
        with pytest.raises(ValueError, match=rf"another run \(trainer.epochs: 2, not {epochs}\)"):
            resumed.load()
    with pytest.raises(ValueError, match=r"another run \(trainer.epochs: 2, not 3\)"):
        of(3).load()


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def foreign(path):
    torch.save(nn.Linear(2, 2).state_dict(), path)


def code(path):
    torch.save({"format": 1, "object": Path}, path)


DAMAGES = [
    cut,
    flip,
    foreign,
    code,
    lambda path: path.write_bytes(b""),
    lambda path: path.write_text("hello"),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=["cut", "flipped", "foreign", "code", "empty", "text"])
def test_a_damaged_file_is_an_error_that_names_it_and_the_remedy(tmp_path, damage):
    checkpoint(tmp_path).save(STATE)
    damage(tmp_path / "checkpoints/key.pt")
    with pytest.raises(ValueError, match=r"key\.pt is no(t a| whole) checkpoint.*delete it to start"):
        checkpoint(tmp_path).load()


def test_a_failed_save_leaves_the_previous_checkpoint(tmp_path, monkeypatch):
    checkpoint(tmp_path).save(STATE)
    before = (tmp_path / "checkpoints/key.pt").read_bytes()

    def fail(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"cannot write: No space left on device.*key\.pt"):
        checkpoint(tmp_path).save(STATE | {"more": 1})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["key.pt"]
    assert (tmp_path / "checkpoints/key.pt").read_bytes() == before


def test_partial_files_are_never_read(tmp_path):
    here = checkpoint(tmp_path)
    here.save(STATE)
    (tmp_path / "checkpoints/.key.pt.x1y2.part").write_bytes(b"half")
    assert here.load()["state"] == STATE["state"]


def test_a_kept_checkpoint_lies_in_the_runs_folder_wherever_that_is(tmp_path, monkeypatch):
    here = checkpoint(tmp_path)
    here.save(STATE)
    rename = os.replace

    def within_a_folder(source, target):  # as between file systems
        if Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "replace", within_a_folder)
    here.keep(tmp_path)
    here.close()
    assert list((tmp_path / "checkpoints").iterdir()) == [] and checkpoint(tmp_path).load() is None
    again = checkpoint(tmp_path, resume=tmp_path / "checkpoint.pt")
    assert again.load()["state"] == STATE["state"]


def test_a_finished_checkpoint_that_a_run_resumed_from_is_kept(tmp_path):
    checkpoint(tmp_path).save(STATE)
    finished = checkpoint(tmp_path).path.rename(tmp_path / "finished.pt")
    again = checkpoint(tmp_path, resume=finished)
    assert again.load()["state"] == STATE["state"]
    again.keep(tmp_path)
    assert (tmp_path / "checkpoint.pt").read_bytes() == finished.read_bytes()


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError(), OSError("disk")])
def test_errors_that_are_no_fault_of_the_file_do_not_blame_it(tmp_path, error):
    here = checkpoint(tmp_path)
    here.save(STATE)

    def take(state):
        raise error

    with pytest.raises(type(error)):
        here.restore(take)


def test_a_missing_file_to_resume_from_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no checkpoint .*gone\.pt; leave out resume="):
        checkpoint(tmp_path, resume=tmp_path / "gone.pt").load()
    with pytest.raises(FileNotFoundError, match=r"a folder, not a checkpoint .*; leave out resume="):
        checkpoint(tmp_path, resume=tmp_path).load()


def test_a_foreign_file_to_resume_from_is_not_to_be_deleted(tmp_path):
    (tmp_path / "passwd").write_text("hello")
    with pytest.raises(ValueError, match=r"passwd is no whole checkpoint.*: leave out resume=") as refusal:
        checkpoint(tmp_path, resume=tmp_path / "passwd").load()
    assert "delete" not in str(refusal.value)


@pytest.mark.parametrize("wrong", [{"settings": None}, {"settings": ...}, {"conditions": None}])
def test_a_checkpoint_without_settings_is_refused(tmp_path, wrong):
    checkpoint(tmp_path).save(STATE)
    saved = torch.load(tmp_path / "checkpoints/key.pt") | wrong
    torch.save({k: v for k, v in saved.items() if v is not ...}, tmp_path / "checkpoints/key.pt")
    with pytest.raises(ValueError, match=r"key\.pt is no whole checkpoint \(.+\): delete it to start"):
        checkpoint(tmp_path).load()


def test_a_checkpoint_that_cannot_be_restored_is_refused(tmp_path):
    def take(state):
        raise KeyError("optimizer")

    assert checkpoint(tmp_path).restore(take) is False
    checkpoint(tmp_path).save(STATE)
    with pytest.raises(ValueError, match=r"key\.pt is no whole checkpoint \(no 'optimizer'\): delete it"):
        checkpoint(tmp_path).restore(take)
    assert checkpoint(tmp_path).restore(lambda state: None) is True


@pytest.mark.parametrize(("epoch", "kept"), [(2, True), (3, False)])
def test_only_the_checkpoint_of_a_finished_run_is_deleted(tmp_path, epoch, kept):
    checkpoint(tmp_path).save({"state": {"epoch": epoch}})
    drop_finished(tmp_path / "checkpoints/key.pt", epochs=3)
    assert (tmp_path / "checkpoints/key.pt").exists() is kept


def test_a_damaged_checkpoint_is_not_read_as_a_finished_one(tmp_path):
    checkpoint(tmp_path).save({"state": None})
    for _ in range(2):
        drop_finished(tmp_path / "checkpoints/key.pt", epochs=3)
        cut(tmp_path / "checkpoints/key.pt")
    drop_finished(tmp_path / "none.pt", epochs=3)
    assert (tmp_path / "checkpoints/key.pt").exists()


CONDITIONS = {"machine": "a", "threads": 1, "torch": "2", "alone": True}


@pytest.mark.parametrize(
    ("later", "reasons"),
    [
        ({}, []),
        ({"machine": "b"}, ["it went on with another machine"]),
        ({"threads": 2}, ["it went on with other threads"]),
        ({"torch": "9"}, ["it went on with another torch"]),
        ({"alone": False}, ["it ran while another run used the same outputs folder"]),
        ({"alone": None}, ["its outputs folder has no file locks, so that other runs are not seen"]),
    ],
)
def test_times_are_comparable_only_if_all_parts_of_a_resumed_run_had_the_same_conditions(
    tmp_path, later, reasons
):
    for first, second in ((CONDITIONS, CONDITIONS | later), (CONDITIONS | later, CONDITIONS)):
        checkpoint(tmp_path, conditions=lambda first=first: first).save(STATE)
        resumed = checkpoint(tmp_path, conditions=lambda second=second: second)
        resumed.load()
        assert resumed.disturbed() == reasons
        resumed.save(STATE)
        third = checkpoint(tmp_path, conditions=lambda second=second: second)
        third.load()
        assert third.disturbed() == reasons
        os.unlink(third.path)


def model_of(method):
    torch.manual_seed(0)
    model = MLP(6, 3, hidden=8)
    method.install(model)
    optimizer = Adam(model.parameters())
    for _ in range(3):
        model.loss(torch.randn(4, 6), torch.tensor([0, 1, 2, 0])).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def test_weights_load_into_the_plain_model_and_back(tmp_path):
    model, _ = model_of(SparseBackprop(0.3, 0.8))
    save_weights(model, tmp_path / "weights.pt")
    for method in (None, FullBackprop(), SparseBackprop(0.3, 0.0)):
        other = MLP(6, 3, hidden=8)
        if method:
            method.install(other)
        other.load_state_dict(torch.load(tmp_path / "weights.pt"))
        torch.testing.assert_close(other.eval()(torch.ones(2, 6)), model.eval()(torch.ones(2, 6)))


def test_a_restored_model_has_memory_moments_and_random_state(tmp_path):
    model, optimizer = model_of(SparseBackprop(0.3, 0.8))
    here = checkpoint(tmp_path)
    here.save(capture(model, optimizer))
    drawn = torch.rand(3)
    other, fresh = model_of(SparseBackprop(0.3, 0.8))
    for p in other.parameters():
        torch.nn.init.zeros_(p)
    restore(here.load(), other, fresh)
    assert torch.equal(torch.rand(3), drawn)
    one, two = capture(model, optimizer), capture(other, fresh)
    assert all(torch.equal(one["model"][key], two["model"][key]) for key in one["model"])
    assert all(torch.equal(one["memories"][key], two["memories"][key]) for key in one["memories"])
    assert one["optimizer"]["state"].keys() == two["optimizer"]["state"].keys()
