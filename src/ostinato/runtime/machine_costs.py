"""The model of this host: measured once, remembered in the cache directory, and read when programs are compiled.

Each host has a file of its own, named by what the host is, which is in the file, too: the processor, the cores that
this process may use, the kernel, and the versions of Ostinato and Python. Where the file is not right, all is measured
anew.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import ostinato
from ostinato import _core
from ostinato.cache_directory import cache_directory
from ostinato.compiler.machine_model import MachineModel
from ostinato.cores import usable_cores
from ostinato.graph.graph import Graph
from ostinato.graph.native import native
from ostinato.graph.task import task
from ostinato.runtime.process_trace import untraced

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostinato.runtime.machine import Machine

__all__ = ["measured", "remembered"]

FORMAT = 2
"""Of what is remembered; another one for another meaning of a number."""

LONGEST = 0.1
"""Seconds; nothing that is remembered took longer, so that a longer one is no measurement."""

OPS, SAMPLES, SAMPLE = 64, 9, 200e-6
"""Of the programs that tell what a call costs: ops, samples, and seconds of a sample."""


class _Known(NamedTuple):
    seconds: dict[str, Any]  # by field of the model
    source: str


class _Host(NamedTuple):
    identity: dict[str, Any]  # what must be the same for a measurement to hold
    path: str


_hosts: dict[tuple[str, tuple[int, ...]], _Host] = {}
_known: dict[str, _Known | None] = {}  # by path
_lock = threading.Lock()


def remembered(cores: int) -> MachineModel:
    """Return the model of a machine of this host with so many cores, as remembered; nothing is measured.

    Parameters
    ----------
    cores
        How many threads run at once.
    """
    host = _host()
    if host.path not in _known:
        _known[host.path] = _read(host)
    return _model(cores, _known[host.path])


def measured(cores: int) -> MachineModel:
    """Return the model of a machine of this host with so many cores; measure what is not remembered.

    What could be measured in part only, other processes measure anew.

    Parameters
    ----------
    cores
        How many threads run at once.
    """
    host = _host()
    with _lock:
        known = _known.get(host.path) or _read(host)
        if known is None:
            known = _measure(host.identity["cores"])
            if len(host.identity["cores"]) == 1 or known.seconds.keys() >= {*_TOGETHER}:
                _write(host, known)
        _known[host.path] = known
    return _model(cores, known)


def _model(cores: int, known: _Known | None) -> MachineModel:
    return (
        MachineModel(cores=cores) if known is None else MachineModel(cores=cores, source=known.source, **known.seconds)
    )


def _host() -> _Host:
    directory = cache_directory()
    key = directory, tuple(sorted(os.sched_getaffinity(0)))
    if key not in _hosts:
        identity = {
            "format": FORMAT,
            "processor": _processor(),
            "cores": usable_cores(),
            "kernel": os.uname().release,
            "ostinato": ostinato.__version__,
            "python": sys.version,
            "gil": bool(getattr(sys, "_is_gil_enabled", lambda: True)()),
        }
        name = f"machine-{zlib.crc32(repr(identity).encode()):08x}.json"
        _hosts[key] = _Host(identity, os.path.join(directory, name))
    return _hosts[key]


def _processor() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "CPU part"):
                return value.strip()
    return os.uname().machine


def _read(host: _Host) -> _Known | None:
    """Return what the file says; None if there is none, or none that is right."""
    try:
        with open(host.path, encoding="utf-8") as file:
            import json

            content = json.load(file)
        known = _Known(dict(content["seconds"]), content["source"])
        right = (
            content["host"] == host.identity
            and isinstance(known.source, str)
            and known.seconds.keys() <= {*_TOGETHER, *_CALLS}
            and known.seconds.keys() >= {*_CALLS}
            and all(type(value) is float and 0 <= value <= LONGEST for value in known.seconds.values())
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return known if right else None


def _write(host: _Host, known: _Known) -> None:
    """Replace the file in one go; where that is not possible, this process alone remembers."""
    import json
    import tempfile

    directory = os.path.dirname(host.path)
    with contextlib.suppress(OSError):
        os.makedirs(directory, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=directory, prefix=".machine-")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                json.dump({"host": host.identity, "seconds": known.seconds, "source": known.source}, file, indent=1)
            os.replace(temporary, host.path)
        except BaseException:
            os.unlink(temporary)
            raise


_TOGETHER = ("transfer", "look", "take_up", "wake", "ring")
_CALLS = ("native_call", "python_call")


def _measure(cores: list[int]) -> _Known:
    from ostinato.runtime.machine import Machine

    seconds = {}
    with Machine(cpus=1) as machine:
        seconds["native_call"] = _call_seconds(machine, native(_core.nothing_address(), ()))
        seconds["python_call"] = _call_seconds(machine, task(_nothing))
        together = (
            dict(zip(_TOGETHER, _core.measure_machine(machine._core, *cores[:2]), strict=True))
            if len(cores) > 1
            else {}
        )
    seconds |= {name: value for name, value in together.items() if 0 <= value <= LONGEST}
    source = f"measured {time.strftime('%Y-%m-%d')}"
    if missing := [name for name in _TOGETHER if name not in seconds]:
        reason = "its threads never ran at once" if together else "it has one core"
        source += f"; {', '.join(missing)} assumed, since {reason}"
    return _Known(seconds, source)


def _nothing() -> None: ...


def _call_seconds(machine: Machine, called: Callable[..., object]) -> float:
    """What an op takes that calls a task which does nothing, in a lane of such ops."""
    graph = Graph(infer=False)
    for _ in range(OPS):
        graph.task(called)
    samples: list[float] = []
    with untraced(), graph.compile(machine, lanes=1, costs={}) as program:
        steps = 1
        while len(samples) < SAMPLES:
            begin = time.perf_counter()
            program.replay(steps)
            taken = time.perf_counter() - begin
            if taken < SAMPLE / 2 and steps < 2**16:
                steps *= 2
            else:
                samples.append(taken / (steps * OPS))
    return sorted(samples)[SAMPLES // 2]
