"""Jobs as processes: how many at once, what failed, and that nothing outlives or doubles them."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from msbp.jobs.workers import lock, release, work

STEP = "import sys, time; open(sys.argv[1], 'a').write(f'{time.monotonic()} '); "
# Writes when it began and ended, with a while between; one that is asked to stop saves first.
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
PROGRAM = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_workers import SAVES, Silent, job
from msbp.jobs.workers import work
work(lambda: [job(Path(sys.argv[2]), "a", SAVES)], Path(sys.argv[2]), 1, Silent(), os.environ)
"""


@dataclass(frozen=True)
class Fake:
    key: str
    words: tuple[str, ...]
    alone: bool = False
    command: str = "python"


class Silent:
    def begins(self, worker): ...
    def ends(self, worker, running, pending): ...
    def goes_on(self, running, pending): ...
    def waits(self, pending): ...


def job(folder, key, script=JOB, alone=False, seconds=0.2):
    return Fake(key, ("-c", script, str(folder / f"{key}.txt"), str(seconds)), alone)


def plan_of(folder, *jobs):
    """What is left of the jobs: a job is done when it has written twice."""

    def done(each):
        path = folder / f"{each.key}.txt"
        return path.exists() and len(path.read_text().split()) >= 2

    return lambda: [each for each in jobs if not done(each)]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr("msbp.jobs.workers.LOOK", 0.02)
    monkeypatch.setattr("msbp.jobs.workers.AGAIN", 0.02)

    def run(*jobs, at_once=1, voice=None):
        return work(plan_of(tmp_path, *jobs), tmp_path / "state", at_once, voice or Silent(), os.environ)

    return run


def times(folder, key):
    begin, end = map(float, (folder / f"{key}.txt").read_text().split())
    return begin, end


def test_jobs_run_side_by_side_and_those_that_are_timed_by_themselves(run, tmp_path):
    names = [("timed", True), ("a", False), ("b", False), ("timed too", True)]
    assert run(*(job(tmp_path, name, alone=alone) for name, alone in names), at_once=2) == []
    spans = {name: times(tmp_path, name) for name, _ in names}
    for name in ("timed", "timed too"):
        begin, end = spans.pop(name)
        assert all(other[1] <= begin or end <= other[0] for other in spans.values())


def test_a_failed_job_is_named_with_its_log_and_the_others_go_on(run, tmp_path):
    bad = job(tmp_path, "bad", "import sys; sys.exit('no data')")
    (failed,) = run(bad, job(tmp_path, "good", seconds=0))
    assert failed.job is bad and failed.said() == "no data" and failed.log.read_text() == "no data\n"
    assert times(tmp_path, "good")


def test_a_job_that_ends_well_and_leaves_nothing_is_named_and_not_repeated(run, tmp_path):
    (failed,) = run(job(tmp_path, "empty", STEP))
    assert failed.process.returncode == 0 and len((tmp_path / "empty.txt").read_text().split()) == 1


def test_two_programs_share_the_work_and_do_no_job_twice(run, tmp_path):
    jobs, failed = [job(tmp_path, str(number), seconds=0.05) for number in range(5)], []
    programs = [threading.Thread(target=lambda: failed.extend(run(*jobs, at_once=2))) for _ in range(2)]
    for program in programs:
        program.start()
    for program in programs:
        program.join()
    assert failed == [] and all(times(tmp_path, each.key) for each in jobs)


class Interrupts(Silent):
    """Ctrl-C once the job has begun."""

    def __init__(self, path):
        self.path = path

    def goes_on(self, running, pending):
        if self.path.exists() and "begun" in self.path.read_text():
            raise KeyboardInterrupt


def test_an_interrupt_lets_the_children_save_before_the_program_ends(run, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(job(tmp_path, "a", SAVES), voice=Interrupts(tmp_path / "a.txt"))
    assert (tmp_path / "a.txt").read_text() == "begun saved"


def test_children_of_a_killed_program_save_and_hold_their_locks_until_then(tmp_path):
    here, wrote = str(Path(__file__).parent), tmp_path / "a.txt"
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, here, str(tmp_path)])
    until(lambda: wrote.exists() and wrote.read_text() == "begun ")
    program.send_signal(signal.SIGKILL)
    program.wait()
    locks = []
    until(lambda: locks.extend(lock(tmp_path, job(tmp_path, "a"))) or locks)
    assert wrote.read_text() == "begun saved"
    release(locks)


def until(reached):
    end = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)
