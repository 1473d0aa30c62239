"""The training loop: fair to all methods, timed by phases, deterministic, and exact when resumed."""

import copy
import math
import signal
from functools import partial
from itertools import count

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau

from msbp.config import build, compose
from msbp.methods import FullBackprop, SparseBackprop
from msbp.models.mlp import MLP
from msbp.optim import SGD, Adam, AdamW, clip_grad_norm_, clip_grad_value_
from msbp.tasks.base import Score, Splits
from msbp.tasks.mnist import Mnist
from msbp.tasks.synthetic import images
from msbp.training.checkpoint import Checkpoint
from msbp.training.clock import Clock
from msbp.training.state import Diverged
from msbp.training.trainer import Run, Trainer, labels, stop_between_steps

METHODS = {
    "baseline": FullBackprop(),
    "sbp": SparseBackprop(0.1, 0.0, name="sbp"),
    "msbp": SparseBackprop(0.1, 0.8),
    "per_slot": SparseBackprop(0.1, 0.8, memory="per_slot"),
    "sequential": SparseBackprop(0.1, 0.8, memory="sequential"),
    "unified": SparseBackprop(0.1, 0.8, selection="unified", bias="full"),
}


class Small(Mnist):
    """90 + 20 + 20 synthetic examples; the last batch of an epoch is short."""

    def splits(self, seed):
        return Splits(images(90, 1), images(20, 2), images(20, 3), {"inputs": 784, "outputs": 10})


def new_run(method, task=None, optimizer=Adam, scheduler=None, seed=0, clock=None, **sizes):
    task = task or Small("mnist", 20)
    splits = task.splits(seed)
    torch.manual_seed(seed)
    model = MLP(**splits.sizes, **{"hidden": 20, "dropout": 0.2} | sizes)
    method.install(model)
    make = partial(optimizer, lr=1e-3)
    return Run(model, make, task, method, splits, seed, torch.device("cpu"), clock or Clock(), scheduler)


def at(tmp_path, name="run"):
    return Checkpoint(tmp_path / f"{name}.pt", {"seed": 0})


def trained(run, checkpoint, epochs=3, **options):
    Trainer(epochs, **options).fit(run, checkpoint)
    return run


def equal(one, other):
    mine, theirs = one.model.state_dict(), other.model.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[key], theirs[key]) for key in mine)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_same_run_twice_gives_the_same_weights_bit_for_bit(method, tmp_path):
    one, two = (trained(new_run(method), at(tmp_path, name)) for name in ("one", "two"))
    assert equal(one, two) and one.state.history[-1]["loss"] == two.state.history[-1]["loss"]


class Killed(Exception):
    pass


class Mortal(Small):
    """Raises in the loss of its last step; warm-up steps are not counted."""

    last = None
    step = 0

    def loss(self, model, batch):
        if torch.is_grad_enabled() and self.counts:
            self.step += 1
            if self.step == self.last:
                raise Killed
        return super().loss(model, batch)


COSINE, PLATEAU = partial(CosineAnnealingLR, T_max=3), partial(ReduceLROnPlateau, mode="min", patience=0)
UPDATES = {  # optimizer and learning-rate schedule
    "adam": (Adam, None),
    "sgd": (partial(SGD, momentum=0.9), None),
    "adamw, cosine": (AdamW, COSINE),
    "sgd, plateau": (partial(SGD, momentum=0.9), PLATEAU),
}


@pytest.mark.parametrize(("optimizer", "scheduler"), UPDATES.values(), ids=UPDATES)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_run_killed_at_any_step_resumes_to_the_same_weights(
    method, optimizer, scheduler, tmp_path, monkeypatch
):
    """Dies every fourth step of 15, so in the middle, at the ends and between epochs."""
    whole = trained(new_run(method, None, optimizer, scheduler), at(tmp_path, "whole"), save_every=1)
    monkeypatch.setattr(Run, "warm_up", lambda run, clip: None)
    deaths = 0
    while True:
        task = Mortal("mnist", 20)
        task.counts, task.last = True, 5
        run = new_run(method, task, optimizer, scheduler)
        try:
            trained(run, at(tmp_path), save_every=1)
            break
        except Killed:
            deaths += 1
            assert deaths < 10
    assert deaths == 3 and run.resumed and equal(run, whole)
    assert [row["loss"] for row in run.state.history] == [row["loss"] for row in whole.state.history]
    assert [row["dev"] for row in run.state.history] == [row["dev"] for row in whole.state.history]
    assert [row.get("lr") for row in run.state.history] == [row.get("lr") for row in whole.state.history]


@pytest.mark.parametrize("change", [dict.clear, lambda schedule: schedule.pop("T_max")])
def test_a_checkpoint_without_its_schedule_is_refused(change, tmp_path):
    trained(new_run(METHODS["msbp"], scheduler=COSINE), checkpoint := at(tmp_path), epochs=1)
    kept = torch.load(checkpoint.path)
    change(kept["scheduler"])
    torch.save(kept, checkpoint.path)
    with pytest.raises(ValueError, match=r"no whole checkpoint \(scheduler is not the state of a Cosine"):
        Trainer(3).fit(new_run(METHODS["msbp"], scheduler=COSINE), checkpoint)


@pytest.mark.parametrize(
    ("share", "message"), [(1.0, []), (0.5, ["it got 50% of a processor's time, at least 90% is needed"])]
)
def test_a_run_that_waited_for_the_processor_is_marked(share, message, tmp_path):
    now, work = count(), count()
    clock = Clock(now=lambda: next(now), work=lambda: share * next(work))
    run = trained(new_run(METHODS["sbp"], clock=clock), at(tmp_path), epochs=1)
    assert run.disturbed() == message and run.measured()["processor_share"] == clock.processor_share


def test_a_resumed_run_logs_its_step_and_epoch(tmp_path, caplog):
    checkpoint = at(tmp_path)
    trained(new_run(METHODS["sbp"]), checkpoint, epochs=1)
    with caplog.at_level("INFO"):
        trained(new_run(METHODS["sbp"]), checkpoint, epochs=2)
    assert "resuming after step 5, in epoch 2" in caplog.text


@pytest.mark.parametrize("save_every", [None, 1, 4])
def test_saving_does_not_change_a_run(save_every, tmp_path):
    one = trained(new_run(METHODS["msbp"]), at(tmp_path, "one"), save_every=save_every)
    assert equal(one, trained(new_run(METHODS["msbp"]), at(tmp_path, "two")))


def test_the_checkpoint_contains_memory_method_and_ratios(tmp_path):
    run = trained(new_run(METHODS["msbp"]), checkpoint := at(tmp_path))
    kept = checkpoint.load()
    assert {name: tuple(m.shape) for name, m in kept["memories"].items()} == {
        "net.0": (1, 20),
        "net.3": (1, 20),
    }
    assert all(m.abs().sum() > 0 for m in kept["memories"].values())
    assert kept["state"]["step"] == run.state.step == 15


def test_warm_up_changes_nothing_of_the_run():
    run = new_run(METHODS["msbp"])
    before, generator = copy.deepcopy(run.capture()), torch.get_rng_state()
    run.warm_up(clip=None)
    after = run.capture()
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(before["model"][key], after["model"][key]) for key in before["model"])
    assert all(torch.equal(before["memories"][key], after["memories"][key]) for key in before["memories"])
    assert before["optimizer"] == after["optimizer"] and before["clock"] == after["clock"]
    assert before["state"] == after["state"] and all(p.grad is None for p in run.model.parameters())


class Ticking:
    """A time source that each call moves by one."""

    at = 0.0

    def __call__(self):
        self.at += 1
        return self.at


def test_a_step_is_timed_in_four_phases_and_evaluation_is_not_timed(tmp_path):
    clock = Clock(now=Ticking())
    trained(new_run(METHODS["msbp"], clock=clock), at(tmp_path))
    # 15 steps, and one look for a batch at the end of each of 3 epochs
    assert clock.seconds() == {"data_s": 18, "forward_s": 15, "bp_s": 15, "update_s": 15, "total_s": 63}


def test_times_of_a_killed_run_add_up(tmp_path, monkeypatch):
    monkeypatch.setattr(Run, "warm_up", lambda run, clip: None)
    task = Mortal("mnist", 20)
    task.counts, task.last = True, 8
    with pytest.raises(Killed):
        trained(new_run(METHODS["sbp"], task, clock=Clock(now=Ticking())), at(tmp_path))
    run = trained(new_run(METHODS["sbp"], clock=Clock(now=Ticking())), at(tmp_path))
    assert run.clock["backward"] == run.state.step == 15 and run.measured()["resumed"]


def test_full_ratio_without_memory_is_the_baseline(tmp_path):
    full = trained(new_run(SparseBackprop(1.0, 0.0)), at(tmp_path, "full"))
    baseline = trained(new_run(METHODS["baseline"]), at(tmp_path, "baseline"))
    for ours, theirs in zip(full.state.history, baseline.state.history, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4) and ours["dev"] == theirs["dev"]


def test_test_is_taken_at_the_first_best_dev_epoch_and_at_the_last():
    run = new_run(METHODS["baseline"])
    scores = iter([50, 10, 70, 20, 70, 60, 30])  # dev, test; dev, test; dev; dev and test of the last
    run.score = lambda split: Score(value := next(scores), "fixed", {"half": value / 2}, [str(value)])
    run.state.step_in_epoch = 1
    for last in (False, False, False, True):
        run.state.step_in_epoch = 1
        run.end_epoch(last)
    measured = run.measured()
    assert (measured["dev"], measured["test"], measured["best_epoch"], measured["test_last"]) == (
        70,
        20,
        2,
        30,
    )
    assert [row["test"] for row in measured["history"]] == [10, 20, None, 30]
    assert run.state.texts == ["20"]
    assert [row["test_half"] for row in measured["history"]] == [5, 10, None, 15]


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    class Broken(Small):
        def loss(self, model, batch):
            return super().loss(model, batch) * float("nan")

    with pytest.raises(FloatingPointError, match="training diverged in epoch 1, step 1: the loss is nan"):
        trained(new_run(METHODS["baseline"], Broken("mnist", 20)), at(tmp_path))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_method_diverges_in_the_same_step_with_the_same_message(method, tmp_path):
    with pytest.raises(Diverged, match="in epoch 1, step 2: the loss is (nan|inf); a smaller optimizer.lr"):
        trained(new_run(method, optimizer=lambda params, lr: Adam(params, lr=1e38)), at(tmp_path))
    assert not (tmp_path / "run.pt").exists()


class Breaking(Small):
    """The last step of an epoch leaves the weights, or the score, not finite."""

    breaks = "weights"

    def loss(self, model, batch):
        self.model = model
        return super().loss(model, batch)

    def batches(self, split, seed, epoch):
        yield from super().batches(split, seed, epoch)
        if split is self.train and self.breaks == "weights":
            self.model.net[0].weight.data[3, 4] = math.nan

    def score(self, model, split):
        return Score(math.nan, "broken") if self.breaks == "score" else super().score(model, split)


@pytest.mark.parametrize(
    ("breaks", "message"),
    [("weights", "model.net.0.weight is not finite"), ("score", "accuracy on dev is nan")],
)
def test_weights_and_scores_that_are_not_finite_are_neither_saved_nor_recorded(breaks, message, tmp_path):
    task = Breaking("mnist", 20)
    task.breaks = breaks
    run = new_run(METHODS["msbp"], task)
    task.train = run.splits.train
    with pytest.raises(Diverged, match=f"in epoch 1, step 5: {message}"):
        trained(run, at(tmp_path))
    assert not run.state.history and not (tmp_path / "run.pt").exists()


def test_clipping_is_called_after_the_backward_pass(tmp_path):
    seen = []

    def clip(parameters):
        seen.append(all(p.grad is not None for p in parameters))

    trained(new_run(METHODS["msbp"]), at(tmp_path), epochs=1, clip=clip)
    assert len(seen) >= 5 and all(seen)


@pytest.mark.parametrize(
    ("choice", "rule"), [("norm", clip_grad_norm_), ("value", clip_grad_value_)], ids=["norm", "value"]
)
def test_a_step_calls_the_configured_clipping_itself_without_hydra_in_between(choice, rule):
    cfg = compose(["task=mnist", f"+clip={choice}"])
    clip = build(cfg.trainer).clip
    assert type(clip) is partial and clip.func is rule


@pytest.mark.parametrize("value", [-1, 0, math.nan])
@pytest.mark.parametrize(("rule", "key"), [(clip_grad_value_, "clip_value"), (clip_grad_norm_, "max_norm")])
def test_a_clip_that_refuses_its_value_does_so_before_any_work(rule, key, value):
    with pytest.raises(ValueError, match=f"{key} must be positive, got {value}"):
        Trainer(1, clip=partial(rule, **{key: value}))


def without(name):
    return lambda kept: kept.pop(name)


def moments(kept):
    """The optimizer's state of a weight with rows behind in their steps."""
    return next(state for state in kept["optimizer"]["state"].values() if "last_step" in state)


WRONG = {
    **{f"no {name}": without(name) for name in ("state", "clock", "model", "memories", "optimizer", "rng")},
    "empty memories": lambda kept: kept.update(memories={}),
    "empty optimizer": lambda kept: kept.update(optimizer={}),
    "empty clock": lambda kept: kept.update(clock={}),
    "unknown key": lambda kept: kept["state"].update(nope=1),
    "text for a number": lambda kept: kept["state"].update(epoch="abc"),
    "other shapes": lambda kept: kept["model"].update({"net.0.weight": torch.ones(3, 3)}),
    "other random state": lambda kept: kept.update(rng=torch.ones(3)),
    "weights of nan": lambda kept: kept["model"]["net.0.weight"].fill_(math.nan),
    "a clock of nan": lambda kept: kept["clock"].update(backward=math.nan),
    "a clock that went back": lambda kept: kept["clock"].update(processor=-1.0),
    "a row of great age": lambda kept: moments(kept)["last_step"].fill_(-(2**30)),
    "a row of the future": lambda kept: moments(kept)["last_step"].fill_(2**30),
    "more steps than the run": lambda kept: moments(kept).update(step=2**30),
    "moments of other shapes": lambda kept: moments(kept).update(exp_avg=torch.ones(3)),
    "an infinite moment": lambda kept: moments(kept)["exp_avg_sq"].fill_(math.inf),
    "no optimizer state": lambda kept: kept["optimizer"].update(state={}),
    "negative steps": lambda kept: kept["state"].update(step=-1),
    "a loss of nan": lambda kept: kept["state"].update(losses=math.nan),
    "no row for an epoch": lambda kept: kept["state"].update(history=[]),
    "a row without a score": lambda kept: kept["state"]["history"][0].pop("dev"),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_checkpoint_with_wrong_fields_is_refused(change, tmp_path, interrupted):
    kept = torch.load(interrupted)
    change(kept)
    torch.save(kept, tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"run\.pt is no whole checkpoint \(.+\): delete it to start"):
        Trainer(3).fit(new_run(METHODS["msbp"]), at(tmp_path))


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    trained(new_run(METHODS["msbp"]), checkpoint := at(tmp_path_factory.mktemp("kept")), epochs=1)
    return checkpoint.path


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"epochs": 1.5}, {"epochs": True}, {"threads": 0}, {"save_every": 0}]
)
def test_counts_below_one_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Trainer(**{"epochs": 1} | wrong)


def test_a_missing_device_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA device; use trainer.device=cpu or auto"):
        Trainer(1, device="cuda")
    Trainer(1, device="auto")


def test_labels_are_counted_without_padding(tmp_path):
    assert labels((torch.zeros(3, 5), torch.tensor([0, 1, 0]))) == 3
    assert labels((torch.tensor([[7, 3, 0], [3, 0, 0]]),)) == 3
    assert trained(new_run(METHODS["baseline"]), at(tmp_path)).state.labels == 3 * 90


BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture
def handlers():
    """Set the signal handlers that a terminal sets."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", BOTH)
@pytest.mark.parametrize("second", BOTH)
def test_the_first_signal_stops_between_steps_and_the_second_at_once(handlers, first, second):
    with pytest.raises(KeyboardInterrupt), stop_between_steps() as stop:
        assert not stop.is_set()
        signal.raise_signal(first)
        assert stop.is_set()
        signal.raise_signal(second)
        pytest.fail("the second one did not interrupt")


@pytest.mark.parametrize("ignored", BOTH)
def test_an_ignored_signal_stays_ignored(handlers, ignored):
    signal.signal(ignored, signal.SIG_IGN)
    other = next(number for number in BOTH if number != ignored)
    with stop_between_steps() as stop:
        signal.raise_signal(ignored)
        assert not stop.is_set()
        signal.raise_signal(other)
        signal.raise_signal(ignored)
        assert stop.is_set()
    assert signal.getsignal(ignored) == signal.SIG_IGN
    assert signal.getsignal(other) == signal.default_int_handler
