"""Barriers and reservations as ops: what arriving, waiting, acquiring and releasing record."""

from __future__ import annotations

from typing import Any

import numpy as np

from ostinato.events import Barrier, Reservation
from ostinato.graph.body import Acquire, Arrive, Await, Release
from ostinato.graph.param import REQUIRED, Param, Step
from ostinato.graph.recorder import Recorder
from ostinato.integers import integer
from ostinato.one_line import brief

__all__ = ["acquire_body", "arrive_body", "release_body", "wait_body"]


def arrive_body(recorder: Recorder, barrier: object, count: Any, value: Any) -> Arrive:
    """Return the body of arrivals at a barrier."""
    known = _barrier(recorder, barrier, "arrive")
    if isinstance(count, Param):
        count = recorder.own_param(count, _arrive_label, 1)
        if count.default is not REQUIRED and count.combine is None:
            _count(count.default)
    else:
        count = _count(count)
    if value is None:
        return Arrive(known, count, Arrive.NO_VALUE)
    if isinstance(value, np.ndarray):
        value = value.copy()  # a value, not memory that others write to
    elif isinstance(value, Step):
        raise TypeError("value= of arrive() is given once for all steps or with each run, not by ostinato.step")
    else:
        value = recorder.plain_value(value, _arrive_label, 2)
    if isinstance(known, Barrier) and not known.reduces and not isinstance(value, Param):
        raise ValueError("value= of arrive() is for a barrier that reduces; make it with Barrier(arrivals, reduce=...)")
    return Arrive(known, count, value)


def wait_body(recorder: Recorder, barrier: object) -> Await:
    """Return the body of a wait for a barrier."""
    return Await(_barrier(recorder, barrier, "wait"))


def acquire_body(reservation: object, exclusive: bool) -> Acquire:
    """Return the body of a request for a reservation."""
    return Acquire(_reservation(reservation, "acquire"), bool(exclusive))


def release_body(reservation: object) -> Release:
    """Return the body of giving a reservation back."""
    return Release(_reservation(reservation, "release"))


def _barrier(recorder: Recorder, barrier: object, method: str) -> Barrier | Param:
    if isinstance(barrier, Barrier):
        return barrier
    if not isinstance(barrier, Param):
        raise TypeError(f"barrier of {method}() must be an ostinato.Barrier or a parameter, got {brief(barrier)}")
    barrier = recorder.own_param(barrier, lambda _: f"barrier of {method}()", 0)
    if barrier.default is not REQUIRED and barrier.combine is None and not isinstance(barrier.default, Barrier):
        raise TypeError(
            f"the default of {barrier.name!r}, the barrier of {method}(), must be an ostinato.Barrier, "
            f"got {barrier.default!r}"
        )
    return barrier


def _reservation(reservation: object, method: str) -> Reservation:
    if not isinstance(reservation, Reservation):
        raise TypeError(f"reservation of {method}() must be an ostinato.Reservation, got {brief(reservation)}")
    return reservation


def _count(value: Any) -> int:
    return integer("count of arrive()", value, 1)


def _arrive_label(place: int) -> str:
    return f"{('barrier', 'count', 'value')[place]} of arrive()"
