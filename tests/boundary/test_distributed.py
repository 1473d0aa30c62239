"""DistributedDataParallel over two processes: every kind of layer, every loss, buckets as views or not."""

import warnings

import pytest
import torch
from torch import multiprocessing

from .networks import assert_close
from .ranks import CASES, MEMORY_CASES, main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder with the results of two ranks."""
    path = tmp_path_factory.mktemp("ranks")
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=main, args=(path, rank)) for rank in range(2)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
        for rank in ranks:
            rank.start()
    for rank in ranks:
        rank.join()
    assert [rank.exitcode for rank in ranks] == [0, 0]
    return path


def test_two_ranks_have_the_average_of_their_gradients_and_equal_weights(folder):
    first, second = (torch.load(folder / f"{rank}.pt") for rank in range(2))
    assert list(first) == list(second) == CASES
    for case in CASES:
        for one, other in ((first[case], second[case]), (second[case], first[case])):
            assert_close(one["found"], one["expected"], 1e-5)
            for what in ("found", "weights"):
                assert all(torch.equal(t, other[what][name]) for name, t in one[what].items()), (case, what)


def test_the_first_ranks_memory_is_broadcast_unless_it_is_of_slots_or_buffers_are_not(folder):
    first, second = (torch.load(folder / f"m{rank}.pt") for rank in range(2))
    assert list(first) == list(second) == MEMORY_CASES
    for broadcast, memory in MEMORY_CASES:
        (ours, ours_then), (theirs, theirs_then) = first[broadcast, memory], second[broadcast, memory]
        assert ours.keys() == theirs.keys() == {"0", "2"}
        assert not any(torch.equal(m, theirs[name]) for name, m in ours.items())
        assert_close(ours_then, ours, 0)
        assert_close(theirs_then, ours if broadcast and memory != "per_slot" else theirs, 0)
