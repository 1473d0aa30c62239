"""A timed model trains as the trainer's own run does, independently of the models timed in turn with it."""

import numpy as np
import pytest
import torch

from msbp.bench.timed_model import MIN_ROUNDS, Timing, interleave

from .models import OPTIONS, model


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.run.model.parameters()])


@pytest.mark.parametrize("name", OPTIONS.rows)
def test_all_models_begin_with_equal_weights(name):
    assert torch.equal(weights(model(name)), weights(model("torch")))


def test_models_in_turns_learn_what_each_learns_alone():
    alone = [model(name) for name in ("torch", "msbp")]
    for one in alone:
        one.steps(MIN_ROUNDS * 4)
    together = [model(name) for name in ("torch", "msbp")]
    interleave(together, block=4, settle=1, seconds=0, done=lambda share: None)
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(weights(one), weights(other))


def test_a_model_without_sparsity_learns_what_the_dense_one_learns():
    dense, every = model("dense"), model("same_engine")
    dense.steps(5), every.steps(5)
    torch.testing.assert_close(weights(dense), weights(every))


def test_batches_never_end():
    short = model("torch")
    epoch = len(list(short.run.task.batches(short.run.splits.train, 0, 0)))
    assert len(short.steps(epoch + 3).seconds) == epoch + 3 and short.run.state.epoch == 1


def test_every_step_has_the_shapes_of_its_batch():
    sevens = OPTIONS.model_copy(update={"overrides": [*OPTIONS.overrides, "task.batch_size=7"]})
    short = model("torch", options=sevens)
    epoch = [tuple(part.shape for part in batch) for batch in short.run.batches()]
    assert short.steps(len(epoch) + 1).shapes == [*epoch, epoch[0]] and len(set(epoch)) == 2
    assert {shapes: tuple(part.shape for part in batch) for shapes, batch in short.examples.items()} == {
        shapes: shapes for shapes in epoch
    }


def test_the_first_steps_of_a_turn_are_not_measured():
    class Counted:
        name, count = "counted", 0

        def __init__(self):
            self.examples = {"of warm-up": ()}

        def steps(self, count):
            self.count += count
            steps = np.arange(self.count - count, self.count)
            return Timing(steps[:, None] * np.ones(4), steps.tolist())

    done, counted = [], Counted()
    timings, _ = interleave([counted], block=3, settle=1, seconds=0, done=done.append)
    assert timings["counted"].seconds[:, 0].tolist() == timings["counted"].shapes == [1, 2, 4, 5, 7, 8]
    assert done[-1] == 1 and not counted.examples


@pytest.mark.parametrize(
    ("method", "share"), [("sbp", 0.04), ("adaptive", 0.1), ("weight_feedback", 1), ("baseline", 1)]
)
def test_arithmetic_is_counted_for_the_share_that_a_method_propagates(method, share):
    row = {"own": [f"method={method}"]}
    assert model("own", options=OPTIONS.model_copy(update={"rows": row})).r == pytest.approx(share)
