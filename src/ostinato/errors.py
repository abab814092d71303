"""The exceptions of Ostinato, one tree::

    OstinatoError
    +-- GraphError       a graph that cannot be: what was recorded, or a cycle in it; also a ValueError
    |   +-- TracerError  a function that is compiled needs the elements of an array; also a TypeError
    +-- ContractError    a task did what it had declared it would not do
    +-- TaskError        a task failed: `op` and `step` say which and when
    +-- PoisonError      something waited for will never happen, because what it depends on failed
    +-- DeviceError      a device, or the memory of one, is missing or unusable
    |   +-- RankLost     a rank of a program died
    +-- TuningError      tuning could not be carried out

Arguments of a wrong type or value raise plain `TypeError` and `ValueError`.
"""

from __future__ import annotations

__all__ = [
    "ContractError",
    "DeviceError",
    "GraphError",
    "OstinatoError",
    "PoisonError",
    "RankLost",
    "TaskError",
    "TracerError",
    "TuningError",
    "describe_error",
]


class OstinatoError(Exception):
    """Base of all exceptions that Ostinato defines."""


class GraphError(OstinatoError, ValueError):
    """A graph is wrong: an access, an edge, a parameter, or a cycle.

    Also a `ValueError`, because what makes a graph wrong is mostly the value of an argument.
    """


class TracerError(GraphError, TypeError):
    """A statement of a function that is being compiled needs the elements of an array, and only tasks have these.

    The message names the line, the array, and what to write instead.
    """


class ContractError(OstinatoError):
    """A task broke a promise, such as writing to an array that it had not declared as written."""


class TaskError(OstinatoError):
    """A task failed.

    Parameters
    ----------
    message
        What happened, with the place where the task was called or captured.
    op
        The operation that failed; None for a call outside a program.
    step
        The step in which it failed; 0 for a spawned task, None for a call outside a program.

    Attributes
    ----------
    rank
        The rank on which it failed; None for a program that one process runs alone.
    """

    rank: int | None = None

    def __init__(self, message: str, op: object = None, step: int | None = None) -> None:
        super().__init__(message)
        self.op = op
        self.step = step


class PoisonError(OstinatoError):
    """What was waited for depends on something that failed; `__cause__` is the original failure."""


class DeviceError(OstinatoError):
    """A device, its driver or its memory is missing or cannot be used, or what it was given has failed.

    Attributes
    ----------
    device
        The name of the device, such as ``"opencl:0"``; None where none is meant.
    usable
        Whether the device can be used afterwards. If not, its programs end with errors, and no others are compiled for
        it.
    """

    device: str | None = None
    usable: bool = True


class RankLost(DeviceError):
    """A rank of a program died, and the launcher lets the others live.

    The ranks' programs cannot run any more, nor are others compiled with these ranks. What the processes that are left
    do without them is not concerned.

    Attributes
    ----------
    rank
        The rank that died; None if it is not known.
    """

    rank: int | None = None


class TuningError(OstinatoError):
    """Tuning could not be carried out."""


def describe_error(error: BaseException) -> str:
    """Return the type and the message of an exception that a user's code raised: `str` of it may raise in turn."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception as another:
        return f"{name} (whose __str__ raised {type(another).__name__})"
