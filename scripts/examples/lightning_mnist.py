"""Lightning on MNIST, which ships in data/: python scripts/examples/lightning_mnist.py. Needs lightning."""

import copy
import gzip
import logging
import time
from pathlib import Path

import lightning.pytorch as pl
import torch
from timing import report
from torch import nn

from msbp.optim import AdamW
from msbp.sparse import convert

STEPS, DATA = 40, Path(__file__).resolve().parents[2] / "data/MNIST/raw"
torch.set_num_threads(1)
torch.manual_seed(0)
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


class Classifier(pl.LightningModule):
    """Two hidden layers of 500."""

    def __init__(self, optimizer=torch.optim.AdamW, **options):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10)
        )
        self.optimizer, self.options, self.seconds = optimizer, options, []

    def training_step(self, batch, index):
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def on_train_batch_start(self, batch, index):
        self.begin = time.perf_counter()

    def on_train_batch_end(self, outputs, batch, index):
        self.seconds.append(time.perf_counter() - self.begin)
        self.loss = float(outputs["loss"])

    def configure_optimizers(self):
        return self.optimizer(self.parameters(), 1e-3, **self.options)


def read(name, head):
    """Return the bytes of a file of MNIST after its head."""
    return torch.frombuffer(bytearray(gzip.decompress((DATA / name).read_bytes())[head:]), dtype=torch.uint8)


def train(module):
    """Return the median seconds per step."""
    images = read("train-images-idx3-ubyte.gz", 16).view(-1, 784)[:5120].float() / 255
    labels = read("train-labels-idx1-ubyte.gz", 8)[:5120].long()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=128)
    pl.Trainer(
        max_steps=STEPS, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    ).fit(module, loader)  # fmt: skip
    return sorted(module.seconds[10:])[len(module.seconds[10:]) // 2]


plain = Classifier(torch.optim.AdamW, fused=True)
module = copy.deepcopy(plain)
module.optimizer, module.options = AdamW, {}
print("converted:", convert(module, r=0.1))
before, after = train(plain), train(module)
report("MNIST", before, after)
print(
    f"loss of batch {STEPS}: {plain.loss:.3f} plain, {module.loss:.3f} converted: r = 0.1 learns less a step"
)
