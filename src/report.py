"""Tables of the paper from records, ours beside its own: python -m src.report table=main."""

import sys
from collections.abc import Mapping
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from msbp.analysis.formats import renderings, save
from msbp.analysis.other import other
from msbp.analysis.published import documents, stale
from msbp.analysis.runs import Runs, own_runs, published_runs
from msbp.analysis.settings import settings_from
from msbp.analysis.tables import fill, plain, table_configs
from msbp.launch import CONF, compose, start


@hydra.main(config_path=CONF, config_name="report", version_base="1.3")
def main(cfg: DictConfig) -> None:
    settle = settings_from(Path(CONF), compose)
    configs = table_configs(Path(CONF))
    if cfg.readme:
        if cfg.readme not in ("write", "check"):
            raise ValueError(f"readme={cfg.readme}: want write or check")
        published = Path(cfg.paths.published)
        keep_published(documents(published, Path(cfg.paths.readme), configs, settle), cfg.readme)
        return
    runs = read_records(cfg)
    where = [word for word in HydraConfig.get().overrides.task if word.startswith("paths.outputs=")]
    folder = Path(cfg.paths.outputs) / "report"
    if "table" in cfg:
        tables = [fill(plain(cfg.table), runs, settle, where)]
    else:
        tables = [fill(config, runs, settle, where) for config in configs.values()]
        tables += other(runs, tables)
    for table in tables:
        texts = renderings(table)
        save({folder / f"{table.name}.{suffix}": text for suffix, text in texts.items()})
        print(texts["md"])
    for source in runs.damaged:
        print(f"left out {source}", file=sys.stderr)
    print(f"Markdown, LaTeX and CSV are in {folder}")


def read_records(cfg: DictConfig) -> Runs:
    """The user's runs or the published ones, never both."""
    if cfg.records == "own":
        return own_runs(Path(cfg.paths.outputs))
    if cfg.records == "published":
        return published_runs(Path(cfg.paths.published) / "records.jsonl")
    raise ValueError(f"records={cfg.records}: want own (the runs below paths.outputs) or published")


def keep_published(texts: Mapping[Path, str], mode: str) -> None:
    """Write the published tables and the README's anew, or fail where they are not what the records give."""
    outdated = stale(texts)
    if mode == "write":
        save({path: texts[path] for path in outdated})
    elif outdated:
        raise ValueError(
            f"stale: {', '.join(map(str, outdated))}; run python -m src.report readme=write and commit"
        )


if __name__ == "__main__":
    start(main)
