"""Files that appear whole or not at all."""

import os

import pytest

from msbp.files import written_whole


def test_a_new_file_has_the_permissions_that_the_user_gives_new_files(tmp_path):
    before = os.umask(0o077)
    try:
        with written_whole(tmp_path / "new") as file:
            file.write(b"a")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_what_is_replaced_keeps_its_permissions(tmp_path, mode):
    (tmp_path / "old").write_bytes(b"a")
    (tmp_path / "old").chmod(mode)
    with written_whole(tmp_path / "old") as file:
        file.write(b"b")
    assert (tmp_path / "old").read_bytes() == b"b" and (tmp_path / "old").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("there", [True, False])
def test_through_a_link_its_target_is_written(tmp_path, there):
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


def test_a_block_that_fails_leaves_what_was_there_and_nothing_else(tmp_path):
    (tmp_path / "old").write_bytes(b"a")
    with pytest.raises(KeyboardInterrupt), written_whole(tmp_path / "old") as file:
        file.write(b"b")
        raise KeyboardInterrupt
    assert (tmp_path / "old").read_bytes() == b"a" and os.listdir(tmp_path) == ["old"]
