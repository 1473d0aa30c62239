"""Time per training step of an example, before and after its model is converted."""

import time
from collections.abc import Callable
from statistics import median


def seconds_per_step(step: Callable[[], object], steps: int = 10, warm_up: int = 3) -> float:
    """Return the median time of a step."""
    times = []
    for count in range(warm_up + steps):
        begin = time.perf_counter()
        step()
        if count >= warm_up:
            times.append(time.perf_counter() - begin)
    return median(times)


def report(name: str, before: float, after: float) -> None:
    """Print the time per step before and after."""
    print(
        f"{name}: {1000 * before:.1f} ms per step before, {1000 * after:.1f} ms after ({before / after:.2f}×)"
    )
