"""Capture one step of array tasks, tune, compile and replay it at nanoseconds per task."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # typing's own would take as long to import as a tuner's worker takes to start

if TYPE_CHECKING:
    from ostinato.api import Graph, capture, compile, current_graph, step
    from ostinato.compiler.target import MachineModel
    from ostinato.devices.device import Stream
    from ostinato.environment import get_include
    from ostinato.errors import (
        ContractError,
        DeviceError,
        GraphError,
        OstinatoError,
        PoisonError,
        RankLost,
        TaskError,
        TracerError,
        TuningError,
    )
    from ostinato.events import Barrier, Event, Reservation, UserEvent, merge
    from ostinato.graph.access import Read, ReadWrite, Write
    from ostinato.graph.capture import copy, fill, param, until
    from ostinato.graph.containers import token
    from ostinato.graph.kernel import kernel
    from ostinato.graph.native import native
    from ostinato.graph.op import Op, previous
    from ostinato.graph.ring import ring
    from ostinato.graph.task import task
    from ostinato.ranks.ranks import Ranks
    from ostinato.runtime.machine import Machine
    from ostinato.runtime.program import Program
    from ostinato.runtime.run import Run
    from ostinato.tune.candidate import Candidate
    from ostinato.tune.outcome import Status
    from ostinato.tune.policy import Budget, Policy
    from ostinato.tune.report.report import Report
    from ostinato.tune.result import Result
    from ostinato.tune.searching.tuner import Tuner
    from ostinato.tune.space import Space

__version__ = "0.1.0"

__all__ = [
    "Barrier",
    "Budget",
    "Candidate",
    "ContractError",
    "DeviceError",
    "Event",
    "Graph",
    "GraphError",
    "Machine",
    "MachineModel",
    "Op",
    "OstinatoError",
    "PoisonError",
    "Policy",
    "Program",
    "RankLost",
    "Ranks",
    "Read",
    "ReadWrite",
    "Report",
    "Reservation",
    "Result",
    "Run",
    "Space",
    "Status",
    "Stream",
    "TaskError",
    "TracerError",
    "Tuner",
    "TuningError",
    "UserEvent",
    "Write",
    "capture",
    "compile",
    "copy",
    "current_graph",
    "fill",
    "get_include",
    "kernel",
    "merge",
    "native",
    "param",
    "previous",
    "ring",
    "step",
    "task",
    "token",
    "until",
]

# Names are fetched when they are first used: a tuner's worker starts in a fifth of the time that importing all takes.
_HOMES = {
    "ostinato.api": "compile step",
    "ostinato.compiler.target": "MachineModel",
    "ostinato.devices.device": "Stream",
    "ostinato.environment": "get_include",
    "ostinato.errors": (
        "ContractError DeviceError GraphError OstinatoError PoisonError RankLost TaskError TracerError TuningError"
    ),
    "ostinato.events": "Barrier Event Reservation UserEvent merge",
    "ostinato.graph.access": "Read ReadWrite Write",
    "ostinato.graph.capture": "capture copy current_graph fill param until",
    "ostinato.graph.containers": "token",
    "ostinato.graph.graph": "Graph",
    "ostinato.graph.kernel": "kernel",
    "ostinato.graph.native": "native",
    "ostinato.graph.op": "Op previous",
    "ostinato.graph.ring": "ring",
    "ostinato.graph.task": "task",
    "ostinato.ranks.ranks": "Ranks",
    "ostinato.runtime.machine": "Machine",
    "ostinato.runtime.program": "Program",
    "ostinato.runtime.run": "Run",
    "ostinato.tune.candidate": "Candidate",
    "ostinato.tune.outcome": "Status",
    "ostinato.tune.policy": "Budget Policy",
    "ostinato.tune.report.report": "Report",
    "ostinato.tune.result": "Result",
    "ostinato.tune.searching.tuner": "Tuner",
    "ostinato.tune.space": "Space",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
_PARTS = ("errors", "events", "graph", "profiler_runner", "runtime", "tune", "view")

import_module("ostinato.process").refuse_others()


def __getattr__(name: str) -> object:
    if name in _PARTS:
        return import_module(f"ostinato.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'ostinato' has no attribute {name!r}")
    home = _HOME[name]
    if home.startswith(("ostinato.compiler", "ostinato.graph", "ostinato.ranks")):
        import_module("ostinato.api")  # gives classes of these the methods that lie above them
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)  # for completion: nothing that is not public
