"""Whoever drops the last reference, and wherever: the run and the threads end."""

import pytest

from protocols.explorer import ProtocolError
from protocols.finalizers import Protocol, check


@pytest.mark.parametrize("by_task", [False, True])
def test_everything_ends(by_task):
    assert check(Protocol(), by_task) > 10


@pytest.mark.parametrize("by_task", [False, True])
@pytest.mark.parametrize("waits_for", ["waits_for_runs", "joins_threads"])
def test_a_finalizer_that_waits_holds_the_gil_that_the_end_needs(waits_for, by_task):
    with pytest.raises(ProtocolError):
        check(Protocol(**{waits_for: True}, drops_gil=False), by_task)


@pytest.mark.parametrize("waits_for", ["waits_for_runs", "joins_threads"])
def test_a_finalizer_that_waits_may_be_on_the_thread_that_the_end_needs(waits_for):
    with pytest.raises(ProtocolError):
        check(Protocol(**{waits_for: True}), by_task=True)
    check(Protocol(**{waits_for: True}), by_task=False)  # dropping the GIL helps elsewhere only


@pytest.mark.parametrize("broken", [Protocol(locks=False), Protocol(notifies=False)], ids=str)
def test_threads_are_left_without(broken):
    with pytest.raises(ProtocolError):
        check(broken, by_task=False)
