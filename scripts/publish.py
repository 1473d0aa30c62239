"""Copy the records that a table uses to what the project publishes: python scripts/publish.py table=main.

bench=true copies what `python -m src.bench` measured. Then the published tables and the README's are
rendered anew, from what is published alone.
"""

from pathlib import Path

import hydra
from omegaconf import DictConfig

from msbp.analysis import benchmarks
from msbp.analysis.formats import save
from msbp.analysis.published import documents, publish, stale
from msbp.analysis.runs import own_runs
from msbp.analysis.settings import settings_from
from msbp.analysis.tables import fill, plain, table_configs
from msbp.launch import CONF, compose, start


@hydra.main(config_path=CONF, config_name="publish", version_base="1.3")
def main(cfg: DictConfig) -> None:
    settle, configs = settings_from(Path(CONF), compose), table_configs(Path(CONF))
    outputs, published = Path(cfg.paths.outputs), Path(cfg.paths.published)
    table = fill(plain(cfg.table), own_runs(outputs), settle) if "table" in cfg else None
    if table:
        chosen = publish(table, published / "records.jsonl", cfg.allow_dirty)
        print(f"{len(chosen)} records are in {published / 'records.jsonl'}")
    if cfg.bench:
        results = benchmarks.publish(outputs / "bench", published / "bench.json", cfg.allow_dirty)
        print(f"{len(results)} benchmarks are in {published / 'bench.json'}")
    if not table and not cfg.bench:
        raise ValueError(f"publish what? table= one of {', '.join(configs)}, or bench=true")
    new = [table.name] if table else []
    texts = documents(published, Path(cfg.paths.readme), configs, settle, new)
    changed = stale(texts)
    save({path: texts[path] for path in changed})
    print("rendered anew:", *(map(str, changed) if changed else ["nothing"]), sep="\n  ")


if __name__ == "__main__":
    start(main)
