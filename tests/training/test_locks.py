"""Locks of requests and folders, and detection of runs side by side."""

import errno
import fcntl
import logging
import multiprocessing
from pathlib import Path

import pytest

from msbp.training import locks


def test_a_single_run_is_recognized_as_running_alone(tmp_path):
    for _ in range(2):
        with locks.detect_concurrent(tmp_path) as alone:
            assert alone()


def test_two_simultaneous_runs_are_both_marked_as_parallel(tmp_path):
    with locks.detect_concurrent(tmp_path) as first:
        assert first()
        with locks.detect_concurrent(tmp_path) as second:
            assert not second() and not first()
        assert not first(), "the other has ended, but the times were shared"
    with locks.detect_concurrent(tmp_path) as later:
        assert later()


def test_a_forced_request_takes_a_folder_of_its_own(tmp_path):
    with locks.request(tmp_path, "key", again=False) as first:
        with locks.request(tmp_path, "key", again=True) as second:
            with locks.request(tmp_path, "key", again=True) as third:
                assert [path.name for path in (first, second, third)] == ["key.pt", "key.2.pt", "key.3.pt"]
    with locks.request(tmp_path, "key", again=True) as alone:
        assert alone == first, "a killed run finds its checkpoint"


def test_a_request_deletes_partial_checkpoints_of_its_own_key_alone(tmp_path):
    for name in (".key.pt.x1.part", ".key.2.pt.x1.part", ".key2.pt.x1.part", "key.pt"):
        (tmp_path / name).touch()
    with locks.request(tmp_path, "key", again=False):
        left = {path.name for path in tmp_path.iterdir()} - {"key.lock"}
        assert left == {".key.2.pt.x1.part", ".key2.pt.x1.part", "key.pt"}


def equal_request(folder):
    return locks.request(folder, "key", again=False)


def hold(lock, folder, ready, leave):
    with lock(folder):
        ready.set()
        leave.wait()


@pytest.mark.parametrize("lock", [equal_request, locks.publication])
def test_an_equal_request_or_a_second_publication_waits_with_a_message(lock, tmp_path, caplog):
    spawn = multiprocessing.get_context("spawn")
    ready, leave = spawn.Event(), spawn.Event()
    other = spawn.Process(target=hold, args=(lock, tmp_path / "files", ready, leave))
    other.start()
    assert ready.wait(60)

    class Leave(logging.Handler):
        def emit(self, record):
            leave.set()  # only after the message

    handler = Leave()
    locks.log.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO), lock(tmp_path / "files") as path:
            assert (path is None or path.name == "key.pt") and "waiting for it" in caplog.text
    finally:
        locks.log.removeHandler(handler)
    other.join()


FILES = {"config.yaml": b"seed: 0\n"}


def test_a_folder_keeps_its_files_and_the_log_of_its_run_alone(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    with locks.run_folder(tmp_path / "run", FILES):
        logging.getLogger("msbp").info("inside γ")
    logging.getLogger("msbp").info("outside")
    log = (tmp_path / "run/train.log").read_text(encoding="utf-8")
    assert "inside γ" in log and "outside" not in log
    assert (tmp_path / "run/config.yaml").read_bytes() == FILES["config.yaml"]


def test_only_the_same_unfinished_run_may_use_its_folder_again(tmp_path):
    with locks.run_folder(tmp_path, FILES):
        with pytest.raises(FileExistsError, match="holds another run"), locks.run_folder(tmp_path, FILES):
            pass
    with locks.run_folder(tmp_path, FILES):
        pass
    for files in ({"config.yaml": b"seed: 1\n"}, FILES):
        with pytest.raises(FileExistsError, match="holds another run"), locks.run_folder(tmp_path, files):
            pass
        (tmp_path / "record.json").write_bytes(b"{}")
    assert (tmp_path / "config.yaml").read_bytes() == FILES["config.yaml"]


def test_a_failed_run_has_its_reason_in_the_log(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    with pytest.raises(ZeroDivisionError), locks.run_folder(tmp_path, FILES):
        raise ZeroDivisionError("no loss at all")
    log = (tmp_path / "train.log").read_text()
    assert "no loss at all" in log and "Traceback" in log


def test_a_full_disk_is_reported_with_the_file_even_if_the_log_cannot_be_written(
    tmp_path, monkeypatch, capsys
):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"cannot write: No space left on device.*latest"):
        locks.detect_concurrent(tmp_path).__enter__()
    log = locks.Log("/dev/full")
    log.handle(logging.makeLogRecord({"msg": "a line"}))
    log.close()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", locks.NO_LOCKS)
def test_a_file_system_without_locks_is_named_and_its_runs_have_no_times(
    tmp_path, monkeypatch, caplog, number
):
    def fails(*_):
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", fails)
    with locks.request(tmp_path, "key", again=False) as location, locks.run_folder(tmp_path / "run", FILES):
        with locks.detect_concurrent(tmp_path) as alone:
            assert alone() is None and location == tmp_path / "key.pt"
    assert caplog.text.count(f"{tmp_path}/starting.lock cannot be locked") == 1


def test_folders_of_killed_runs_of_the_same_command_are_deleted(tmp_path):
    def run(name, files=FILES, record=False):
        folder = tmp_path / name
        with locks.run_folder(folder, files):
            (folder / ".weights.pt.x1.part").touch()
        if record:
            (folder / "record.json").touch()
        return folder

    killed, in_a_sweep = run("runs/a"), run("sweeps/s/0")
    kept = [run("runs/done", record=True), run("runs/other", {"config.yaml": b"seed: 1\n"}), run("mine")]
    (tmp_path / "runs/starting").mkdir()  # another process has created it, but not locked it yet
    with locks.run_folder(tmp_path / "runs/living", FILES):
        locks.drop_abandoned(tmp_path, FILES)
        assert (tmp_path / "runs/living/train.log").exists()
    assert not any(folder.exists() for folder in (killed, in_a_sweep))
    assert (tmp_path / "runs/starting").exists()
    assert all((folder / "config.yaml").exists() for folder in kept)


def test_a_run_that_writes_its_record_before_its_lock_is_taken_is_kept(tmp_path, monkeypatch):
    folder, acquire = tmp_path / "runs/a", locks.acquire
    with locks.run_folder(folder, FILES):
        pass

    def late(lock, **how):
        (folder / "record.json").touch()
        return acquire(lock, **how)

    monkeypatch.setattr(locks, "acquire", late)
    locks.drop_abandoned(tmp_path, FILES)
    assert (folder / "record.json").exists()
