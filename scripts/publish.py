"""Copy the measurements that a table or figure uses to what the project publishes.

python scripts/publish.py table=main, or figure=angle; table=theory copies what `python -m src.theory`
checked, and bench=true what `python -m src.bench` measured. Then the published tables and figures and the
README's are rendered anew, from what is published alone.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import hydra
import pandas as pd
from omegaconf import DictConfig

from msbp.analysis.figures import Plot
from msbp.analysis.publish import (
    contents,
    refuse_altered,
    translations_of,
    with_angles,
    with_benchmarks,
    with_records,
    without_uncommitted,
)
from msbp.analysis.render import Document
from msbp.analysis.report import document
from msbp.analysis.runs import own
from msbp.analysis.settings import CLAIMS, Settle, catalogue, chosen, rests_on_theory, settings_from
from msbp.cli import start
from msbp.config import CONF, PublishOptions, compose
from msbp.files import json_text, save
from msbp.measurements import BENCHMARKS, PACKED, RECORDS, THEORY
from msbp.record import ANGLES
from msbp.training.locks import publication


@hydra.main(config_path=CONF, config_name="publish", version_base="1.3")
def main(cfg: DictConfig) -> None:
    options = PublishOptions.of(cfg)
    with publication(Path(options.paths.published)):
        run(cfg, settings_from(Path(CONF), compose))


def run(cfg: DictConfig, settle: Settle, check: Callable[[pd.DataFrame], None] = refuse_altered) -> None:
    """Publish what is chosen, render anew what is published, and say what that changed.

    What is published is rendered first, without being written: what cannot be is refused before anything is
    added to it.

    check: raises ValueError for runs whose records do not agree with themselves.
    """
    conf = Path(CONF)
    outputs, published = (Path(cfg.paths[key]) for key in ("outputs", "published"))
    every = catalogue(conf)
    selected = chosen(cfg, conf)
    if not selected and not cfg.bench:
        raise ValueError(f"publish what? table= or figure= one of {', '.join(every)}, or bench=true")
    names = [CLAIMS, *(config["name"] for config in selected)]
    rendered = partial(contents, published, Path(cfg.paths.readme), every, settle, names)
    rendered(draw=False)
    files: dict[Path, str | bytes] = {}
    lines: list[str] = []
    if cfg.bench:
        results = with_benchmarks(outputs / "bench", published / BENCHMARKS, cfg.allow_dirty)
        files[published / BENCHMARKS] = json_text(results, indent=1)
        lines.append(f"{len(results)} benchmarks are in {published / BENCHMARKS}")
    if selected:
        measured = own(outputs, published, settle)
        for damaged in measured.damaged:
            print(f"left out {damaged}", file=sys.stderr)
        if any(map(rests_on_theory, selected)):
            theory = without_uncommitted(measured.theory, cfg.allow_dirty)
            files[published / THEORY] = json_text(theory, indent=1)
            lines.append(f"the checks of the bounds are in {published / THEORY}")
        documents = [document(config, measured) for config in selected if not rests_on_theory(config)]
        for each in documents:
            check(each.used)
        lines += add(documents, published, cfg, files)
    save(files)
    rewritten = save(rendered())
    print(*lines, "rewritten:", *[f"  {path}" for path in rewritten] or ["  nothing"], sep="\n")


def add(
    documents: Sequence[Document], published: Path, cfg: DictConfig, files: dict[Path, str | bytes]
) -> Iterator[str]:
    """Add records, angles and translations of documents to files; yield what that changes, line by line."""
    recorded = [each for each in documents if len(each.used) or not each.measured]
    if recorded:
        path = published / RECORDS
        change = with_records(recorded, path, cfg.allow_dirty, cfg.replace)
        files[path] = change.text
        yield from (f"{path}:", *(f"  {line}" for line in change.lines()))
        for each in recorded:
            if isinstance(each, Plot) and len(each.angles):
                files[published / ANGLES] = with_angles(each, published / ANGLES, change)
                yield f"{len(each.angles)} angles are in {published / ANGLES}"
    for each in documents:
        if cfg.translations:
            translations = translations_of(each.used, published)
            files |= translations
            yield f"translations of {len(translations)} runs are in {published / PACKED}"


if __name__ == "__main__":
    start(main)
