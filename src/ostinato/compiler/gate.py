"""The precondition barrier: device work waits for all external preconditions of its run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ostinato.compiler.ir import Edges, IntArray, Mask, Step, Target, edges_of
from ostinato.graph.body import Postcondition, Precondition

if TYPE_CHECKING:
    from ostinato.graph.op import Op

__all__ = ["behind_preconditions", "hold_device_work", "reached"]


def hold_device_work(step: Step, target: Target) -> Step:
    """Return the step with its device work behind all preconditions: see `behind_preconditions`."""
    return replace(step, ordering=behind_preconditions(step.nodes, step.ordering, step.device >= 0))


def behind_preconditions(ops: Sequence[Op], ordering: Edges, on_device: Mask) -> Edges:
    """Return the edges that order ops with those that keep device work behind all preconditions.

    A device runs work in the order of its streams, whoever gave it. Work that waits there for something outside could
    hold up other programs, and the user's own work. Work that a postcondition depends on waits for its own
    preconditions only: the others may be events that happen because of the postcondition. The edges added order ops,
    but carry no poison.

    Parameters
    ----------
    ops
        The ops of a flat graph.
    ordering
        All edges that order them.
    on_device
        The ops that run on a device.
    """
    preconditions = _of(ops, Precondition)
    if not len(preconditions) or not on_device.any():
        return ordering
    within = ordering.distance == 0
    told = reached(len(ops), ordering.dst, ordering.src, _of(ops, Postcondition))
    held = on_device & ~told
    after_held = reached(len(ops), ordering.src[within], ordering.dst[within], np.flatnonzero(held).astype(np.int32))
    first = np.flatnonzero(held & ~after_held).astype(np.int32)
    src = np.repeat(preconditions, len(first))
    dst = np.tile(first, len(preconditions))
    return edges_of(
        len(ops),
        np.concatenate([ordering.src, src]),
        np.concatenate([ordering.dst, dst]),
        np.concatenate([ordering.distance, np.zeros(len(src), np.int32)]),
    )


def _of(ops: Sequence[Op], kind: type) -> IntArray:
    return np.array([op.index for op in ops if isinstance(op.body, kind)], np.int32)


def reached(n: int, src: IntArray, dst: IntArray, begin: IntArray) -> Mask:
    """Return what can be reached from `begin` along edges, in one or more of them."""
    by_source = np.argsort(src, kind="stable")
    first = np.searchsorted(src[by_source], np.arange(n + 1)).tolist()
    following = dst[by_source].tolist()
    found, left = [False] * n, [False] * n
    waiting = begin.tolist()
    while waiting:
        at = waiting.pop()
        if left[at]:
            continue
        left[at] = True
        for after in following[first[at] : first[at + 1]]:
            if not found[after]:
                found[after] = True
                waiting.append(after)
    return np.array(found, np.bool_)
