"""Every run is run once, and has the number of its step, whichever program runs it."""

import pytest

from protocols.explorer import ProtocolError
from protocols.taking_over import Protocol, check


@pytest.mark.parametrize(("submitters", "turns"), [(1, 2), (2, 1), (2, 2)])
def test_every_run_is_run_and_counted(submitters, turns):
    assert check(Protocol(), submitters, turns) > 10


@pytest.mark.parametrize(
    ("broken", "submitters", "turns"),
    [
        (Protocol(submit_looks=False), 2, 1),
        (Protocol(idle_only=False), 2, 1),
        (Protocol(hands_on_its_steps=False), 2, 1),
        (Protocol(own_steps_are_taken_off=False), 2, 2),
    ],
    ids=str,
)
def test_steps_go_wrong_without(broken, submitters, turns):
    with pytest.raises(ProtocolError):
        check(broken, submitters, turns)
