"""The cache of compiled kernels: right results with missing, damaged and unwritable files."""

import io
import multiprocessing
import os
import resource
import shutil
import tempfile
from pathlib import Path

import pytest
from numba.core import event

from msbp.sparse.kernels import compile as compiler
from msbp.sparse.kernels import kernel_cache


def double(x):
    return 2 * x


@pytest.fixture(autouse=True)
def reports(monkeypatch):
    monkeypatch.setattr(kernel_cache, "_reported", set())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(compiler, "FOLDER", str(tmp_path / "cache"))
    compiler.kernel(double)(3)
    return tmp_path / "cache"


def files(folder):
    return sorted(path for path in folder.rglob("*.nb?") if path.is_file())


def compiled():
    """Return the number of compilations for one call of a kernel, as in a new process."""
    with event.install_recorder("numba:compile") as recorder:
        assert compiler.kernel(double)(3) == 6
    return len([each for _, each in recorder.buffer if each.is_start])


def flipped(at):
    def flip(content):
        number = at % len(content)
        return content[:number] + bytes([content[number] ^ 16]) + content[number + 1 :]

    return flip


DAMAGE = {
    "empty": lambda content: b"",
    "one byte": lambda content: content[:1],
    "half": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[:-1],
    "longer": lambda content: content + b"\0",
    "zeros": lambda content: bytes(len(content)),
    "text": lambda content: b"no machine code",
    **{f"a bit of byte {at}": flipped(at) for at in (0, 31, 32, 40, -200, -1)},
}


@pytest.mark.parametrize("kind", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_named_once_and_replaced(folder, kind, damage, caplog):
    (path,) = [each for each in files(folder) if each.suffix == kind]
    path.write_bytes(damage(path.read_bytes()))
    assert compiled() == 1
    assert caplog.text.count("kernels are compiled anew") == 1 and f"{path} is damaged" in caplog.text
    assert compiled() == 0


def test_a_complete_cache_is_used_and_a_missing_file_is_written_again(folder, caplog):
    assert compiled() == 0
    for path in files(folder):
        path.unlink()
        assert compiled() == 1 and compiled() == 0
    assert not caplog.text


def test_a_full_disk_is_named_once_and_leaves_no_part(folder, caplog):
    """The limit is that of `ulimit -f`."""
    for path in files(folder):
        path.unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        assert compiled() == 1 and compiled() == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caplog.text.count("cannot be written (File too large)") == 1
    assert not files(folder) and not list(folder.rglob("*tmp*"))


@pytest.mark.parametrize("at", ["the folder", "a file"])
def test_cache_paths_of_the_wrong_file_type_are_named_once(folder, at, caplog):
    paths = files(folder)
    for path in paths:
        path.unlink()
        if at == "a file":
            path.mkdir()
    if at == "the folder":
        shutil.rmtree(paths[0].parent)
        paths[0].parent.touch()
    assert compiled() == 1 and compiled() == 1
    assert caplog.text.count("kernels are compiled anew") == 1


def test_without_any_folder_kernels_are_compiled_in_every_process(tmp_path, monkeypatch, caplog):
    for name in ("_writable", "gettempdir", "mkdtemp"):
        target = compiler if name == "_writable" else tempfile

        def refuse(*args, name=name, **more):
            if name == "_writable":
                return False
            raise FileNotFoundError("No usable temporary directory found")

        monkeypatch.setattr(target, name, refuse)
    monkeypatch.setattr(compiler, "FOLDER", compiler.cache_folder())
    assert compiler.FOLDER == "" and "NUMBA_CACHE_DIR" in caplog.text
    assert compiled() == 1 and compiled() == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_processes_that_need_the_same_kernel_compile_it_once(folder):
    for path in files(folder):
        path.unlink()
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert sorted(each.get() for each in [pool.apply_async(compiled) for _ in range(3)]) == [0, 0, 1]


@compiler.kernel
def inner(x):
    return x + 1


@compiler.kernel
def outer(x):
    return inner(inner(x)) + 1


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def uncached(monkeypatch, tmp_path):
    """Return kernels that were never compiled and are announced as such."""
    monkeypatch.setattr(compiler, "FOLDER", str(tmp_path))
    kernels = {each.__name__: compiler.kernel(each.py_func) for each in (inner, outer)}
    for name, dispatcher in kernels.items():
        monkeypatch.setitem(globals(), name, dispatcher)
    listener = compiler._Announcement()
    with event.install_listener("numba:compile", listener):
        event.unregister("numba:compile", compiler.ANNOUNCEMENT)
        yield kernels["outer"]
        event.register("numba:compile", compiler.ANNOUNCEMENT)


def test_a_terminal_shows_the_progress_of_compilation_and_clears_it_at_the_end(uncached, monkeypatch):
    monkeypatch.setattr("sys.stderr", screen := Screen())
    assert uncached(1) == 4
    shown = screen.getvalue().split("\r")
    assert "compiling kernels, which are cached for later runs: outer, 0 of 2\x1b[K" in shown
    assert "compiling kernels, which are cached for later runs: outer, 1 of 2\x1b[K" in shown
    assert shown[-1] == "\x1b[K"


def test_without_a_terminal_there_is_one_line_a_process(uncached, capsys):
    uncached(1)
    uncached(1.5)
    assert (
        capsys.readouterr().err == "compiling kernels, which are cached for later runs: about half a minute\n"
    )


def test_a_closed_stderr_is_no_error(uncached, monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    assert uncached(1) == 4


def test_a_folder_of_another_user_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert not compiler._writable(Path(tmp_path))
