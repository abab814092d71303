"""A lane given back blocked is taken up again by its home, awake or asleep."""

import pytest

from protocols.explorer import ProtocolError
from protocols.hand_back import Protocol, check


def test_the_home_takes_up_the_lane():
    assert check(Protocol()) > 10


@pytest.mark.parametrize(
    "broken", [Protocol(notifies_home=False), Protocol(heavy_fence=False), Protocol(looks_at_claims=False)]
)
def test_the_lane_is_left_lying_without(broken):
    with pytest.raises(ProtocolError):
        check(broken)
