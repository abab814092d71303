"""A completion lasts until the device is done, whatever happens to its run, and the device's word finds it there."""

import pytest

from protocols.completions import Protocol, check
from protocols.explorer import ProtocolError


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("fails", [None, 1])
def test_completions_end_with_the_work(lazy, fails):
    assert check(Protocol(), 3 if lazy else 2, lazy, fails) > 100


@pytest.mark.parametrize("lazy", [False, True])
def test_an_abort_does_not_end_them_before(lazy):
    assert check(Protocol(), 1, lazy, aborts=True) > 100


def test_tokens_are_used_again_when_nobody_looks_at_them():
    assert check(Protocol(), 3) > 100
    with pytest.raises(ProtocolError, match="stands for"):
        check(Protocol(window=False), 3)


def test_an_abort_ends_them_too_early_where_they_are_not_firm():
    with pytest.raises(ProtocolError, match="before the device has done it"):
        check(Protocol(firm=False), 1, aborts=True)


@pytest.mark.parametrize("broken", [Protocol(holds=False), Protocol(lets_go_first=False)], ids=str)
def test_the_signal_is_gone_too_early_without(broken):
    with pytest.raises(ProtocolError, match="the signal is gone"):
        check(broken, 2)


def test_failures_are_missed_where_the_code_comes_late():
    with pytest.raises(ProtocolError, match="bad end"):
        check(Protocol(code_first=False), 2, fails=0)


def test_a_run_ends_too_early_where_lazy_completions_do_not_settle():
    with pytest.raises(ProtocolError, match="before the device has done all"):
        check(Protocol(settles=False), 1, lazy=True)
