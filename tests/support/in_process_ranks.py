"""Ranks of one process that plan as real ones do, and an interpreter that runs what they plan without MPI."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import ostinato as ost
from ostinato.compiler.flatten import Flat, flatten
from ostinato.compiler.ranks.distribute import distribute
from ostinato.graph.messages import Message
from ostinato.ranks.array import DistributedArray
from ostinato.runtime.sequential import AsCaptured, run_op


class PlannedRanks(ost.Ranks):
    """A rank that can record and plan, but not send."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self.messenger = None  # type: ignore[assignment]
        self.arrays: list[DistributedArray] = []

    def array(self, *args: Any, **more: Any) -> DistributedArray:
        made = super().array(*args, **more)
        made.memory[...] = np.array(-1000 - self._rank).astype(made.dtype)  # what is read unasked shows
        self.arrays.append(made)
        return made


def planned(graph: ost.Graph) -> Flat:
    """Return what a rank does in a step."""
    return distribute(flatten(graph), graph.group)


def interpret(flats: Sequence[Flat], steps: int) -> list[int]:
    """Run the steps of all ranks, each in program order; return how many steps each ran."""
    channels: dict[tuple[int, int], deque[np.ndarray[Any, Any]]] = {}
    ran = [0] * len(flats)
    running = [_run(rank, flat, steps, channels, ran) for rank, flat in enumerate(flats)]
    while running:
        before = sum(map(len, channels.values())), list(ran), len(running)
        moved = [next(each, "done") for each in running]
        running = [each for each, what in zip(running, moved, strict=True) if what != "done"]
        stuck = bool(running) and all(what == "waits" for what in moved)
        after = sum(map(len, channels.values())), list(ran), len(running)
        assert not (stuck and before == after), "ranks wait for each other"
    assert not any(channels.values()), "messages were sent that nobody received"
    return ran


def _run(
    rank: int,
    flat: Flat,
    steps: int,
    channels: dict[tuple[int, int], deque[np.ndarray[Any, Any]]],
    ran: list[int],
) -> Iterator[str]:
    for step in range(steps):
        last = False
        for op in flat.ops:
            if not isinstance(op.body, Message):
                last |= run_op(op, step, AsCaptured(), {})
                continue
            views = op.body.operand.arrays
            ring = op.body.operand.ring
            view = views[0 if ring is None else (step + ring.offset) % len(views)]
            if op.body.sends:
                channels.setdefault((rank, op.body.peer), deque()).append(view.copy())
                yield "sent"
            else:
                channel = channels.setdefault((op.body.peer, rank), deque())
                while not channel:
                    yield "waits"
                message = channel.popleft()
                assert (message.shape, message.dtype) == (view.shape, view.dtype)
                view[...] = message
        ran[rank] = step + 1
        if last:
            break


def whole(arrays: Sequence[DistributedArray]) -> np.ndarray[Any, Any]:
    """Put together what each rank owns of its part of one array."""
    found = np.zeros(arrays[0].shape, arrays[0].dtype)
    seen = np.zeros(arrays[0].shape, int)
    for array in arrays:
        for box, view in array.local:
            found[box] = view
            seen[box] += 1
    assert (seen == 1).all(), "each element has one owner"
    return found


Program = Callable[[PlannedRanks], tuple[Callable[[], None], list[DistributedArray], list[np.ndarray[Any, Any]]]]
"""Makes the arrays of a rank, and returns what records a step, the distributed arrays, and the replicated ones."""


def run_on(size: int, program: Program, steps: int) -> tuple[list[bytes], list[bytes], list[Flat]]:
    """Return the bytes of distributed and of replicated arrays after some steps, and the plans."""
    flats, distributed, replicated = [], [], []
    for rank in range(size):
        ranks = PlannedRanks(rank, size)
        record, spread, common = program(ranks)
        with ost.capture() as graph:
            graph.join(ranks)
            record()
        flats.append(planned(graph))
        distributed.append(spread)
        replicated.append(common)
    ran = interpret(flats, steps)
    assert len(set(ran)) == 1, "all ranks run the same steps"
    first = [array.tobytes() for array in replicated[0]]
    for each in replicated[1:]:
        assert [array.tobytes() for array in each] == first, "replicated arrays agree"
    return [whole(parts).tobytes() for parts in zip(*distributed, strict=True)], first, flats
