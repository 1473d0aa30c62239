"""Compiled kernels are kept beside their source, or in a private temporary folder if that is read-only."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import msbp

# One small kernel is enough: all are compiled by the same decorator, and compiling them all takes a minute.
SCRIPT = """
import json, os, numpy
from msbp.sparse.kernels import compile
from msbp.sparse.kernels.select import add

row = numpy.ones(3)
add(row, numpy.arange(3.0))
results = {"package": compile.__file__, "folder": compile.FOLDER, "sums": row.tolist()}
results |= {"again": compile.cache_folder(), "mode": os.stat(compile.FOLDER).st_mode & 0o777}
os.chmod(compile.FOLDER, 0o777)
print(json.dumps({**results, "untrusted": compile.cache_folder()}))
"""


@pytest.fixture
def read_only_package(tmp_path):
    """A copy of the package that nobody may write to."""
    shutil.copytree(
        Path(msbp.__file__).parent, tmp_path / "lib" / "msbp", ignore=shutil.ignore_patterns("__pycache__")
    )
    paths = [tmp_path / "lib", *(tmp_path / "lib").rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield tmp_path / "lib"
    for path in paths:
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_read_only_package_compiles_into_a_private_temporary_folder(
    read_only_package, tmp_path, unprivileged
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(read_only_package), "TMPDIR": str(temporary)}
    before = sorted(read_only_package.rglob("*"))
    done = subprocess.run(
        [*unprivileged, sys.executable, "-c", SCRIPT],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    folder = Path(results["folder"])
    assert Path(results["package"]).is_relative_to(read_only_package)
    assert results["sums"] == [1, 2, 3]
    assert folder.parent == temporary and results["mode"] == 0o700
    assert list(folder.rglob("*.nbc"))
    assert results["again"] == results["folder"]
    assert results["untrusted"] != results["folder"]  # others may have put machine code there
    assert sorted(read_only_package.rglob("*")) == before


def test_the_project_keeps_its_kernels_beside_their_source():
    from msbp.sparse.kernels import compile as compiler

    assert Path(compiler.FOLDER).is_relative_to(Path(compiler.__file__).parent)
