"""The gradient estimation angle: its definition, and that measuring it changes nothing."""

import math
from itertools import count

import pytest
import torch

from msbp.config import compose
from msbp.methods import FullBackprop, SparseBackprop, WeightFeedback
from msbp.models.mlp import MLP
from msbp.optim import Adam
from msbp.record import signature
from msbp.sparse import memories
from msbp.tasks.base import Splits
from msbp.tasks.mnist import Mnist
from msbp.tasks.synthetic import images
from msbp.training.checkpoint import Checkpoint
from msbp.training.clock import Clock
from msbp.training.probes import Angle, angle, angles, departures, gradients, hidden_names
from msbp.training.trainer import Run, Trainer

SBP, MSBP = SparseBackprop(0.1, 0.0, name="sbp"), SparseBackprop(0.1, 0.8)
LAYERS = {"net.0", "net.3", "net.6", "hidden", "total"}


class Small(Mnist):
    """50 + 20 + 20 synthetic examples; the last batch of an epoch is short."""

    def splits(self, seed):
        return Splits(images(50, 1), images(20, 2), images(20, 3), {"inputs": 784, "outputs": 10})


def new_run(method, **sizes):
    task = Small("mnist", 20)
    splits = task.splits(0)
    torch.manual_seed(0)
    model = MLP(**splits.sizes, **{"hidden": 20, "dropout": 0.2} | sizes)
    method.install(model)
    clock = Clock(now=count().__next__, work=count().__next__)
    return Run(model, Adam, task, method, splits, 0, torch.device("cpu"), clock)


def trained(run, tmp_path, name, epochs=2, watch=None):
    Trainer(epochs, watch=watch).fit(run, Checkpoint(tmp_path / f"{name}.pt", {"seed": 0}))
    return run


def measured(run, batch_size=20):
    batches = Small("mnist", batch_size).batches(run.splits.train, 0, 0)
    return angles(*gradients(run.model, run.task, batches), hidden_names(run.model))


@pytest.mark.parametrize(
    ("y", "expected"), [(0.0, 0.0), (1e-9, 1e-9), (1.0, math.pi / 4), (1e9, math.pi / 2)]
)
def test_an_angle_keeps_its_digits_also_where_it_is_tiny(y, expected):
    a, b = torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([1.0, y], dtype=torch.float64)
    assert angle([a], [b]) == pytest.approx(expected, rel=1e-6)
    assert angle([a, a], [-3 * a, -3 * a]) == pytest.approx(math.pi)


def test_a_zero_estimate_is_exact_for_a_zero_gradient_and_orthogonal_to_any_other():
    zero, one = torch.zeros(3), torch.ones(3)
    assert (angle([zero], [zero]), angle([zero], [one])) == (0.0, math.pi / 2)


@pytest.mark.parametrize("method", [FullBackprop(), SparseBackprop(1.0, 0.0)], ids=["baseline", "r=1"])
def test_full_backpropagation_has_angle_zero(method):
    angles = measured(new_run(method))
    assert angles.keys() == LAYERS and max(angles.values()) < 1e-5


def test_fewer_entries_make_a_larger_angle_in_hidden_layers_and_none_in_the_output():
    few, more = (measured(new_run(SparseBackprop(r, 0.0))) for r in (0.05, 0.5))
    assert few["net.6"] == more["net.6"] == 0.0
    for layer in ("net.0", "net.3", "hidden", "total"):
        assert 0 < more[layer] < few[layer] <= math.pi / 2


def test_the_gradients_are_those_of_the_whole_data_set_however_it_is_batched():
    run = new_run(SBP, dropout=0.0)
    assert measured(run, 20) == pytest.approx(measured(run, 50), rel=1e-4)


def test_the_estimate_starts_from_the_memory_of_the_run(tmp_path):
    run = trained(new_run(MSBP), tmp_path, "run")
    remembering = measured(run)
    for memory in memories(run.model).values():
        memory.load(torch.zeros_like(memory.m))
    assert remembering["net.0"] != measured(run)["net.0"]


def test_a_probe_changes_neither_the_run_nor_its_clock(tmp_path):
    plain = trained(new_run(MSBP), tmp_path, "plain")
    after, kept = torch.get_rng_state(), plain.capture()
    watched = trained(new_run(MSBP), tmp_path, "watched", watch=Angle())
    assert torch.equal(torch.get_rng_state(), after)
    theirs = watched.capture()
    for part in ("model", "memories"):
        assert all(torch.equal(kept[part][name], theirs[part][name]) for name in kept[part])
    assert kept["clock"] == theirs["clock"] and kept["state"]["history"] == theirs["state"]["history"]
    assert [(seen["step"], seen["epoch"]) for seen in watched.state.watched] == [(0, 0), (3, 1), (6, 2)]


def test_a_resumed_run_keeps_earlier_angles_and_measures_only_the_requested_ones(tmp_path):
    trained(new_run(SBP), tmp_path, "run", epochs=2, watch=Angle(2))
    run = trained(new_run(SBP), tmp_path, "run", epochs=5, watch=Angle(2))
    assert run.resumed and [seen["epoch"] for seen in run.state.watched] == [0, 2, 4]
    assert all(seen["angle"].keys() == LAYERS for seen in run.state.watched)


def test_a_run_with_a_probe_is_a_request_of_its_own():
    plain, watched = compose(), compose(["watch=angle"])
    assert signature(plain) != signature(watched)
    del plain.trainer.watch
    assert signature(plain) == signature(compose()), "records from before there was a watch stay valid"


def test_the_exact_gradient_of_the_output_layer_makes_the_total_smaller_than_that_of_the_hidden_layers():
    angles = measured(new_run(SBP))
    assert angles["total"] < angles["hidden"] <= angles["net.0"] + angles["net.3"]


@pytest.mark.parametrize("every", [0, 1.5, True])
def test_the_interval_of_a_probe_must_be_an_integer(every):
    with pytest.raises(ValueError, match="every"):
        Angle(every=every)


def departed(method, batch_size, copies):
    """The departure of a batch that is repeated, so that sums over many steps are of one true gradient."""
    run = new_run(method, dropout=0.0, layers=1)
    batch = next(iter(Small("mnist", batch_size).batches(run.splits.train, 0, 0)))
    sums = gradients(run.model, run.task, [batch] * copies)
    return departures(*sums, hidden_names(run.model))


def test_with_gamma_1_sums_of_bias_gradients_depart_only_by_the_memory():
    msbp, sbp = SparseBackprop(0.1, 1.0), SparseBackprop(0.1, 0.0, name="sbp")
    few, many, lost = (departed(method, 10, n) for method, n in ((msbp, 5), (msbp, 200), (sbp, 200)))
    assert many["bias"] < 0.1 * few["bias"] and many["bias"] < 0.1 * lost["bias"]
    assert many["weight"] > 2 * many["bias"], "old gradients meet the input of other examples"


def test_a_probe_keeps_the_departure_beside_the_angle():
    (result,) = Angle()(new_run(MSBP))
    assert result["departure"].keys() == {"weight", "bias"}
    assert all(0 < share < 2 for share in result["departure"].values())
    (whole,) = Angle()(new_run(FullBackprop()))
    assert whole["departure"] == {"weight": 0.0, "bias": 0.0}


def test_a_method_that_the_probe_does_not_support_is_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match="watch=angle measures what layers propagate"):
        trained(new_run(WeightFeedback(0.1)), tmp_path, "run", watch=Angle())
