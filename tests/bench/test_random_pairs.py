"""The synthetic tasks: their batches, and the sizes of the cases that train on them."""

import pytest
import torch

from msbp.bench.case import BenchOptions, configuration
from msbp.bench.costs import output_share
from msbp.bench.random_pairs import RandomPairs, RandomPoints
from msbp.config import compose

from .models import model

PAIRS = RandomPairs("nmt", source_words=300, target_words=200, batch_size=16)
TINY = ["model.embedding=8", "model.hidden=8", "model.layers=1", "+task.longest=6", "task.batch_size=8"]


def batches(seed, task=PAIRS):
    return list(task.batches(task.splits(seed).train, seed, 0))


def options(case):
    return BenchOptions.of(compose([f"case={case}"], config="bench"))


def test_random_pairs_are_batches_of_the_translation_task():
    for source, lengths, given, labels in batches(0):
        assert source.shape == (16, int(lengths.max())) and given.shape == labels.shape
        assert 4 <= source[source != 0].min() and source.max() < 300 and labels.max() < 200
        assert ((source != 0).sum(1) == lengths).all() and lengths.max() <= 50
        assert (given[:, 0] == 2).all() and ((labels == 3).sum(1) == 1).all()


def test_pairs_depend_on_the_seed_alone():
    one, same, other = batches(0), batches(0), batches(1)
    assert all(
        torch.equal(*sides) for pair in zip(one, same, strict=True) for sides in zip(*pair, strict=True)
    )
    assert any(a.shape != b.shape for a, b in zip(one[0], other[0], strict=True))


def test_word_frequencies_fall_with_the_rank():
    counts = torch.cat([source.flatten() for source, *_ in batches(0)]).bincount()
    assert counts[4] > 5 * counts[40] > 0


def test_points_have_the_class_of_the_sum_of_their_coordinates():
    task = RandomPoints("points", inputs=20, batch_size=16)
    first, *_, last = batches(0, task)
    for x, y in (first, last):
        assert x.shape == (16, 20) and torch.equal(y, (x.sum(1) > 0).long())
    assert torch.equal(first[0], batches(0, task)[0][0]) and not torch.equal(first[0], batches(1, task)[0][0])


def test_the_output_layers_share_is_part_of_the_backward_pass():
    one = model("torch", *TINY, options=options("nmt"))
    assert 0 < output_share(one) < 1
    assert not one.run.model.output._backward_hooks and not one.run.model.output._backward_pre_hooks


@pytest.mark.parametrize("name", options("nmt").names)
def test_translation_has_the_papers_sizes_and_the_tasks_schedule(name):
    cfg = configuration(options("nmt"), [], name)
    assert (cfg.model.hidden, cfg.model.layers, cfg.task.target_words) == (512, 3, 7709)
    task = compose(["task=en_vi"])
    if name not in ("torch", "dense"):
        assert cfg.method.r == task.method.r == 1 / 16
        assert cfg.method.schedule == ("every" if name.endswith("_every_step") else task.method.schedule)


def test_layers_in_turn_propagate_the_mean_of_their_steps():
    shares = {
        name: model(name, *TINY, options=options("nmt")).r for name in ("msbp", "msbp_every_step", "dense")
    }
    assert shares == {"msbp": (1 + 1 / 16) / 2, "msbp_every_step": 1 / 16, "dense": 1}


@pytest.mark.parametrize("name", options("example").names)
def test_the_example_has_the_readmes_sizes(name):
    cfg = configuration(options("example"), [], name)
    assert (cfg.model.hidden, cfg.model.layers, cfg.model.dropout) == (250, 2, 0)
    assert (cfg.task.inputs, cfg.task.batch_size, cfg.paper.r) == (20, 512, 0.04)
