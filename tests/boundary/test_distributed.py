"""DistributedDataParallel over two processes: every kind of layer, every loss, buckets as views or not."""

import pytest
import torch
from torch import multiprocessing

from .networks import assert_close
from .ranks import CASES, main


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_two_ranks_have_the_average_of_their_gradients_and_equal_weights(tmp_path):
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=main, args=(tmp_path, rank)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0, 0]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert list(first) == list(second) == CASES
    for case in CASES:
        for one, other in ((first[case], second[case]), (second[case], first[case])):
            assert_close(one["found"], one["expected"], 1e-5)
            for what in ("found", "weights"):
                assert all(torch.equal(t, other[what][name]) for name, t in one[what].items()), (case, what)
