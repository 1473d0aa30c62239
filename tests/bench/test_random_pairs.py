"""The translation case: its batches, and the output layer's share of its backward pass."""

import pytest
import torch

from msbp.bench.case import configuration
from msbp.bench.output import output_share
from msbp.bench.random_pairs import RandomPairs
from msbp.bench.rows import Row, build
from msbp.config import compose
from msbp.models.mlp import MLP

PAIRS = RandomPairs("nmt", source_words=300, target_words=200, batch_size=16)
TINY = ["model.embedding=8", "model.hidden=8", "model.layers=1", "+task.longest=6", "task.batch_size=8"]


def batches(seed):
    return list(PAIRS.batches(PAIRS.splits(seed).train, seed, 0))


def test_pairs_are_what_a_translator_learns_from():
    for source, lengths, given, wanted in batches(0):
        assert source.shape == (16, int(lengths.max())) and given.shape == wanted.shape
        assert 4 <= source[source != 0].min() and source.max() < 300 and wanted.max() < 200
        assert ((source != 0).sum(1) == lengths).all() and lengths.max() <= 50
        assert (given[:, 0] == 2).all() and ((wanted == 3).sum(1) == 1).all()


def test_pairs_depend_on_the_seed_alone():
    one, same, other = batches(0), batches(0), batches(1)
    assert all(
        torch.equal(*sides) for pair in zip(one, same, strict=True) for sides in zip(*pair, strict=True)
    )
    assert any(a.shape != b.shape for a, b in zip(one[0], other[0], strict=True))


def test_frequent_words_are_frequent():
    counts = torch.cat([source.flatten() for source, *_ in batches(0)]).bincount()
    assert counts[4] > 5 * counts[40] > 0


def test_the_output_layers_share_is_part_of_the_backward_pass():
    config = configuration(compose(["case=nmt"], config="bench"), TINY, "torch")
    task = build(config.task)
    row = Row("torch", config, task, task.splits(0))
    assert 0 < output_share(row) < 1
    assert not row.run.model.output._backward_hooks and not row.run.model.output._backward_pre_hooks
    row.run.model = MLP(4, 3)
    assert output_share(row) is None


@pytest.mark.parametrize("name", ["torch", "dense", "sbp", "msbp"])
def test_the_case_has_the_papers_sizes(name):
    cfg = configuration(compose(["case=nmt"], config="bench"), [], name)
    assert (cfg.model.hidden, cfg.model.layers, cfg.task.target_words) == (512, 3, 7709)
    assert name in ("torch", "dense") or (cfg.method.r, cfg.method.schedule) == (1 / 16, "every")
