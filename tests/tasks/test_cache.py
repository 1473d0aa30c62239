"""Kept arrays: found again, remade when damaged or stale, harmless where nothing can be written."""

import io

import numpy as np
import pytest

from msbp.tasks import cache

ARRAYS = {"a": np.arange(1000), "b": np.array(["đ", "x"])}


class Maker:
    """Counts how often the arrays had to be made."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1
        return ARRAYS


def equal(arrays) -> bool:
    return arrays.keys() == ARRAYS.keys() and all((arrays[name] == ARRAYS[name]).all() for name in ARRAYS)


def test_arrays_are_made_once(tmp_path):
    make = Maker()
    for _ in range(3):
        assert equal(cache.kept(tmp_path / "new/folder/x.npz", make))
    assert make.times == 1


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def single(content: bytes) -> bytes:
    """A file of one array, which numpy reads without complaint."""
    np.save(file := io.BytesIO(), ARRAYS["a"])
    return file.getvalue()


@pytest.mark.parametrize(
    "damage", [cut, flip, single, lambda content: b"", lambda content: b"not an archive"]
)
def test_a_damaged_file_is_said_and_made_again(tmp_path, caplog, damage):
    path, make = tmp_path / "x.npz", Maker()
    cache.kept(path, make)
    path.write_bytes(damage(path.read_bytes()))
    assert equal(cache.kept(path, make)) and make.times == 2
    assert "is damaged" in caplog.text and str(path) in caplog.text
    assert equal(cache.kept(path, make)) and make.times == 2


def test_no_pickled_object_is_ever_loaded(tmp_path):
    path, make = tmp_path / "x.npz", Maker()
    np.savez(path, a=np.array([{}], dtype=object))
    assert equal(cache.kept(path, make)) and make.times == 1


def test_a_file_written_under_another_name_is_made_again(tmp_path, caplog):
    make = Maker()
    cache.kept(tmp_path / "x.npz", lambda: {"a": np.zeros(3)})
    (tmp_path / "x.npz").rename(tmp_path / "y.npz")
    assert equal(cache.kept(tmp_path / "y.npz", make)) and make.times == 1
    assert "was written as x.npz" in caplog.text


def test_a_place_that_cannot_be_written_is_said_and_does_no_harm(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    make = Maker()
    assert equal(cache.kept(tmp_path / "file/x.npz", make))
    assert "is not kept for the next run" in caplog.text


def test_without_a_place_nothing_is_kept():
    make = Maker()
    assert equal(cache.kept(None, make)) and equal(cache.kept(None, make)) and make.times == 2


def test_the_key_follows_content_settings_and_code_but_not_names(tmp_path, monkeypatch):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("text")
    other.write_text("text")
    key = cache.key([one], 1)
    assert key == cache.key([other], 1) != cache.key([one], 2)
    other.write_text("texts")
    assert key != cache.key([other], 1)
    code = tmp_path / "cache.py"
    code.write_text("# another version")
    monkeypatch.setattr(cache, "__file__", str(code))
    assert key != cache.key([one], 1)
