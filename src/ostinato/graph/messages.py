"""Operations that send an array to another rank, or receive one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, Self

from ostinato.errors import GraphError
from ostinato.graph.arrays import READ, WRITE, Operand
from ostinato.graph.body import Body

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.graph.recorder import Recorder

MOST_BYTES = 2**31 - 2**10
"""Of one message: MPI counts bytes by an int of 32 bits."""


class Group(Protocol):
    """The ranks that messages go between; `ostinato.ranks.Ranks` is one."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def agreement(self) -> Any:
        """What the ranks do together, an `ostinato.ranks.agreement.Agreement`; None if there is one rank."""

    @property
    def messenger(self) -> _core.messages.Messenger:
        """What carries the messages."""

    def part(self) -> AbstractContextManager[None]:
        """Do this rank's part in what all ranks do: if it raises, the other ranks do not wait for it."""

    def open_channels(self, ends: Any, common: Any, traffic: _core.messages.Traffic) -> None:
        """Open a program's channels; raise if ranks' programs do not fit together."""


class Message(Body):
    """A message between this rank and another one: base of `Send` and `Receive`.

    The k-th send from a rank s to a rank t, in the program order of a step, matches the k-th receive from s on t.
    """

    __slots__ = ("group", "operand", "peer")

    sends = False

    def __init__(self, operand: Operand, peer: int, group: Group) -> None:
        self.operand, self.peer, self.group = operand, peer, group

    def map_operands(self, new: Callable[[Operand], Operand]) -> Self:
        return type(self)(new(self.operand), self.peer, self.group)


class Send(Message):
    """A message to another rank: it holds what the array holds when it is sent."""

    __slots__ = ()

    sends = True


class Receive(Message):
    """A message from another rank, which overwrites the array."""

    __slots__ = ()

    waits_outside = True


def message_body(
    recorder: Recorder, array: Any, peer: int, group: Group, sends: bool
) -> tuple[Message, tuple[Operand]]:
    """Return the body and the operand of a message."""
    method = "send" if sends else "recv"
    operand = recorder.array_operand(array, READ if sends else WRITE, lambda _: f"the array of {method}()", 0)
    first = operand.arrays[0]
    if first.dtype.hasobject:
        raise GraphError(
            f"the array of {method}() must hold numbers or other plain data, got {first.dtype}: Python objects have no "
            "meaning on another rank"
        )
    if first.nbytes > MOST_BYTES:
        raise GraphError(
            f"the array of {method}() must have at most {MOST_BYTES} bytes, got {first.nbytes}; send it in parts"
        )
    return (Send if sends else Receive)(operand, peer, group), (operand,)
