"""Events: something happens once, or is poisoned, which means that it never will."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from ostinato import _core
from ostinato.errors import PoisonError, describe_error

if TYPE_CHECKING:
    import asyncio

_LOOK = 0.02
"""A task that may block looks so often, in seconds, whether its run was cancelled."""


def make_future() -> tuple[asyncio.Future[None], Callable[[], None]]:
    """Return a future of the running loop, and the function that ends it, from any thread.

    Inside a task that may block, the future raises `concurrent.futures.CancelledError` when the run of the task is
    cancelled.
    """
    import asyncio  # here, where it has been imported already: it takes as long as all of Ostinato

    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not future.done():
            future.set_result(None)

    def wake() -> None:
        with suppress(RuntimeError):  # the loop was closed, so nobody awaits this any more
            loop.call_soon_threadsafe(tell)

    def look() -> None:
        if future.done():
            return
        if _core.waits_are_over():
            future.set_exception(CancelledError("the run or the call that this task is part of was cancelled"))
        else:
            loop.call_later(_LOOK, look)

    if _core.waits_may_end():
        look()
    return future, wake


_log = logging.getLogger("ostinato")


class Event:
    """Something that happens once: a run ends, a barrier's phase is complete, a reservation is granted.

    An event that can never happen, because what it stands for has failed, is *poisoned*. Poison counts as done:
    nobody waits forever.

    Events are given by `Run.event`, `Run.posts`, `Barrier.event`, `Reservation.acquire` and `merge`; one that is
    triggered by hand is a `UserEvent`. Wherever an event is wanted (``after=``, `merge`), a `Run` will do.

    Examples
    --------
    >>> import ostinato as ost
    >>> asked, answered = ost.UserEvent(), ost.UserEvent()
    >>> both = ost.merge(asked, answered)
    >>> asked.trigger()
    >>> both.done
    False
    >>> answered.trigger()
    >>> both.wait()
    >>> both
    <Event done>
    """

    __slots__ = ("__weakref__", "_core", "_error")

    def __init__(self, core: _core.Event) -> None:
        self._core = core
        self._error: PoisonError | None = None  # what `wait` raises, once it has

    @property
    def done(self) -> bool:
        """Whether it has happened or is poisoned."""
        return self._core.done

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the event has happened.

        Parameters
        ----------
        timeout
            Seconds to wait at most.

        Raises
        ------
        PoisonError
            It never will: ``__cause__`` is the failure that this began with.
        TimeoutError
            It has not happened in time.
        ContractError
            A task called this: on a lane nothing may wait. One declared with ``blocking=True`` may.
        """
        if not self._core.wait(limit(timeout)):
            raise TimeoutError(f"the event has not happened in {timeout} s")
        self._raise_poison()

    def exception(self) -> PoisonError | None:
        """Wait until the event is done and return what `wait` raises, or None.

        Returns
        -------
        PoisonError or None
            None if it has happened.
        """
        self._core.wait(-1.0)
        return self._poison()

    def add_done_callback(self, fn: Callable[[Self], object]) -> None:
        """Call ``fn(event)`` when the event is done.

        Callbacks run in their order, on one thread that is there for them; if the event is done already, at once in the
        caller. What a callback raises is logged.

        Examples
        --------
        A future of `concurrent.futures` that ends with an event, and an event that happens with a future:

        >>> import ostinato as ost
        >>> from concurrent.futures import Future
        >>> event, future = ost.UserEvent(), Future()
        >>> event.add_done_callback(lambda event: future.set_result("it has happened"))
        >>> event.trigger()
        >>> future.result()
        'it has happened'
        >>> other = ost.UserEvent()
        >>> future.add_done_callback(lambda future: other.trigger())
        >>> other.done
        True
        """
        if not callable(fn):
            raise TypeError(f"a callback must be callable with the event, got {fn!r}")
        if not self._core.call_back(partial(self._call, fn)):
            self._call(fn)

    def __await__(self) -> Generator[Any, None, None]:
        self._core.check_wait()
        if not self._core.done:
            happened, wake = make_future()
            if self._core.call_back(wake):
                try:
                    yield from happened
                finally:
                    self._core.withdraw(wake)  # for whoever gave up, and may come again
        self._raise_poison()

    def __repr__(self) -> str:
        state = "poisoned" if self._core.poisoned else "done" if self._core.done else "pending"
        return f"<{type(self).__name__} {state}>"

    def _poison(self) -> PoisonError | None:
        if self._error is None and self._core.poisoned:
            self._core.retrieve()
            cause = cause_of(self._core)
            why = "" if cause is None else f", because of {describe_error(cause)}"
            self._error = PoisonError(f"the event is poisoned: what it stands for will never happen{why}")
            self._error.__cause__ = cause
        return self._error

    def _raise_poison(self) -> None:
        error = self._poison()
        if error is not None:
            raise error.with_traceback(None)  # not that of an earlier wait

    def _call(self, fn: Callable[[Self], object]) -> None:
        self._poison()  # whoever is called back has been told of the failure, and later runs start without it
        try:
            fn(self)
        except Exception:
            _log.exception("a callback of %r raised", self)


class UserEvent(Event):
    """An event that is triggered, or poisoned, by hand.

    Examples
    --------
    >>> import ostinato as ost
    >>> event = ost.UserEvent()
    >>> event.poison(OSError("the disk is full"))
    >>> event.wait()
    Traceback (most recent call last):
    ...
    ostinato.errors.PoisonError: the event is poisoned: ... because of OSError: the disk is full
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_core.Event())

    def trigger(self) -> None:
        """Let the event happen.

        Raises
        ------
        RuntimeError
            It has happened, or was poisoned, already.
        """
        if not self._core.trigger():
            raise RuntimeError(f"an event happens only once, and this one is {self._state()} already")

    def poison(self, exc: BaseException | None = None) -> None:
        """Say that the event will never happen.

        Parameters
        ----------
        exc
            Why: the ``__cause__`` of the `PoisonError` that those who wait get.

        Raises
        ------
        RuntimeError
            It has happened, or was poisoned, already.
        """
        if exc is not None and not isinstance(exc, BaseException):
            raise TypeError(f"exc must be an exception, got {exc!r}")
        if not self._core.poison(exc):
            raise RuntimeError(f"an event happens only once, and this one is {self._state()} already")

    def _state(self) -> str:
        return "poisoned" if self._core.poisoned else "triggered"


class Ending(Protocol):
    """What has an event that happens when it ends: a run."""

    @property
    def event(self) -> Event: ...


Happening: TypeAlias = "Event | Ending"


def merge(*events: Happening, ignore_poison: bool = False) -> Event:
    """Return an event that happens when all of some events have.

    Parameters
    ----------
    *events
        Events and runs. Without any, the result is done.
    ignore_poison
        By default the result is poisoned as soon as one of the events is. If true, it happens when all are done, in
        whatever way.

    Examples
    --------
    >>> import ostinato as ost
    >>> ost.merge().done
    True
    >>> event = ost.UserEvent()
    >>> event.poison()
    >>> ost.merge(event), ost.merge(event, ignore_poison=True)
    (<Event poisoned>, <Event done>)
    """
    return Event(_core.Event.merge([event_of(event) for event in events], bool(ignore_poison)))


def cause_of(event: _core.Event) -> BaseException | None:
    """Return the failure that the poison of an event began with."""
    cause: Any = event.reason
    origin: Any = event.origin
    if cause is None and origin is not None:
        cause = origin()
    while isinstance(cause, PoisonError) and cause.__cause__ is not None:
        cause = cause.__cause__
    return cause if isinstance(cause, BaseException) else None


def event_of(value: object) -> _core.Event:
    """Return the core's side of an event, or of the event of a run."""
    event = value if isinstance(value, Event) else getattr(value, "event", None)
    if not isinstance(event, Event):
        raise TypeError(f"an event or a run must be given here, got {value!r}")
    return event._core


def limit(timeout: float | None) -> float:
    """Return seconds as the core takes them: negative for no limit."""
    if timeout is None:
        return -1.0
    if not hasattr(timeout, "__float__"):
        raise TypeError(f"timeout must be a number of seconds or None, got {timeout!r}")
    if math.isnan(timeout):
        raise ValueError("timeout must be a number of seconds, got nan")
    return max(0.0, timeout)
