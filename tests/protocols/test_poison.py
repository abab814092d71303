"""Exactly what comes after a failure is skipped, and order holds for all the rest."""

import pytest

from protocols.explorer import ProtocolError
from protocols.poison import Protocol, check


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("aborts", [False, True])
def test_poison_is_exact(aborts, across):
    assert check(Protocol(), aborts, across) > 10


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(skipped_ops_wait=False),
        Protocol(flag_after_waits=False),
        Protocol(marks_before_publish=False),
    ],
    ids=str,
)
def test_poison_is_not_exact_without(broken):
    with pytest.raises(ProtocolError):
        check(broken)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("aborts", [False, True])
def test_what_lanes_take_as_implied_is_not_true_where_skipped_ops_do_not_wait(aborts, across):
    with pytest.raises(ProtocolError, match="before a is over"):
        check(Protocol(skipped_ops_wait=False), aborts, across)
