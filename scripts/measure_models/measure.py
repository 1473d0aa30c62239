"""Speed and learning of the models, plain and converted. Needs transformers."""

import copy
import multiprocessing
import time
from collections.abc import Iterable, Mapping
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
from msbp.sparse import convert
from msbp.training import machine

from .models import MODELS, Measured
from .table import ROOT

RATIO, RATIOS, WIDE = 0.04, (0.04, 0.1), 768
SPEED, LEARNING, LR, WARM_UP = (8, 64), (8, 9), 1e-3, 3  # examples and length of a batch
PARTS = ROOT / "outputs/models.parts.json"
CPU = torch.device("cpu")


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
    """A model with its optimizer, one step at a time; r: None for a plain one."""

    def __init__(self, model: nn.Module, r: float | None):
        self.model = model.train()
        self.optimizer: torch.optim.Optimizer
        if r is None:
            self.optimizer = torch.optim.AdamW(model.parameters(), LR, fused=True)
        else:
            convert(model, r)
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


def speed(model: Measured, size: tuple[int, int], rounds: int) -> dict[str, list[float]]:
    """Return median milliseconds per step, of the plain model and of the converted one; none if refused."""
    torch.manual_seed(0)
    plain = model.kind(model.width, size[1])
    try:
        trainings = [Training(copy.deepcopy(plain), RATIO), Training(plain, None)]
    except ValueError:
        return {}
    times: list[list[tuple[float, float]]] = [[], []]
    for count in range(rounds + WARM_UP):
        batch = model.batches(*size)
        for training, own in zip(trainings, times, strict=True):
            _, backward, total = training.step(batch)
            if count >= WARM_UP:
                own.append((1000 * backward, 1000 * total))
    sparse, dense = ([round(median(column), 3) for column in zip(*own, strict=True)] for own in times)
    return {"bp_ms": [dense[0], sparse[0]], "total_ms": [dense[1], sparse[1]]}


def layers(model: Measured) -> dict[str, int]:
    """Return the numbers of layers, of layers that convert takes, and of parameters."""
    network = model.kind(model.width, SPEED[1])
    kinds = [
        m for m in network.modules() if isinstance(m, nn.Linear | nn.LSTM) or type(m).__name__ == "Conv1D"
    ]
    counts = {"linear": len(kinds), "parameters": sum(p.numel() for p in network.parameters())}
    try:
        return {"converted": len(convert(network, RATIO)), **counts}
    except ValueError:
        return {"converted": 0, **counts}


def final_loss(key: str, r: float | None, seed: int, steps: int) -> float:
    """Return the mean loss over the last tenth of a training, on one thread."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    model = MODELS[key]
    torch.manual_seed(seed)
    training = Training(model.kind(model.width, LEARNING[1]), r)
    torch.manual_seed(1000 + seed)
    losses = [training.step(model.batches(*LEARNING))[0] for _ in range(steps)]
    return mean(losses[-max(1, steps // 10) :])


class Parts:
    """Finished measurements by name, in a file that belongs to one plan and one state of the code."""

    def __init__(self, path: Path, settings: Mapping[str, Any], expected: int):
        self.path, self.settings, self.expected = path, dict(settings), expected
        self.begin, self.found = time.monotonic(), {}
        if path.exists():
            stored = parsed(path.read_bytes())
            if stored["settings"] == parsed(json_text(self.settings)):
                self.found = stored["found"]
                print(f"{len(self.found)} of {expected} measurements are in {path} already", flush=True)

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

    def __getitem__(self, name: tuple[Any, ...]) -> Any:
        return self.found[str(name)]


def measure(plan: Plan, out: Path, allow_dirty: bool = False) -> None:
    """Measure what is missing, then write all results to a file; ValueError where code is not committed."""
    torch.set_flush_denormal(True)
    here = machine.describe(CPU)
    if here["dirty"] and not allow_dirty:
        raise ValueError(
            "the code has uncommitted changes, so nobody could repeat this: commit, or give --out"
        )
    threads = sorted({1, machine.cores()})
    settings = {
        "r": RATIO, "ratios": RATIOS, "wide": WIDE, "lr": LR, "batch": SPEED, "learning_batch": LEARNING,
        **asdict(plan), "threads": threads, "transformers": transformers.__version__,
        **{name: here[name] for name in ("commit", "machine", "cpu", "torch", "numba", "blas")},
    }  # fmt: skip
    times = [(key, count) for key in MODELS for count in threads]
    trainings = [
        (key, r or "dense", seed)
        for key, model in MODELS.items()
        if model.learns
        for seed in plan.seeds
        for r in (None, *RATIOS)
    ]
    parts = Parts(out.with_suffix(".parts") if allow_dirty else PARTS, settings, len(times) + len(trainings))
    for key, count in parts.missing(times):
        torch.set_num_threads(count)
        parts.add((key, count), speed(MODELS[key], SPEED, plan.rounds_of(MODELS[key])))
    processes = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(machine.cores(), processes) as pool:
        running = {
            pool.submit(final_loss, key, None if r == "dense" else r, seed, plan.steps): (key, r, seed)
            for key, r, seed in parts.missing(trainings)
        }
        for one in as_completed(running):
            parts.add(running[one], float(f"{one.result():.5g}"))
    rows = []
    for key, model in MODELS.items():
        speeds = {str(count): parts[key, count] for count in threads if parts[key, count]}
        losses = {
            str(r): [parts[key, r, seed] for seed in plan.seeds] for r in ("dense", *RATIOS) if model.learns
        }
        rows.append(
            {"name": model.name, "width": model.width, **layers(model), "speed": speeds, "losses": losses}
        )
    save({out: json_text({**settings, "models": rows}, indent=1)})
    parts.path.unlink()
    print(f"written: {out}")
