"""Training by Composer: the schedule's callback in its Trainer."""

import pytest
import torch
from torch import nn

composer = pytest.importorskip("composer")

from msbp.integrations import SparseSchedule
from msbp.integrations.composer import SparseCallback
from msbp.optim import AdamW
from msbp.sparse import convert, memories

pytestmark = pytest.mark.filterwarnings("ignore")


class Classifier(composer.ComposerModel):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))

    def forward(self, batch):
        return self.net(batch[0])

    def loss(self, outputs, batch):
        return nn.functional.cross_entropy(outputs, batch[1])


def test_the_callback_follows_the_schedule_and_logs():
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(24, 6), torch.arange(24) % 3)
    model, logger = Classifier(), composer.loggers.InMemoryLogger()
    convert(model, 0.25, layers=["net.0"])
    schedule = SparseSchedule(dense_steps=2, r=(0.5, 0.1), r_steps=2, log_every=1)
    composer.Trainer(
        model=model, train_dataloader=torch.utils.data.DataLoader(data, batch_size=4), max_duration="6ba",
        optimizers=AdamW(model.parameters(), 1e-2), callbacks=[SparseCallback(schedule)], loggers=[logger],
        device="cpu", progress_bar=False,
    ).fit()  # fmt: skip
    logged = {name: [value for _, value in values] for name, values in logger.data.items()}
    assert logged["msbp/k"] == [20, 20, 10, 4, 2, 2]
    assert logged["msbp/unpropagated"][:2] == [0, 0]
    assert logged["msbp/unpropagated"][-1] > 0
    assert all(memory.m.any() for memory in memories(model).values())
