"""The tables of the measured models, rendered from their published file into the method card."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from msbp.analysis.publish import shown_in
from msbp.files import parsed, save

ROOT = Path(__file__).resolve().parents[2]
FILE, CARD = ROOT / "outputs/published/models.json", ROOT / "src/msbp/sparse/README.md"
COSTLY = 1.5  # times the dense loss: settings that cost more learning than that are named
Row = Mapping[str, Any]


def render(file: Path = FILE, card: Path = CARD) -> None:
    """Write the tables of a published file into the method card."""
    tables = rendered(parsed(file.read_bytes()))
    save({card: shown_in(card.read_text(encoding="utf-8"), lambda name: f"{tables}\n")})


def rendered(found: Row) -> str:
    """Return both tables with their captions."""
    return "\n\n".join([*speeds(found), *learning(found)])


def speeds(found: Row) -> list[str]:
    """Return the table of speed and its caption."""
    cores = str(max(found["threads"]))
    head = [
        "model",
        "width",
        "layers",
        "BP",
        "total",
        "fused",
        "feed-forward",
        "limit",
        f"total, {cores} threads",
    ]
    rows = [
        [
            row["name"], str(row["width"]), f"{row['converted']} of {row['linear']}",
            speedup(row["speed"].get("1"), "bp_ms"), speedup(row["speed"].get("1"), "total_ms"),
            *(speedup(row["speed"].get("1"), "total_ms", index) for index in (2, 3)),
            limit(row["speed"].get("1")),
            speedup(row["speed"].get(cores), "total_ms"),
        ]
        for row in found["models"]
    ]  # fmt: skip
    examples, length = found["batch"]
    return [
        table(head, rows),
        f"BP and total: how many times faster than the plain model with torch's fused AdamW, at r = "
        f"{found['r']}, on 1 thread unless said: medians of {found['rounds']} steps of each in turns (a "
        f"third of that at width {found['wide']}), with {examples} examples of {length} tokens, patches or "
        "rows. Fused: total with `fuse` in place of `convert`, which propagates everything: what faster "
        "dropout, embeddings and optimizer gain alone. Feed-forward: total with these layers alone "
        'converted, at r = 0.1 and with `memory="per_slot"`. Limit: total, if the backward pass of the '
        "converted layers took no time, and all else were as in the plain model. Layers: linear ones and "
        "LSTMs. A model whose layers are all too narrow for "
        f"`convert` has no speed. {conditions(found, ['speed'])}",
    ]


def learning(found: Row) -> list[str]:
    """Return the table of losses, its caption, and the models that each setting costs much."""
    names = found["trainings"]
    rows = [
        [row["name"], *(spread(row["losses"][name]) if name in row["losses"] else "–" for name in names)]
        for row in found["models"]
        if row["losses"]
    ]
    few, short = found["learning_batch"]
    paragraphs = [
        table(["loss", *map(heading, names)], rows),
        f"Loss in training after {found['steps']} steps with {few} × {short} tokens or rows (images: {few} × "
        "16 patches): "
        f'mean (least–greatest) of {len(found["seeds"])} seeds. Per slot: with `memory="per_slot"`. '
        "Feed-forward: converted are these layers alone, where a model has others. "
        f"{conditions(found, names)}",
    ]
    costs = [f"at {heading(name)}: {', '.join(slow)}" for name in names if (slow := costly(found, name))]
    return [*paragraphs, *[f"More than {COSTLY} times the dense loss: {'; '.join(costs)}."] * bool(costs)]


def costly(found: Row, name: str) -> list[str]:
    """Return the models whose loss is far above the dense one in a training."""
    return [
        row["name"]
        for row in found["models"]
        if name in row["losses"] and mean(row["losses"][name]) > COSTLY * mean(row["losses"]["dense"])
    ]


def conditions(found: Row, columns: Iterable[str]) -> str:
    """Return processor, versions and the commits of these columns."""
    commits = sorted({commit[:8] for name in columns for commit in found["commits"][name]})
    return (
        f"{found['cpu']}, torch {found['torch']}, transformers {found['transformers']}, commit "
        f"{' and '.join(commits)}."
    )


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def heading(name: str) -> str:
    """Return the heading of a training."""
    return name if name == "dense" else f"r = {name}"


def speedup(times: Row | None, name: str, index: int = 1) -> str:
    """Return the ratio of the plain model's time and another's, if that was measured."""
    if times is None or times[name][index] is None:
        return "–"
    return f"{times[name][0] / times[name][index]:.2f}×"


def limit(times: Row | None) -> str:
    """Return the ratio that a backward pass of no time in the converted layers would give."""
    if times is None:
        return "–"
    (whole, _, least), total = times["bp_ms"], times["total_ms"][0]
    return f"{total / (total - whole + least):.2f}×"


def spread(losses: list[float]) -> str:
    """Return mean and range of losses."""
    return f"{mean(losses):.3g} ({min(losses):.3g}–{max(losses):.3g})"
