"""Every run that is submitted is served."""

import pytest

from protocols.explorer import ProtocolError
from protocols.submitting import Protocol, check


@pytest.mark.parametrize(("submitters", "retires"), [(1, 2), (2, 1)])
def test_every_run_is_served(submitters, retires):
    assert check(Protocol(), submitters, retires) > 10


@pytest.mark.parametrize(
    ("broken", "submitters"),
    [
        (Protocol(submit_fences=False), 2),
        (Protocol(retire_looks_again=False), 2),
        (Protocol(retire_fences=False), 2),
        (Protocol(heavy_fence=False), 1),
        (Protocol(sleeper_reads_version=False), 1),
        (Protocol(sleeper_reads_frontier=False), 2),
    ],
    ids=str,
)
def test_a_run_is_lost_without(broken, submitters):
    with pytest.raises(ProtocolError):
        check(broken, submitters)
