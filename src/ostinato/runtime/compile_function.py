"""From a function to a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ostinato.arguments import Runs
from ostinato.graph.capture import record_function
from ostinato.runtime.compile import compile_graph

if TYPE_CHECKING:
    from ostinato.runtime.machine import Machine
    from ostinato.runtime.program import Program

__all__ = ["compile"]


def compile(
    fn: Callable[..., Any],
    /,
    *args: Any,
    machine: Machine | None = None,
    runs: Runs = "pipelined",
    lanes: int | None = None,
    costs: Any = None,
    **kwargs: Any,
) -> Program:
    """Record one call of a function, and compile it to a program: each step of the program does what the call does.

    `fn` is called once. Arrays, rings and device arrays among its arguments, also in lists, tuples, dicts and
    dataclasses, are replaced by *tracers*. A tracer has a shape, a dtype and views, and can be passed to tasks. It has
    no elements: a statement that needs these raises `TracerError`, since it would run once instead of in every step.
    Parameters (`param`) are given with each run. All other arguments are constants.

    Arrays that `fn` finds elsewhere, such as global ones, are recorded as `capture` does it.

    Parameters
    ----------
    fn
        A function that calls tasks, `copy`, `fill`, `until`, and methods of `current_graph`. What it returns is
        ignored.
    args, kwargs
        Its arguments.
    machine, runs, lanes, costs
        As for `Graph.compile`.

    Returns
    -------
    Program
        Its ``graph`` is the graph that was recorded.

    Raises
    ------
    TracerError
        The function needs elements of an array.
    GraphError
        The function recorded nothing, wrote to an array of its arguments or changed a container of arrays among them,
        or `Graph.compile` raises this.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> @ost.task
    ... def diffuse(src: ost.Read, dst: ost.Write, rate):
    ...     dst[:] = src[1:-1] + rate * (src[:-2] - 2 * src[1:-1] + src[2:])
    >>> def step(u, rate):
    ...     diffuse(u[0], u[1][1:-1], rate)
    >>> rod = np.zeros(5)
    >>> rod[2] = 1.0
    >>> with ost.compile(step, ost.ring(rod, rod.copy()), ost.param("rate", 0.25)) as program:
    ...     program.replay(2, rate=0.5)
    2
    >>> rod
    array([0. , 0. , 0.5, 0. , 0. ])
    """
    step = record_function(fn, args, kwargs)
    return compile_graph(step.graph, machine, runs=runs, lanes=lanes, costs=costs, step_function=step)
