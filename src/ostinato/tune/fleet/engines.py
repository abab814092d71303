"""Which engine a fleet has, by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import entry_points

from ostinato.tune.fleet.agent import Settings
from ostinato.tune.fleet.host import Endpoint, Fleet
from ostinato.tune.fleet.mpi import Caller, Follower, World

_OURS = {"ray": "ostinato.tune.fleet.ray"}


def join(
    fleet: str, devices: str | Sequence[str], memory: int | None, allow: tuple[str, ...] | None
) -> Fleet | Follower:
    """Return the fleet that ``"ray"``, ``"ray://host:port"`` or the like names, with devices of its hosts.

    With ``"mpi"``, ranks other than 0 follow rank 0.

    Others can add an engine: an entry point of the group ``ostinato.fleets``, a function that gets what `fleet` is and
    returns an `ostinato.tune.fleet.host.Endpoint` for each host that is there. It is called again and again while a
    search runs, from another thread, so that hosts can join.

    Raises
    ------
    TypeError, ValueError
        There is no such engine.
    """
    if not isinstance(fleet, str):
        raise TypeError(f"fleet must be a str such as 'ray', got {fleet!r}")
    settings = Settings((), memory, allow, tuple(map(os.path.abspath, sys.path)), os.getcwd())
    if fleet == "mpi":
        world = World()
        return Caller(world, devices, settings) if world.rank == 0 else Follower(world)
    connect = _engine(fleet.partition("://")[0], fleet)
    return Fleet(connect(fleet), devices, settings, look=lambda: connect(fleet))


def _engine(name: str, fleet: str) -> Callable[[str], Sequence[Endpoint]]:
    if name in _OURS:
        connect: Callable[[str], Sequence[Endpoint]] = import_module(_OURS[name]).connect
        return connect
    others = {each.name: each for each in entry_points(group="ostinato.fleets")}
    if name not in others:
        known = ", ".join(repr(each) for each in (*_OURS, "mpi", *others))
        raise ValueError(
            f"fleet must be one of {known}, or a name with an address such as 'ray://host:10001', got {fleet!r}"
        )
    loaded: Callable[[str], Sequence[Endpoint]] = others[name].load()
    return loaded
