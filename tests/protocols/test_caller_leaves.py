"""What a caller leaves behind on its slot, the slot's worker takes up."""

import pytest

from protocols.caller_leaves import Protocol, check
from protocols.explorer import ProtocolError


@pytest.mark.parametrize("visited", [False, True])
def test_the_worker_takes_up_what_is_left(visited):
    assert check(Protocol(), visited) > 10


@pytest.mark.parametrize(
    ("broken", "visited"),
    [
        (Protocol(notifies=False), False),
        (Protocol(fences=False), False),
        (Protocol(stands_up_first=False), False),
        (Protocol(notifies_again=False), False),
        (Protocol(first_no_more=False), False),
        (Protocol(counts_held_lanes=False), True),
    ],
    ids=str,
)
def test_work_is_left_lying_without(broken, visited):
    with pytest.raises(ProtocolError):
        check(broken, visited)
