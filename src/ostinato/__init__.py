"""Capture one step of array tasks, compile it to a static program, replay it at nanoseconds per task."""

from ostinato.errors import (
    ContractError,
    DeviceError,
    GraphError,
    OstinatoError,
    PoisonError,
    TaskError,
    TuningError,
)
from ostinato.events import Barrier, Event, Reservation, UserEvent, merge
from ostinato.graph import (
    Graph,
    Op,
    Read,
    ReadWrite,
    Write,
    capture,
    kernel,
    native,
    param,
    previous,
    ring,
    step,
    task,
    until,
)
from ostinato.include_path import get_include
from ostinato.runtime.machine import Machine
from ostinato.runtime.program import Program
from ostinato.runtime.run import Run

__version__ = "0.1.0"

__all__ = [
    "Barrier",
    "ContractError",
    "DeviceError",
    "Event",
    "Graph",
    "GraphError",
    "Machine",
    "Op",
    "OstinatoError",
    "PoisonError",
    "Program",
    "Read",
    "ReadWrite",
    "Reservation",
    "Run",
    "TaskError",
    "TuningError",
    "UserEvent",
    "Write",
    "capture",
    "get_include",
    "kernel",
    "merge",
    "native",
    "param",
    "previous",
    "ring",
    "step",
    "task",
    "until",
]
