"""Progress: the live line, plain lines, and outputs that fail."""

import io
import logging
import multiprocessing
import os
import sys
import threading

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from rich.console import Console

from msbp.training import progress
from msbp.training.progress import Progress, Screen, ToConsole, job

SECONDS = {"bp_s": 1.25, "total_s": 3.5}
ROW = {"epoch": 1, "labels": 7000, "loss": 0.25, "dev": 97.5, **SECONDS}


@pytest.fixture
def screen(monkeypatch):
    """The text that a console on a terminal of 100 columns has drawn."""
    drawn = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=drawn, force_terminal=True, width=100))
    monkeypatch.setattr(progress, "BETWEEN", 0)
    return drawn


def test_the_live_line_has_epoch_loss_dev_score_seconds_and_speed(screen):
    with Progress(20, "accuracy", "words") as shown:
        shown.epoch(ROW)
        shown.step(1, 7, 0.125, 7000, SECONDS)
    times = ("BP 1.2 s", "total 3.5 s", "2,000 words/s")
    for part in ("epoch 2/20", "step 7", "loss 0.1250", "dev accuracy 97.50%", *times):
        assert part in screen.getvalue()


def test_no_thread_draws_while_a_phase_is_timed(screen):
    before = threading.active_count()
    with Progress(20, "accuracy", "images") as shown:
        shown.step(0, 1, 0.5, 32, SECONDS)
        assert threading.active_count() == before


def test_without_a_terminal_there_is_one_plain_line_an_epoch(monkeypatch, caplog):
    drawn = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=drawn))
    with caplog.at_level(logging.INFO), Progress(20, "uas", "words") as shown:
        shown.step(0, 1, 0.5, 20, SECONDS)
        shown.epoch(ROW)
    assert caplog.messages == [
        "epoch 1/20  loss 0.2500  dev uas 97.50%  so far: BP 1.2 s  total 3.5 s  2,000 words/s"
    ]
    assert "step" not in drawn.getvalue()  # as the live line has; the plain one comes by the root logger


def test_a_long_epoch_without_a_terminal_has_a_plain_line_a_minute(monkeypatch, caplog):
    now = iter([0.0, 59.0, 60.0, 61.0, 119.0, 121.0])
    monkeypatch.setattr(progress, "console", Console(file=io.StringIO()))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with caplog.at_level(logging.INFO), Progress(20, "uas", "words") as shown:
        for step in range(1, 6):
            shown.step(0, step, 0.5, 20, SECONDS)
    assert [line[:20] for line in caplog.messages] == ["epoch 1/20  step 2  ", "epoch 1/20  step 5  "]


def test_lines_of_a_sweeps_worker_name_their_run(monkeypatch, screen):
    monkeypatch.setattr(HydraConfig.instance(), "cfg", OmegaConf.create({"hydra": {"job": {"num": 7}}}))
    monkeypatch.setattr(multiprocessing.current_process(), "name", "LokyProcess-2")
    monkeypatch.setattr(progress, "_name", "")
    line = logging.makeLogRecord({"msg": "epoch 1/20"})
    ToConsole().handle(line)
    progress.name_job("mnist msbp, seed 3")
    ToConsole().handle(line)
    with Progress(20, "accuracy", "images") as shown:
        shown.step(0, 1, 0.5, 32, SECONDS)
    assert (
        screen.getvalue() == "#7 epoch 1/20\n#7 mnist msbp, seed 3: epoch 1/20\n"
    )  # and no live line, which others would draw over
    monkeypatch.undo()
    progress.name_job("")
    assert job() == ""


def test_characters_that_the_terminal_cannot_encode_do_not_stop_a_run(monkeypatch):
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    monkeypatch.setattr(progress, "console", Console(file=narrow))
    monkeypatch.setattr(logging, "raiseExceptions", False)
    ToConsole().handle(logging.makeLogRecord({"msg": "γ = 0.8"}))


def closed_pipe():
    gone, pipe = os.pipe()
    os.close(gone)
    return pipe


def full_disk():
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize(
    ("opened", "why"),
    [
        (closed_pipe, "the output was closed"),
        (
            lambda: os.open("/dev/full", os.O_WRONLY),
            "the output takes nothing more (No space left on device)",
        ),
    ],
    ids=["closed", "full"],
)
def test_a_closed_output_does_not_stop_a_run(monkeypatch, capfd, opened, why):
    with open(opened(), "w", encoding="utf-8") as stdout:
        monkeypatch.setattr(progress, "console", Screen(file=stdout))
        monkeypatch.setattr(sys, "stdout", stdout)
        for _ in range(2):
            ToConsole().handle(logging.makeLogRecord({"msg": "epoch"}))
    assert capfd.readouterr().err == f"{why}; the run continues, and train.log has all of it\n"
