"""Configurations with one more override, for a fraction of the time that composing each would take."""

import copy
import functools

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from msbp.config import compose

composed = functools.cache(lambda words: compose(words))


def overridden(*words: str) -> DictConfig:
    """Return what `compose(words)` does, of which the last one sets or adds a key and chooses no file."""
    *before, last = words
    (override,) = OverridesParser.create().parse_overrides([last])
    cfg = copy.deepcopy(composed(tuple(before)))
    OmegaConf.update(cfg, override.key_or_group, override.value(), force_add=override.is_add())
    return cfg
