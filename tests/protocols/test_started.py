"""A run goes on once its event has happened, in whatever order events do."""

import pytest

from protocols.explorer import ProtocolError
from protocols.started import Protocol, check


@pytest.mark.parametrize("cancelled", [None, 1, 2])
def test_runs_start_in_time(cancelled):
    assert check(Protocol(), 2, cancelled) > 10


@pytest.mark.parametrize(
    ("broken", "cancelled"),
    [
        (Protocol(in_order=False), None),
        (Protocol(locks=False), None),
        (Protocol(cancel_counts=False), 1),
        (Protocol(always_listens=False), None),
    ],
    ids=str,
)
def test_runs_start_too_early_or_never_without(broken, cancelled):
    with pytest.raises(ProtocolError):
        check(broken, 2, cancelled)
