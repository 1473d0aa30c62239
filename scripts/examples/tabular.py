"""A tabular MLP in a plain loop, AdamW, a learning-rate schedule: python scripts/examples/tabular.py"""

import copy

import torch
from timing import report, seconds_per_step
from torch import nn

from msbp.optim import AdamW
from msbp.sparse import convert, status

torch.set_num_threads(1)
torch.manual_seed(0)
features = torch.randn(8192, 128)
target = (features @ torch.randn(128, 8)).tanh().sum(1, keepdim=True)
plain = nn.Sequential(
    nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
    nn.Linear(512, 1),
)  # fmt: skip
model = copy.deepcopy(plain)
print("converted:", convert(model, r=0.1))
print(status(model))


def loop(network, optimizer):
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)

    def step():
        rows = torch.randint(len(features), (256,))
        loss = nn.functional.mse_loss(network(features[rows]), target[rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        return loss.item()

    return step


steps = [
    loop(plain, torch.optim.AdamW(plain.parameters(), 1e-3, fused=True)),
    loop(model, AdamW(model.parameters(), 1e-3)),
]
report("tabular MLP", *(seconds_per_step(step) for step in steps))
for name, step in zip(("plain", "converted"), steps, strict=True):
    losses = [step() for _ in range(150)]
    print(f"{name}: loss {losses[0]:.3f} -> {sum(losses[-10:]) / 10:.3f}")
