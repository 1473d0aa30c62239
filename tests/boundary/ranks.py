"""One of two processes that train every kind of network under DistributedDataParallel."""

import copy
import itertools
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from msbp import optim

from .networks import ENTRIES, INSTALLS, KINDS, batch, build, gradients, install, weights

WAYS = [*[(entry, False) for entry in ENTRIES], ("backward", True)]
CASES = [(kind, how, *way) for kind, how, way in itertools.product(KINDS, INSTALLS, WAYS)]


def expected(model: torch.nn.Module, entry: str, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the average over the ranks of the gradients that a network of their own gets."""
    ENTRIES[entry](model, x, y)
    found = gradients(model)
    for gradient in found.values():
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
    return found


def train(kind: str, how: str, entry: str, views: bool) -> dict[str, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = install(build(kind), kind, how, r=0.25, gamma=0.8)
    twin = copy.deepcopy(model)
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=views)
    optimizer = optim.Adam(parallel.parameters(), lr=0.01)
    torch.manual_seed(1 + dist.get_rank())
    x, y = batch(kind)
    wanted = expected(twin, entry, x, y)
    for step in range(2):
        optimizer.zero_grad()
        ENTRIES[entry](parallel, x, y)
        if not step:
            found = gradients(model)
        optimizer.step()
    return {"found": found, "expected": wanted, "weights": weights(model)}


def main(folder: Path, rank: int) -> None:
    """Write by case the averaged gradients, those expected, and the weights after two steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.save({case: train(*case) for case in CASES}, folder / f"{rank}.pt")
    dist.destroy_process_group()
