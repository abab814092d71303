"""A wait inside a task ends with its event or an abort. The run ends after the task, and tells how the task ended."""

import pytest

from protocols.ending_waits import Protocol, check
from protocols.explorer import ProtocolError


@pytest.mark.parametrize(
    ("aborts", "happens", "raises"),
    [(False, True, False), (True, False, False), (True, True, False), (False, True, True), (True, False, True)],
)
def test_runs_end_after_their_tasks(aborts, happens, raises):
    assert check(Protocol(), aborts, happens, raises) > 10


@pytest.mark.parametrize(
    ("broken", "aborts", "happens", "raises"),
    [
        (Protocol(firm=False), True, True, False),
        (Protocol(wait_looks=False), True, False, False),
        (Protocol(flag_of_own_run=False), True, False, False),
        (Protocol(asks_why=False), False, True, True),
        (Protocol(told_first=False), True, False, False),
        (Protocol(takes_left=False), True, False, False),
    ],
    ids=str,
)
def test_runs_end_wrongly_or_never_without(broken, aborts, happens, raises):
    with pytest.raises(ProtocolError):
        check(broken, aborts, happens, raises)
