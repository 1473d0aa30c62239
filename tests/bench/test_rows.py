"""What a row is: the trainer's own run, undisturbed by the rows beside it, and fair to all."""

import numpy as np
import pytest
import torch

from msbp.bench.case import configuration
from msbp.bench.flops import Flops, backward_flops
from msbp.bench.memory import peak_mib
from msbp.bench.peers import masked
from msbp.bench.rounds import AT_LEAST, interleave
from msbp.bench.rows import Forming, Row, build
from msbp.bench.summary import compared, milliseconds, numbers
from msbp.config import compose
from msbp.sparse import top_k

TINY = 'overrides=["task.sample=tiny","model.hidden=20","task.batch_size=8"]'
cfg = compose([TINY], config="bench")


def row(name, *setting):
    config = configuration(cfg, setting, name)
    task = build(config.task)
    return Row(name, config, task, task.splits(0))


def weights(row):
    return torch.cat([parameter.detach().flatten() for parameter in row.run.model.parameters()])


@pytest.mark.parametrize("name", cfg.rows)
def test_all_rows_begin_with_equal_weights(name):
    assert torch.equal(weights(row(name)), weights(row("torch")))


def test_rows_in_turns_learn_what_each_learns_alone():
    alone = [row(name) for name in ("torch", "msbp")]
    for one in alone:
        one.steps(AT_LEAST * 4)
    together = [row(name) for name in ("torch", "msbp")]
    interleave(together, block=4, settle=1, seconds=0, done=lambda part: None)
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(weights(one), weights(other))


def test_a_row_without_sparsity_learns_what_the_dense_one_learns():
    dense, every = row("dense"), row("same_engine")
    dense.steps(5), every.steps(5)
    torch.testing.assert_close(weights(dense), weights(every))


def test_batches_never_end():
    short = row("torch")
    epoch = len(list(short.run.task.batches(short.run.splits.train, 0, 0)))
    assert len(short.steps(epoch + 3)) == epoch + 3 and short.run.state.epoch == 1


def test_gradients_are_formed_when_asked_and_training_goes_on_alike():
    formed, left = row("msbp"), row("msbp")
    seconds = formed.steps(3, form_gradients=True)
    left.steps(3)
    assert (seconds > 0).all()
    torch.testing.assert_close(weights(formed), weights(left), rtol=1e-4, atol=1e-5)


def test_forming_reads_every_gradient_before_it_clips():
    class Waiting:
        reads = 0

        @property
        def grad(self):
            self.reads += 1

    parameters, seen = [Waiting(), Waiting()], []
    Forming(lambda every: seen.extend(parameter.reads for parameter in every))(iter(parameters))
    assert seen == [1, 1]


def test_turns_are_kept_without_their_first_steps():
    class Counted:
        name, count = "counted", 0

        def steps(self, count):
            self.count += count
            return np.arange(self.count - count, self.count)[:, None] * np.ones(4)

    done = []
    seconds, _ = interleave([Counted()], block=3, settle=1, seconds=0, done=done.append)
    assert seconds["counted"][:, 0].tolist() == [1, 2, 4, 5, 7, 8] and done[-1] == 1


def test_masked_gradients_are_top_k():
    v = torch.randn(7, 30)
    assert torch.equal(masked(4, v), top_k(v, 4))


def test_the_masked_row_has_the_gradients_of_algorithm_1():
    batch = None
    gradients = []
    for name in ("masked_dense", "sbp"):
        one = row(name, "model.dropout=0.0", "paper.r=0.2")
        batch = next(one.run.batches()) if batch is None else batch
        one.run.task.loss(one.run.model, batch).backward()
        gradients.append([parameter.grad.clone() for parameter in one.run.model.parameters()])
    for theirs, ours in list(zip(*gradients, strict=True))[::2]:  # they differ in the bias: all or selected
        torch.testing.assert_close(theirs, ours)


def test_arithmetic_of_a_dense_backward_pass():
    torch_row = row("torch")
    flops = backward_flops(torch_row.run.task, torch_row.run.model, [next(torch_row.run.batches())])
    hidden, output = 784 * 20 + 20 * 20, 20 * 10
    assert flops.backward == 2 * 8 * (hidden + 20 * 20 + 2 * output)  # no gradient of the pixels
    assert flops.hidden_share == hidden / (hidden + output)
    assert flops.at(1) == flops.backward
    assert flops.at(0.5) == pytest.approx(flops.backward * (1 - flops.hidden_share / 2))


def test_the_peak_is_what_was_needed_at_once():
    def work():
        for _ in range(3):
            torch.ones(8 << 20)  # 32 MiB

    torch.ones(4 << 20)  # freed before, so it must not serve the work unseen
    assert 31 < peak_mib(work) < 36


def test_work_that_fails_has_no_peak(capfd):
    with pytest.raises(RuntimeError, match="exit code 1"):
        peak_mib(lambda: 1 / 0)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_row_is_described_by_medians_and_compared_by_them():
    seconds = np.array([[0.0, 1, 2, 3], [0, 1, 4, 3], [0, 1, 9, 3]]) / 1000
    one = row("sbp")
    mine = numbers(one, seconds, seconds * 2, Flops(1e9, 1.0))
    assert (mine["bp_ms"], mine["bp_update_ms"], mine["total_ms"]) == (4, 7, 8)
    assert mine["bp_materialised_ms"] == 8 and mine["bp_gflops"] == pytest.approx(0.04 * 1e9 / 0.008 / 1e9)
    assert milliseconds(seconds, [2], 0) == 2
    torch_row = mine | {"name": "torch", "bp_ms": 8.0, "bp_update_ms": 14.0, "total_ms": 8.0}
    ratios = compared([torch_row, mine])[1]
    assert ratios["vs_torch"] == {"bp": 2, "bp_update": 2, "total": 1} and ratios["vs_dense"] is None
