"""All lanes pass through the same runs in the same order."""

import pytest

from protocols.explorer import ProtocolError
from protocols.several_lanes import Protocol, check


def test_lanes_pass_through_runs_in_one_order():
    assert check(Protocol()) > 10


@pytest.mark.parametrize("broken", [Protocol(one_queue=False), Protocol(links_first=False)], ids=str)
def test_lanes_lose_runs_or_their_order_without(broken):
    with pytest.raises(ProtocolError):
        check(broken)
