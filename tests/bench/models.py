"""Models of the benchmark on small data, by the name of their row."""

from msbp.bench.case import BenchOptions, configuration
from msbp.bench.timed_model import TimedModel, build
from msbp.config import compose

TINY = 'overrides=["task.sample=tiny","model.hidden=20","task.batch_size=8"]'
OPTIONS = BenchOptions.of(compose([TINY], config="bench"))


def model(name, *setting, options=OPTIONS):
    cfg = configuration(options, setting, name)
    task = build(cfg.task)
    return TimedModel(name, cfg, task, task.splits(options.seed))
