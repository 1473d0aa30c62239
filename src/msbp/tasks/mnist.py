"""MNIST handwritten digits, read from the four original .gz files as they are.

The first 5,000 training images are the dev set, as in the code of meProp; pixels are scaled to 0-1.
Letters: N examples of a split, B batch.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..limits import check_choice, check_counts
from . import download
from .base import SAMPLES, Batch, Examples, Score, Splits, accuracy, order

BUNDLED = Path(__file__).resolve().parents[3] / "data/MNIST/raw"
DEV = 5000
SCORED_AT_ONCE = 1000
PIXELS, DIGITS = 28 * 28, 10
MD5 = {  # of the compressed files, as torchvision lists them
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


@dataclass
class Mnist:
    """55,000 / 5,000 / 10,000 digits as vectors of 784 pixels, in mini-batches by permuted indices."""

    name: str
    batch_size: int
    sample: str = "full"
    data: str | Path = "data"
    offline: bool = False
    metric: str = field(default="accuracy", init=False)
    unit: str = field(default="images", init=False)

    def __post_init__(self) -> None:
        check_counts("task", batch_size=self.batch_size)
        check_choice("task.sample", self.sample, SAMPLES)

    def splits(self, seed: int) -> Splits:
        sizes = {"inputs": PIXELS, "outputs": DIGITS}
        if self.sample == "tiny":
            return Splits(made_up(640, 1), made_up(128, 2), made_up(128, 3), sizes)
        folder = self.find()
        x, y = read(folder, "train-images-idx3-ubyte.gz"), read(folder, "train-labels-idx1-ubyte.gz")
        test = Examples(read(folder, "t10k-images-idx3-ubyte.gz"), read(folder, "t10k-labels-idx1-ubyte.gz"))
        return Splits(Examples(x[DEV:], y[DEV:]), Examples(x[:DEV], y[:DEV]), test, sizes)

    def find(self) -> Path:
        """The folder of the four files; fetches what is missing where a download is allowed."""
        folders = [Path(self.data, "MNIST/raw"), Path(self.data, "mnist/MNIST/raw"), BUNDLED]
        for folder in folders:
            if all((folder / name).is_file() for name in MD5):
                return folder
        if not self.offline:
            download.mnist(folders[0], MD5)
            return folders[0]
        missing = [name for name in MD5 if not (folders[-1] / name).is_file()]
        raise FileNotFoundError(
            f"no {missing[0]} under {', '.join(map(str, folders))}; put MNIST's four .gz files into one, "
            "point paths.data or MSBP_DATA_DIR at a folder that has them, or set paths.offline=false"
        )

    def batches(self, split: Examples, seed: int, epoch: int) -> Iterator[Batch]:
        """Pixels (B, 784) in 0-1, and digits (B)."""
        for index in order(len(split), seed, epoch).split(self.batch_size):
            yield split.x.index_select(0, index), split.y.index_select(0, index)  # half of indexing's time

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return model.loss(*batch)  # type: ignore[operator]

    def score(self, model: nn.Module, split: Examples) -> Score:
        some = zip(split.x.split(SCORED_AT_ONCE), split.y.split(SCORED_AT_ONCE), strict=True)
        return Score(accuracy(model, some), self.metric)


def read(folder: Path, name: str) -> Tensor:
    """Pixels in 0-1 (N, 784) or labels (N); ValueError if the file is not the original."""
    path = folder / name
    packed = path.read_bytes()
    if (md5 := download.md5_of(packed)) != MD5[name]:
        raise ValueError(
            f"{path} is not MNIST's original file: {len(packed)} bytes with md5 {md5}, wanted {MD5[name]}; "
            "delete it and put the original there, or delete it and run once with a network"
        )
    content = np.frombuffer(gzip.decompress(packed), np.uint8)
    if "labels" in name:
        return torch.from_numpy(content[8:].astype(np.int64))
    return torch.from_numpy(content[16:].reshape(-1, PIXELS).astype(np.float32)).div_(255)


def made_up(size: int, seed: int) -> Examples:
    """Noisy copies of ten random pictures: the same for every run, quick to learn, and no digits at all."""
    pictures = np.random.default_rng(0).random((DIGITS, PIXELS)) < 0.2
    random = np.random.default_rng(seed)
    y = random.integers(DIGITS, size=size)
    x = np.where(random.random((size, PIXELS)) < 0.5, pictures[y], random.random((size, PIXELS)) < 0.2)
    return Examples(torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y))
