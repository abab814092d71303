"""Counters of a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.compiler.lower import Lowered

__all__ = ["DeviceStatistics", "ProgramStatistics", "counted"]


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

    def plus(self, other: DeviceStatistics) -> DeviceStatistics:
        """Return the sums for one device."""
        return DeviceStatistics(self.name, *(a + b for a, b in zip(self[1:], other[1:], strict=True)))


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
        names = cls._fields[:-1]
        devices: dict[str, DeviceStatistics] = {}
        for part in parts:
            for each in part.get("devices", ()):
                devices[each.name] = each.plus(devices[each.name]) if each.name in devices else each
        sums = {name: sum(part[name] for part in parts) for name in names}
        return cls(**sums, devices=tuple(devices[name] for name in sorted(devices)))


def counted(core: _core.Program, lowered: Lowered | None) -> dict[str, Any]:
    """Return the counters of a program of the core, with those of the streams of its plan."""
    streams = [] if lowered is None else lowered.streams
    names = [] if lowered is None else lowered.stream_names
    devices = (DeviceStatistics(name, *stream.counts) for name, stream in zip(names, streams, strict=True))
    return {**core.statistics(), "devices": tuple(devices)}
