"""Jobs as processes: their number at a time, failures, and that none outlives its program."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from msbp import jobs
from msbp.jobs import Runner, missing_data
from msbp.training.locks import acquire

STEP = "import sys, time; open(sys.argv[1], 'a').write(f'{time.monotonic()} '); "
# Writes when it began and ended, with a pause between; one that gets a signal to stop saves first.
JOB = STEP + "time.sleep(float(sys.argv[2])); open(sys.argv[1], 'a').write(f'{time.monotonic()}'); "
SAVES = """
import signal, sys, time
def save(*_):
    time.sleep(0.3)
    open(sys.argv[1], "a").write("saved")
    sys.exit(130)
signal.signal(signal.SIGTERM, save)
open(sys.argv[1], "a").write("begun ")
time.sleep(60)
"""
# Ends once the other of a and b has begun.
MEETS = """
import sys, time
from pathlib import Path
own = Path(sys.argv[1])
with own.open("a") as file:
    file.write("begun ")
print("begun", flush=True)
end = time.monotonic() + 60
while not all(own.with_name(f"{key}.txt").exists() for key in "ab"):
    if time.monotonic() > end:
        sys.exit("the other has not begun")
    time.sleep(0.01)
with own.open("a") as file:
    file.write("ended")
print("ended")
"""
PROGRAM = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_jobs import SAVES, job, runner
signal.signal(signal.SIGTERM, signal.default_int_handler)
folder = Path(sys.argv[2])
runner(folder, job(folder, "a", SAVES), job(folder, "b")).run([job(folder, "a", SAVES), job(folder, "b")], 1)
"""


@dataclass(frozen=True)
class Fake:
    key: str
    words: tuple[str, ...]
    alone: bool = False
    command: str = "python"


def job(folder, key, script=JOB, alone=False, seconds=0.2):
    return Fake(key, ("-c", script, str(folder / f"{key}.txt"), str(seconds)), alone, f"python {key}")


def runner(folder, *every):
    """A runner for which a job is done when it has written twice."""

    def done(each):
        path = folder / f"{each.key}.txt"
        return path.exists() and len(path.read_text().split()) >= 2

    return Runner(folder / "logs", lambda: {each.key: each for each in every if not done(each)}, os.environ)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "LOOK", 0.02)
    monkeypatch.setattr(jobs, "WAIT", 0.02)
    return lambda *every, at_once=1: runner(tmp_path, *every).run(every, at_once)


def times(folder, key):
    begin, end = map(float, (folder / f"{key}.txt").read_text().split())
    return begin, end


def test_jobs_run_side_by_side_and_those_that_are_timed_by_themselves(run, tmp_path):
    names = [("timed", True), ("timed too", True), ("a", False), ("b", False)]
    assert run(*(job(tmp_path, name, alone=alone, seconds=1) for name, alone in names), at_once=2) == []
    spans = {name: times(tmp_path, name) for name, _ in names}
    for name in ("timed", "timed too"):
        begin, end = spans.pop(name)
        assert all(other[1] <= begin or end <= other[0] for other in spans.values())
    assert max(begin for begin, _ in spans.values()) < min(end for _, end in spans.values())


def test_each_begin_and_end_is_printed_and_failures_are_named_with_their_log(run, tmp_path, capsys):
    bad = job(tmp_path, "bad", "import sys; sys.exit('no data')")
    (failed,) = run(bad, job(tmp_path, "good", seconds=0))
    log = tmp_path / "logs/bad.log"
    assert failed == f"python bad\n  failed with exit code 1: {log}\n  no data"
    assert log.read_text() == "no data\n" and times(tmp_path, "good")
    output = capsys.readouterr().err.splitlines()
    assert output[::2] == ["python bad", "python good"]
    assert output[1].startswith(f"failed with exit code 1: {log} in 0:00:0") and output[1].endswith(
        ": python bad"
    )
    assert output[3].startswith("done in 0:00:0") and output[3].endswith(": python good")


def test_a_job_that_succeeds_without_a_record_is_named_and_not_repeated(run, tmp_path):
    (failed,) = run(job(tmp_path, "empty", STEP))
    assert "its record is still missing" in failed and len((tmp_path / "empty.txt").read_text().split()) == 1


def test_jobs_that_another_process_has_completed_are_not_run(run, tmp_path):
    (tmp_path / "done.txt").write_text("1 2")
    assert run(job(tmp_path, "done"), job(tmp_path, "left", seconds=0)) == []
    assert (tmp_path / "done.txt").read_text() == "1 2" and times(tmp_path, "left")


def test_a_job_runs_as_it_is_needed_when_its_turn_comes(tmp_path):
    planned, now = job(tmp_path, "a"), job(tmp_path, "a", "print('forced')")
    Runner(tmp_path, lambda: {"a": now}, os.environ).run([planned], 1)
    assert (tmp_path / "a.log").read_text() == "forced\n"


def test_programs_share_the_jobs_of_a_folder(run, tmp_path):
    every = [job(tmp_path, key, MEETS) for key in "ab"]
    with ThreadPoolExecutor() as programs:
        outcomes = programs.map(lambda _: run(*every), range(2))  # ends only if each program runs one of them
        assert list(outcomes) == [[], []]
    for key in "ab":
        assert (tmp_path / f"{key}.txt").read_text() == "begun ended"
        assert (tmp_path / f"logs/{key}.log").read_text() == "begun\nended\n"


def test_while_a_timed_job_runs_no_program_runs_another(run, tmp_path):
    lists = [
        [job(tmp_path, f"timed {name}", alone=True), job(tmp_path, "timed", alone=True), job(tmp_path, name)]
        for name in "abc"
    ]
    with ThreadPoolExecutor() as programs:
        assert list(programs.map(lambda every: run(*every), lists)) == [[], [], []]
    timed = ["timed", "timed a", "timed b", "timed c"]
    spans = {key: times(tmp_path, key) for key in [*timed, *"abc"]}
    for key in timed:
        begin, end = spans.pop(key)
        assert all(other[1] <= begin or end <= other[0] for other in spans.values())


@pytest.mark.parametrize("done", [True, False])
def test_a_job_that_another_program_ends_is_run_only_if_it_is_still_needed(run, tmp_path, capfd, done):
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs/a.log"
    with ThreadPoolExecutor() as programs:
        with open(log, "ab") as other:
            acquire(other, wait=False)
            other.write(b"theirs")
            other.flush()
            outcome = programs.submit(run, job(tmp_path, "a", "print('ours'); " + JOB), job(tmp_path, "b"))
            until(lambda: "before 1 jobs" in capfd.readouterr().err)
            assert times(tmp_path, "b") and log.read_bytes() == b"theirs"
            if done:
                (tmp_path / "a.txt").write_text("1 2")
        assert outcome.result() == []
    assert log.read_text() == ("theirs" if done else "ours\n")


def test_logs_that_cannot_be_written_are_an_error_that_names_the_file(run, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.log").mkdir()
    with pytest.raises(IsADirectoryError, match=r"a\.log"):
        run(job(tmp_path, "a"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_child_processes_of_a_stopped_program_save_and_no_new_ones_start(tmp_path, number):
    here, wrote = str(Path(__file__).parent), tmp_path / "a.txt"
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, here, str(tmp_path)], stderr=subprocess.DEVNULL
    )
    until(lambda: wrote.exists() and wrote.read_text() == "begun ")
    program.send_signal(number)
    program.wait()
    if number == signal.SIGTERM:
        assert wrote.read_text() == "begun saved", "it waits for them"
    until(lambda: wrote.read_text() == "begun saved")
    assert not (tmp_path / "b.txt").exists()


def until(reached):
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_data_that_are_missing_are_named_in_a_line_and_a_synthetic_sample_needs_none(tmp_path):
    folders = [f"paths.data={tmp_path}", f"paths.outputs={tmp_path}", "paths.offline=true"]
    output = missing_data(["task=parsing", *folders])
    assert "LDC99T42" in output and "\n" not in output
    assert missing_data(["task=mnist", "task.sample=tiny", *folders]) == ""
