"""Nobody sleeps through a value that has been published, and no slot is notified that is no more."""

import pytest

from protocols.explorer import ProtocolError
from protocols.publish_and_park import Protocol, check


@pytest.mark.slow
@pytest.mark.parametrize("asymmetric", [True, False])
@pytest.mark.parametrize("targets", [(1,), (2,), (1, 2)])
def test_every_sleeper_wakes(asymmetric, targets):
    assert check(Protocol(asymmetric=asymmetric), *targets) > 10


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(heavy_fence=False),
        Protocol(asymmetric=False, heavy_fence=False),
        Protocol(looks_again=False),
        Protocol(ticket_first=False),
    ],
)
def test_a_sleeper_is_forgotten_without(broken):
    with pytest.raises(ProtocolError):
        check(broken, 1)


def test_the_least_value_must_follow_the_waiters():
    with pytest.raises(ProtocolError):
        check(Protocol(sets_least=False), 1, 2)


def test_no_slot_is_notified_that_is_no_more():
    assert check(Protocol(), 1, ends=True) > 10


@pytest.mark.parametrize("broken", [Protocol(counts_under_lock=False), Protocol(waits_for_notifiers=False)], ids=str)
def test_a_slot_is_notified_too_late_without(broken):
    with pytest.raises(ProtocolError):
        check(broken, 1, ends=True)
