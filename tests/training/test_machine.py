"""The machine: its description, threads, devices and arithmetic."""

import os
import re
import subprocess

import pytest
import torch
from pydantic import ValidationError

from msbp.training import machine
from msbp.training.trainer import Trainer

CPU = torch.device("cpu")


def test_a_machine_is_described_in_plain_words_without_its_name():
    here = machine.describe(CPU)
    texts = {key: value for key, value in here.items() if key not in ("dirty", "threads")}
    assert all(isinstance(text, str) and text for text in texts.values())
    assert here["device"] == "cpu" and here["threads"] == torch.get_num_threads()
    assert re.fullmatch("[0-9a-f]{8}", here["machine"]) and os.uname().nodename not in str(here)


def test_code_outside_a_checkout_has_no_commit(monkeypatch):
    monkeypatch.setattr(machine, "git", lambda *words: "")
    assert machine.describe(CPU)["commit"] == "unknown" and machine.describe(CPU)["dirty"] is False


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout without changes that holds the code."""
    folder = tmp_path / "checkout"
    code = folder / "src/msbp/training/machine.py"
    code.parent.mkdir(parents=True)
    code.touch()
    (folder / ".gitignore").write_text("*.pyc\n")
    monkeypatch.setattr(machine, "__file__", str(code))
    who = ["-c", "user.name=x", "-c", "user.email=x", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", folder, *words], check=True)
    assert machine.describe(CPU)["dirty"] is False
    return folder


@pytest.mark.parametrize(
    ("path", "dirty"),
    [
        ("src/msbp/training/machine.py", True), (".gitignore", True), ("src/new.py", True),
        ("src/msbp/new/module.py", True), ("conf/method/new.yaml", True), ("scripts/new.py", True),
        ("src/msbp/training/machine.pyc", False), ("notes.txt", False), ("outputs/src/new.py", False),
    ],
)  # fmt: skip
def test_code_that_a_commit_lacks_is_dirty_also_where_it_was_never_added(checkout, path, dirty):
    file = checkout / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("new = 1\n")
    assert machine.describe(CPU)["dirty"] is dirty


def test_threads_are_set_for_torch():
    before = torch.get_num_threads()
    try:
        machine.set_up(1, CPU)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_run_flushes_subnormal_numbers_to_zero():
    x = torch.full((100,), 1e-39)
    assert (x * 0.5).all()
    machine.set_up(1, CPU)
    assert not (x * 0.5).any()


@pytest.mark.parametrize("threads", [0, -1, True, 1.0, "2", None, 10**6])
def test_more_threads_than_processors_are_refused(threads):
    with pytest.raises(
        ValueError, match=r"^threads(=1000000, but| must be a whole number of at least 1, got)"
    ):
        machine.set_up(threads, CPU)


def test_an_unknown_device_is_refused_with_the_choices():
    with pytest.raises(ValidationError, match="'cpu', 'cuda' or 'auto'"):
        Trainer(1, device="gpu")


def test_a_missing_device_is_refused_with_the_key_that_named_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for key in ("trainer.device", "device"):
        with pytest.raises(ValueError, match=f"^{key}=cuda, .*; use {key}=cpu or auto"):
            machine.device_of("cuda", key)


def test_auto_selects_an_available_device(monkeypatch):
    for there, kind in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert machine.device_of("auto").type == kind and machine.device_of("cpu").type == "cpu"


def test_a_clock_on_the_cpu_does_not_synchronize():
    assert machine.waiting_for(CPU)() is None


def test_processors_that_share_a_name_are_told_apart_by_family_and_model(tmp_path):
    def named(*lines):
        info = tmp_path / "cpuinfo"
        info.write_text("processor\t: 0\n" + "\n".join(lines) + "\nflags\t\t: fpu\n")
        return machine.cpu(info)

    same = "model name\t: AMD EPYC"
    first = named("cpu family\t: 25", "model\t\t: 17", same)
    second = named("cpu family\t: 26", "model\t\t: 2", same)
    assert (first, second) == ("AMD EPYC family 25 model 17", "AMD EPYC family 26 model 2")
    assert named("model name\t: ARMv8") == "ARMv8"
    assert machine.cpu(tmp_path / "missing")
