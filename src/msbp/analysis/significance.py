"""Tests of significance: t and F as in the paper, beside tests that assume less, and the paired bootstrap.

Functions take the runs' values as arrays and return None where a side has fewer than two runs, or where no
value varies. Of the paper's tests (Appendix D): less and more are the sides that H₁ orders, wide and narrow
likewise; `t_test` and `f_test` are their tables, at every k and γ of a grid.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from ..measurements import packed_file, read_translations
from ..record import HYPOTHESES
from .render import COMMAND, EMPTY, Document, Sheet, fixed
from .runs import SBP, Sources, gather, scores
from .settings import Config, grid_command
from .verdicts import LEVEL, Effect, Interval, Values, holm, mean_effect

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

    from .tables import Table

NONE = "no runs of both methods yet"
WEAK = "below the critical value: not significant at 5 %"
SAMPLES = 1000  # of the bootstrap


@dataclass(frozen=True)
class Tested:
    """A statistic with its degrees of freedom, p, and the critical value at 5 percent."""

    value: float
    df: tuple[float, ...]
    p: float
    critical: float


def pooled_t(less: Values, more: Values) -> Tested | None:
    """Student's t of H₁: mean of less < mean of more, with one variance for both, as in the paper."""
    n = len(less), len(more)
    if min(n) < 2 or (constant(less) and constant(more)):
        return None
    gap = float(np.mean(more) - np.mean(less))
    return _one_sided_t(Effect(gap, pooled_variance(less, more) * (1 / n[0] + 1 / n[1]), sum(n) - 2))


def welch_t(less: Values, more: Values) -> Tested | None:
    """The same hypothesis without equal variances."""
    if min(len(less), len(more)) < 2 or (constant(less) and constant(more)):
        return None
    return _one_sided_t(mean_effect(more) - mean_effect(less))


def _one_sided_t(gap: Effect) -> Tested:
    """Return t of H₁: the gap is above 0."""
    return Tested(gap.estimate / gap.variance**0.5, (gap.df,), gap.p_above(0), critical_t(gap.df))


def brown_forsythe(wide: Values, narrow: Values) -> Tested | None:
    """H₁: wide varies more, by deviations from the medians: robust where values are not normal.

    The one-sided t whose square is Levene's statistic with centre "median".
    """
    if min(len(wide), len(narrow)) < 2:
        return None
    deviations = [np.abs(np.asarray(values, dtype=float) - np.median(values)) for values in (narrow, wide)]
    return pooled_t(*deviations)


def f_ratio(wide: Values, narrow: Values) -> Tested | None:
    """F of H₁: variance of wide > variance of narrow, as in the paper."""
    n = len(wide), len(narrow)
    if min(n) < 2 or constant(narrow):
        return None
    value = float(np.var(wide, ddof=1) / np.var(narrow, ddof=1))
    df = n[0] - 1, n[1] - 1
    return Tested(value, df, float(stats.f.sf(value, *df)), critical_f(*df))


def paired_t(first: Values, second: Values) -> Tested | None:
    """t of H₁: the means differ, run by run of equal seeds; positive where second is larger."""
    gain = np.asarray(second, dtype=float) - np.asarray(first, dtype=float)
    if gain.size < 2 or constant(gain):
        return None
    effect, n = mean_effect(gain), gain.size
    p = 2 * min(effect.p_above(0), effect.p_below(0))
    critical = float(stats.t.isf(LEVEL / 2, n - 1))
    return Tested(effect.estimate / effect.variance**0.5, (n - 1,), p, critical)


def critical_t(df: float) -> float:
    """From here on the one-sided t test rejects at 5 percent."""
    return float(stats.t.isf(LEVEL, df))


def critical_f(above: float, below: float) -> float:
    """From here on the one-sided F test rejects at 5 percent."""
    return float(stats.f.isf(LEVEL, above, below))


def effect_size(less: Values, more: Values) -> float | None:
    """Hedges' g: the difference of means in pooled standard deviations, without the bias of few runs."""
    df = len(less) + len(more) - 2
    if min(len(less), len(more)) < 2 or (constant(less) and constant(more)):
        return None
    sd = pooled_variance(less, more) ** 0.5
    return float((np.mean(more) - np.mean(less)) / sd * (1 - 3 / (4 * df - 1)))


def pooled_variance(one: Values, other: Values) -> float:
    """Return the variance that two samples share, about a mean of their own each."""
    squares = np.var(one, ddof=1) * (len(one) - 1) + np.var(other, ddof=1) * (len(other) - 1)
    return float(squares / (len(one) + len(other) - 2))


def constant(values: Values) -> bool:
    """Return whether all values are equal but for rounding."""
    return np.ptp(np.asarray(values, dtype=float)) < 1e-9


def spread_ratio(wide: Values, narrow: Values) -> Interval | None:
    """The standard deviation of wide as a multiple of that of narrow, with the interval of F."""
    n = len(wide), len(narrow)
    if min(n) < 2 or constant(narrow):
        return None
    ratio = float(np.std(wide, ddof=1) / np.std(narrow, ddof=1))
    edges = stats.f.isf([LEVEL / 2, 1 - LEVEL / 2], n[0] - 1, n[1] - 1) ** 0.5
    return Interval(ratio, *(ratio / edges).tolist())


def difference(less: Values, more: Values) -> Interval | None:
    """Mean of more minus mean of less, with Welch's interval."""
    if min(len(less), len(more)) < 2:
        return None
    gap = float(np.mean(more) - np.mean(less))
    if constant(less) and constant(more):
        return Interval(gap, gap, gap)
    return (mean_effect(more) - mean_effect(less)).interval()


def mean_interval(values: Values) -> Interval | None:
    """The mean with Student's interval."""
    return mean_effect(values).interval() if len(values) > 1 else None


def deviation_interval(values: Values) -> Interval | None:
    """The standard deviation with the interval of χ² for normal values."""
    if len(values) < 2:
        return None
    sd, df = float(np.std(values, ddof=1)), len(values) - 1
    low, high = (sd * (df / float(stats.chi2.isf(p, df))) ** 0.5 for p in (LEVEL / 2, 1 - LEVEL / 2))
    return Interval(sd, low, high)


@dataclass(frozen=True)
class Kind:
    """The paper's test with one that assumes less, and the effect that both are about."""

    letter: str
    test: Callable[[Values, Values], Tested | None]
    robust: Callable[[Values, Values], Tested | None]
    robust_name: str
    effect: Callable[[Values, Values], Interval | None]
    effect_name: str
    df: Callable[[int], tuple[int, ...]]
    critical: Callable[..., float]


T = Kind(
    "t", pooled_t, welch_t, "Welch's t", difference, "gain (points)", lambda n: (2 * (n - 1),), critical_t
)
F = Kind(
    "F", f_ratio, brown_forsythe, "Brown-Forsythe's t", spread_ratio, "sd of SBP / MSBP",
    lambda n: (n - 1, n - 1), critical_f,
)  # fmt: skip


def t_test(config: Config, sources: Sources) -> Document:
    """H₁: MSBP's mean accuracy is higher."""
    return tests_of_grid(config, sources, T)


def f_test(config: Config, sources: Sources) -> Document:
    """H₁: MSBP's accuracy has the smaller variance."""
    return tests_of_grid(config, sources, F)


def tests_of_grid(config: Config, sources: Sources, kind: Kind) -> Document:
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
    for k, (column, gamma) in product(config["grid"]["sparse"], enumerate(config["grid"]["gamma"])):
        sbp, msbp = scores(runs, k, SBP), scores(runs, k, gamma)
        row = {"k": k, "gamma": gamma, "n_sbp": len(sbp), "n_msbp": len(msbp)}
        row |= {"sbp_mean": sbp.mean(), "sbp_sd": sbp.std(), "msbp_mean": msbp.mean(), "msbp_sd": msbp.std()}
        for prefix, test in (("", kind.test(sbp, msbp)), ("robust_", kind.robust(sbp, msbp))):
            row |= {f"{prefix}{part}": getattr(test, part, None) for part in ("value", "df", "critical", "p")}
        effect = kind.effect(sbp, msbp)
        row |= {f"effect_{part}": getattr(effect, part, None) for part in ("estimate", "low", "high")}
        printed = config.get("paper", {}).get(k, [])[column : column + 1]  # a grid of one's own may have none
        rows.append(row | {"hedges_g": effect_size(sbp, msbp), "paper": next(iter(printed), None)})
    numbers = pd.DataFrame(rows)
    for prefix in ("", "robust_"):
        p = numbers[f"{prefix}p"].dropna().astype(float)
        adjusted = pd.Series(holm(p), p.index, dtype=float).reindex(numbers.index)
        numbers.insert(numbers.columns.get_loc(f"{prefix}p") + 1, f"{prefix}p_holm", adjusted)
        df = numbers[f"{prefix}df"]
        numbers[f"{prefix}df"] = df.map(lambda df: " ".join(f"{df:.4g}" for df in df), na_action="ignore")
    floats = [name for name in numbers if name not in ("k", "n_sbp", "n_msbp", "df", "robust_df")]
    numbers[floats] = numbers[floats].astype(float).map(lambda value: float(f"{value:.6g}"))
    return numbers


def sheet(config: Config, numbers: pd.DataFrame, kind: Kind) -> Sheet:
    """Return a block for each k: the paper's tests, ours, their p, and the effect with its interval."""
    text = Sheet(config["name"], config["caption"])
    n = config["grid"]["seeds"]
    limit = kind.critical(*kind.df(n))
    for k, rows in numbers.groupby("k", sort=False):
        lines = {
            f"k = {k}": [f"γ={gamma:g}" for gamma in rows.gamma],
            "paper": [cell(value, limit, text) for value in rows.paper],
            kind.letter: [cell(*pair, text, [NONE]) for pair in zip(rows.value, rows.critical, strict=True)],
            "p, Holm": rows.p_holm.map(probability),
            kind.robust_name: rows.robust_value.map(lambda value: fixed(value, 1)),
            "its p, Holm": rows.robust_p_holm.map(probability),
            kind.effect_name: rows.effect_estimate.map(lambda value: fixed(value, 2)),
            "95 % interval": [
                EMPTY if pd.isna(low) else f"{low:.2f} to {high:.2f}"
                for low, high in zip(rows.effect_low, rows.effect_high, strict=True)
            ],
            "n (SBP, MSBP)": rows.n_sbp.astype(str) + ", " + rows.n_msbp.astype(str),
            COMMAND: grid_command(config["grid"], k, "msbp"),
        }
        text.blocks.append(pd.DataFrame(lines))
    held = numbers.p_holm.dropna()
    if len(held):
        text.below.append(
            f"With Holm's correction over the {len(held)} cells, {int((held < LEVEL).sum())} are significant "
            f"at 5 %; the smallest p is {probability(held.min())}."
        )
    printed = f", where the paper prints {config['critical']:g}" if "critical" in config else ""
    text.below.append(
        f"Critical value at 5 % with n = {n}: {kind.letter}({', '.join(map(str, kind.df(n)))}) = {limit:.3f}"
        f"{printed}; each of our cells is compared with the one for its own n. "
        "Holm's correction covers all cells with runs; the cells of one k share their runs of SBP."
    )
    return text


def cell(value: float, critical: float, text: Sheet, none: Sequence[str] = ()) -> str:
    """Return a statistic, marked where it is below the critical value; none: remarks on a missing one."""
    if pd.isna(value):
        return EMPTY + text.mark(none)
    return f"{value:.1f}" + (text.mark([WEAK]) if value < critical else "")


def probability(value: float) -> str:
    return "<0.001" if value < 0.001 else fixed(value, 3)


@dataclass(frozen=True)
class Resampled:
    """BLEU of one run in percent; the mean over samples of the test set, and half its 95 % interval.

    p: how likely chance alone makes such a difference to the first run; None for the first itself.
    """

    bleu: float
    mean: float
    interval: float
    p: float | None


def paired_bootstrap(folders: Sequence[Path], samples: int = 1000) -> list[Resampled]:
    """Compare runs with the first of them, by their folders or published files; the same each time.

    ValueError unless all were tested on the same sentences and counted by the same rule.
    """
    from sacrebleu.significance import PairedTest  # takes longer to import than most reports take

    runs = [read_translations(Path(folder)) for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        if (run.references, run.rule) != (runs[0].references, runs[0].rule):
            raise ValueError(
                f"{folder} and {folders[0]} differ in test set or BLEU, so they cannot be paired"
            )
    systems: list[tuple[str, Sequence[str]]] = [(str(i), run.hypotheses) for i, run in enumerate(runs)]
    test = PairedTest(systems, {"BLEU": metric(runs[0].rule)}, runs[0].references, "bs", samples)
    results: Any = test()[1]["BLEU"]
    compared: list[Resampled] = []
    for run, result in zip(runs, results, strict=True):
        # where no sample differs more than the whole, as of equal translations, sacreBLEU returns the least p
        p = 1.0 if compared and run.hypotheses == runs[0].hypotheses else result.p_value
        compared.append(Resampled(result.score, float(result.mean), float(result.ci), p))
    return compared


def metric(rule: str) -> "BLEU":
    """Return the metric of a signature such as nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2.6.0."""
    from sacrebleu.metrics import BLEU

    parts = dict(part.split(":", 1) for part in rule.split("|") if ":" in part)
    return BLEU(lowercase=parts["case"] == "lc", tokenize=parts["tok"], force=True)


def bootstrap_notes(table: "Table", damaged: list[str]) -> list[str]:
    """Return a sentence for each block with two rows whose runs of equal seeds kept their translations.

    A sentence for each run whose translations cannot be read is added to damaged.
    """
    sentences = []
    for _, block in table.rows.groupby("block"):
        kept = {row: folders(table, row, damaged) for row in block.index}
        parts = []
        for one, two in combinations(block.index, 2):
            if compared := list(compare(kept[one], kept[two])):
                labels = (block.label[row].removeprefix("+ ") for row in (two, one))
                parts.append(f"{' against '.join(labels)} {', '.join(compared)}")
        title = f"Paired bootstrap of {block.title.iloc[0]}, {SAMPLES} samples"
        sentences += [f"{title}: {'; '.join(parts)}."] if parts else []
    return sentences


def folders(table: "Table", row: int, damaged: list[str]) -> dict[int, Path]:
    """Return by seed the folders, or published files, with the translations of a row's runs."""
    runs = table.runs[table.runs.row == row]
    paths = {}
    for run in runs.itertuples():
        path = Path(str(run.source)).parent
        packed = packed_file(path, str(run.signature), int(run.seed))
        if (path / HYPOTHESES).exists() or packed.exists():
            chosen = packed if packed.exists() else path
            try:
                read_translations(chosen)
                paths[int(run.seed)] = chosen
            except (OSError, ValueError) as error:
                damaged += [str(error)] * (str(error) not in damaged)
    return paths


def compare(first: dict[int, Path], second: dict[int, Path]) -> Iterator[str]:
    """Yield difference and p of every seed that both rows have."""
    for seed in sorted(first.keys() & second.keys()):
        try:
            base, other = paired_bootstrap([first[seed], second[seed]], SAMPLES)
        except (OSError, ValueError):  # the table already marks rows that were scored by different rules
            continue
        yield f"{other.bleu - base.bleu + 0.0:+.2f} (p = {other.p:.3f}, seed {seed})"
