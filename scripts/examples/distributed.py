"""DistributedDataParallel with two processes on the CPU: python scripts/examples/distributed.py"""

import copy
import gc
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from timing import report, seconds_per_step
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from msbp.optim import AdamW
from msbp.sparse import convert

PROCESSES = 2


def train(network, kind, **options):
    """Train a network with an optimizer of this kind; return seconds per step."""
    parallel = DistributedDataParallel(network)
    optimizer = kind(parallel.parameters(), 1e-3, **options)

    def step():
        x = torch.randn(256, 128)
        nn.functional.cross_entropy(parallel(x), x.argmax(1) % 8).backward()
        optimizer.step()
        optimizer.zero_grad()

    return seconds_per_step(step)


def work(rank, rendezvous):
    """Train a plain and a converted copy on this process's half of each batch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=PROCESSES)
    torch.manual_seed(0)
    plain = nn.Sequential(
        nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 8),
    )  # fmt: skip
    model = copy.deepcopy(plain)
    convert(model, r=0.04)
    torch.manual_seed(rank)
    times = [train(plain, torch.optim.AdamW, fused=True), train(model, AdamW)]
    first = torch.cat([p.detach().flatten() for p in model.parameters()])
    others = [torch.empty_like(first) for _ in range(PROCESSES)]
    dist.all_gather(others, first)
    assert all(torch.equal(first, other) for other in others), "the processes have different weights"
    if rank == 0:
        report("DDP, two processes", *times)
    gc.collect()  # what is left of DistributedDataParallel goes before its group
    dist.barrier()  # no process leaves while another still uses the group
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (os.path.join(folder, "rendezvous"),), PROCESSES)
