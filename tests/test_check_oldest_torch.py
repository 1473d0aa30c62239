"""scripts/check_oldest_torch.sh: which changes have the tests run again."""

import re
import shutil
import subprocess

import pytest

from msbp.config import ROOT

SCRIPT, CONFTEST = "scripts/check_oldest_torch.sh", "tests/conftest.py"
TESTED = ("src/msbp/sparse", "src/msbp/optim", "tests/sparse", "tests/optim", "tests/boundary")
SHARED = re.findall(r"^(?:from|import) (\w+)", (ROOT / CONFTEST).read_text(encoding="utf-8"), re.MULTILINE)
IMPORTED = [f"tests/{name}.py" for name in SHARED if (ROOT / "tests" / f"{name}.py").exists()]


@pytest.fixture
def check(tmp_path):
    """Run the script where it finds a python for which all tests pass, and return its output."""
    for name in (SCRIPT, CONFTEST, "pyproject.toml", *IMPORTED):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in TESTED:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x.py").touch()
    python = tmp_path / "environment/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho run\n")
    python.chmod(0o755)
    words = [tmp_path / SCRIPT, "--if-changed", tmp_path / "environment"]
    return lambda: subprocess.run(words, check=True, capture_output=True, text=True).stdout


def test_what_decides_how_tests_run_has_them_run_again_when_it_changes(check, tmp_path):
    assert "run" in check().split() and IMPORTED
    for name in ("pyproject.toml", CONFTEST, *IMPORTED, *(f"{folder}/x.py" for folder in TESTED)):
        assert "unchanged" in check()
        with (tmp_path / name).open("a") as file:
            file.write("# changed\n")
        assert "run" in check().split(), name
