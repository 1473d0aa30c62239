"""The digest of the data that a task reads: of contents and their order, not of paths, caches or seeds."""

import shutil
from pathlib import Path

import pytest
from test_damaged_files import SETS

from msbp.config import CONF, build, compose

DATA = [name for name in SETS if name not in ("run", "checkpoint")]


@pytest.fixture(params=DATA)
def data(request, tmp_path):
    """A folder of data and the task that reads it."""
    write, read = SETS[request.param]
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder)
    return folder, read


def test_a_digest_depends_on_the_contents_and_not_on_the_paths(data, tmp_path):
    folder, read = data
    first = read(folder).digest
    assert len(first) == 16 and read(folder).digest == first
    shutil.copytree(folder, tmp_path / "elsewhere")
    assert read(tmp_path / "elsewhere").digest == first


def test_the_folder_that_data_are_read_from_is_logged(data, caplog):
    folder, read = data
    with caplog.at_level("INFO"):
        read(folder)
    assert f"data read from {folder}" in caplog.text


TASKS = [path.stem for path in sorted(Path(CONF, "task").glob("*.yaml"))]


@pytest.mark.parametrize("name", TASKS)
def test_a_folder_of_data_that_is_not_there_is_refused_by_every_task(name, tmp_path):
    words = [f"task={name}", f"paths.data={tmp_path}/gone", "paths.offline=true"]
    with pytest.raises((FileNotFoundError, ValueError), match=f"{tmp_path}/gone"):
        build(compose(words).task).splits(0)
    assert not (tmp_path / "gone").exists()


def test_a_digest_changes_with_every_file(data):
    folder, read = data
    digests = {read(folder).digest}
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        path.write_bytes(content + content if path.suffix == ".gz" else b"\n" + content)
        try:
            digests.add(read(folder).digest)
        except ValueError:  # line counts differ
            digests.add(path.name)
        path.write_bytes(content)
    assert len(digests) == 1 + len(list(folder.iterdir()))


def test_a_digest_depends_on_the_order_of_the_splits(data):
    folder, read = data
    first = read(folder).digest
    one, other = sorted(path for path in folder.iterdir() if path.suffix not in (".gz", ".txt"))[:2]
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert read(folder).digest != first


def test_a_cache_changes_no_digest(tmp_path):
    write, _ = SETS["conll"]
    (tmp_path / "data").mkdir()
    write(tmp_path / "data")
    files = [f"task.corpus.{split}={tmp_path}/data/{split}.conllu" for split in ("train", "dev", "test")]
    words = ["task=parsing_ewt", "corpus@task.corpus=conll_files", *files]
    digests = {
        build(compose([*words, f"task.cache={cache}"]).task).splits(0).digest
        for cache in ("null", tmp_path / "cache", tmp_path / "cache")
    }
    assert len(digests) == 1 and list((tmp_path / "cache").iterdir())


TINY = ["mnist", "parsing", "parsing_ewt", "pos", "polarity", "multi30k"]


def test_synthetic_samples_have_the_digest_of_their_kind_and_size(monkeypatch):
    tasks = {task: build(compose([f"task={task}", "task.sample=tiny"]).task) for task in TINY}
    digests = {name: task.splits(0).digest for name, task in tasks.items()}
    assert {name: task.splits(1).digest for name, task in tasks.items()} == digests
    assert digests["parsing"] == digests["parsing_ewt"] == digests["pos"] and len({*digests.values()}) == 4
    monkeypatch.setattr("msbp.tasks.synthetic.TREEBANK", {"train": 30, "dev": 6, "test": 6})
    changed = {name: tasks[name].splits(0).digest for name in ("mnist", "parsing")}
    assert changed["parsing"] != digests["parsing"] and changed["mnist"] == digests["mnist"]
