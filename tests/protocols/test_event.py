"""An event ends once, and everybody who listens or sleeps is told, once."""

import pytest

from protocols.event import Protocol, check
from protocols.explorer import ProtocolError


@pytest.mark.parametrize(("listeners", "sleeps"), [(2, False), (1, True)])
def test_everybody_is_told_once(listeners, sleeps):
    assert check(Protocol(), listeners, sleeps) > 10


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(ends_once=False),
        Protocol(listens_locked=False),
        Protocol(reason_first=False),
        Protocol(notifies_last=False),
    ],
    ids=str,
)
def test_not_everybody_is_told_once_without(broken):
    with pytest.raises(ProtocolError):
        check(broken, listeners=1, sleeps=True)
