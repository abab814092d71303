"""A chain of native tasks with preconditions, postconditions and parameters, beside the same chain without."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import repeat
from typing import Any

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant, Run
from benchmarks.native import SPREAD

PLAIN, PARAMS, PORTS, BOTH = "plain", "parameters", "2 + 2 ports", "ports and parameters"
_LENGTH = 64


def _program(context: Context, lanes: int, ports: bool, params: bool, runs: str) -> ost.Program:
    """Compile the chain; on two lanes its first half is on one and its second half on the other."""
    graph = ost.Graph(infer=False)
    task = ost.native(context.kernels.empty, (float, int))
    values = (graph.param("x"), graph.param("n")) if params else (2.0, 3)
    before = {0: [graph.precondition("first")], _LENGTH // 2: [graph.precondition("middle")]} if ports else {}
    ops: list[ost.Op] = []
    for place in range(_LENGTH):
        on = f"cpu:{lanes * place // _LENGTH}"
        ops.append(graph.task(task, *values, after=[*ops[-1:], *before.get(place, ())], on=on))
    graph.edge(ops[-1], ops[0], 1)
    if ports:
        graph.postcondition("halfway", ops[_LENGTH // 2 - 1])
        graph.postcondition("last", ops[-1])
    return graph.compile(context.machine, lanes=lanes, costs=dict.fromkeys(ops, SPREAD), runs=runs)


def _replays(call: Callable[..., object]) -> Run:
    def run(times: int) -> None:
        for _ in repeat(None, times):
            call()

    return run


def _submits(submit: Callable[..., ost.Run]) -> Run:
    """So many runs of a step each, at most a hundred in flight, and wait for their ends."""

    def run(times: int) -> None:
        for first in range(0, times, 100):
            for submitted in [submit() for _ in range(min(100, times - first))]:
                submitted.result()

    return run


def run(context: Context) -> None:
    """Time one run of many steps, and many runs of one step, on one thread and on two."""
    happened = ost.UserEvent()
    happened.trigger()
    events = {"after": {"first": happened, "middle": happened}}
    values = {"x": 2.0, "n": 3}
    kinds: dict[str, tuple[bool, bool, dict[str, Any]]] = {
        PLAIN: (False, False, {}),
        PARAMS: (False, True, values),
        PORTS: (True, False, events),
        BOTH: (True, True, events | values),
    }
    for lanes in (1, 2):
        threads = "1 thread" if lanes == 1 else "2 threads"
        with ExitStack() as stack:
            programs = {
                name: (stack.enter_context(_program(context, lanes, ports, params, "pipelined")), given)
                for name, (ports, params, given) in kinds.items()
            }
            ways: dict[str, Callable[[ost.Program, dict[str, Any]], Run]] = {
                "replay(n)": lambda program, given: partial(program.replay, **given),
                "replay(1) again and again": lambda program, given: _replays(partial(program.replay, **given)),
                "submit(1) again and again": lambda program, given: _submits(partial(program.submit, **given)),
            }
            for way, start in ways.items():
                contestants = [
                    Contestant(name, start(program, given), _LENGTH) for name, (program, given) in programs.items()
                ]
                context.compare("ports", f"{threads}, {way}", contestants, PLAIN)
