"""A request that is withdrawn leaves the reservation to others, held by nobody who does not know of it."""

import pytest

from protocols.explorer import ProtocolError
from protocols.withdrawing import Protocol, check


@pytest.mark.parametrize("how", ["exclusive", "shared"])
def test_everybody_gets_the_reservation_and_gives_it_back(how):
    assert check(Protocol(), how) > 10


@pytest.mark.parametrize(
    ("broken", "how"),
    [(Protocol(heeds_answer=False), "exclusive"), (Protocol(grants_those_behind=False), "shared")],
    ids=str,
)
def test_it_is_held_forever_without(broken, how):
    with pytest.raises(ProtocolError):
        check(broken, how)
