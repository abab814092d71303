"""Looks for hosts that join a search: new ones, and lost ones that can be reached again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from ostinato.errors import DeviceError
from ostinato.tune.fleet.agent import Found

if TYPE_CHECKING:
    from ostinato.tune.fleet.host import Endpoint

LOOK_SECONDS = 2.0
"""Between two looks; a node that could not be taken in is tried again after twice as long as before."""

_LONGEST = 60.0


class HostLostError(Exception):
    """A host does not answer any more, and will not."""


class UnreachableError(Exception):
    """A host did not answer this time."""


Joined: TypeAlias = "tuple[str, Endpoint, Sequence[Found]]"


class Joining:
    """A thread that opens what `missing` returns; what it has opened is to be taken once `reader` is readable."""

    def __init__(
        self,
        missing: Callable[[], Sequence[tuple[str, Endpoint]]],
        open_there: Callable[[str, Endpoint], Sequence[Found]],
    ) -> None:
        self._missing, self._open = missing, open_there
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        self._lock = threading.Lock()
        self._found: list[Joined] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ostinato fleet joining", daemon=True)
        self._thread.start()

    def take(self) -> list[Joined]:
        """Return what was opened since."""
        with suppress(BlockingIOError):
            os.read(self.reader, 4096)
        with self._lock:
            found, self._found = self._found, []
        return found

    def close(self) -> list[Joined]:
        """End it; return what was opened and not taken."""
        self._over.set()
        self._thread.join()
        found = self.take()
        os.close(self.reader)
        os.close(self._writer)
        return found

    def _run(self) -> None:
        pauses: dict[str, float] = {}  # by what identifies a node: looks to pass over
        waits: dict[str, float] = {}
        while not self._over.wait(LOOK_SECONDS):
            with self._lock:
                waiting = {endpoint.identity for _, endpoint, _ in self._found}
            try:
                missing = self._missing()
            except Exception:  # the engine cannot tell now, perhaps because the cluster changes
                continue
            for node, endpoint in missing:
                identity = endpoint.identity
                waits[identity] = waits.get(identity, 0.0) - LOOK_SECONDS
                if identity in waiting or waits[identity] > 0 or self._over.is_set():
                    continue
                # Doubled in any case: a host that joins and is lost again and again must not take up the search.
                pauses[identity] = min(2 * pauses.get(identity, LOOK_SECONDS / 2), _LONGEST)
                waits[identity] = pauses[identity]
                try:
                    found = self._open(node, endpoint)
                except (DeviceError, HostLostError):
                    continue
                except Exception:  # of the engine
                    with suppress(Exception):
                        endpoint.close()
                    continue
                if found:
                    with self._lock:
                        self._found.append((node, endpoint, found))
                    os.write(self._writer, b"j")
