"""What a program has done so far, counted by the core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.compiler.lower.tables import Lowered


class DeviceStatistics(NamedTuple):
    """A snapshot of what a program has put on the streams of a device."""

    name: str
    """Of the device."""
    calls: int
    """Tasks and fills issued."""
    copies: int
    """Copies issued, those that the program makes of its own included."""
    copied_bytes: int
    """What they move."""
    launches: int
    """How often several of these, captured before, were issued as one."""


class ProgramStatistics(NamedTuple):
    """A snapshot of a program's counters."""

    operations: int
    """Operations run or skipped since the program was compiled, as far as they have been published."""
    blocked: int
    """How often a lane had to wait for another."""
    runs_submitted: int
    runs_done: int
    core_bytes: int
    """What the compiled program takes in the core, in bytes."""
    devices: tuple[DeviceStatistics, ...] = ()
    """What it has put on each device that it uses."""

    @classmethod
    def sum(cls, parts: Iterable[Mapping[str, Any]]) -> ProgramStatistics:
        """Return the sums of the counters of several instances."""
        parts = list(parts)
        devices = []
        found = sorted(each for part in parts for each in part.get("devices", ()))
        for name, those in groupby(found, key=itemgetter(0)):
            _, *counts = zip(*those, strict=True)
            devices.append(DeviceStatistics(name, *map(sum, counts)))
        sums = {name: sum(part[name] for part in parts) for name in cls._fields[:-1]}
        return cls(**sums, devices=tuple(devices))


def counters(core: _core.Program, lowered: Lowered | None) -> dict[str, Any]:
    """Return the counters of a program of the core, with those of the streams of its plan."""
    streams = [] if lowered is None else lowered.streams
    names = [] if lowered is None else lowered.stream_names
    devices = (DeviceStatistics(name, *stream.counts) for name, stream in zip(names, streams, strict=True))
    return {**core.statistics(), "devices": tuple(devices)}
