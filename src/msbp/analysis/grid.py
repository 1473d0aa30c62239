"""Runs by k and γ, as the paper's figures and the tests of its Appendix D have them.

For every k and γ SBP is compared with MSBP, with the paper's value beside ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from .render import EMPTY, Document, Sheet, fixed
from .runs import SBP, Sources, gather, scores
from .settings import Config
from .statistics import (
    Interval,
    Tested,
    Values,
    brown_forsythe,
    critical_f,
    critical_t,
    difference,
    effect_size,
    f_ratio,
    holm,
    pooled_t,
    spread_ratio,
    welch_t,
)

NONE = "no runs of both methods yet"
WEAK = "below the critical value: not significant at 5 %"


@dataclass(frozen=True)
class Kind:
    """The paper's test with one that assumes less, and the effect that both are about."""

    letter: str
    test: Callable[[Values, Values], Tested | None]
    robust: Callable[[Values, Values], Tested | None]
    robust_name: str
    effect: Callable[[Values, Values], Interval | None]
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
    return document(config, sources, T)


def f_test(config: Config, sources: Sources) -> Document:
    """H₁: MSBP's accuracy has the smaller variance."""
    return document(config, sources, F)


def document(config: Config, sources: Sources, kind: Kind) -> Document:
    """Return the table of one test at every k and γ."""
    runs = gather(config["grid"], sources)
    numbers = tested(config, runs, kind)
    shown = numbers[numbers.groupby("k").value.transform("count") > 0]
    blank = [f"k = {k}" for k in numbers.k.unique() if k not in set(shown.k)]
    return Document(
        config["name"], config["caption"], [sheet(config, numbers, kind)], numbers,
        used=runs[runs.k > 0], missing=sources.missing(config), blank=blank,
        filled=sheet(config, shown, kind) if len(shown) else None,
    )  # fmt: skip


def tested(config: Config, runs: pd.DataFrame, kind: Kind) -> pd.DataFrame:
    """Return tests and effects, a row for each k and γ."""
    rows = []
    for k in config["grid"]["sparse"]:
        for column, gamma in enumerate(config["grid"]["gamma"]):
            sbp, msbp = scores(runs, k, SBP), scores(runs, k, gamma)
            row = {"k": k, "gamma": gamma, "n_sbp": len(sbp), "n_msbp": len(msbp)}
            row |= {
                "sbp_mean": sbp.mean(),
                "sbp_sd": sbp.std(),
                "msbp_mean": msbp.mean(),
                "msbp_sd": msbp.std(),
            }
            for prefix, test in (("", kind.test(sbp, msbp)), ("robust_", kind.robust(sbp, msbp))):
                df = test and " ".join(f"{df:.4g}" for df in test.df)
                row |= {f"{prefix}value": test and test.value, f"{prefix}df": df}
                row |= {f"{prefix}critical": test and test.critical, f"{prefix}p": test and test.p}
            effect = kind.effect(sbp, msbp)
            row |= {
                f"effect_{part}": effect and getattr(effect, part) for part in ("estimate", "low", "high")
            }
            printed = config.get("paper", {}).get(k, [])  # a grid of one's own may have none
            row |= {"hedges_g": effect_size(sbp, msbp)}
            row |= {"paper": printed[column] if column < len(printed) else None}
            rows.append(row)
    numbers = pd.DataFrame(rows)
    texts = ["df", "robust_df"]
    numbers = numbers.astype(
        {column: float for column in numbers if column not in ("k", "n_sbp", "n_msbp", *texts)}
    )
    for prefix in ("", "robust_"):
        p = numbers[f"{prefix}p"].dropna()
        adjusted = pd.Series(holm(p), p.index, dtype=float).reindex(numbers.index)
        numbers.insert(numbers.columns.get_loc(f"{prefix}p") + 1, f"{prefix}p_holm", adjusted)
    floats = list(numbers.select_dtypes(float))
    numbers[floats] = numbers[floats].map(lambda value: float(f"{value:.6g}"))
    return numbers


def sheet(config: Config, numbers: pd.DataFrame, kind: Kind) -> Sheet:
    """Return a block for each k: the paper's tests, ours, their p, and the effect with its interval."""
    text, command, n = (
        Sheet(config["name"], config["caption"]),
        config["grid"]["command"],
        config["grid"]["seeds"],
    )
    limit = kind.critical(n)
    for k, rows in numbers.groupby("k", sort=False):
        lines = {
            f"k = {k}": [f"γ={gamma:g}" for gamma in rows.gamma],
            "paper": [cell(value, limit, text) for value in rows.paper],
            kind.letter: [
                EMPTY + text.mark([NONE]) if pd.isna(row.value) else cell(row.value, row.critical, text)
                for row in rows.itertuples()
            ],
            "p, Holm": [probability(p) for p in rows.p_holm],
            kind.robust_name: [fixed(value, 1) for value in rows.robust_value],
            "its p, Holm": [probability(p) for p in rows.robust_p_holm],
            kind.effect_name: [fixed(value, 2) for value in rows.effect_estimate],
            "95 % interval": interval_cells(rows),
            "n (SBP, MSBP)": [f"{row.n_sbp}, {row.n_msbp}" for row in rows.itertuples()],
            "command": [command] * len(rows),
        }
        text.blocks.append(pd.DataFrame(lines))
    held = numbers.p_holm.dropna()
    if len(held):
        text.below.append(
            f"With Holm's correction over the {len(held)} cells, {int((held < 0.05).sum())} are "
            f"significant at 5 %; "
            f"the smallest p is {probability(held.min())}."
        )
    printed = f", where the paper prints {config['critical']:g}" if "critical" in config else ""
    text.below.append(
        f"Critical value at 5 % with n = {n}: {kind.df(n)} = {limit:.3f}{printed}; "
        "each of our cells is compared with the one for its own n. "
        "Holm's correction covers all cells with runs; the cells of one k share their runs of SBP."
    )
    return text


def cell(value: float, critical: float, text: Sheet) -> str:
    if pd.isna(value):
        return EMPTY
    return f"{value:.1f}" + (text.mark([WEAK]) if value < critical else "")


def interval_cells(rows: pd.DataFrame) -> Sequence[str]:
    edges = zip(rows.effect_low, rows.effect_high, strict=True)
    return [EMPTY if pd.isna(low) else f"{low:.2f} to {high:.2f}" for low, high in edges]


def probability(value: float) -> str:
    return "<0.001" if value < 0.001 else fixed(value, 3)
