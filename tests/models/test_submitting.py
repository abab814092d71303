"""Every run that is submitted is served."""

import pytest

from models.explorer import ProtocolError
from models.submitting import Protocol, check


@pytest.mark.parametrize(("submitters", "retires"), [(1, 2), (2, 1)])
def test_every_run_is_served(submitters, retires):
    assert check(Protocol(), submitters, retires) > 10


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(submit_fences=False),
        Protocol(retire_looks_again=False),
        Protocol(retire_fences=False),
        Protocol(heavy_fence=False),
        Protocol(sleeper_reads_version=False),
        Protocol(sleeper_reads_frontier=False),
    ],
    ids=str,
)
def test_a_run_is_lost_without(broken):
    with pytest.raises(ProtocolError):
        check(broken)
