"""Empty native tasks: what a task costs when it does nothing, pattern by pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import numpy as np

from benchmarks.checking import Check
from benchmarks.context import Context
from benchmarks.measure import Contestant, Run
from benchmarks.ours import native_program
from benchmarks.patterns import Flat, all_patterns, flatten
from benchmarks.peers import Peer

LOOP, ONE, TWO = "loop, 1 thread", "ostinato, 1 lane", "ostinato, 2 lanes"
#: Each thread publishes a counter after what the other needs; or a flag in the cache line of what it has written.
HAND, FLAGS = "by hand, 2 threads", "by hand, flags in data"
ADAPTED = "ostinato, adapted"
#: What the C++ peers are called in tables.
TITLES = {
    "loop": LOOP,
    "pair": HAND,
    "flags": FLAGS,
    "queue": "ready queue",
    "tbb": "oneTBB",
    "taskflow": "Taskflow",
    "openmp": "OpenMP",
}

#: Prepares a pattern whose op i calls a C function with `users[i]` and takes about `seconds[i]`; gives what runs it.
Start = Callable[[Flat, int, np.ndarray, Sequence[float]], AbstractContextManager[Run]]


def _peer(peer: Peer) -> Start:
    @contextmanager
    def start(flat: Flat, task: int, users: np.ndarray, seconds: Sequence[float]) -> Iterator[Run]:
        with peer.program(flat, task, users) as program:
            yield program.run

    return start


def _ours(context: Context, lanes: int | None) -> Start:
    @contextmanager
    def start(flat: Flat, task: int, users: np.ndarray, seconds: Sequence[float]) -> Iterator[Run]:
        with native_program(flat, context.machine, task, users, seconds, lanes) as program:
            yield program.replay

    return start


def starters(context: Context) -> dict[str, Start]:
    """Everybody who can run a pattern of native tasks, by name."""
    peers = {TITLES[name]: _peer(peer) for name, peer in context.peers.items()}
    return peers | {ONE: _ours(context, 1), TWO: _ours(context, 2), ADAPTED: _ours(context, None)}


def verify(context: Context, everybody: dict[str, Start], flat: Flat, seconds: Sequence[float]) -> None:
    """Check that everybody runs every task, and none too early."""
    for name, start in everybody.items():
        check = Check(flat)
        with start(flat, context.kernels.check, check.users, seconds) as run:
            check.verify(run, name)


def enter(
    stack: ExitStack, everybody: dict[str, Start], flat: Flat, task: int, users: np.ndarray, seconds: Sequence[float]
) -> list[Contestant]:
    """Everybody with a pattern prepared, until the stack is closed. Peers need steps in multiples of 64."""
    return [
        Contestant(name, stack.enter_context(start(flat, task, users, seconds)), flat.n_ops, multiple=64)
        for name, start in everybody.items()
    ]


#: Seconds claimed for an empty task, so that it is spread over two threads: much longer than a cache line travels.
SPREAD = 5e-7


def run(context: Context) -> None:
    """Time every pattern."""
    everybody = starters(context)
    for pattern in all_patterns():
        flat = flatten(pattern)
        seconds = [SPREAD] * flat.n_ops
        verify(context, everybody, flat, seconds)
        with ExitStack() as stack:
            users = np.zeros(flat.n_ops, np.int64)
            contestants = enter(stack, everybody, flat, context.kernels.empty, users, seconds)
            context.compare("native", pattern.name, contestants, HAND)
