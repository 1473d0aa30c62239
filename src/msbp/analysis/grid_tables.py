"""The tests of Appendix D: for every k and γ SBP against MSBP, the paper's values beside ours."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .documents import Document
from .grids import Cells, adjusted, gather, spread_ratio
from .intervals import Interval, difference
from .sheet import EMPTY, Grid, Sheet
from .sources import Sources
from .statistics import (
    Tested,
    brown_forsythe,
    critical_f,
    critical_t,
    effect_size,
    f_ratio,
    pooled_t,
    summarize,
    welch_t,
)
from .wanted import Config, lacks

Scores = list[float]
NONE = "no runs of both methods yet"
WEAK = "below the critical value: not significant at 5 %"


@dataclass(frozen=True)
class Kind:
    """The paper's test with one that assumes less, and the effect that both ask about."""

    letter: str
    test: Callable[[Scores, Scores], Tested | None]
    robust: Callable[[Scores, Scores], Tested | None]
    robust_name: str
    effect: Callable[[Scores, Scores], Interval | None]
    effect_name: str
    critical: Callable[[int], float]
    df: Callable[[int], str]


T = Kind(
    "t", pooled_t, welch_t, "Welch's t", difference, "gain (points)",
    lambda n: critical_t(2 * (n - 1)), lambda n: f"t({2 * (n - 1)})",
)  # fmt: skip
F = Kind(
    "F", f_ratio, brown_forsythe, "Brown-Forsythe's t", spread_ratio, "sd of SBP / MSBP",
    lambda n: critical_f(n - 1, n - 1), lambda n: f"F({n - 1}, {n - 1})",
)  # fmt: skip


def t_test(config: Config, sources: Sources) -> Document:
    """H₁: MSBP's mean accuracy is higher."""
    return _document(config, sources, T)


def f_test(config: Config, sources: Sources) -> Document:
    """H₁: MSBP's accuracy has the smaller variance."""
    return _document(config, sources, F)


def _document(config: Config, sources: Sources, kind: Kind) -> Document:
    cells = gather(config["grid"], sources)
    numbers = _numbers(config, cells, kind)
    text = _sheet(config, cells, numbers, kind)
    used = [run for (k, _), runs in cells.runs.items() if k for run in runs]
    shown = [k for k in cells.sparse if any(row["k"] == k and row["value"] is not None for row in numbers)]
    filled = _sheet(config, replace(cells, sparse=shown), numbers, kind) if shown else None
    blank = [f"k = {k}" for k in cells.sparse if k not in shown]
    return Document(
        config["name"], config["caption"], [text], numbers, used,
        lacks=lacks(config, sources), blank=blank, filled=filled,
    )  # fmt: skip


def _numbers(config: Config, cells: Cells, kind: Kind) -> list[dict[str, Any]]:
    pairs = list(cells.pairs())
    tests, robust = ([test(sbp, msbp) for *_, sbp, msbp in pairs] for test in (kind.test, kind.robust))
    rows = []
    for place, (k, gamma, sbp, msbp) in enumerate(pairs):
        row: dict[str, Any] = {"k": k, "gamma": gamma, "n_sbp": len(sbp), "n_msbp": len(msbp)}
        for name, scores in (("sbp", sbp), ("msbp", msbp)):
            summary = summarize(scores) if scores else None
            row |= {f"{name}_mean": summary and summary.mean, f"{name}_sd": summary and summary.sd}
        row |= _tested("", tests, place) | _tested("robust_", robust, place)
        effect = kind.effect(sbp, msbp)
        row |= {f"effect_{part}": effect and getattr(effect, part) for part in ("estimate", "low", "high")}
        row |= {"hedges_g": effect_size(sbp, msbp), "paper": _printed(config, k, cells.gammas.index(gamma))}
        rows.append({key: _rounded(value) for key, value in row.items()})
    return rows


def _printed(config: Config, k: int, column: int) -> float | None:
    """The paper's cell; nothing of a k that it does not have."""
    cells = config.get("paper", {}).get(k, [])
    return cells[column] if column < len(cells) else None


def _tested(prefix: str, tests: list[Tested | None], place: int) -> dict[str, Any]:
    test, holm = tests[place], adjusted(tests)[place]
    df = test and " ".join(f"{df:.4g}" for df in test.df)
    found = {"value": test and test.value, "df": df, "critical": test and test.critical, "p": test and test.p}
    return {prefix + key: value for key, value in (found | {"p_holm": holm}).items()}


def _sheet(config: Config, cells: Cells, numbers: Sequence[Mapping[str, Any]], kind: Kind) -> Sheet:
    text, command = Sheet(config["name"], config["caption"]), config["grid"]["command"]
    for k in cells.sparse:
        rows = [row for row in numbers if row["k"] == k]
        header = [f"k = {k}", *(f"γ={gamma:g}" for gamma in cells.gammas)]
        limit = kind.critical(cells.seeds)
        lines = [
            ["paper", *(_cell(row["paper"], limit, text) for row in rows)],
            [kind.letter, *(_value(row, text) for row in rows)],
            ["p, Holm", *(_p(row["p_holm"]) for row in rows)],
            [kind.robust_name, *(_digits(row["robust_value"], 1) for row in rows)],
            ["its p, Holm", *(_p(row["robust_p_holm"]) for row in rows)],
            [kind.effect_name, *(_digits(row["effect_estimate"], 2) for row in rows)],
            ["95 % interval", *(_interval(row) for row in rows)],
            ["n (SBP, MSBP)", *(f"{row['n_sbp']}, {row['n_msbp']}" for row in rows)],
        ]
        text.grids.append(Grid(header, lines, ["", command, *[""] * 6]))
    n = cells.seeds
    printed = f", where the paper prints {config['critical']:g}" if "critical" in config else ""
    text.below.append(
        f"Critical value at 5 % with n = {n}: {kind.df(n)} = {kind.critical(n):.3f}{printed}; "
        "each of our cells is held against that of its own n. "
        "Holm's p takes all cells with runs together; those of one k share the runs of SBP."
    )
    return text


def _value(row: Mapping[str, Any], text: Sheet) -> str:
    if row["value"] is None:
        return EMPTY + text.mark([NONE])
    return _cell(row["value"], row["critical"], text)


def _cell(value: float | None, critical: float, text: Sheet) -> str:
    if value is None:
        return EMPTY
    return f"{value:.1f}" + (text.mark([WEAK]) if value < critical else "")


def _interval(row: Mapping[str, Any]) -> str:
    low, high = row["effect_low"], row["effect_high"]
    return EMPTY if low is None else f"{low:.2f} to {high:.2f}"


def _p(value: float | None) -> str:
    return "<0.001" if value is not None and value < 0.001 else _digits(value, 3)


def _digits(value: float | None, digits: int) -> str:
    return EMPTY if value is None else f"{value:.{digits}f}"


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
