"""Fetching: complete files or none, checked by md5, from the first mirror that answers; one error."""

import os
import stat
import subprocess
import sys

import pytest

from msbp.tasks.download import Remote, fetch, md5_of, require


def serve(web, name: str, content: bytes) -> Remote:
    (web.folder / name).write_bytes(content)
    return Remote([web.url + name], md5_of(content))


def test_missing_files_are_fetched_and_existing_ones_left_alone(tmp_path, web):
    files = {tmp_path / "data/set" / name: serve(web, name, name.encode()) for name in ("a", "b")}
    (tmp_path / "data/set").mkdir(parents=True)
    (tmp_path / "data/set/a").write_text("mine")
    require(files)
    assert [(tmp_path / "data/set" / name).read_text() for name in ("a", "b")] == ["mine", "b"]
    assert len(web.requests) == 1
    require(files, offline=True)


def test_the_first_mirror_with_the_right_checksum_is_used(tmp_path, web):
    right = serve(web, "right", b"x" * 100_000)
    (web.folder / "wrong").write_bytes(b"<html>moved</html>")
    urls = [web.url + "nowhere", web.url + "wrong", *right.urls]
    fetch(Remote(urls, right.md5), tmp_path / "data/file")
    assert (tmp_path / "data/file").read_bytes() == b"x" * 100_000
    assert os.listdir(tmp_path / "data") == ["file"]


def test_a_fetched_file_has_the_permissions_of_any_new_file(tmp_path, web):
    fetch(serve(web, "a", b"a"), tmp_path / "fetched")
    (tmp_path / "new").touch()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("fetched", "new")]
    assert modes[0] == modes[1]


def test_two_downloads_of_one_file_leave_one_whole_file(tmp_path, web):
    remote = serve(web, "file", os.urandom(1 << 20))
    for _ in range(2):
        fetch(remote, tmp_path / "target/file")
    assert md5_of((tmp_path / "target/file").read_bytes()) == remote.md5
    assert os.listdir(tmp_path / "target") == ["file"]


@pytest.mark.parametrize("offline", [True, False])
def test_missing_and_offline_or_unreachable_is_one_error_with_the_remedies(tmp_path, web, offline):
    files = {tmp_path / "data" / f"part{i}": Remote([web.url + "nowhere"], "0" * 32) for i in range(7)}
    with pytest.raises(FileNotFoundError) as refusal:
        require(files, offline, instead="parsing_ewt")
    reason = "paths.offline=true:" if offline else "could not be fetched (http://127.0.0.1"
    names = "part0, part1, part2, part3 and 3 more files" if offline else "part0"
    for words in (f"no {names} under {tmp_path}/data", reason, "put the files there", "MSBP_DATA_DIR",
                  "paths.offline=false", "task=parsing_ewt runs on open data"):  # fmt: skip
        assert words in str(refusal.value)
    assert not (tmp_path / "data").exists() and len(web.requests) == 2 * (not offline)


def test_a_folder_that_cannot_be_written_is_named_with_the_remedies(tmp_path, web, unprivileged):
    remote = serve(web, "file", b"x")
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o555)
    source = (
        "import sys; from pathlib import Path; from msbp.tasks.download import Remote, fetch\n"
        "try: fetch(Remote([sys.argv[1]], sys.argv[2]), Path(sys.argv[3]))\n"
        "except FileNotFoundError as error: print(error)"
    )
    words = [remote.urls[0], str(remote.md5), str(folder / "set/file")]
    done = subprocess.run(
        [*unprivileged, sys.executable, "-c", source, *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"no file under {folder}/set, and the folder cannot be written (Permission")
    assert "point paths.data or MSBP_DATA_DIR at a folder that has them or can be written" in done.stdout
