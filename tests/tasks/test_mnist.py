"""MNIST: its splits, where its files are read from, and downloads."""

import gzip
import shutil
import subprocess
import sys

import pytest
import torch

from msbp.tasks import mnist
from msbp.tasks.mnist import MD5, Mnist

RAW = mnist.BUNDLED


def task(data, **options):
    return Mnist("mnist", 32, data=data, **options)


@pytest.fixture(scope="module")
def splits():
    return task(RAW.parents[1]).splits(seed=0)


def test_the_split_is_that_of_prior_code(splits):
    assert [len(part) for part in (splits.train, splits.dev, splits.test)] == [55_000, 5_000, 10_000]
    labels = gzip.decompress((RAW / "train-labels-idx1-ubyte.gz").read_bytes())[8:]
    assert splits.dev.y.tolist() == list(labels[:5000])
    assert splits.train.y.tolist() == list(labels[5000:])


def test_pixels_lie_in_zero_to_one_with_the_known_mean(splits):
    pixels = torch.cat([splits.dev.x, splits.train.x])
    assert pixels.min() == 0 and pixels.max() == 1
    assert abs(pixels.double().mean() - 0.1307) < 5e-5


def test_an_epoch_holds_every_example_once_and_order_depends_on_seed_and_epoch_alone():
    tiny = Mnist("mnist", 100, sample="tiny")
    train = tiny.splits(0).train
    epochs = {}
    for seed, epoch in [(0, 0), (0, 1), (1, 0)]:
        torch.manual_seed(seed + epoch)
        x = torch.cat([x for x, _ in tiny.batches(train, seed, epoch)])
        assert torch.equal(x.sum(-1).sort()[0], train.x.sum(-1).sort()[0])
        epochs[seed, epoch] = x
    torch.manual_seed(99)
    again = torch.cat([x for x, _ in tiny.batches(train, 0, 0)])
    assert torch.equal(again, epochs[0, 0])
    assert not torch.equal(epochs[0, 1], again) and not torch.equal(epochs[1, 0], again)
    assert [len(y) for _, y in tiny.batches(train, 0, 0)] == [100] * 6 + [40]


@pytest.mark.parametrize("layout", ["MNIST/raw", "mnist/MNIST/raw"])
def test_files_are_read_in_both_layouts(tmp_path, layout):
    shutil.copytree(RAW, tmp_path / layout)
    assert task(tmp_path).find() == tmp_path / layout


def test_the_projects_own_copy_serves_where_the_users_folder_has_none(tmp_path):
    assert task(tmp_path, offline=True).find() == RAW


@pytest.mark.parametrize("offline", [True, False])
def test_the_projects_own_copy_does_not_hide_that_a_folder_is_not_there(tmp_path, offline):
    with pytest.raises(FileNotFoundError, match=rf"no folder {tmp_path}/gone: point paths.data or "):
        task(tmp_path / "gone", offline=offline).find()


@pytest.mark.parametrize("damage", ["truncated", "altered", "empty"])
def test_a_damaged_file_is_named_with_its_remedy(tmp_path, damage):
    folder = tmp_path / "MNIST/raw"
    shutil.copytree(RAW, folder)
    path = folder / "t10k-labels-idx1-ubyte.gz"
    packed = bytearray(path.read_bytes())
    packed[2000] ^= 1
    path.write_bytes({"truncated": packed[:3000], "altered": packed, "empty": b""}[damage])
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte\.gz is not MNIST's original.*delete it"):
        task(tmp_path).splits(0)


def test_a_missing_file_is_named_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "BUNDLED", tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"no train-images.*MSBP_DATA_DIR.*paths\.offline=false"):
        task(tmp_path, offline=True).splits(0)


@pytest.fixture
def mirror(tmp_path, web, monkeypatch):
    """A mirror of MNIST, after one that does not answer."""
    shutil.copytree(RAW, web.folder, dirs_exist_ok=True)
    monkeypatch.setattr(mnist, "BUNDLED", tmp_path / "nothing")
    monkeypatch.setattr(mnist, "mirrors", lambda: [web.url + "down/", web.url])
    return web.folder


def test_missing_files_are_fetched_from_the_first_mirror_that_answers(tmp_path, mirror):
    data = tmp_path / "data"
    assert len(task(data).splits(0).test) == 10_000
    assert sorted(path.name for path in (data / "MNIST/raw").iterdir()) == sorted(MD5)


def test_a_download_with_a_wrong_checksum_is_not_kept(tmp_path, mirror):
    (mirror / "train-images-idx3-ubyte.gz").write_bytes(b"<html>moved</html>")
    with pytest.raises(FileNotFoundError, match=r"no train-images-idx3-ubyte\.gz under .*MD5"):
        task(tmp_path / "data").splits(0)
    assert not list((tmp_path / "data").rglob("*.gz"))


def test_the_mirrors_and_sums_are_those_of_torchvision():
    from torchvision.datasets import MNIST

    assert dict(MNIST.resources) == MD5 and mnist.mirrors() == MNIST.mirrors


def test_a_complete_read_only_folder_is_not_written(tmp_path, unprivileged):
    folder = tmp_path / "data/MNIST/raw"
    shutil.copytree(RAW, folder)
    for path in [*folder.iterdir(), folder]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run([*unprivileged, "touch", folder / "new"], check=True, capture_output=True)
    source = "from msbp.tasks.mnist import Mnist; print(len(Mnist('mnist', 32, data='data').splits(0).train))"
    command = [*unprivileged, sys.executable, "-c", source]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("55000\n", 0), done.stderr
