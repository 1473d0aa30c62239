"""The clock: seconds by phase, and the share of the processor."""

import pytest

from msbp.training.clock import PHASES, Clock


class Time:
    """A time source that moves only on demand."""

    def __init__(self):
        self.at = 100.0

    def __call__(self):
        return self.at


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def clock(time):
    return Clock(now=time)


def spend(clock, time, phase, seconds):
    with clock(phase):
        time.at += seconds


def test_phases_add_up_to_the_total(clock, time):
    for step in range(3):
        for phase, seconds in zip(PHASES, (1, 2, 4, 8), strict=True):
            spend(clock, time, phase, seconds + step)
    assert [clock[phase] for phase in PHASES] == [6, 9, 15, 27]
    assert clock.total == 57
    assert clock.seconds() == {"data_s": 6, "forward_s": 9, "bp_s": 15, "update_s": 27, "total_s": 57}


def test_time_outside_phases_is_not_counted(clock, time):
    spend(clock, time, "forward", 1)
    time.at += 1000
    spend(clock, time, "backward", 2)
    assert clock.total == 3


@pytest.mark.parametrize("inner", PHASES)
def test_phases_cannot_be_nested(clock, inner):
    with clock("forward"), pytest.raises(RuntimeError, match=f"{inner!r} was opened while 'forward'"):
        with clock(inner):
            pass


def test_a_phase_that_fails_is_closed_and_counted(clock, time):
    with pytest.raises(ZeroDivisionError), clock("backward"):
        time.at += 5
        raise ZeroDivisionError
    spend(clock, time, "backward", 2)
    assert clock["backward"] == 7


def test_an_unknown_phase_is_refused_with_the_choices(clock):
    with pytest.raises(ValueError, match="no phase 'eval'; phases are data, forward, backward, update"):
        clock("eval")


def test_a_phase_waits_for_the_device_at_both_ends(time):
    """Work queued on a device takes its time when it is waited for."""
    queued = []

    def wait():
        time.at += sum(queued)
        queued.clear()

    clock = Clock(now=time, wait=wait)
    queued.append(10)  # queued before, so not this phase's
    with clock("forward"):
        queued.append(3)
    assert clock["forward"] == 3


def test_a_restored_clock_continues(clock, time):
    spend(clock, time, "update", 4)
    other = Clock(now=time)
    other.load_state_dict(clock.state_dict())
    spend(other, time, "update", 1)
    assert other["update"] == other.total == 5 and clock.total == 4


def test_the_processor_share_falls_when_other_processes_use_the_processor(time):
    worked = Time()
    clock = Clock(now=time, work=worked)
    with clock("update"):
        time.at, worked.at = time.at + 4, worked.at + 1
    worked.at += 100  # outside phases
    assert clock.processor_share == 0.25
    other = Clock(now=time, work=worked)
    other.load_state_dict(clock.state_dict())
    assert other.processor_share == 0.25
