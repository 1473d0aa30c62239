"""Tables, figures and claims of the paper, ours beside its own: python -m src.report table=main."""

import sys
from collections.abc import Mapping
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from msbp.analysis import published, sources
from msbp.analysis.catalogue import catalogue
from msbp.analysis.documents import document
from msbp.analysis.files import save
from msbp.analysis.other import other
from msbp.analysis.page import page
from msbp.analysis.settings import Settle, settings_from
from msbp.analysis.sources import Sources
from msbp.analysis.wanted import Config, plain
from msbp.launch import CONF, compose, start


@hydra.main(config_path=CONF, config_name="report", version_base="1.3")
def main(cfg: DictConfig) -> None:
    conf = Path(CONF)
    settle = settings_from(conf, compose)
    every = catalogue(conf)
    if cfg.readme:
        keep_published(cfg, every, settle)
        return
    measured = read(cfg, settle)
    chosen = [plain(cfg[group], conf) for group in ("table", "figure") if group in cfg]
    folder = Path(cfg.paths.outputs) / "report"
    documents = [document(config, measured) for config in chosen or every.values()]
    if not chosen:
        documents += other(measured.runs, documents)
        save({folder / "index.html": page(documents, measured)})
    for made in documents:
        files = published.files_of(made)
        save({folder / f"{made.name}.{suffix}": content for suffix, content in files.items()})
        print(files["md"])
    for damaged in measured.runs.damaged:
        print(f"left out {damaged}", file=sys.stderr)
    print(f"Markdown, LaTeX, CSV and figures are in {folder}" + ("" if chosen else "; index.html shows all"))


def read(cfg: DictConfig, settle: Settle) -> Sources:
    """What the user measured or what is published, never both."""
    if cfg.records == "own":
        where = [word for word in HydraConfig.get().overrides.task if word.startswith("paths.outputs=")]
        return sources.own(Path(cfg.paths.outputs), Path(cfg.paths.published), settle, where)
    if cfg.records == "published":
        return sources.published(Path(cfg.paths.published), settle)
    raise ValueError(f"records={cfg.records}: want own (the runs below paths.outputs) or published")


def keep_published(cfg: DictConfig, every: Mapping[str, Config], settle: Settle) -> None:
    """Write what is published anew, or fail where it is not what the records give."""
    if cfg.readme not in ("write", "check"):
        raise ValueError(f"readme={cfg.readme}: want write or check")
    folder, readme = Path(cfg.paths.published), Path(cfg.paths.readme)
    files = published.contents(folder, readme, every, settle, draw=cfg.readme == "write")
    outdated = published.stale(files)
    if cfg.readme == "write":
        save(files)
    elif outdated:
        names = ", ".join(map(str, outdated))
        raise ValueError(f"stale: {names}; run python -m src.report readme=write and commit")


if __name__ == "__main__":
    start(main)
