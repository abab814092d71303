"""A program that is taken off the lists comes back when what its lanes wait for happens."""

import pytest

from protocols.explorer import ProtocolError
from protocols.suspending import Protocol, check


@pytest.mark.slow
@pytest.mark.parametrize("signal", [False, True])
def test_what_a_suspended_program_waits_for_lists_it_again(signal):
    assert check(Protocol(), signal) > 10


@pytest.mark.parametrize(
    ("broken", "signal"),
    [
        (Protocol(heavy_fence=False), True),
        (Protocol(looks_again=False), True),
        (Protocol(looks_again=False), False),
        (Protocol(resumes=False), True),
        (Protocol(notifies=False), True),
    ],
    ids=str,
)
def test_a_lane_is_lost_without(broken, signal):
    with pytest.raises(ProtocolError):
        check(broken, signal)
