"""One of two processes that train every kind of network under DistributedDataParallel."""

import copy
import inspect
import itertools
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from msbp import optim
from msbp.sparse import convert, cross_entropy, memories
from msbp.sparse.memory import MEMORIES

from .networks import ENTRIES, INSTALLS, KINDS, batch, build, c, gradients, i, install, weights

OPTIONS = inspect.signature(DistributedDataParallel.__init__).parameters
BROADCAST = next(name for name in ("forward_sync_buffers", "broadcast_buffers") if name in OPTIONS)
WAYS = [*[(entry, False) for entry in ENTRIES], ("backward", True)]
MEMORY_CASES = list(itertools.product((True, False), MEMORIES))
CASES = [(kind, how, *way) for kind, how, way in itertools.product(KINDS, INSTALLS, WAYS)]


def expected(model: torch.nn.Module, entry: str, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the average over the ranks of the gradients that a network of their own gets."""
    ENTRIES[entry](model, x, y)
    result = gradients(model)
    for gradient in result.values():
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
    return result


def train(kind: str, how: str, entry: str, views: bool) -> dict[str, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = install(build(kind), kind, how, r=0.25, gamma=0.8)
    twin = copy.deepcopy(model)
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=views)
    optimizer = optim.Adam(parallel.parameters(), lr=0.01)
    torch.manual_seed(1 + dist.get_rank())
    x, y = batch(kind)
    target = expected(twin, entry, x, y)
    for step in range(2):
        optimizer.zero_grad()
        ENTRIES[entry](parallel, x, y)
        if not step:
            result = gradients(model)
        optimizer.step()
    return {"found": result, "expected": target, "weights": weights(model)}


def memories_at_forward(broadcast: bool, memory: str) -> tuple[dict[str, torch.Tensor], ...]:
    """Return the memories after a rank's first backward pass, and those of its second forward pass.

    The ranks have batches of different sizes.
    """
    torch.manual_seed(0)
    model = build("chain")
    convert(model, r=0.25, memory=memory, layers=["0", "2"])
    parallel = DistributedDataParallel(model, **{BROADCAST: broadcast})
    rows = 6 + dist.get_rank()
    torch.manual_seed(rows)
    x, y = torch.randn(rows, i), torch.randint(c, (rows,))
    cross_entropy(parallel(x), y).backward()
    after = {name: held.m.clone() for name, held in memories(model).items()}
    parallel(x)
    return after, {name: held.m.clone() for name, held in memories(model).items()}


def main(folder: Path, rank: int) -> None:
    """Write by case the averaged gradients, those expected, and the weights after two steps; and memories."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.save({case: train(*case) for case in CASES}, folder / f"{rank}.pt")
    torch.save({case: memories_at_forward(*case) for case in MEMORY_CASES}, folder / f"m{rank}.pt")
    dist.barrier()  # no process leaves while another still uses the group
    dist.destroy_process_group()
