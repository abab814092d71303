"""A machine that is closed ends its threads, and every run that it took."""

import pytest

from protocols.close import Protocol, check
from protocols.explorer import ProtocolError


@pytest.mark.parametrize("compiles", [False, True])
def test_all_runs_end_and_then_the_threads(compiles):
    assert check(Protocol(), compiles) > 10


@pytest.mark.parametrize(
    ("broken", "compiles"),
    [
        (Protocol(refuses_first=False), False),
        (Protocol(drops_gil=False), False),
        (Protocol(notifies=False), False),
        (Protocol(plan_outside_lock=False), False),
        (Protocol(compiler_looks_again=False), True),
    ],
    ids=str,
)
def test_a_run_or_a_thread_is_left_without(broken, compiles):
    with pytest.raises(ProtocolError):
        check(broken, compiles)
