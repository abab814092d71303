"""Reservations: locks that are granted by events."""

from __future__ import annotations

import numpy as np

from ostinato import _core
from ostinato.events.event import Event, Happening, event_of


class Reservation:
    """A lock for whoever is named by no thread: runs, spawned tasks, operations of programs.

    Requests are granted in the order in which they come. An exclusive one holds alone; shared ones that are next to
    each other in that order hold together. Each acquire is followed by one release.

    Examples
    --------
    >>> import ostinato as ost
    >>> reservation = ost.Reservation()
    >>> mine, yours = reservation.acquire(), reservation.acquire()
    >>> mine.done, yours.done
    (True, False)
    >>> reservation.release()
    >>> yours.done
    True
    """

    __slots__ = ("__weakref__", "_core")

    def __init__(self) -> None:
        self._core = _core.Reservation()

    def acquire(self, exclusive: bool = True, after: Happening | None = None) -> Event:
        """Ask for the reservation.

        Parameters
        ----------
        exclusive
            Whether to hold it alone. If false, others who share may hold it at the same time.
        after
            Ask only when this has happened. If it is poisoned, so is the event returned, and nothing is held; the
            release that comes after that event is poisoned, too, and gives nothing back.

        Returns
        -------
        Event
            It happens when the reservation is held.
        """
        if not isinstance(exclusive, bool | np.bool_):
            raise TypeError(f"exclusive must be True or False, got {exclusive!r}")
        return Event(self._core.acquire(bool(exclusive), None if after is None else event_of(after)))

    def release(self, after: Happening | None = None) -> None:
        """Give the reservation back: once for each `acquire`.

        Parameters
        ----------
        after
            Do so when this is done, poisoned or not: in ``release(after=run)``, run is what ``submit(after=granted)``
            returned. So what is to be released may not even be granted yet.

        Raises
        ------
        RuntimeError
            Nobody holds it whose release has not been promised already; with `after`, nor has anybody asked for it.
        """
        if not self._core.release(None if after is None else event_of(after)):
            raise RuntimeError(
                "there is nothing to release: the reservation is not held, or the release of what is held was promised"
                if after is None
                else "there is nothing to release: each request for the reservation has its release already"
            )

    def __repr__(self) -> str:
        return f"<Reservation, {self._core.holders} hold it and {self._core.waiting} wait>"
