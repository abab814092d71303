"""The history is long enough for every reader."""

import pytest

from protocols.explorer import ProtocolError
from protocols.window import check

PERIOD = 2


@pytest.mark.parametrize("distance", range(PERIOD + 1))
def test_four_periods_are_enough(distance):
    assert check(PERIOD, 4 * PERIOD, distance, steps=6 * PERIOD) > 10


def test_two_periods_are_not():
    with pytest.raises(ProtocolError, match="finds"):
        check(PERIOD, 2 * PERIOD, PERIOD, steps=6 * PERIOD)
