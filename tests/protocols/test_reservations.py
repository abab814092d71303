"""Reservations are taken in program order within a program, and by whoever comes first between programs."""

import pytest

from protocols.explorer import ProtocolError
from protocols.reservations import Protocol, check


@pytest.mark.parametrize("depends", [False, True])
def test_the_program_does_as_it_was_recorded(depends):
    assert check(Protocol(), depends) > 10


@pytest.mark.parametrize("broken", [Protocol(program_order=False), Protocol(across_steps=False)], ids=str)
def test_the_first_to_come_is_not_always_the_same_without(broken):
    with pytest.raises(ProtocolError, match="a bad end"):
        check(broken, depends=False)


def test_the_first_to_come_waits_for_who_waits_for_the_reservation():
    with pytest.raises(ProtocolError, match="no end"):
        check(Protocol(program_order=False), depends=True, steps=1)
