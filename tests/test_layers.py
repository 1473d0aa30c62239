"""Imports between parts of the project: data flow one way, and tables need no torch."""

import ast
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"
LIBRARY = sorted((SRC / "msbp").rglob("*.py"))
SPARSE = sorted((SRC / "msbp" / "sparse").rglob("*.py"))
FOLDERS = {path.parent.name for path in SPARSE} - {"sparse"}
ENTRY_POINTS = sorted(path for path in SRC.glob("*.py") if path.stem != "__init__")
MAY = {  # part of the project -> parts that it may import, besides itself
    "files": set(), "config": {"files"}, "cli": {"config"}, "sparse": set(),
    "optim": {"sparse"}, "models": {"sparse"}, "methods": {"sparse"}, "record": {"files"},
    "tasks": {"config", "files", "models", "training"},
    "training": {"config", "files", "methods", "record", "sparse", "tasks"},
    "measurements": {"files", "record"},
    "config_files": {"record"},
    "analysis": {"config_files", "files", "measurements", "record"},
    "bounds": {"files", "sparse", "training"},
    "__init__": set(),
    "integrations": {"sparse"},
    "jobs": {"config", "files", "training"},
    "bench": {"config", "files", "methods", "models", "optim", "record", "sparse", "tasks", "training"},
}  # fmt: skip


def imported(path):
    """Absolute names of the modules that a file imports, wherever in the file."""
    package = path.relative_to(SRC).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, node.module] if node.module else base)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def part(name):
    words = name.split(".")
    return words[1] if words[0] == "msbp" and len(words) > 1 else None


@pytest.mark.parametrize("path", LIBRARY, ids=[str(path.relative_to(SRC)) for path in LIBRARY])
def test_a_module_imports_only_what_its_part_may(path):
    own = path.relative_to(SRC / "msbp").parts[0].removesuffix(".py")
    parts = {part(name) for name in imported(path)} - {None, own}
    assert parts <= MAY[own], f"{path.name} imports {parts - MAY[own]}"
    assert not any(name.split(".")[0] == "src" for name in imported(path)), "nothing imports an entry point"


@pytest.mark.parametrize("path", SPARSE, ids=[str(path.relative_to(SRC)) for path in SPARSE])
def test_the_sparse_core_needs_torch_numpy_and_numba_alone(path):
    known = {"msbp", "torch", "numpy", "numba"}
    if path.parent.name == "kernels":
        known |= {"llvmlite"}  # the compiler behind numba, which brings it
    assert {name.split(".")[0] for name in imported(path)} <= known | sys.stdlib_module_names


def test_the_folders_of_the_sparse_core_know_the_kernels_and_not_one_another():
    for path in SPARSE:
        folders = {name.split(".")[2] for name in imported(path) if name.startswith("msbp.sparse.")} & FOLDERS
        if path.parent.name == "kernels":
            assert folders <= {"kernels"}, path
        elif path.name not in ("__init__.py", "convert.py", "status.py"):
            assert folders <= {path.parent.name, "kernels"}, path


@pytest.mark.parametrize("path", [path for path in LIBRARY if path.parent.name == "analysis"], ids=str)
def test_analysis_needs_no_torch(path):
    heavy = {"torch", "msbp.sparse", "msbp.training"} & {
        name for full in imported(path) for name in (full, full.split(".")[0], ".".join(full.split(".")[:2]))
    }
    assert not heavy


@pytest.mark.parametrize("path", sorted((SRC / "msbp/tasks").rglob("*.py")), ids=str)
def test_only_a_translator_knows_models_and_checkpoints(path):
    known = {part(name) for name in imported(path)} & {"models", "training"}
    assert path.stem == "translator" or not known


def test_network_access_is_in_one_module():
    reach = {"urllib", "http", "socket", "requests", "ftplib", "pooch"}
    users = {path.stem for path in LIBRARY if reach & {name.split(".")[0] for name in imported(path)}}
    assert users <= {"download"}


def test_no_entry_point_imports_another():
    for path in ENTRY_POINTS:
        assert not any(name.split(".")[0] == "src" for name in imported(path)), path.name
