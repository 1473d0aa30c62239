"""Milliseconds per training step: python -m src.bench case=mnist [sweep=k] [threads=2] [format=json].

breakdown=true: of the parts of a step.
"""

import json
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from msbp.analysis import benchmarks
from msbp.analysis.benchmarks import points, remarks, settings, write
from msbp.bench.case import BenchOptions, measure, refuse_idle
from msbp.bench.timed_model import Reporter
from msbp.cli import start
from msbp.config import CONF
from msbp.files import check_writable


@hydra.main(config_path=CONF, config_name="bench", version_base="1.3")
def main(cfg: DictConfig) -> None:
    options, reporter, words = BenchOptions.of(cfg), Reporter(), HydraConfig.get().overrides.task
    refuse_idle(options, words)
    folder = Path(options.paths.outputs) / "bench"
    check_writable(folder)
    result = measure(options, reporter)
    timed = [point["value"] for point in points(result)] if options.sweep else []
    interrupted = options.sweep and len(timed) < len(options.sweep.values)
    if interrupted:  # a partial result: that of the command with these values alone
        words = [*words, f"sweep.values={json.dumps(timed, ensure_ascii=False, separators=(',', ':'))}"]
    result |= {"settings": settings(words)}
    table = benchmarks.table(result)
    print(json.dumps(result, ensure_ascii=False) if options.format == "json" else table, flush=True)
    written = write(folder, result)  # after the print: a measurement is not lost where nothing can be written
    kept = f"not written: {folder} has this benchmark without {result['settings']}, which stays"
    for line in (*remarks(result), f"written: {', '.join(map(str, written))}" if written else kept):
        reporter.line(line)
    if interrupted:
        raise KeyboardInterrupt(f"of the sweep these values were timed: {', '.join(map(str, timed))}")


if __name__ == "__main__":
    start(main)
