from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from msbp.kinds import expect, fits

FIT = [
    (1, int), (1, float), (0.5, float), (True, bool), ("a", str), (None, str | None), ([1], Sequence[int]),
    ((1,), list), ({}, dict), ({"a": 1}, Mapping[str, int]), (print, Callable[..., Any]), (3, Any), (3, "X"),
    ("a", str | Path), (0.1, float | Tensor), ({"_target_": "x"}, Path),
]  # fmt: skip
OTHER = [
    (True, int), (True, float), (1, bool), (1.0, int), ("1", int), (2**63, int), (None, str),
    ("a", Sequence[str]), (3, dict), ([], dict), ({}, list), ({}, str), (3, str | Path),
    (True, float | Tensor),
    (3, Callable[..., Any]), (..., str), (..., float | None), ("a", Path),
]  # fmt: skip


@pytest.mark.parametrize(("value", "kind"), FIT)
def test_a_value_fits_its_kind(value, kind):
    assert fits(value, kind)


@pytest.mark.parametrize(("value", "kind"), OTHER)
def test_a_value_of_another_kind_does_not(value, kind):
    assert not fits(value, kind)


def test_a_refusal_says_what_came_and_what_was_wanted():
    with pytest.raises(ValueError, match="^a.b must be a number or null, got 'x'$"):
        expect("a.b", "x", float | None)
