"""Whoever stops a run, and whenever: all lanes run the same steps."""

import pytest

from protocols.explorer import ProtocolError
from protocols.stopping import Protocol, check


@pytest.mark.parametrize(("steps", "lanes", "stoppers"), [(2, 2, 1), (2, 1, 2), (1, 2, 2)])
def test_all_lanes_run_the_same_steps(steps, lanes, stoppers):
    assert check(Protocol(), steps, lanes, stoppers) > 10


@pytest.mark.parametrize("stoppers", [0, 1])
def test_no_lane_goes_past_the_verdict(stoppers):
    assert check(Protocol(), steps=3, stoppers=stoppers, until=1) > 10


def test_lanes_part_without_the_fence():
    with pytest.raises(ProtocolError):
        check(Protocol(heavy_fence=False), steps=1)


def test_the_verdict_must_be_known_before_the_bound_is_read():
    with pytest.raises(ProtocolError):
        check(Protocol(verdict_first=False), steps=3, stoppers=0, until=1)


def test_a_flag_beside_the_limit_must_be_read_with_care():
    with pytest.raises(ProtocolError):
        check(Protocol(one_word=False, reads_again=False), steps=1)


def test_a_flag_beside_the_limit_does_for_one_stopper_only():
    check(Protocol(one_word=False), steps=1)
    with pytest.raises(ProtocolError):
        check(Protocol(one_word=False), steps=1, lanes=1, stoppers=2)
