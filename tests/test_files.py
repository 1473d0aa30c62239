"""Atomic writing: files are complete or absent."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from msbp.files import file_name, find_files, parsed, written_whole


def test_a_new_file_has_the_permissions_that_the_user_gives_new_files(tmp_path):
    before = os.umask(0o077)
    try:
        with written_whole(tmp_path / "new") as file:
            file.write(b"a")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_replaced_file_keeps_its_permissions(tmp_path, mode):
    (tmp_path / "old").write_bytes(b"a")
    (tmp_path / "old").chmod(mode)
    with written_whole(tmp_path / "old") as file:
        file.write(b"b")
    assert (tmp_path / "old").read_bytes() == b"b" and (tmp_path / "old").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("there", [True, False])
def test_writing_to_a_symbolic_link_writes_its_target(tmp_path, there):
    target, link = tmp_path / "elsewhere" / "target", tmp_path / "link"
    target.parent.mkdir()
    if there:
        target.write_bytes(b"a")
    link.symlink_to(target)
    with written_whole(link) as file:
        file.write(b"b")
    assert (
        link.is_symlink() and target.read_bytes() == b"b" and os.listdir(tmp_path / "elsewhere") == ["target"]
    )


def test_a_failed_write_leaves_the_previous_file_and_no_other(tmp_path):
    (tmp_path / "old").write_bytes(b"a")
    with pytest.raises(KeyboardInterrupt), written_whole(tmp_path / "old") as file:
        file.write(b"b")
        raise KeyboardInterrupt
    assert (tmp_path / "old").read_bytes() == b"a" and os.listdir(tmp_path) == ["old"]


def test_the_next_writer_deletes_partial_files_of_killed_writers_only(tmp_path):
    for name in (".file.x1.part", ".file2.x1.part"):
        (tmp_path / name).write_bytes(b"half")
    with written_whole(tmp_path / "file") as first:
        first.write(b"1")
        with written_whole(tmp_path / "file") as second:
            second.write(b"2")
        assert (tmp_path / "file").read_bytes() == b"2"
    assert (tmp_path / "file").read_bytes() == b"1"
    assert sorted(os.listdir(tmp_path)) == [".file2.x1.part", "file"]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_systems_without_locks_or_synced_folders_take_files(tmp_path, monkeypatch, number):
    def fails(*_):
        raise OSError(number, os.strerror(number))

    fsync = os.fsync
    monkeypatch.setattr(fcntl, "flock", fails)
    monkeypatch.setattr(
        os, "fsync", lambda file: fails() if os.path.isdir(f"/dev/fd/{file}") else fsync(file)
    )
    (tmp_path / ".file.x1.part").write_bytes(b"half")
    with written_whole(tmp_path / "file") as file:
        file.write(b"1")
    assert (tmp_path / "file").read_bytes() == b"1" and (tmp_path / ".file.x1.part").exists()


@pytest.mark.parametrize(
    "text", ["../../x", "..", "", "/etc/passwd", "a b=c", "γ", None, 3.5, "x" * 1000, "a\0b"]
)
def test_a_users_text_is_one_part_of_a_file_name(tmp_path, text):
    folder = tmp_path / file_name(text)
    folder.mkdir()
    assert os.listdir(tmp_path) == [folder.name] and not folder.name.startswith(".")


@pytest.mark.parametrize(
    ("text", "name"),
    [("mnist", "mnist"), ("../../x", "___.._x"), ("..", "__"), (".", "_"), (".hidden", "_hidden"), ("", "_"),
     ("/etc/passwd", "_etc_passwd"), ("a b\nc\0d", "a_b_c_d"), ("Đường-1.5", "Đường-1.5"), (None, "None"),
     ("\udce9", "_"), ("a\\b:c*", "a_b_c_")],
)  # fmt: skip
def test_a_users_text_becomes_one_part_of_a_path(text, name):
    assert file_name(text) == name


def test_long_texts_become_short_names_that_differ(tmp_path):
    names = {file_name("ư" * 500 + end) for end in ("", "a", "b")}
    assert len(names) == 3
    for name in names:
        (tmp_path / f"{name}.json").touch()


HALF = r'"\ud83d"', r'{"a": ["x\uDE00y"]}', r'{"\ud800": 1}', b'"\xff"', b'"\xed\xa0\x80"', '"\ud800"'


@pytest.mark.parametrize("text", HALF, ids=ascii)
def test_json_with_text_that_utf_8_cannot_hold_is_refused(text):
    with pytest.raises(ValueError, match="not whole JSON .*codec can't"):
        parsed(text)


def test_json_with_any_letter_is_read():
    assert parsed(r'"\ud83d\ude00 γ \\ud800"') == parsed('"😀 γ \\\\ud800"'.encode()) == "😀 γ \\ud800"


def test_folders_that_vanish_during_a_search_have_no_files(tmp_path, monkeypatch):
    scandir = os.scandir

    def vanishing(folder):
        if Path(folder).name == "vanishes":
            Path(folder).rmdir()
        return scandir(folder)

    for name in ("a", "vanishes", "z"):
        (tmp_path / name).mkdir()
    for name in ("a", "z"):
        (tmp_path / name / "record.json").touch()
    monkeypatch.setattr(os, "scandir", vanishing)
    found = sorted(find_files(tmp_path, "record.json"))
    assert found == [tmp_path / "a/record.json", tmp_path / "z/record.json"]
    assert not (tmp_path / "vanishes").exists()


def test_a_folder_that_cannot_be_read_is_named_and_the_others_are_searched(tmp_path, monkeypatch, caplog):
    scandir = os.scandir

    def refusing(folder):
        if Path(folder).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return scandir(folder)

    for name in ("closed", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "record.json").touch()
    monkeypatch.setattr(os, "scandir", refusing)
    assert list(find_files(tmp_path, "record.json")) == [tmp_path / "open/record.json"]
    assert caplog.messages == [f"left out {tmp_path}/closed: Permission denied"]
