"""Every spawned call is taken, and a long one leaves no lane lying."""

import pytest

from protocols.explorer import ProtocolError
from protocols.spawning import Protocol, check_looking_after, check_taking


def test_every_call_is_taken():
    """R17: the hand-off of ready work from those who make it to the threads that take it."""
    assert check_taking(Protocol(), calls=2, shared=False) > 100


def test_a_caller_that_takes_no_calls_has_another_slot_rung():
    assert check_taking(Protocol(), calls=1, shared=True) > 100


@pytest.mark.parametrize("by_submission", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_the_lanes_of_a_busy_slot_are_looked_after(by_submission, left):
    assert check_looking_after(Protocol(), by_submission, left) > 10


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(pops_locked=False),
        Protocol(heavy_fence=False),
        Protocol(sleeper_looks_at_calls=False),
        Protocol(passes_on=False),
    ],
    ids=str,
)
def test_a_call_is_left_lying_without(broken):
    with pytest.raises(ProtocolError):
        check_taking(broken, calls=2, shared=False)


@pytest.mark.parametrize(
    "broken",
    [Protocol(caller_passes_on=False), Protocol(caller_fences=False), Protocol(spawner_fences=False)],
    ids=str,
)
def test_a_call_is_left_to_a_caller_without(broken):
    with pytest.raises(ProtocolError):
        check_taking(broken, calls=1, shared=True)


@pytest.mark.parametrize(
    ("broken", "by_submission", "left"),
    [
        (Protocol(busy_notifies=False), False, False),
        (Protocol(busy_notifies=False), True, False),
        (Protocol(sleeper_covers=False), False, False),
        (Protocol(heavy_fence=False), False, False),
        (Protocol(submit_notifies_another=False), True, False),
        (Protocol(leaver_looks_at_busy=False), False, True),
        (Protocol(busy_fences=False), True, True),
    ],
    ids=str,
)
def test_a_lane_is_left_lying_without(broken, by_submission, left):
    with pytest.raises(ProtocolError):
        check_looking_after(broken, by_submission, left)
