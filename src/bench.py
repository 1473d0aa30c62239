"""Milliseconds per training step: python -m src.bench case=mnist [sweep=k] [threads=2] [format=json]."""

import json

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from msbp.analysis.benchmarks import remarks, settings, table, write
from msbp.bench.case import measure
from msbp.bench.progress import Voice
from msbp.cli import start
from msbp.config import CONF, check_keys, folder


@hydra.main(config_path=CONF, config_name="bench", version_base="1.3")
def main(cfg: DictConfig) -> None:
    check_keys(cfg, "bench", ("case",))
    voice = Voice()
    place = folder("paths.outputs", cfg.paths.outputs) / "bench"
    result = measure(cfg, voice) | {"settings": settings(HydraConfig.get().overrides.task)}
    print(json.dumps(result, ensure_ascii=False) if cfg.format == "json" else table(result), flush=True)
    written = write(place, result)  # after the print: a measurement is not lost where nothing can be written
    left = f"written: {', '.join(map(str, written))}"
    kept = f"not written: {place} has this benchmark without {result['settings']}, which stays"
    for line in (*remarks(result), left if written else kept):
        voice.say(line)


if __name__ == "__main__":
    start(main)
