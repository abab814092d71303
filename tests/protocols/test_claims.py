"""A lane is served by one server at a time, from where the last one left it."""

import pytest

from protocols.claims import Protocol, check
from protocols.explorer import ProtocolError


def test_lanes_keep_their_order():
    assert check(Protocol()) > 10


@pytest.mark.parametrize(
    "broken",
    [Protocol(cursor_per_lane=False), Protocol(claim_is_atomic=False), Protocol(claim_last=False)],
    ids=str,
)
def test_lanes_do_not_keep_their_order_without(broken):
    with pytest.raises(ProtocolError):
        check(broken)
