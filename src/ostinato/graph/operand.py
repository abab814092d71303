"""One access of one op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ostinato.graph.arrays import HOST, memory_of

if TYPE_CHECKING:
    import numpy as np

    from ostinato.graph.ring import RingElement

__all__ = ["READ", "READ_WRITE", "WRITE", "Operand"]

READ, WRITE, READ_WRITE = 1, 2, 3  # bit 1: reads, bit 2: writes


class Operand:
    """What an op accesses, and how.

    Attributes
    ----------
    value
        What the user passed.
    array
        Its memory as an ndarray, without a copy, that of an array of a device as its shadow; None for a token or a
        ring element.
    ring
        The ring element, where one was passed. An operand with neither is a token: the identity of `value` counts.
    mode
        `READ`, `WRITE` or `READ_WRITE`.
    """

    __slots__ = ("array", "mode", "ring", "value")

    def __init__(self, value: object, array: np.ndarray[Any, Any] | None, ring: RingElement | None, mode: int) -> None:
        self.value = value
        self.array = array
        self.ring = ring
        self.mode = mode

    def __repr__(self) -> str:
        what = "array" if self.array is not None else "ring element" if self.ring is not None else "token"
        return f"<{('', 'Read', 'Write', 'ReadWrite')[self.mode]} {what}>"

    @property
    def memory(self) -> str:
        """The name of the memory that it lies in: ``"host"``, for tokens too, or that of a device."""
        arrays = self.arrays
        return memory_of(arrays[0]) if arrays else HOST

    @property
    def arrays(self) -> tuple[np.ndarray[Any, Any], ...]:
        """The arrays that take turns: none for a token, one for an array."""
        if self.array is not None:
            return (self.array,)
        return self.ring.views if self.ring is not None else ()
