"""Measure models that others wrote, before and after conversion, and show them in the method card.

    python scripts/measure_models.py            writes outputs/published/models.json; run it alone
    python scripts/measure_models.py --render   writes its table into src/msbp/sparse/README.md

The baseline is torch's fused AdamW on the plain model; steps of both are timed in turns. Speed is measured
with real batches, learning with small ones; tasks are synthetic. Needs transformers.
"""

import argparse
import copy
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
import transformers as t
from torch import Tensor, nn

from msbp.analysis.publish import shown_in
from msbp.files import json_text, save
from msbp.optim import AdamW
from msbp.sparse import convert
from msbp.training import machine

ROOT = Path(__file__).resolve().parents[1]
FILE, CARD = ROOT / "outputs/published/models.json", ROOT / "src/msbp/sparse/README.md"
WORDS, CLASSES, RATIO, RATIOS, SEEDS, STEPS, ROUNDS = 500, 10, 0.04, (0.04, 0.1), (0, 1, 2), 500, 15
SPEED, LEARNING = (8, 64), (8, 8)  # examples and length of a batch
Build = Callable[[], nn.Module]
Batches = Callable[[int, int], dict[str, Tensor]]


def words(rows: int, length: int) -> Tensor:
    """Return sentences in which each word determines the next."""
    ids = torch.randint(2, WORDS, (rows, 1))
    for _ in range(length - 1):
        ids = torch.cat([ids, (7 * ids[:, -1:] + 3) % (WORDS - 2) + 2], 1)
    return ids


def labelled(rows: int, length: int) -> dict[str, Tensor]:
    """Return sentences whose class is given by their first word."""
    ids = torch.randint(2, WORDS, (rows, length))
    return {"input_ids": ids, "labels": ids[:, 0] % CLASSES}


def continued(rows: int, length: int) -> dict[str, Tensor]:
    ids = words(rows, length)
    return {"input_ids": ids, "labels": ids}


def images(rows: int, length: int) -> dict[str, Tensor]:
    """Return noisy images of as many 4 x 4 patches as `length`, one pattern a class."""
    side = 4 * max(2, int(length**0.5))
    patterns = torch.randn(CLASSES, 3, 32, 32, generator=torch.Generator().manual_seed(1))[..., :side, :side]
    labels = torch.randint(CLASSES, (rows,))
    return {"pixel_values": patterns[labels] + torch.randn(rows, 3, side, side), "labels": labels}


def table(rows: int, length: int) -> dict[str, Tensor]:
    """Return `rows` times `length` rows of a table, and a target that a network of two layers computes."""
    generator = torch.Generator().manual_seed(1)
    first, second = torch.randn(128, 32, generator=generator), torch.randn(32, 1, generator=generator)
    x = torch.randn(rows * length, 128)
    return {"x": x, "target": (x @ first / 128**0.5).tanh() @ second}


def bert(d: int) -> nn.Module:
    return t.BertForSequenceClassification(
        t.BertConfig(vocab_size=WORDS, hidden_size=d, num_hidden_layers=2, num_attention_heads=d // 64,
                     intermediate_size=4 * d, num_labels=CLASSES)
    )  # fmt: skip


def distilbert(d: int) -> nn.Module:
    return t.DistilBertForSequenceClassification(
        t.DistilBertConfig(vocab_size=WORDS, dim=d, n_layers=2, n_heads=d // 64, hidden_dim=4 * d,
                           num_labels=CLASSES)
    )  # fmt: skip


def llama(d: int) -> nn.Module:
    return t.LlamaForCausalLM(
        t.LlamaConfig(vocab_size=WORDS, hidden_size=d, intermediate_size=4 * d, num_hidden_layers=2,
                      num_attention_heads=d // 64)
    )  # fmt: skip


def gpt2(d: int) -> nn.Module:
    return t.GPT2LMHeadModel(
        t.GPT2Config(vocab_size=WORDS, n_embd=d, n_layer=2, n_head=d // 64, bos_token_id=0, eos_token_id=1)
    )


def t5(d: int) -> nn.Module:
    return t.T5ForConditionalGeneration(
        t.T5Config(vocab_size=WORDS, d_model=d, d_ff=4 * d, num_layers=2, num_heads=d // 64, d_kv=64,
                   decoder_start_token_id=0)
    )  # fmt: skip


def vit(d: int, length: int = 64) -> nn.Module:
    return t.ViTForImageClassification(
        t.ViTConfig(hidden_size=d, num_hidden_layers=2, num_attention_heads=d // 64, intermediate_size=4 * d,
                    image_size=4 * max(2, int(length**0.5)), patch_size=4, num_labels=CLASSES)
    )  # fmt: skip


class Mixer(nn.Module):
    """An MLP-Mixer of two blocks, with its loss."""

    def __init__(self, d: int, length: int = 64):
        super().__init__()
        patches = max(2, int(length**0.5)) ** 2
        self.patch = nn.Conv2d(3, d, 4, 4)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({
                "norm1": nn.LayerNorm(d), "tokens": nn.Sequential(
                    nn.Linear(patches, d), nn.GELU(), nn.Linear(d, patches)),
                "norm2": nn.LayerNorm(d), "channels": nn.Sequential(
                    nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)),
            })
            for _ in range(2)
        )  # fmt: skip
        self.head = nn.Linear(d, CLASSES)

    def forward(self, pixel_values: Tensor, labels: Tensor) -> Any:
        x = self.patch(pixel_values).flatten(2).transpose(1, 2)
        for block in self.blocks:
            parts: Any = block
            x = x + parts["tokens"](parts["norm1"](x).transpose(1, 2)).transpose(1, 2)
            x = x + parts["channels"](parts["norm2"](x))
        return {"loss": nn.functional.cross_entropy(self.head(x.mean(1)), labels)}


class Tabular(nn.Module):
    """An MLP with three hidden layers, with its loss."""

    def __init__(self, d: int):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(128, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(),
            nn.Linear(d, 1),
        )  # fmt: skip

    def forward(self, x: Tensor, target: Tensor) -> Any:
        return {"loss": nn.functional.mse_loss(self.net(x), target)}


MODELS: dict[str, tuple[Callable[..., nn.Module], int, Batches]] = {
    "BERT": (bert, 256, labelled),
    "DistilBERT": (distilbert, 256, labelled),
    "Llama": (llama, 256, continued),
    "GPT-2": (gpt2, 256, continued),
    "T5": (t5, 256, continued),
    "ViT": (vit, 256, images),
    "MLP-Mixer": (Mixer, 256, images),
    "tabular MLP": (Tabular, 512, table),
}
WIDE: dict[str, tuple[Callable[..., nn.Module], int, Batches]] = {
    "GPT-2 ": (gpt2, 768, continued),
    "T5 ": (t5, 768, continued),
}


class Training:
    """A model with its optimizer, one step at a time."""

    def __init__(self, model: nn.Module, r: float | None, lr: float = 1e-3):
        self.model = model.train()
        self.kept = {} if r is None else convert(self.model, r)
        self.optimizer: torch.optim.Optimizer
        if r is None:
            self.optimizer = torch.optim.AdamW(model.parameters(), lr, fused=True)
        else:
            self.optimizer = AdamW(model.parameters(), lr)

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


def speed(build: Build, batches: Batches, size: tuple[int, int], rounds: int) -> dict[str, Any]:
    """Return medians of milliseconds per step, plain and converted."""
    torch.manual_seed(0)
    plain = build()
    trainings = [Training(copy.deepcopy(plain), RATIO), Training(plain, None)]
    times: list[list[tuple[float, float]]] = [[], []]
    for count in range(rounds + 3):
        batch = batches(*size)
        for training, own in zip(trainings, times, strict=True):
            _, backward, total = training.step(batch)
            if count >= 3:
                own.append((1000 * backward, 1000 * total))
    sparse, dense = ([median(column) for column in zip(*own, strict=True)] for own in times)
    linear = [m for m in plain.modules() if isinstance(m, nn.Linear) or type(m).__name__ == "Conv1D"]
    return {
        "converted": len(trainings[0].kept), "linear": len(linear),
        "bp_ms": [dense[0], sparse[0]], "total_ms": [dense[1], sparse[1]],
    }  # fmt: skip


def final_loss(name: str, r: float | None, seed: int, steps: int) -> float:
    """Return the mean loss over the last tenth of a training of one of MODELS, on one thread."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(seed)
    kind, width, batches = MODELS[name]
    training = Training(sized_model(kind, width, LEARNING[1]), r)
    torch.manual_seed(1000 + seed)
    losses = [training.step(batches(*LEARNING))[0] for _ in range(steps)]
    return mean(losses[-max(1, steps // 10) :])


def all_losses(seeds: Sequence[int], steps: int) -> dict[str, dict[str, list[float]]]:
    """Return final losses by model and ratio, one a seed; trainings run side by side."""
    processes = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        running = {
            name: {
                str(r or "dense"): [pool.submit(final_loss, name, r, seed, steps) for seed in seeds]
                for r in (None, *RATIOS)
            }
            for name in MODELS
        }
        return {
            name: {r: [one.result() for one in futures] for r, futures in ratios.items()}
            for name, ratios in running.items()
        }


def measure(quick: bool) -> dict[str, Any]:
    """Return all that is published."""
    torch.set_flush_denormal(True)
    rounds, steps, seeds = (2, 4, SEEDS[:1]) if quick else (ROUNDS, STEPS, SEEDS)
    counts = sorted({1, len(os.sched_getaffinity(0))})
    rows = []
    for name, (kind, width, batches) in [*MODELS.items(), *WIDE.items()]:
        row: dict[str, Any] = {"model": name.strip(), "width": width, "threads": {}}
        build = partial(sized_model, kind, width, SPEED[1])
        row["parameters"] = sum(p.numel() for p in build().parameters())
        for threads in counts:
            torch.set_num_threads(threads)
            row["threads"][str(threads)] = speed(
                build, batches, SPEED, rounds if name in MODELS else rounds // 2
            )
            print(name, threads, row["threads"][str(threads)], flush=True)
        rows.append(row)
    losses = all_losses(seeds, steps)
    for name, row in zip(MODELS, rows, strict=False):
        row["losses"] = losses[name]
    return {
        "r": RATIO, "steps": steps, "batch": SPEED, "learning_batch": LEARNING,
        "commit": machine.git("rev-parse", "HEAD"),
        "torch": torch.__version__, "transformers": t.__version__, "cpu": machine.cpu(), "models": rows,
    }  # fmt: skip


def sized_model(kind: Callable[..., nn.Module], d: int, length: int) -> nn.Module:
    """Return a model for inputs of this length, where its size depends on that."""
    return kind(d, length) if kind in (vit, Mixer) else kind(d)


def rendered(found: dict[str, Any]) -> str:
    """Return the table of the method card."""
    ratios = [str(r) for r in RATIOS]
    most = max(int(count) for row in found["models"] for count in row["threads"])
    plural = f"{most} threads" if most > 1 else "1 thread"
    head = [
        "model", "width", "layers", "BP", "total", f"total, {plural}", "loss, dense",
        *[f"loss, r = {r}" for r in ratios],
    ]  # fmt: skip
    lines = [head, ["---"] * len(head)]
    for row in found["models"]:
        one, all_threads = row["threads"]["1"], row["threads"][str(most)]
        losses = row.get("losses")
        lines.append([
            row["model"], str(row["width"]), f"{one['converted']} of {one['linear']}",
            times(one["bp_ms"]), times(one["total_ms"]), times(all_threads["total_ms"]),
            *("–" if losses is None else spread(losses[r]) for r in ("dense", *ratios)),
        ])  # fmt: skip
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        f"{body}\n\nSpeed-up over torch's fused AdamW on the plain model at r = {found['r']}, "
        f"{found['batch'][0]} × {found['batch'][1]} rows, 1 thread unless said; losses after "
        f"{found['steps']} steps, mean and range of {seeds_of(found)} seeds. {found['cpu']}, "
        f"torch {found['torch']}, transformers {found['transformers']}, commit {found['commit'][:8]}."
    )


def seeds_of(found: dict[str, Any]) -> int:
    """Return the number of seeds of the losses."""
    return len(next(row["losses"]["dense"] for row in found["models"] if "losses" in row))


def times(pair: list[float]) -> str:
    """Return the ratio of a dense and a sparse time."""
    return f"{pair[0] / pair[1]:.2f}×"


def spread(losses: list[float]) -> str:
    """Return mean and range of losses."""
    return f"{mean(losses):.3g} ({min(losses):.3g}–{max(losses):.3g})"


def render(file: Path = FILE, card: Path = CARD) -> None:
    """Write the table of a published file into the method card."""
    table = rendered(json.loads(file.read_text(encoding="utf-8")))
    save({card: shown_in(card.read_text(encoding="utf-8"), lambda name: f"{table}\n")})


def main() -> None:
    """Measure, or render."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--render", action="store_true", help="write the table into the method card")
    parser.add_argument(
        "--quick", action="store_true", help="a few steps of everything, to see that it works"
    )
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args()
    if options.render:
        render(options.out)
        return
    found = measure(options.quick)
    save({options.out: json_text(found, indent=1)})


if __name__ == "__main__":
    main()
