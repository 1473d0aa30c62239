"""Random sequences of steps, and changes of parameters, optimizer state and memories between them.

`python -m tests.boundary.fuzz FIRST COUNT` runs the sequences of these seeds in one process and prints each
seed before it runs, so that a crash names its seed, and a line of figures at the end. A sequence trains a
network that propagates everything and its plain twin with torch's optimizer, does the same to both, and ends
in equal numbers or in one error.
"""

import collections
import contextlib
import copy
import io
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from msbp import optim
from msbp.sparse import convert, memories, revert

from .networks import ENTRIES, KINDS, batch, build, install

STEPS = 6
REFUSALS = (RuntimeError, ValueError, IndexError, TypeError, KeyError, NotImplementedError, AssertionError)
OPTIMIZERS = {
    "Adam": (optim.Adam, torch.optim.Adam, {"lr": 0.01}),
    "fast Adam": (optim.Adam, torch.optim.Adam, {"lr": 0.01, "betas": (0.0, 0.9)}),
    "SGD": (optim.SGD, torch.optim.SGD, {"lr": 0.1}),
    "momentum": (optim.SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
}


class Side:
    """A network and its optimizer; `layers` are those that are converted, None in the plain network."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, layers: list[str] | None):
        self.model, self.optimizer, self.layers = model, optimizer, layers

    def parameter(self, number: int) -> tuple[nn.Module, str, nn.Parameter]:
        result = [
            (module, name, p)
            for module in self.model.modules()
            for name, p in module._parameters.items()
            if p is not None
        ]
        return result[number % len(result)]

    def replace(self, number: int, change: Callable[[Tensor], Tensor], state: str = "keep") -> None:
        """Put a new parameter in a parameter's position, in the network and in the optimizer.

        state: keep that of the old one, change it alike, or drop it.
        """
        module, name, old = self.parameter(number)
        new = nn.Parameter(change(old.detach()))
        setattr(module, name, new)
        params = self.optimizer.param_groups[0]["params"]
        at = next((at for at, p in enumerate(params) if p is old), None)
        if at is None:
            return
        params[at] = new
        held = self.optimizer.state.pop(old, None)
        if held is not None and state != "drop":
            for key, value in held.items():
                if torch.is_tensor(value) and value.dim() and state == "change":
                    held[key] = change(value)
            self.optimizer.state[new] = held

    def moments(self, number: int) -> dict[str, Any]:
        _, _, p = self.parameter(number)
        return self.optimizer.state.get(p, {})


def set_data(change: Callable[[Tensor], Tensor]) -> Callable[[Side, int], None]:
    def act(side: Side, number: int) -> None:
        _, _, p = side.parameter(number)
        p.data = change(p.data)

    return act


def set_moment(change: Callable[[Tensor], Tensor], name: str = "") -> Callable[[Side, int], None]:
    def act(side: Side, number: int) -> None:
        state = side.moments(number)
        for key in ("exp_avg", "exp_avg_sq", "momentum_buffer"):
            if torch.is_tensor(state.get(key)) and name in key:
                state[key] = change(state[key])

    return act


def write_moment(change: Callable[[Tensor], Any], settled: bool) -> Callable[[Side, int], None]:
    def act(side: Side, number: int) -> None:
        if settled:
            settle(side, number)
        for key, value in side.moments(number).items():
            if torch.is_tensor(value) and value.dim() and key != "last_step":
                change(value)

    return act


def set_gradient(change: Callable[[Tensor], Tensor | None]) -> Callable[[Side, int], None]:
    def act(side: Side, number: int) -> None:
        _, _, p = side.parameter(number)
        if p.grad is not None:
            p.grad = change(p.grad)

    return act


def set_memory(change: Callable[[Tensor], Tensor]) -> Callable[[Side, int], None]:
    def act(side: Side, number: int) -> None:
        for memory in memories(side.model).values():
            memory.m = change(memory.m)

    return act


def settle(side: Side, number: int) -> None:
    if side.layers:
        side.optimizer.settle()  # type: ignore[attr-defined]


def apart(t: Tensor) -> Tensor:
    """Values that are not contiguous."""
    return t.repeat_interleave(2, -1)[..., ::2]


def odd(t: Tensor) -> Tensor:
    """Values at an odd offset of a larger storage."""
    return torch.cat([t.new_zeros(1), t.reshape(-1), t.new_zeros(2)])[1:-2].view(t.shape)


def reload_optimizer(side: Side, number: int) -> None:
    buffer = io.BytesIO()
    torch.save(side.optimizer.state_dict(), buffer)
    buffer.seek(0)
    side.optimizer.load_state_dict(torch.load(buffer))


def reload_model(side: Side, number: int) -> None:
    state = {name: odd(p.clone()) for name, p in side.model.state_dict().items()}
    side.model.load_state_dict(state, assign=number % 2 == 0)
    if number % 2 == 0:
        side.optimizer.param_groups[0]["params"] = list(side.model.parameters())


def copied(side: Side, number: int) -> None:
    pair = copy.deepcopy((side.model, side.optimizer))
    side.model, side.optimizer = pair


def converted_anew(side: Side, number: int) -> None:
    if side.layers:
        revert(side.model)
        convert(side.model, r=1.0, gamma=0.5 * (number % 2), layers=side.layers)


def switched(side: Side, number: int) -> None:
    side.model.train(not side.model.training)


def frozen(side: Side, number: int) -> None:
    _, _, p = side.parameter(number)
    p.requires_grad_(not p.requires_grad)


def enabled(side: Side, number: int) -> None:
    for module in side.model.modules():
        if "enabled" in module.__dict__:
            module.enabled = not module.enabled


def cast(dtype: torch.dtype) -> Callable[[Side, int], None]:
    return lambda side, number: side.model.to(dtype) and None


def through(dtype: torch.dtype) -> Callable[[Side, int], None]:
    """Cast to another type and back."""
    return lambda side, number: side.model.to(dtype).float() and None


def new_memories(side: Side, number: int) -> None:
    for module in side.model.modules():
        memory = module._modules.get("memory")
        if memory is not None and not isinstance(memory, nn.ModuleDict):
            module.memory = copy.deepcopy(memory)


ACTIONS: dict[str, Callable[[Side, int], None]] = {
    "data, cloned": set_data(torch.clone),
    "data, transposed": set_data(lambda t: t.T.contiguous().T if t.dim() == 2 else t),
    "data, apart": set_data(apart),
    "data, odd": set_data(odd),
    "data, float64": set_data(torch.Tensor.double),
    "data, shorter": set_data(lambda t: t[: max(1, len(t) // 2)]),
    "data, longer": set_data(lambda t: torch.cat([t, t])),
    "data, a vector": set_data(lambda t: t.reshape(-1)),
    "data, halved": set_data(lambda t: t / 2),
    "replaced": lambda side, number: side.replace(number, torch.clone),
    "replaced with its state": lambda side, number: side.replace(number, torch.clone, "change"),
    "replaced without state": lambda side, number: side.replace(number, torch.clone, "drop"),
    "permuted": lambda side, number: side.replace(number, lambda t: t.flip(0), "change"),
    "permuted alone": lambda side, number: side.replace(number, lambda t: t.flip(0)),
    "pruned": lambda side, number: side.replace(number, lambda t: t[: max(1, len(t) - 3)], "change"),
    "grown": lambda side, number: side.replace(number, lambda t: torch.cat([t, t[:3] * 0]), "change"),
    "grown alone": lambda side, number: side.replace(number, lambda t: torch.cat([t, t[:3] * 0])),
    "columns": lambda side, number: side.replace(number, lambda t: t[..., : t.shape[-1] - 1], "drop"),
    "cast to float64": cast(torch.float64),
    "cast to bfloat16": cast(torch.bfloat16),
    "cast to float32": cast(torch.float32),
    "cast to float64 and back": through(torch.float64),
    "moment, cloned": set_moment(torch.clone),
    "moment, apart": set_moment(apart),
    "moment, odd": set_moment(odd, "avg_sq"),
    "moment, float64": set_moment(torch.Tensor.double),
    "moment, shorter": set_moment(lambda t: t[:1].clone(), "exp_avg"),
    "moment, permuted": set_moment(lambda t: t.flip(0)),
    "moments, written": write_moment(lambda t: t.fill_(0.25), False),
    "moments, settled and written": write_moment(lambda t: t.fill_(0.25), True),
    "moments, scaled": write_moment(lambda t: t.mul_(0.5), False),
    "state, dropped": lambda side, number: side.moments(number).clear(),
    "settled": settle,
    "betas": lambda side, number: [
        group.update(betas=(0.5, 0.9)) for group in side.optimizer.param_groups if "betas" in group
    ] and None,
    "rate": lambda side, number: side.optimizer.param_groups[0].update(lr=0.003),
    "momentum": lambda side, number: [
        group.update(momentum=0.5) for group in side.optimizer.param_groups if "momentum" in group
    ] and None,
    "gradient, dropped": set_gradient(lambda g: None),
    "gradient, cloned": set_gradient(torch.clone),
    "gradient, doubled": set_gradient(lambda g: 2 * g),
    "gradient, apart": set_gradient(lambda g: apart(g.to_dense())),
    "gradient, detached": set_gradient(torch.Tensor.detach),
    "gradient, zero": set_gradient(torch.zeros_like),
    "optimizer reloaded": reload_optimizer,
    "weights reloaded": reload_model,
    "copied": copied,
    "converted anew": converted_anew,
    "switched": switched,
    "frozen": frozen,
    "enabled": enabled,
    "memory, float64": set_memory(torch.Tensor.double),
    "memory, meta": set_memory(lambda m: m.to("meta")),
    "memory, apart": set_memory(apart),
    "memory, odd": set_memory(odd),
    "memory, wider": set_memory(lambda m: torch.cat([m, m], 1)),
    "memory, shorter": set_memory(lambda m: m[:, :-1]),
    "memory, a vector": set_memory(lambda m: m.reshape(-1)),
    "memory, two rows": set_memory(lambda m: torch.cat([m, m])),
    "memory, new": new_memories,
}  # fmt: skip


class Different(Exception):
    """Numbers that are wrong without an error."""


def close(name: str, a: Tensor, b: Tensor, relative: float) -> None:
    if a.shape != b.shape:
        raise Different(f"{name} has shape {tuple(a.shape)}, and the plain one {tuple(b.shape)}")
    worst = (a.double() - b.double()).abs().max().item() if a.numel() else 0.0
    scale = b.double().abs().max().item() if a.numel() else 0.0
    if not worst <= relative * scale + 1e-7:
        raise Different(f"{name}: {worst} apart, largest {scale}")


def attempt(act: Callable[[], Any]) -> Exception | None:
    try:
        act()
    except REFUSALS as error:
        return error
    return None


def step(side: Side, entry: str, data: list[tuple[Tensor, Tensor]]) -> None:
    """Add up the gradients of some batches in the type of the network's first parameter."""
    dtype = next(side.model.parameters()).dtype
    for x, y in data:
        ENTRIES[entry](side.model, x.to(dtype) if x.is_floating_point() else x, y)


def run(seed: int) -> str:
    """Return the outcome of the sequence of a seed: "equal" or with an error; Different if wrong."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    kind, (ours, theirs, options) = rng.choice(list(KINDS)), rng.choice(list(OPTIMIZERS.values()))
    plain = build(kind)
    model = install(
        copy.deepcopy(plain), kind, rng.choice(["convert", "convert", "fuse"]), gamma=rng.choice([0, 0.5])
    )
    sides = [Side(model, ours(model.parameters(), **options), KINDS[kind][2])]
    sides.append(Side(plain, theirs(plain.parameters(), foreach=False, **options), None))
    trail = [kind, ours.__name__]

    def both(act: Callable[[Side], None]) -> str | None:
        # ours first: torch's own LSTM may crash on weights that do not fit together
        errors = [attempt(lambda: act(sides[0]))]
        if errors[0] is not None:
            if not str(errors[0]):
                raise Different(f"an error without a word: {errors[0]!r}")
            clear = isinstance(errors[0], (RuntimeError, ValueError))
            return f"refused: {type(errors[0]).__name__}" + ("" if clear else f" {errors[0]} after {trail}")
        errors.append(attempt(lambda: act(sides[1])))
        return None if errors[1] is None else f"taken, where torch refuses: {errors[1]!r} after {trail}"

    try:
        for _ in range(STEPS):
            for _ in range(rng.choice([0, 1, 1, 2])):
                name, number = rng.choice(list(ACTIONS)), rng.randrange(100)
                trail.append(f"{name} {number}")
                ended = both(lambda side: ACTIONS[name](side, number))  # noqa: B023
                if ended:
                    return ended
            entry, data = rng.choice(list(ENTRIES)), [batch(kind) for _ in range(rng.choice([1, 1, 2]))]
            trail.append(f"{entry} x{len(data)}")
            if rng.random() < 0.8:
                for side in sides:
                    side.optimizer.zero_grad()
                    side.model.zero_grad()
            ended = both(lambda side: step(side, entry, data))  # noqa: B023
            if ended:
                return ended
            agree(sides)
            if rng.random() < 0.3:
                name, number = (
                    rng.choice([a for a in ACTIONS if a.startswith("gradient")]),
                    rng.randrange(100),
                )
                trail.append(f"{name} {number}")
                ended = both(lambda side: ACTIONS[name](side, number))  # noqa: B023
                if ended:
                    return ended
            trail.append("step")
            ended = both(lambda side: side.optimizer.step() and None)
            if ended:
                return ended
            follow(sides)
    except Different as error:
        raise Different(f"seed {seed}: {error}, after {trail}") from None
    return "equal"


def agree(sides: list[Side]) -> None:
    """Compare the gradients; the plain network takes over the converted one's, so that rounding ends here."""
    pairs = zip(sides[0].model.named_parameters(), sides[1].model.parameters(), strict=True)
    for (name, p), q in pairs:
        if (p.grad is None) != (q.grad is None):
            raise Different(f"only one network has a gradient of {name}")
        if p.grad is not None and q.grad is not None:
            rough = p.dtype is torch.bfloat16
            close(f"the gradient of {name}", p.grad.to_dense(), q.grad, 0.1 if rough else 1e-4)
            if q.grad.shape == q.shape:
                q.grad = copy.deepcopy(p.grad).to_dense().to(q.grad.dtype)


def follow(sides: list[Side]) -> None:
    """Compare the weights; the plain network takes over the converted one's."""
    pairs = zip(sides[0].model.named_parameters(), sides[1].model.parameters(), strict=True)
    with torch.no_grad():
        for (name, p), q in pairs:
            close(name, p.detach(), q.detach(), 0.02 if p.dtype is torch.bfloat16 else 1e-4)
            q.copy_(p)


def main(first: int, count: int) -> int:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ends: collections.Counter[str] = collections.Counter()
    for seed in range(first, first + count):
        print("seed", seed, file=sys.stderr, flush=True)
        try:
            ended = run(seed)
            ends[ended] += 1
            if ended not in ("equal", "refused: RuntimeError", "refused: ValueError"):
                print(f"seed {seed}: {ended}", flush=True)
        except Different as error:
            ends["different"] += 1
            print(error, flush=True)
        except Exception as error:
            ends["other error"] += 1
            print(f"seed {seed}: {error!r}", flush=True)
    print(dict(ends), flush=True)
    return ends["different"] + ends["other error"]


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) != 0)
