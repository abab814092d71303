"""A worker that leaves its slot for a caller comes back, and leaves it what it has submitted."""

import pytest

from protocols.explorer import ProtocolError
from protocols.wanted_slot import Protocol, check


@pytest.mark.parametrize("elsewhere", [False, True])
def test_nothing_is_left_lying(elsewhere):
    assert check(Protocol(), elsewhere) > 10


@pytest.mark.parametrize(
    "broken", [Protocol(notifies_when_it_gives_up=False), Protocol(notifies_when_it_leaves=False)], ids=str
)
def test_work_is_left_lying_without(broken):
    with pytest.raises(ProtocolError):
        check(broken, elsewhere=True)


def test_the_caller_sleeps_for_ever_if_the_worker_does_not_ring():
    with pytest.raises(ProtocolError):
        check(Protocol(notifies_who_waits=False), elsewhere=False)


@pytest.mark.parametrize("broken", [Protocol(waits_throughout=False), Protocol(looks_before_entering=False)], ids=str)
def test_the_worker_gets_the_callers_run_without(broken):
    with pytest.raises(ProtocolError, match="what is for the thread"):
        check(broken, elsewhere=False)
