"""Cached arrays: read again, recomputed when damaged or stale, harmless in a read-only folder."""

import io

import numpy as np
import pytest

from msbp.tasks.parsing import encoding
from msbp.tasks.parsing.encoding import cache_key, cached

ARRAYS = {"a": np.arange(1000), "b": np.array(["đ", "x"])}


class Compute:
    """Counts how often the arrays were computed."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1
        return ARRAYS


def equal(arrays) -> bool:
    return arrays.keys() == ARRAYS.keys() and all((arrays[name] == ARRAYS[name]).all() for name in ARRAYS)


def test_arrays_are_computed_once(tmp_path):
    compute = Compute()
    for _ in range(3):
        assert equal(cached(tmp_path / "new/folder/x.npz", compute))
    assert compute.times == 1


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
def test_a_damaged_file_is_logged_and_computed_again(tmp_path, caplog, damage):
    path, compute = tmp_path / "x.npz", Compute()
    cached(path, compute)
    path.write_bytes(damage(path.read_bytes()))
    assert equal(cached(path, compute)) and compute.times == 2
    assert "is damaged" in caplog.text and str(path) in caplog.text
    assert equal(cached(path, compute)) and compute.times == 2


def test_no_pickled_object_is_ever_loaded(tmp_path):
    path, compute = tmp_path / "x.npz", Compute()
    np.savez(path, a=np.array([{}], dtype=object))
    assert equal(cached(path, compute)) and compute.times == 1


def test_a_file_written_under_another_name_is_computed_again(tmp_path, caplog):
    compute = Compute()
    cached(tmp_path / "x.npz", lambda: {"a": np.zeros(3)})
    (tmp_path / "x.npz").rename(tmp_path / "y.npz")
    assert equal(cached(tmp_path / "y.npz", compute)) and compute.times == 1
    assert "was written as x.npz" in caplog.text


def test_a_cache_folder_that_cannot_be_written_is_logged_and_no_error(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    compute = Compute()
    assert equal(cached(tmp_path / "file/x.npz", compute))
    assert "is not kept for the next run" in caplog.text


def test_without_a_path_nothing_is_kept():
    compute = Compute()
    assert equal(cached(None, compute)) and equal(cached(None, compute)) and compute.times == 2


def test_the_key_follows_data_settings_and_the_code_of_packages_too(tmp_path, monkeypatch):
    key = cache_key("digest", 1)
    assert key == cache_key("digest", 1) != cache_key("digest", 2) and key != cache_key("another", 1)
    (tmp_path / "parsing").mkdir()
    for name in ("text.py", "parsing/encoding.py"):
        (tmp_path / name).write_text("# one version")
    monkeypatch.setattr(encoding, "__file__", str(tmp_path / "parsing/encoding.py"))
    for name in ("text.py", "parsing/encoding.py"):
        before = cache_key("digest", 1)
        (tmp_path / name).write_text("# another version")
        assert cache_key("digest", 1) != before
