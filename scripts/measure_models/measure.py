"""Speed and learning of the models, plain and converted. Needs transformers."""

import copy
import math
import multiprocessing
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from msbp.files import json_text, parsed, save
from msbp.optim import AdamW
from msbp.sparse import convert, fuse
from msbp.training import machine

from .models import MODELS, Measured
from .table import ROOT
from .trainings import FUSED, GENTLE, PLAIN, SPEED_SETTING, TIMES, TRAININGS, Setting

WIDE = 768
SPEED, LEARNING, LR = (8, 64), (8, 9), 1e-3  # examples and length of a batch
TURN, SETTLE = 3, 1  # steps of a turn that count, and before them, when other models' data fill the cache
PARTS = ROOT / "outputs/models.parts.json"
CPU = torch.device("cpu")
CONDITIONS = (
    "lr", "batch", "learning_batch", "steps", "seeds", "transformers", "cpu", "torch", "numba", "blas",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """Numbers of timed steps, and steps and seeds of each training."""

    rounds: int
    steps: int
    seeds: tuple[int, ...]

    def rounds_of(self, model: Measured) -> int:
        """Return the number of timed steps of a model."""
        return self.rounds if model.width < WIDE else max(1, self.rounds // 3)


class Training:
    """A model with its optimizer, one step at a time; ValueError where convert refuses the model."""

    def __init__(self, model: nn.Module, setting: Setting):
        self.model = model.train()
        self.optimizer: torch.optim.Optimizer
        if setting is PLAIN:
            self.optimizer = torch.optim.AdamW(model.parameters(), LR, fused=True)
            return
        if setting is FUSED:
            fuse(model)
        else:
            convert(model, **setting.arguments)
        self.optimizer = AdamW(model.parameters(), LR)

    def step(self, batch: dict[str, Tensor]) -> tuple[float, float, float]:
        """Return the loss, and the seconds of the backward pass and of all."""
        begin = time.perf_counter()
        loss = self.model(**batch)["loss"]
        middle = time.perf_counter()
        loss.backward()
        end = time.perf_counter()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item(), end - middle, time.perf_counter() - begin


class Free(torch.autograd.Function):
    """The output of a layer, with a backward pass that takes no time: the input stands for its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Callable[..., Any]) -> Tensor:
        with torch.no_grad():
            out = layer(x)
        ctx.save_for_backward(x)
        return out[0] if isinstance(out, tuple) else out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.saved_tensors[0], None


def free(model: nn.Module) -> nn.Module:
    """Give the layers that convert would take a backward pass that takes no time, in place."""
    for name in convert(copy.deepcopy(model), **SPEED_SETTING.arguments):
        layer: Any = model.get_submodule(name)
        plain, whole = layer.forward, isinstance(layer, nn.LSTM)
        layer.forward = lambda x, plain=plain, whole=whole: (
            (Free.apply(x, plain), None) if whole else Free.apply(x, plain)
        )
    return model


def speed(model: Measured, size: tuple[int, int], rounds: int) -> dict[str, list[Any]]:
    """Return median milliseconds per step; none of a model that convert refuses.

    bp_ms: of the backward pass of the plain model, of the converted one, and of one whose converted layers
    take no time in it. total_ms: of the step of the plain, of the converted and of the fused model, and of
    the one whose feed-forward layers alone are converted, None if it has no others.
    """
    torch.manual_seed(0)
    plain = model.kind(model.width, size[1])
    names = applicable(model)
    if SPEED_SETTING.name not in names:
        return {}
    settings = [SPEED_SETTING, FUSED, *[GENTLE] * (GENTLE.name in names)]
    trainings = [Training(copy.deepcopy(plain), setting) for setting in settings]
    trainings += [Training(free(copy.deepcopy(plain)), PLAIN), Training(plain, PLAIN)]
    times: list[list[tuple[float, float]]] = [[] for _ in trainings]
    for turn in range(1 + math.ceil(rounds / TURN)):  # the first warms up
        batches = [model.batches(*size) for _ in range(SETTLE + TURN)]
        for training, own in zip(trainings, times, strict=True):
            steps = [training.step(batch) for batch in batches]
            if turn:
                own += [(1000 * backward, 1000 * total) for _, backward, total in steps[SETTLE:]]
    sparse, fused, *gentle, least, dense = (
        [round(median(column), 3) for column in zip(*own, strict=True)] for own in times
    )
    totals = [dense[1], sparse[1], fused[1], gentle[0][1] if gentle else None]
    return {"bp_ms": [dense[0], sparse[0], least[0]], "total_ms": totals}


def layers(model: Measured) -> dict[str, int]:
    """Return the numbers of layers, of layers that convert takes, and of parameters."""
    network = model.kind(model.width, SPEED[1])
    kinds = [
        m for m in network.modules() if isinstance(m, nn.Linear | nn.LSTM) or type(m).__name__ == "Conv1D"
    ]
    counts = {"linear": len(kinds), "parameters": sum(p.numel() for p in network.parameters())}
    return {"converted": len(converted(network, SPEED_SETTING)), **counts}


def converted(network: nn.Module, setting: Setting) -> Collection[str]:
    """Return the names of the layers that convert takes, none where it refuses."""
    try:
        return convert(network, **setting.arguments)
    except ValueError:
        return ()


def trainings_of(model: Measured) -> list[str]:
    """Return the names of a model's trainings, none of one that is measured for its speed alone."""
    return applicable(model) if model.learns else []


def applicable(model: Measured) -> list[str]:
    """Return the trainings that convert has for a model; none of feed-forward layers that have no others."""
    taken = {
        name: set(converted(model.kind(model.width, LEARNING[1]), setting))
        for name, setting in TRAININGS.items()
        if setting is not PLAIN
    }
    every = set().union(*taken.values())
    return [
        name
        for name, setting in TRAININGS.items()
        if setting is PLAIN or (taken[name] and not (setting.feed_forward and taken[name] == every))
    ]


def final_loss(key: str, name: str, seed: int, steps: int) -> float:
    """Return the mean loss over the last tenth of a training, on one thread."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    model = MODELS[key]
    torch.manual_seed(seed)
    training = Training(model.kind(model.width, LEARNING[1]), TRAININGS[name])
    torch.manual_seed(1000 + seed)
    losses = [training.step(model.batches(*LEARNING))[0] for _ in range(steps)]
    return mean(losses[-max(1, steps // 10) :])


class Parts:
    """Finished ones of these measurements, in a file that belongs to one plan and one state of the code."""

    def __init__(self, path: Path, settings: Mapping[str, Any], names: Collection[tuple[Any, ...]]):
        self.path, self.settings, self.expected = path, dict(settings), len(names)
        self.begin, self.found = time.monotonic(), {}
        if path.exists():
            stored = parsed(path.read_bytes())
            if stored["settings"] == parsed(json_text(self.settings)):
                self.found = {
                    name: stored["found"][name] for name in map(str, names) if name in stored["found"]
                }
                print(f"{len(self.found)} of {self.expected} measurements are in {path} already", flush=True)

    def missing(self, names: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the names of what is not measured yet."""
        return [name for name in names if str(name) not in self.found]

    def add(self, name: tuple[Any, ...], value: Any) -> None:
        """Store a measurement and print it."""
        self.found[str(name)] = value
        save({self.path: json_text({"settings": self.settings, "found": self.found})})
        minutes, seconds = divmod(int(time.monotonic() - self.begin), 60)
        words = " ".join(map(str, name))
        print(f"[{len(self.found)}/{self.expected} {minutes}:{seconds:02}] {words}: {value}", flush=True)


def measure(
    plan: Plan, out: Path, allow_dirty: bool = False, keep: Iterable[Path] = (), again: Collection[str] = (),
    columns: Collection[str] = (TIMES, *TRAININGS),
) -> None:  # fmt: skip
    """Measure what is missing, then write all results to a file; ValueError where code is not committed.

    columns: "speed" and names of trainings; of others nothing is missing. keep: files whose results are not
    missing either, the last one's first, but for the columns `again`.
    """
    torch.set_flush_denormal(True)
    here = machine.describe(CPU)
    if here["dirty"] and not allow_dirty:
        raise ValueError(
            "the code has uncommitted changes, so nobody could repeat this: commit, or give --out"
        )
    threads = sorted({1, machine.cores()})
    settings: dict[str, Any] = {
        "r": SPEED_SETTING.r, "trainings": list(TRAININGS), "wide": WIDE, "lr": LR, "batch": SPEED,
        "learning_batch": LEARNING, **asdict(plan), "threads": threads,
        "transformers": transformers.__version__,
        **{name: here[name] for name in ("commit", "machine", "cpu", "torch", "numba", "blas")},
    }  # fmt: skip
    kept, commits = dict[str, Any](), dict[str, list[str]]()
    for file in keep:
        of_models, of_file = results(file, settings, again)
        kept |= of_models
        commits |= of_file
    times = [(key, count) for key in MODELS for count in threads if TIMES in columns]
    trainings = [
        (key, name, seed)
        for key, model in MODELS.items()
        if not {TIMES}.issuperset(columns)
        for name in trainings_of(model)
        if name in columns
        for seed in plan.seeds
    ]
    times = [name for name in times if str(name) not in kept]
    trainings = [name for name in trainings if str(name) not in kept]
    parts = Parts(out.with_suffix(".parts") if allow_dirty else PARTS, settings, (*times, *trainings))
    for column in (TIMES, *TRAININGS):
        of_column = times if column == TIMES else [name for name in trainings if name[1] == column]
        commits[column] = sorted({*commits.get(column, []), *[here["commit"]] * bool(of_column)})
    for key, count in parts.missing(times):
        torch.set_num_threads(count)
        parts.add((key, count), speed(MODELS[key], SPEED, plan.rounds_of(MODELS[key])))
    processes = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(machine.cores(), processes) as pool:
        running = {
            pool.submit(final_loss, key, name, seed, plan.steps): (key, name, seed)
            for key, name, seed in parts.missing(trainings)
        }
        for one in as_completed(running):
            parts.add(running[one], float(f"{one.result():.5g}"))
    found = kept | parts.found
    rows = list[dict[str, Any]]()
    for key, model in MODELS.items():
        speeds = {str(count): each for count in threads if (each := found.get(str((key, count))))}
        values = {name: [found.get(str((key, name, seed))) for seed in plan.seeds] for name in TRAININGS}
        losses = {name: each for name, each in values.items() if None not in each}
        rows.append(
            {"name": model.name, "width": model.width, **layers(model), "speed": speeds, "losses": losses}
        )
    settings["trainings"] = [name for name in TRAININGS if any(name in row["losses"] for row in rows)]
    save({out: json_text({**settings, "commits": commits, "models": rows}, indent=1)})
    parts.path.unlink(missing_ok=True)
    print(f"written: {out}")


def results(
    file: Path, settings: Mapping[str, Any], again: Collection[str]
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return a file's measurements by name, and the commits of each column, without the columns `again`.

    ValueError where they were measured under other conditions.
    """
    stored = parsed(file.read_bytes())
    here = parsed(json_text(dict(settings)))
    other = [name for name in CONDITIONS if stored[name] != here[name]]
    if other:
        named = ", ".join(f"{name} = {stored[name]}, not {here[name]}" for name in other)
        raise ValueError(f"{file} was measured with {named}: measure all again, without --keep")
    timed = {TIMES} if stored["commits"][TIMES] else set()
    known = timed.union(*(row["losses"] for row in stored["models"])) - set(again)
    found: dict[str, Any] = {}
    for row in stored["models"]:
        key = f"{row['name']} {row['width']}"
        if TIMES in known:
            found |= {str((key, count)): row["speed"].get(str(count), {}) for count in stored["threads"]}
        for name, losses in row["losses"].items():
            if name in known:
                found |= {
                    str((key, name, seed)): loss for seed, loss in zip(stored["seeds"], losses, strict=True)
                }
    return found, {name: stored["commits"][name] for name in known}
