"""The table of the measured models, rendered from their published file into the method card."""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from msbp.analysis.publish import shown_in
from msbp.files import parsed, save

ROOT = Path(__file__).resolve().parents[2]
FILE, CARD = ROOT / "outputs/published/models.json", ROOT / "src/msbp/sparse/README.md"
COSTLY = 1.5  # times the dense loss: a ratio that costs more learning than that is named


def render(file: Path = FILE, card: Path = CARD) -> None:
    """Write the table of a published file into the method card."""
    table = rendered(parsed(file.read_bytes()))
    save({card: shown_in(card.read_text(encoding="utf-8"), lambda name: f"{table}\n")})


def rendered(found: Mapping[str, Any]) -> str:
    """Return the table and its caption."""
    ratios = [str(r) for r in found["ratios"]]
    cores = str(max(found["threads"]))
    head = [
        "model", "width", "layers", "BP", "total", f"total, {cores} threads", "loss, dense",
        *[f"loss, r = {r}" for r in ratios],
    ]  # fmt: skip
    lines = [head, ["---"] * len(head), *[cells(row, ratios, cores) for row in found["models"]]]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([table, *filter(None, [caption(found), costs(found)])])


def cells(row: Mapping[str, Any], ratios: list[str], cores: str) -> list[str]:
    """Return the row of a model."""
    losses = row["losses"]
    return [
        row["name"], str(row["width"]), f"{row['converted']} of {row['linear']}",
        speedup(row["speed"].get("1"), "bp_ms"), speedup(row["speed"].get("1"), "total_ms"),
        speedup(row["speed"].get(cores), "total_ms"),
        *[spread(losses[r]) if r in losses else "–" for r in ("dense", *ratios)],
    ]  # fmt: skip


def caption(found: Mapping[str, Any]) -> str:
    """Return the conditions of the measurement."""
    (examples, length), (few, short) = found["batch"], found["learning_batch"]
    return (
        f"BP and total: how many times faster than the plain model with torch's fused AdamW, at r = "
        f"{found['r']}, on 1 thread "
        f"unless said: medians of {found['rounds']} steps of each in turns (a third of that at width "
        f"{found['wide']}), with {examples} examples of {length} tokens, patches or rows. Losses after "
        f"{found['steps']} steps with {few} × {short} (images: {few} × 16): mean (least–greatest) of "
        f"{len(found['seeds'])} seeds. Layers: linear ones and LSTMs. A model whose layers are all too "
        f"narrow for `convert` has no speed. {found['cpu']}, torch {found['torch']}, transformers "
        f"{found['transformers']}, commit {found['commit'][:8]}."
    )


def costs(found: Mapping[str, Any]) -> str:
    """Return where a ratio has to be larger, by the losses."""
    sentences = []
    for r in found["ratios"]:
        slow = [
            row["name"]
            for row in found["models"]
            if str(r) in row["losses"] and mean(row["losses"][str(r)]) > COSTLY * mean(row["losses"]["dense"])
        ]
        if slow:
            sentences.append(f"At r = {r}: {', '.join(slow)}.")
    if not sentences:
        return ""
    needed = "so that a larger r or `exclude=` is needed"
    return f"More than {COSTLY} times the dense loss, {needed}: {' '.join(sentences)}"


def speedup(times: Mapping[str, list[float]] | None, name: str) -> str:
    """Return the ratio of a dense and a sparse time."""
    return "–" if times is None else f"{times[name][0] / times[name][1]:.2f}×"


def spread(losses: list[float]) -> str:
    """Return mean and range of losses."""
    return f"{mean(losses):.3g} ({min(losses):.3g}–{max(losses):.3g})"
