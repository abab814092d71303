"""A worker that leaves its seat for a caller comes back."""

import pytest

from models.explorer import ProtocolError
from models.wanted_seat import Protocol, check


@pytest.mark.parametrize("elsewhere", [False, True])
def test_nothing_is_left_lying(elsewhere):
    assert check(Protocol(), elsewhere) > 10


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(rings_after_asking=False),
        Protocol(rings_when_it_gives_up=False),
        Protocol(rings_when_it_leaves=False),
        Protocol(worker_counts_callers=False),
    ],
    ids=str,
)
def test_work_is_left_lying_without(broken):
    with pytest.raises(ProtocolError):
        check(broken, elsewhere=True)
