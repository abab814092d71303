"""Barriers: something is complete when so many have arrived, again and again."""

from __future__ import annotations

import copy
import logging
import operator
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ostinato import _core
from ostinato.arguments import ReductionName, integer
from ostinato.events.event import Event, Happening, event_of
from ostinato.text import counted

_log = logging.getLogger("ostinato")

_KEPT = 1024  # results of complete phases


class Barrier:
    """Phases, one after the other, each complete when so many arrivals have been made.

    Parameters
    ----------
    arrivals
        How many complete a phase.
    reduce
        How the values of a phase's arrivals are combined: a function of two arguments, which returns what they come to
        and leaves them as they are, or one of ``"+"``, ``"*"``, ``"min"``, ``"max"``. Values are combined one at a
        time, in the order in which they arrive.
    initial
        What each phase starts from. With one of the four names, None stands for the phase's first value.

    Examples
    --------
    >>> import ostinato as ost
    >>> barrier = ost.Barrier(2, reduce="+", initial=100)
    >>> barrier.arrive(value=1)
    >>> barrier.phase
    0
    >>> barrier.arrive(value=2)
    >>> barrier.phase, barrier.result(0)
    (1, 103)
    """

    __slots__ = ("__weakref__", "_core", "_reduction")

    def __init__(
        self, arrivals: int, reduce: ReductionName | Callable[[Any, Any], Any] | None = None, initial: object = None
    ) -> None:
        count = integer("arrivals", arrivals, 1)
        if reduce is None and initial is not None:
            raise ValueError("initial= is what reduce= starts from, but there is no reduce=")
        self._reduction = None if reduce is None else _Reduction(reduce, initial)
        self._core = _core.Barrier(count, None if self._reduction is None else self._reduction.combine)

    def arrive(self, count: int = 1, value: object = None, after: Happening | None = None) -> None:
        """Arrive in the present phase.

        Parameters
        ----------
        count
            How many arrivals this is.
        value
            Combined once into the phase's result, whatever the count. None: no value.
        after
            Arrive when this has happened, in the phase that is the present one now. The arrivals are reserved at once:
            nobody else can make them. If the event is poisoned, they never arrive, and the phase stays open.

        Raises
        ------
        RuntimeError
            More arrivals than are left of the phase: none is made.
        """
        count = integer("count", count, 1)
        if value is not None and self._reduction is None:
            raise ValueError("an arrival has a value, but this barrier was made without a reduce= that would take it")
        event = None if after is None else event_of(after)
        if value is None and event is not None:
            if not self._core.arrive_after(event, count):
                raise self._excess(count)
            return
        phase = self._core.promise(count)
        if phase is None:
            raise self._excess(count)
        if event is not None and event.call_back(partial(self._keep_later, event, phase, count, value)):
            return
        self._keep(event, phase, count, value)

    def event(self, phase: int) -> Event:
        """Return the event of a phase: it happens when that is complete."""
        return Event(self._core.event(integer("phase", phase, 0)))

    def result(self, phase: int) -> Any:
        """Return what the values of a complete phase came to: `initial` where none had one.

        Results of the last 1024 complete phases are kept.

        Raises
        ------
        RuntimeError
            The phase is not complete.
        LookupError
            It is so long ago that its result is no longer kept.
        """
        phase = integer("phase", phase, 0)
        present = self._core.phase
        if phase >= present:
            raise RuntimeError(f"phase {phase} is not complete: the present one is {present}; wait for its event first")
        result = None if self._reduction is None else self._reduction.result(phase)
        present = self._core.phase
        if phase < present - _KEPT:
            raise LookupError(
                f"the result of phase {phase} is no longer kept: the present one is {present}, and the last {_KEPT} are"
            )
        return result

    @property
    def arrivals(self) -> int:
        """How many arrivals complete a phase."""
        return self._core.arrivals

    @property
    def reduce(self) -> str | Callable[[Any, Any], Any] | None:
        """How values are combined, as it was given."""
        return None if self._reduction is None else self._reduction.given

    @property
    def initial(self) -> Any:
        """What each phase starts from."""
        return None if self._reduction is None else self._reduction.initial

    @property
    def phase(self) -> int:
        """The present phase: the first that is not complete, counted from 0."""
        return self._core.phase

    @property
    def reduces(self) -> bool:
        """Whether it combines values."""
        return self._reduction is not None

    def __repr__(self) -> str:
        return f"<Barrier of {counted(self._core.arrivals, 'arrival')}, in phase {self._core.phase}>"

    def _keep(self, after: _core.Event | None, phase: int, count: int, value: object) -> None:
        if after is not None and after.poisoned:
            self._core.withdraw(phase, count)
        elif value is None:
            self._core.keep(phase, count)
        else:
            self._core.keep_with_value(phase, count, value)

    def _keep_later(self, after: _core.Event, phase: int, count: int, value: object) -> None:
        try:
            self._keep(after, phase, count, value)
        except Exception:
            _log.exception("reduce= of %r raised: arrivals in phase %d that were promised are not made", self, phase)

    def _excess(self, count: int) -> RuntimeError:
        present = self._core.phase
        return RuntimeError(
            f"an arrival must count at most {self._core.left(present)}, the arrivals of phase {present} that are "
            f"neither made nor promised (of {self._core.arrivals}), got {count}"
        )


class _Reduction:
    """What the values of each phase have come to so far. The core calls `combine`; it must not know the barrier."""

    def __init__(self, reduce: ReductionName | Callable[[Any, Any], Any], initial: object) -> None:
        if isinstance(reduce, str):
            if reduce not in _NAMED:
                raise ValueError(f"reduce must be a function or one of {', '.join(map(repr, _NAMED))}, got {reduce!r}")
            function = _NAMED[reduce]
            self._function = _first_or(function) if initial is None else function
        elif callable(reduce):
            self._function = reduce
        else:
            raise TypeError(
                f"reduce must be a function of two arguments or one of {', '.join(map(repr, _NAMED))}, got {reduce!r}"
            )
        self.given = reduce
        self.initial = initial
        self._lock = threading.RLock()  # without it, two arrivals could start from the same
        self._combining = False
        self._so_far: dict[int, Any] = {}

    def combine(self, phase: int, present: int, value: object) -> None:
        with self._lock:
            if self._combining:
                raise RuntimeError("reduce= of a barrier cannot itself arrive there with a value")
            self._combining = True
            try:
                self._so_far[phase] = self._function(self._so_far.get(phase, self.initial), value)
            finally:
                self._combining = False
            while (oldest := next(iter(self._so_far))) < present - _KEPT:
                del self._so_far[oldest]

    def result(self, phase: int) -> Any:
        with self._lock:
            return self._so_far.get(phase, self.initial)


def _first_or(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda so_far, value: copy.copy(value) if so_far is None else function(so_far, value)


def _of_arrays_or(of_arrays: np.ufunc, of_values: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def reduce(*values: Any) -> Any:
        return (of_arrays if any(isinstance(each, np.ndarray) for each in values) else of_values)(*values)

    return reduce


_NAMED: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "*": operator.mul,
    "min": _of_arrays_or(np.minimum, min),
    "max": _of_arrays_or(np.maximum, max),
}
