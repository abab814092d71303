"""Exactly what comes after a failure is skipped, and order holds for all the rest."""

import pytest

from models.explorer import ProtocolError
from models.poison import Protocol, check


def test_poison_is_exact():
    assert check(Protocol()) > 10


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(skipped_ops_wait=False),
        Protocol(flag_after_waits=False),
        Protocol(marks_before_publish=False),
    ],
    ids=str,
)
def test_poison_is_not_exact_without(broken):
    with pytest.raises(ProtocolError):
        check(broken)
