"""Training by Lightning: the optimizer, exact resume with the memory, and the schedule's callback."""

import copy

import pytest
import torch
from torch import nn

L = pytest.importorskip("lightning.pytorch")

from msbp import optim
from msbp.integrations import SparseSchedule
from msbp.sparse import convert, memories

pytestmark = pytest.mark.filterwarnings("ignore")


class Module(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 12), nn.ReLU(), nn.Linear(12, 3))

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        optimizer = optim.AdamW(self.parameters(), 1e-2)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def data():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(24, 6, generator=generator)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, torch.arange(24) % 3), batch_size=4)


def trainer(folder, epochs, **options):
    return L.Trainer(
        max_epochs=epochs, accelerator="cpu", default_root_dir=folder, enable_progress_bar=False,
        enable_model_summary=False, log_every_n_steps=1, **{"logger": False, **options},
    )  # fmt: skip


def test_training_resumes_exactly_with_the_memory(tmp_path):
    whole = Module()
    parts, later = copy.deepcopy(whole), copy.deepcopy(whole)
    for model in (whole, parts, later):
        convert(model, 0.25, save_memory=True)
    trainer(tmp_path, 4, enable_checkpointing=False).fit(whole, data())
    half = trainer(tmp_path, 2, enable_checkpointing=False)
    half.fit(parts, data())
    half.save_checkpoint(tmp_path / "half.ckpt")
    trainer(tmp_path, 4, enable_checkpointing=False).fit(later, data(), ckpt_path=tmp_path / "half.ckpt")
    for p, q in zip(whole.parameters(), later.parameters(), strict=True):
        assert torch.equal(p, q)
    for name, memory in memories(whole).items():
        assert memory.m.any() and torch.equal(memory.m, memories(later)[name].m)


def test_the_callback_follows_a_schedule_and_logs_it(tmp_path):
    from lightning.pytorch.loggers import CSVLogger

    from msbp.integrations.lightning import SparseCallback

    model = Module()
    convert(model, 0.25)
    logger = CSVLogger(tmp_path)
    callback = SparseCallback(SparseSchedule(dense_steps=3, log_every=1))
    trainer(tmp_path, 1, logger=logger, callbacks=[callback], enable_checkpointing=False).fit(model, data())
    text = (tmp_path / "lightning_logs/version_0/metrics.csv").read_text()
    assert "msbp/k" in text and "32.0" in text and "8.0" in text
