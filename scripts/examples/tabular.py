"""A tabular MLP in a plain loop, AdamW, a learning-rate schedule: python scripts/examples/tabular.py

A smaller r is faster and learns less a step, so both are printed for two of them.
"""

import copy

import torch
from timing import report, seconds_per_step
from torch import nn

from msbp.optim import AdamW
from msbp.sparse import convert, status

STEPS = 150
torch.set_num_threads(1)
torch.manual_seed(0)
features = torch.randn(8192, 128)
target = (features @ torch.randn(128, 8) / 128**0.5).tanh().sum(1, keepdim=True)
plain = nn.Sequential(
    nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
    nn.Linear(512, 1),
)  # fmt: skip


def train(network, optimizer):
    """Return the seconds per step, and the mean loss of the last ten steps."""
    torch.manual_seed(1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    losses = []

    def step():
        rows = torch.randint(len(features), (256,))
        loss = nn.functional.mse_loss(network(features[rows]), target[rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses.append(loss.item())

    seconds = seconds_per_step(step, STEPS - 3)
    return seconds, sum(losses[-10:]) / 10


converted = {r: copy.deepcopy(plain) for r in (0.25, 0.04)}
for r, model in converted.items():
    convert(model, r=r)
print(status(converted[0.04]))
before, dense_loss = train(plain, torch.optim.AdamW(plain.parameters(), 1e-3, fused=True))
print(f"plain: loss {dense_loss:.3f} after {STEPS} steps")
for r, model in converted.items():
    after, loss = train(model, AdamW(model.parameters(), 1e-3))
    report(f"r = {r}", before, after)
    print(f"r = {r}: loss {loss:.3f} after {STEPS} steps, {loss / dense_loss:.2f} times the plain model's")
