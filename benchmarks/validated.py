"""Native tasks that check what they read and write what others read, as Task Bench's do: every pattern, every width."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from benchmarks.context import Context
from benchmarks.measure import Contestant, Run
from benchmarks.native import HAND, ONE, SPREAD, TITLES, TWO
from benchmarks.ours import validated_program
from benchmarks.patterns import BY_WIDTH, WIDTHS, Flat, at_width, flatten
from benchmarks.work import ValidationTable, make_buffers

BENCHMARK = "validated"
_STEPS = 192  # that everybody runs before anything is timed


def enter(stack: ExitStack, context: Context, flat: Flat, iterations: int = 0) -> list[Contestant]:
    """Prepare and check everybody, until the stack is closed; each has buffers of its own.

    A task fails, and with it the run, if it reads anything but what the right op wrote in the right step.
    """
    table = ValidationTable(flat, iterations)
    task, users = context.kernels.validate, table.users
    stack.callback(lambda: table)  # alive until then
    contestants = []

    def add(name: str, run: Run, buffers: np.ndarray) -> None:
        contestant = Contestant(name, run, flat.n_ops, multiple=64)
        contestant.run(_STEPS)
        ops = np.arange(flat.n_ops)
        last = [[_STEPS - 2, _STEPS - 1]] * flat.n_ops
        if not (buffers[:, :, 0] == last).all() or not (ops == buffers[:, :, 1].T).all():
            raise AssertionError(f"{name}: after {_STEPS} steps, not every op has run in the last two")
        contestants.append(contestant)

    for peer in (context.peers[name] for name in ("loop", "pair", "flags") if name in context.peers):
        buffers = make_buffers(flat.n_ops)
        add(TITLES[peer.name], stack.enter_context(peer.program(flat, task, users, buffers)).run, buffers)
    seconds: Sequence[float] = [SPREAD] * flat.n_ops
    for name, lanes in ((ONE, 1), (TWO, 2)):
        buffers = make_buffers(flat.n_ops)
        program = validated_program(flat, context.machine, task, users, buffers, seconds, lanes)
        add(name, stack.enter_context(program).replay, buffers)
    return contestants


def run(context: Context) -> None:
    """Time every pattern at every width."""
    for kind in BY_WIDTH:
        for width in WIDTHS:
            pattern = at_width(kind, width)
            flat = flatten(pattern, buffers=True)
            with ExitStack() as stack:
                context.compare(BENCHMARK, pattern.name, enter(stack, context, flat), HAND)
