"""Configurations with one more override, for a fraction of the time that composing each would take."""

import copy
import functools

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict

from msbp.config import compose

composed = functools.cache(compose)


def overridden(*words: str, config: str = "train") -> DictConfig:
    """Return what `compose(words, config)` does, of which the last one is of a key and chooses no file."""
    *before, last = words
    (override,) = OverridesParser.create().parse_overrides([last])
    cfg = copy.deepcopy(composed(tuple(before), config))
    if override.is_delete():
        with open_dict(cfg):
            del cfg[override.key_or_group]
    else:
        OmegaConf.update(cfg, override.key_or_group, override.value(), force_add=override.is_add())
    return cfg
