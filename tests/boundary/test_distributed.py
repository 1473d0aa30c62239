"""DistributedDataParallel over two processes: every kind of layer, every loss, buckets as views or not."""

import subprocess
import sys
from pathlib import Path

import torch

from .networks import assert_close
from .ranks import CASES

ROOT = Path(__file__).resolve().parents[2]


def test_two_ranks_have_the_average_of_their_gradients_and_equal_weights(tmp_path):
    """One pair of processes for all cases: starting one takes longer than training it."""
    command = [sys.executable, "-m", "tests.boundary.ranks", str(tmp_path)]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    ranks = [subprocess.Popen([*command, str(rank)], cwd=ROOT, **pipe) for rank in range(2)]
    for rank in ranks:
        out, _ = rank.communicate()
        assert rank.returncode == 0, out
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert list(first) == list(second) == CASES
    for case in CASES:
        for one, other in ((first[case], second[case]), (second[case], first[case])):
            assert_close(one["found"], one["expected"], 1e-5)
            for what in ("found", "weights"):
                assert all(torch.equal(t, other[what][name]) for name, t in one[what].items()), (case, what)
