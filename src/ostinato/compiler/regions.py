"""What the ops of a graph access: each access a box in a group of memory that can overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.ir import IntArray
from ostinato.graph.body import NativeCall, PythonCall

if TYPE_CHECKING:
    from ostinato.graph.op import Op

__all__ = ["Accesses", "accesses"]


class Accesses(NamedTuple):
    """The accesses of all ops in program order, as flat arrays.

    Accesses can only meet within a group: an allocation (arrays whose memory overlaps), a ring, or a token. In a ring's
    group, phase k of period n means: in step s the array ``(s + k) % n``; elsewhere the period is 1.
    """

    op: IntArray
    mode: npt.NDArray[np.uint8]
    group: IntArray
    period: IntArray
    phase: IntArray
    alias: IntArray
    """The ring, if this row repeats a ring's access in the group of an allocation that others use, too; else -1."""
    box: IntArray
    """Row of `lo` and `hi`."""
    lo: npt.NDArray[np.int64]
    """Where each distinct box begins along each dimension of its group."""
    hi: npt.NDArray[np.int64]
    """Where it ends."""
    groups: int
    """Number of groups."""


def accesses(ops: Sequence[Op]) -> Accesses:
    """Return the accesses of ops.

    A view of an array is a box along that array's axes; steps between its first and last index count as if all between
    were touched, and a view that follows no axes covers all between its ends. Tasks that access nothing share a token,
    so that they keep program order.
    """
    return Accesses(**_core.passes.accesses(ops, np.ndarray, (PythonCall, NativeCall)))
