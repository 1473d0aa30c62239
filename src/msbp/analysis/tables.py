"""Tables of the paper, ours beside its own: rows as configured, filled from the runs of their settings.

Only raw numbers of the paper are stored: every ratio and difference is computed here, its own included. Rows
compare with the first of their block over the seeds (in cross-validation: folds) that both have, and seconds
only within one platform.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from ..measurements import EARLIER_RULE, WHOLE_PASS
from .runs import PLATFORM, Sources
from .settings import SECONDS, Config, Setting, command, row_of
from .significance import paired_t

# Columns of a table by kind; "score" is the test score, the others are columns of the runs.
SCORES, SHARES, OTHER = ("score", "dev"), ("dropped_entries", "dropped_norm"), ("other_bleu",)
MEASURED = (*SCORES, *SECONDS, *SHARES, *OTHER)
RATIOS = {"bp_s": "bp_ratio", "bp_update_s": "bp_update_ratio", "total_s": "total_ratio"}
DELTAS = {column: f"{column}_delta" for column in (*SCORES, *OTHER)}
DIRTY = "includes runs of uncommitted code"
NO_BASELINE = "not compared: the first row has no runs yet"
NO_TIMES = "no speed-up: the first row has no times to compare with"
NO_SCORES = "not compared: the first row has no such score"
NO_COMMON = "not compared: the first row has no runs of these seeds"
NOT_RUN = "not run yet"
SAME_REASONS = {  # runs are counted by their reason: the share differs, and earlier records have other words
    r"(had|got) \d+% of .*": "got too little of a processor's time",
    "met another run on its outputs folder": "ran while another run used the same outputs folder",
}
CAUSES = {  # of a run without times, the first that its reason matches; remarks have no more than these
    r"in parallel|outputs folder|processor": "shared the machine",
    r"went on": "went on under other conditions",
    r"": "ran on another machine or other software",
}
SOME_DATA = "some runs of this block have no digest of their data on record"
METRICS = "the scores of these rows follow more than one metric rule"


@dataclass
class Table:
    """A filled table.

    rows: a row a table row; `block` is its block's number, ours and the paper's numbers are named as in CSV.
    runs: the runs of all rows; `row` is the table row, `timed` whether its seconds count. remarks: what a
    number or its absence needs, by row and column. paired: whether scores are tested seed by seed.
    """

    name: str
    caption: str
    columns: list[str]
    rows: pd.DataFrame
    runs: pd.DataFrame
    paired: bool = False
    remarks: dict[tuple[int, str], list[str]] = field(default_factory=lambda: defaultdict(list))

    def block(self, row: int) -> pd.DataFrame:
        """Return the rows of this row's block, the baseline first."""
        return self.rows[self.rows.block == self.rows.block[row]]

    def values(self, row: int, column: str = "score") -> pd.Series:
        """Return a row's values by seed; of seconds the comparable ones."""
        runs = self.runs.loc[self.runs.row == row, column]
        return runs.set_axis(self.runs.seed[runs.index]).dropna().sort_index()

    def common(self, *rows: int, column: str = "score") -> pd.DataFrame:
        """Return the values of rows, a column each, over the seeds that all of them have."""
        return pd.concat([self.values(row, column) for row in rows], axis=1, join="inner", keys=rows)

    def labelled(self, block: int, label: str) -> int:
        """Return the row of a block with this label; ValueError if it has none."""
        rows = self.rows.index[(self.rows.block == block) & (self.rows.label == label)]
        if len(rows) != 1:
            raise ValueError(f"table {self.name} has no single row {label!r} in each of its blocks")
        return int(rows[0])

    def gains(self, block: int, row: int, label: str) -> pd.Series:
        """Return a row's scores minus those of the block's row with this label, by common seed."""
        other = self.labelled(block, label)
        both = self.common(other, row) if other != row else pd.DataFrame({row: [], other: []})
        return both[row] - both[other]


def fill(config: Config, sources: Sources) -> Table:
    """Return the table with the runs of each row, selected by the signature of its overrides; filled once."""
    known, table = sources.tables.get(config["name"], ({}, None))
    if table is not None and known == config:
        return table
    rows = requested(config, sources)
    table = filled(config["name"], config["caption"], config["columns"], rows, sources.runs)
    add_diverged(table, sources.diverged)
    table.paired = config.get("paired", False)
    sources.tables[config["name"]] = config, table
    return table


def requested(config: Config, sources: Sources) -> pd.DataFrame:
    """Return the rows as configured: labels, settings, the paper's numbers, and parts of their commands."""
    rows = []
    for number, block in enumerate(config["blocks"]):
        for listed in block["rows"]:
            row = row_of(config, block, listed)
            setting = sources.setting(row)
            known = setting or Setting("")
            methods = [word.removeprefix("method=") for word in row.overrides if word.startswith("method=")]
            shared = row.overrides[: len(row.overrides) - len(listed["overrides"])]
            rows.append({
                "block": number, "title": block["title"], "label": row.label, "task": block["task"],
                "header": block.get("score", ""), "method": next(iter(methods), ""), "seeds": row.seeds,
                "r": known.r, "gamma": known.gamma, "hidden": known.hidden,
                "signature": setting and setting.signature,
                "shared": [*shared, *sources.where], "overrides": listed["overrides"],
                **{f"paper_{column}": value for column, value in listed.get("paper", {}).items()},
            })  # fmt: skip
    return pd.DataFrame(rows)


def filled(name: str, caption: str, columns: Sequence[str], rows: pd.DataFrame, runs: pd.DataFrame) -> Table:
    """Return rows with what their runs give; a row has at least block, title, label, signature and seeds."""
    keys = rows[["block", "signature"]].dropna().rename_axis("row").reset_index()
    matched = keys.merge(runs.assign(score=runs.test), on="signature")
    matched["reason"] = ""
    for block, part in matched.groupby("block"):
        platform = common_platform(part, rows.index[rows.block == block][0])
        runs_of_block = part[["times_comparable", "disturbed", "resumed", "platform"]].iterrows()
        matched.loc[part.index, "reason"] = [reason_untimed(run, platform) for _, run in runs_of_block]
    matched["timed"] = matched.reason == ""
    minutes = matched.groupby("row").total_s.median().rename("minutes") / 60  # of training, timed or not
    timed = [*SECONDS, "forward_s"]
    matched[timed] = matched[timed].where(matched.timed)
    matched["bp_s"] = matched.bp_s.where(matched.timing_rule >= WHOLE_PASS)
    table = Table(name, caption, list(columns), rows.join(summaries(matched)), matched)
    table.rows["n"] = table.rows.n.fillna(0).astype(int)
    table.rows = table.rows.join(comparisons(matched, rows)).join(paper_comparisons(rows)).join(minutes)
    if "shared" in rows:
        present = matched.groupby("row").seed.agg(set)
        seeds = [present.get(row, set()).union(range(n)) for row, n in rows.seeds.items()]
        words = zip(rows.shared, rows.overrides, seeds, rows.signature, strict=True)
        table.rows["command"] = [command(*row) if known else "" for *row, known in words]
    add_remarks(table)
    return table


def common_platform(block: pd.DataFrame, first: int) -> tuple | None:
    """Return the platform that times most of a block: the baseline above all, then rows, runs, the newest."""
    timed = block[block.times_comparable].assign(baseline=block.row == first)
    worth = timed.groupby("platform").agg(
        {"baseline": "any", "row": ["nunique", "size"], "started_at": "max"}
    )
    return None if worth.empty else worth.sort_values(list(worth)).index[-1]


def reason_untimed(run: pd.Series, platform: tuple | None) -> str:
    """Return why a run's seconds compare with none of its block; nothing where they do."""
    if not run.times_comparable:
        reasons = run.disturbed or ["ran in parallel" + " or resumed elsewhere" * run.resumed]
        # the share of a processor differs from run to run, and runs are counted by their reason
        for pattern, words in SAME_REASONS.items():
            reasons = [re.sub(pattern, words, each) for each in reasons]
        return " and ".join(reason.removeprefix("it ") for reason in reasons)
    parts = zip(PLATFORM.values(), run.platform, platform or (), strict=True)
    differ = [name for name, ours, theirs in parts if ours != theirs]
    return f"ran with another {' and '.join(differ)} than those with times" if differ else ""


def summaries(runs: pd.DataFrame) -> pd.DataFrame:
    """Return number of runs, means and sample deviations by row; one run has no deviation."""
    by_row = runs.groupby("row")
    means, deviations = by_row[list(MEASURED)].mean(), by_row[list(MEASURED)].std()
    named = {c: f"{c}_mean" for c in (*SCORES, *OTHER)}
    deviations = deviations[list(named)].add_suffix("_sd")
    return means.rename(columns=named).join(deviations).assign(n=by_row.size())


def comparisons(runs: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return speed-ups over the first row of a block, and differences to its scores, over common seeds."""
    columns = [*SECONDS, *SCORES, *OTHER]
    baseline = runs[runs.row == runs.row.map(first_rows(rows))].set_index(["block", "seed"])[columns]
    theirs = baseline.reindex(pd.MultiIndex.from_frame(runs[["block", "seed"]])).set_axis(runs.index)
    both = runs[columns].notna() & theirs.notna()
    ours = runs[columns].where(both).groupby(runs.row).mean()
    theirs = theirs.where(both).groupby(runs.row).mean()
    ratios, deltas = (theirs / ours).where(ours > 0), (ours - theirs).round(9) + 0.0  # no -0.0 of rounding
    return ratios[[*RATIOS]].rename(columns=RATIOS).join(deltas[[*DELTAS]].rename(columns=DELTAS))


def first_rows(rows: pd.DataFrame) -> pd.Series:
    """Return the first row of each row's block, with which it is compared."""
    return rows.index.to_series().groupby(rows.block).transform("first")


def paper_comparisons(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the paper's ratios and differences, from the numbers that it prints."""
    paper = rows.reindex(columns=[f"paper_{column}" for column in (*SCORES, *SECONDS)]).astype(float)
    first = paper.loc[first_rows(rows)].set_axis(rows.index)
    ratios = {f"paper_{name}": first[f"paper_{c}"] / paper[f"paper_{c}"] for c, name in RATIOS.items()}
    deltas = {f"paper_{DELTAS[c]}": paper[f"paper_{c}"] - first[f"paper_{c}"] for c in SCORES}
    return pd.DataFrame(ratios | deltas).join(paper[paper.columns.difference(rows.columns, sort=False)])


def add_remarks(table: Table) -> None:
    """Note what is special or missing, for every row and column."""
    for _, block in table.rows.groupby("block"):
        first = block.index[0]
        runs = table.runs[table.runs.row.isin(block.index)]
        for row in block.index:
            own = runs[runs.row == row]
            if own.empty:
                unknown = table.rows.signature[row] is None
                missing = "its task is not there yet" if unknown else NOT_RUN + cost(block.minutes.dropna())
                table.remarks[row, "n"].append(missing)
                continue
            if not own.timed.all():
                for column in SECONDS:
                    table.remarks[row, column].append(untimed_remark(own))
            if own.timed.any() and own.bp_s.isna().all():
                table.remarks[row, "bp_s"].append(EARLIER_RULE)
            baseline = runs[runs.row == first]
            for column in (*SECONDS, *SCORES, *OTHER):
                if own[column].notna().any() and baseline[column].isna().all():
                    lacking = NO_TIMES if column in SECONDS else NO_SCORES
                    table.remarks[row, column].append(NO_BASELINE if baseline.empty else lacking)
            ours, theirs = set(table.values(row).index), set(table.values(first).index)
            if theirs and ours != theirs:
                n = len(ours & theirs)
                seeds = f"difference over the {f'{n} seeds' if n > 1 else 'one seed'} of both rows"
                table.remarks[row, "score"].append(seeds if n else NO_COMMON)
            if runs.metric_signature.nunique(dropna=False) > 1:
                table.remarks[row, "score"].append(METRICS)
            if runs.data_digest.nunique(dropna=False) > 1:
                table.remarks[row, "score"].append(data_remark(own, runs.data_digest.nunique()))
            if own.dirty.any():
                table.remarks[row, "n"].append(DIRTY)


def cost(minutes: pd.Series) -> str:
    """Return what the rows of a block that were run took, as an estimate for the others."""
    if minutes.empty:
        return ""
    low, high = (max(1, round(each)) for each in (minutes.min(), minutes.max()))
    span = f"{low} to {high} minutes" if low < high else f"{low} minute{'s' * (low > 1)}"
    return f"; runs of the other rows trained for {span} each"


def add_diverged(table: Table, diverged: pd.DataFrame) -> None:
    """Note of how many of a row's runs diverged, and where the first of them did.

    A seed that has a record as well is not counted: another run of it did not diverge.
    """
    for row in table.rows.index:
        runs = diverged[diverged.signature == table.rows.signature[row]].sort_values("seed")
        runs = runs[~runs.seed.isin(table.runs.seed[table.runs.row == row])]
        if len(runs):
            first, n = runs.iloc[0], table.rows.n[row] + len(runs)
            where = f"seed {first.seed} in epoch {first.epoch}, step {first.step}: {first.reason}"
            remarks = [each for each in table.remarks[row, "n"] if not each.startswith(NOT_RUN)]
            table.remarks[row, "n"] = [*remarks, f"{len(runs)} of {n} diverged ({where})"]


def untimed_remark(runs: pd.DataFrame) -> str:
    """Return how many of a row's runs have times, and in few words why the others have none.

    The words are the same for many rows, which then share a note; `count_reasons` has all of them.
    """
    reasons, timed = runs.reason[~runs.timed], int(runs.timed.sum())
    causes = {
        next(words for pattern, words in CAUSES.items() if re.search(pattern, each)) for each in reasons
    }
    why = " or ".join(words for words in CAUSES.values() if words in causes)
    if not timed:
        return f"no times: {'all' if len(runs) > 1 else 'it'} {why}"
    return f"times of {timed} run{'s' * (timed > 1)}; the rest {why}"


def count_reasons(reasons: pd.Series) -> str:
    """Return every reason for which runs have no times, with how many runs it holds for."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(Counter(reasons[reasons != ""]).items()))


def data_remark(runs: pd.DataFrame, different: int) -> str:
    """Return the digests of the data that a row's runs read, where those of its block differ.

    different: how many its block has; where it is one, only records of it are missing.
    """
    if different == 1:
        return SOME_DATA
    counts = runs.data_digest.astype(object).fillna("not recorded").str.slice(0, 14).value_counts()
    digests = ", ".join(f"{digest} ({n} {'run' if n == 1 else 'runs'})" for digest, n in counts.items())
    return f"the runs of this block have different digests of their data, those of this row: {digests}"


def numbers(table: Table) -> pd.DataFrame:
    """Return seconds, percent and ratios, rounded to six decimals only."""
    rows = table.rows.assign(block=table.rows.title, row=table.rows.label)
    columns = ["block", "row", "task", "method", "r", "gamma", "hidden", "n", "seeds"]
    columns += [f"{c}_{kind}" for c in SCORES for kind in ("mean", "sd")] + list(SECONDS)
    compared = [*RATIOS.values(), *(DELTAS[c] for c in SCORES)]
    columns += [*compared, *(f"paper_{c}" for c in (*SCORES, *SECONDS)), *(f"paper_{c}" for c in compared)]
    if set(SECONDS) & set(table.columns):
        rows["untimed"] = [count_reasons(table.runs.reason[table.runs.row == row]) for row in rows.index]
        columns.append("untimed")
    if set(SHARES) & set(table.columns):
        rows["dropped_by_layer"] = [by_layer(table.runs[table.runs.row == row]) for row in rows.index]
        columns += [*SHARES, "dropped_by_layer"]
    for column in OTHER:
        if table.runs[column].notna().any():
            columns += [f"{column}_mean", f"{column}_sd", DELTAS[column]]
    if table.paired:
        first = first_rows(table.rows)
        before = table.rows.index.to_series().sub(1).clip(lower=first)
        rows["paired_p_first"] = [paired_p(table, *pair) for pair in first.items()]
        rows["paired_p_before"] = [paired_p(table, *pair) for pair in before.items()]
        columns += ["paired_p_first", "paired_p_before"]
    rows = rows.reindex(columns=[*columns, "signature", "command"]).round(6)
    return rows.astype({"hidden": "Int64"})


def paired_p(table: Table, row: int, other: int) -> float | None:
    """Return p of a row against another over the seeds that both have."""
    if row == other:
        return None
    both = table.common(other, row)
    test = paired_t(both[other], both[row])
    return test.p if test else None


def by_layer(runs: pd.DataFrame) -> str:
    """Return each layer with the percent of non-zero entries and of squared norm that it drops, means."""
    layers = pd.DataFrame(
        [{"layer": name, **share} for fractions in runs.dropped_fraction for name, share in fractions.items()]
    )
    if layers.empty:
        return ""
    means = 100 * layers.groupby("layer", sort=False)[["entries", "squared_norm"]].mean()
    return "; ".join(f"{name} {row.entries:.1f} {row.squared_norm:.1f}" for name, row in means.iterrows())
