"""Copy the measurements that a table or figure uses to what the project publishes.

python scripts/publish.py table=main, or figure=angle; bench=true copies what `python -m src.bench` measured.
Then the published tables and figures and the README's are rendered anew, from what is published alone.
"""

from pathlib import Path

import hydra
from omegaconf import DictConfig

from msbp.analysis import benchmarks, sources
from msbp.analysis.catalogue import CLAIMS, catalogue
from msbp.analysis.documents import document
from msbp.analysis.files import save
from msbp.analysis.published import contents, publish, publish_angles, stale
from msbp.analysis.settings import settings_from
from msbp.analysis.sources import ANGLES
from msbp.analysis.wanted import plain
from msbp.launch import CONF, compose, start


@hydra.main(config_path=CONF, config_name="publish", version_base="1.3")
def main(cfg: DictConfig) -> None:
    conf = Path(CONF)
    settle, every = settings_from(conf, compose), catalogue(conf)
    outputs, published = Path(cfg.paths.outputs), Path(cfg.paths.published)
    chosen = [plain(cfg[group], conf) for group in ("table", "figure") if group in cfg]
    if not chosen and not cfg.bench:
        raise ValueError(f"publish what? table= or figure= one of {', '.join(every)}, or bench=true")
    if cfg.bench:
        results = benchmarks.publish(outputs / "bench", published / "bench.json", cfg.allow_dirty)
        print(f"{len(results)} benchmarks are in {published / 'bench.json'}")
    if chosen:
        measured = sources.own(outputs, published, settle)
        for made in (document(config, measured) for config in chosen):
            if made.used or made.empty:
                records = publish(made, published / "records.jsonl", cfg.allow_dirty)
                print(f"{len(records)} records of {made.name} are in {published / 'records.jsonl'}")
            if made.angles:
                print(f"{publish_angles(made, published / ANGLES)} angles are in {published / ANGLES}")
    files = contents(
        published, Path(cfg.paths.readme), every, settle, [CLAIMS, *(config["name"] for config in chosen)]
    )
    changed = stale(files)
    save(files)
    print("rendered anew:", *(map(str, changed) if changed else ["nothing"]), sep="\n  ")


if __name__ == "__main__":
    start(main)
