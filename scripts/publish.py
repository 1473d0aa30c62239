"""Copy the records that a table uses to what the project publishes: python scripts/publish.py table=main.

Then the published tables and the README's are rendered anew from the published records alone.
"""

from pathlib import Path

import hydra
from omegaconf import DictConfig

from msbp.analysis.formats import save
from msbp.analysis.published import documents, publish, stale
from msbp.analysis.runs import own_runs
from msbp.analysis.settings import settings_from
from msbp.analysis.tables import fill, plain, table_configs
from msbp.launch import CONF, compose, start


@hydra.main(config_path=CONF, config_name="publish", version_base="1.3")
def main(cfg: DictConfig) -> None:
    settle = settings_from(Path(CONF), compose)
    table = fill(plain(cfg.table), own_runs(Path(cfg.paths.outputs)), settle)
    published = Path(cfg.paths.published)
    chosen = publish(table, published / "records.jsonl", cfg.allow_dirty)
    texts = documents(published, Path(cfg.paths.readme), table_configs(Path(CONF)), settle)
    changed = stale(texts)
    save({path: texts[path] for path in changed})
    print(f"{len(chosen)} records are in {published / 'records.jsonl'}; rendered anew:", *changed, sep="\n  ")


if __name__ == "__main__":
    start(main)
