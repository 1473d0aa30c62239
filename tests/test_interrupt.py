"""Ctrl-C and SIGTERM while a step is being made."""

import signal

import pytest

from msbp.interrupt import between_steps

BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture
def handlers():
    """As a terminal sets them, whatever started the tests."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("first", BOTH)
@pytest.mark.parametrize("second", BOTH)
def test_the_first_signal_asks_and_the_second_interrupts(handlers, first, second):
    with pytest.raises(KeyboardInterrupt), between_steps() as asked:
        assert not asked
        signal.raise_signal(first)
        assert asked
        signal.raise_signal(second)
        pytest.fail("the second one did not interrupt")


@pytest.mark.parametrize("ignored", BOTH)
def test_a_signal_that_was_ignored_stays_so(handlers, ignored):
    signal.signal(ignored, signal.SIG_IGN)
    other = next(number for number in BOTH if number != ignored)
    with between_steps() as asked:
        signal.raise_signal(ignored)
        assert not asked
        signal.raise_signal(other)
        signal.raise_signal(ignored)
        assert asked
    assert signal.getsignal(ignored) == signal.SIG_IGN
    assert signal.getsignal(other) == signal.default_int_handler
