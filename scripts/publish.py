"""Copy the measurements that a table or figure uses to what the project publishes.

python scripts/publish.py table=main, or figure=angle; bench=true copies what `python -m src.bench` measured.
Then the published tables and figures and the README's are rendered anew, from what is published alone.
"""

from collections.abc import Sequence
from pathlib import Path

import hydra
from omegaconf import DictConfig

from msbp.analysis import benchmarks
from msbp.analysis.measurements import BENCHMARKS, RECORDS
from msbp.analysis.publish import contents, publish, publish_angles
from msbp.analysis.render import Document
from msbp.analysis.report import document
from msbp.analysis.runs import own
from msbp.analysis.settings import CLAIMS, Settle, catalogue, chosen, settings_from
from msbp.analysis.translations import PACKED, publish_translations
from msbp.cli import start
from msbp.config import CONF, PublishOptions, compose
from msbp.files import save
from msbp.record import ANGLES
from msbp.training.locks import publication


@hydra.main(config_path=CONF, config_name="publish", version_base="1.3")
def main(cfg: DictConfig) -> None:
    options = PublishOptions.of(cfg)
    with publication(Path(options.paths.published)):
        run(cfg, settings_from(Path(CONF), compose))


def run(cfg: DictConfig, settle: Settle) -> None:
    """Publish what is chosen, render anew what is published, and say what that changed."""
    conf = Path(CONF)
    outputs, published = (Path(cfg.paths[key]) for key in ("outputs", "published"))
    every = catalogue(conf)
    selected = chosen(cfg, conf)
    if not selected and not cfg.bench:
        raise ValueError(f"publish what? table= or figure= one of {', '.join(every)}, or bench=true")
    if cfg.bench:
        results = benchmarks.publish(outputs / "bench", published / BENCHMARKS, cfg.allow_dirty)
        print(f"{len(results)} benchmarks are in {published / 'bench.json'}")
    if selected:
        measured = own(outputs, published, settle)
        put([document(config, measured) for config in selected], published, cfg)
    names = [CLAIMS, *(config["name"] for config in selected)]
    rewritten = save(contents(published, Path(cfg.paths.readme), every, settle, names))
    print("rewritten:", *(map(str, rewritten) if rewritten else ["nothing"]), sep="\n  ")


def put(documents: Sequence[Document], published: Path, cfg: DictConfig) -> None:
    """Records and angles into the files of what is published; all of the records, or none."""
    recorded = [each for each in documents if len(each.used) or each.empty]
    if recorded:
        path = published / RECORDS
        change = publish(recorded, path, cfg.allow_dirty, cfg.replace)
        print(f"{path}:", *change.lines(), sep="\n  ")
    for each in documents:
        if cfg.translations:
            files = publish_translations(each.used, published)
            print(f"translations of {len(files)} runs are in {published / PACKED}")
        if len(each.angles):
            print(f"{publish_angles(each, published / ANGLES)} angles are in {published / ANGLES}")


if __name__ == "__main__":
    start(main)
