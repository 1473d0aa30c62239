"""Random sequences of steps and surgery: right numbers or one error; more of them by the program fuzz.py."""

import pytest

from .fuzz import run


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(50))
def test_a_sequence_of_surgery_ends_in_right_numbers_or_one_error(seed):
    assert run(seed) == "equal" or run(seed).startswith("refused: ")
