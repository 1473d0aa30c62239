"""Tables, figures and claims of the paper, ours beside its own: python -m src.report table=main."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from msbp.analysis import runs
from msbp.analysis.publish import contents, stale
from msbp.analysis.report import (
    document,
    in_full,
    listed,
    ordered,
    other,
    page,
    summary,
    tracked,
    unused,
)
from msbp.analysis.runs import Sources
from msbp.analysis.settings import Config, Settle, catalogue, chosen, settings_from
from msbp.cli import start
from msbp.config import CONF, ReportOptions, compose
from msbp.files import file_name, save
from msbp.training.locks import publication

FOLDERS = {"own": "report", "published": "report-published"}
SETTINGS = ".settings.jsonl"  # what rows request, kept in the outputs folder


@hydra.main(config_path=CONF, config_name="report", version_base="1.3")
def main(cfg: DictConfig) -> None:
    ReportOptions.of(cfg)
    settle = settings_from(Path(CONF), compose, Path(cfg.paths.outputs) / SETTINGS)
    if cfg.readme:
        keep_published(cfg, catalogue(Path(CONF)), settle)
    else:
        given = HydraConfig.get().overrides.task
        report(cfg, settle, [word for word in given if word.startswith("paths.outputs=")])


def report(cfg: DictConfig, settle: Settle, where: Sequence[str] = ()) -> None:
    """Write and print the tables, figures and claims that are chosen, or all of them.

    where: overrides with which commands leave their runs where these are.
    """
    conf = Path(CONF)
    measured = read(cfg, settle, where)
    folder = Path(cfg.paths.outputs) / FOLDERS[cfg.records]
    selected = chosen(cfg, conf)
    every: Sequence[Config] = selected or list(catalogue(conf).values())
    documents = ordered(document(config, measured) for config in tracked(every, "tables and figures"))
    rest = [] if selected else other(measured.runs, documents)
    for each in tracked(documents + rest, "files"):
        save(
            {folder / f"{file_name(each.name)}.{suffix}": content for suffix, content in each.files().items()}
        )
    left = unused(measured.runs, documents)
    if selected:
        print(*(in_full(each, measured.where) for each in documents), sep="\n")
        if len(left):
            print(f"\n{len(left)} other records are not part of this; python -m src.report has all")
    else:
        save({folder / "index.html": page(documents + rest, measured)})
        if rest or not all(each.empty for each in documents):
            print(*summary(documents, list(listed(left, compose)), measured.where), sep="\n")
        else:
            print(
                f"no runs in {cfg.paths.outputs} yet; wrote {len(documents)} empty tables and figures. "
                "python -m src.train makes a run, python scripts/reproduce.py those of a table"
            )
    for damaged in measured.damaged:
        print(f"left out {damaged}", file=sys.stderr)
    print(
        f"\nMarkdown, LaTeX, CSV and figures are in {folder}" + ("" if selected else "; index.html shows all")
    )


def read(cfg: DictConfig, settle: Settle, where: Sequence[str] = ()) -> Sources:
    """Return the user's measurements or the published ones, never both."""
    folder = Path(cfg.paths.published)
    if cfg.records == "published":
        refuse_missing(folder)
        return runs.published(folder, settle)
    return runs.own(Path(cfg.paths.outputs), folder, settle, where)


def refuse_missing(published: Path) -> None:
    """Raise ValueError unless there is a folder of what is published."""
    if not published.is_dir():
        raise ValueError(
            f"there is no folder {published}, which paths.published names: leave it out for the project's "
            "own, or fill it with scripts/publish.py"
        )


def keep_published(cfg: DictConfig, every: Mapping[str, Config], settle: Settle) -> None:
    """Render the published files anew, or raise ValueError where they are not what the records give."""
    folder, readme = Path(cfg.paths.published), Path(cfg.paths.readme)
    refuse_missing(folder)
    if cfg.readme == "write":
        with publication(folder):
            save(contents(folder, readme, every, settle))
    elif outdated := stale(contents(folder, readme, every, settle, draw=False)):
        names = ", ".join(map(str, outdated))
        raise ValueError(f"stale: {names}; run python -m src.report readme=write and commit")
    else:
        print(f"{readme} and all of {folder} are up to date")


if __name__ == "__main__":
    start(main)
