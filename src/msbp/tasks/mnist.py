"""MNIST handwritten digits, read from the four original .gz files as they are.

The first 5,000 training images are the dev set, as in the code of meProp; pixels are scaled to 0-1.
Letters: N examples of a split, B batch.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pydantic.dataclasses
import torch
from torch import Tensor, nn

from ..config import STRICT
from . import synthetic
from .base import Batch, Count, Examples, Name, Sample, Score, Splits, Task, accuracy, digest, order
from .download import Remote, md5_of, require
from .synthetic import DIGITS, PIXELS

BUNDLED = Path(__file__).resolve().parents[3] / "data/MNIST/raw"
DEV = 5000
SCORED_AT_ONCE = 1000
MD5 = {  # of the compressed files, as torchvision lists them
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}


@pydantic.dataclasses.dataclass(config=STRICT)
class Mnist(Task[Examples]):
    """55,000 / 5,000 / 10,000 digits as vectors of 784 pixels, in mini-batches by permuted indices."""

    name: Name
    batch_size: Count
    sample: Sample = "full"
    data: str | Path = "data"
    offline: bool = False
    metric: ClassVar[str] = "accuracy"
    unit: ClassVar[str] = "images"

    def splits(self, seed: int) -> Splits[Examples]:
        sizes = {"inputs": PIXELS, "outputs": DIGITS}
        if self.sample == "tiny":
            train, dev, test = synthetic.image_splits()
            return Splits(train, dev, test, sizes, digest=synthetic.digest("images", synthetic.IMAGES))
        folder = self.find()
        x, y, test_x, test_y = (read(folder / name) for name in MD5)
        train, dev = Examples(x[DEV:], y[DEV:]), Examples(x[:DEV], y[:DEV])
        return Splits(
            train, dev, Examples(test_x, test_y), sizes, digest=digest(folder / name for name in MD5)
        )

    def find(self) -> Path:
        """Return the folder of the four files; fetches what is missing where a download is allowed.

        FileNotFoundError where the project's own copy would hide that there is no such folder of data.
        """
        folders = [Path(self.data, "MNIST/raw"), Path(self.data, "mnist/MNIST/raw"), BUNDLED]
        for folder in folders:
            if all((folder / name).is_file() for name in MD5):
                if not Path(self.data).is_dir():
                    raise FileNotFoundError(
                        f"there is no folder {self.data}: point paths.data or MSBP_DATA_DIR at one that is "
                        f"there, or leave them out to read MNIST from {folder}"
                    )
                return folder
        urls = [] if self.offline else mirrors()
        files = {folders[0] / name: Remote([url + name for url in urls], md5) for name, md5 in MD5.items()}
        require(files, self.offline)
        return folders[0]

    def batches(self, split: Examples, seed: int, epoch: int) -> Iterator[Batch]:
        """Yield pixels (B, 784) in 0-1, and digits (B)."""
        for index in order(len(split), seed, epoch).split(self.batch_size):
            yield split.x.index_select(0, index), split.y.index_select(0, index)  # half of x[index]'s time

    def score(self, model: nn.Module, split: Examples) -> Score:
        some = zip(split.x.split(SCORED_AT_ONCE), split.y.split(SCORED_AT_ONCE), strict=True)
        return Score(accuracy(model, some), self.metric)


def mirrors() -> list[str]:
    """Return the addresses from which torchvision fetches MNIST."""
    from torchvision.datasets import MNIST  # slow to import, and needed only here

    return MNIST.mirrors


def read(path: Path) -> Tensor:
    """Return pixels in 0-1 (N, 784) or labels (N); ValueError if the file is not the original."""
    packed = path.read_bytes()
    if (md5 := md5_of(packed)) != MD5[path.name]:
        raise ValueError(
            f"{path} is not MNIST's original file: {len(packed)} bytes with md5 {md5}, not "
            f"{MD5[path.name]}; delete it and put the original there, or delete it and run with a network"
        )
    content = np.frombuffer(gzip.decompress(packed), np.uint8)
    if "labels" in path.name:
        return torch.from_numpy(content[8:].astype(np.int64))
    return torch.from_numpy(content[16:].reshape(-1, PIXELS).astype(np.float32)).div_(255)
