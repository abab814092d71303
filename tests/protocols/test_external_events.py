"""A lane that waits for an event goes on when it has happened, or its run is aborted, and for nothing else."""

import pytest

from protocols.explorer import ProtocolError
from protocols.external_events import Protocol, check


@pytest.mark.parametrize(("aborts", "happens"), [(False, True), (True, False), (True, True)])
def test_lanes_go_on_in_time(aborts, happens):
    assert check(Protocol(), aborts, happens) > 10


@pytest.mark.parametrize(
    ("broken", "happens"),
    [
        (Protocol(only_forward=False), True),
        (Protocol(reach_locks=False), True),
        (Protocol(aborted_under_lock=False), False),
        (Protocol(abort_reaches=False), False),
        (Protocol(run_under_lock=False), False),
        (Protocol(looks_at_event=False), False),
    ],
    ids=str,
)
def test_lanes_go_on_too_early_or_never_without(broken, happens):
    with pytest.raises(ProtocolError):
        check(broken, True, happens)
