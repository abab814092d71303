"""A run gets the same phases of a given barrier, however far the runs before it have come."""

import pytest

from protocols.attendance import SCENARIOS, Protocol, check
from protocols.explorer import ProtocolError


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_runs_get_their_phases(scenario):
    assert check(Protocol(), SCENARIOS[scenario]) > 10


@pytest.mark.parametrize(
    ("broken", "scenario"),
    [
        (Protocol(at_submission=False), "a phase that is complete once the run was submitted"),
        (Protocol(attends_in_one_hold=False), "programs that fill a phase each"),
        (Protocol(counts_expected=False), "runs that fill a phase each"),
        (Protocol(counts_waits=False), "runs that wait for another party"),
        (Protocol(notes_in_one_hold=False), "runs that share a phase"),
        (Protocol(leaves_last=False), "runs that wait for another party"),
        (Protocol(leaves_before_done=False), "a run after a cancelled one"),
        (Protocol(leaving_looks_again=False), "a run after two cancelled ones"),
    ],
    ids=str,
)
def test_their_phases_depend_on_timing_without(broken, scenario):
    with pytest.raises(ProtocolError):
        check(broken, SCENARIOS[scenario])
