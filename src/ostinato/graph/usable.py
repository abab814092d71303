"""What graphs are for: they are compiled, and the variants of their tasks are measured."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from ostinato.arguments import Runs
from ostinato.errors import GraphError

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph
    from ostinato.runtime.machine import Machine
    from ostinato.runtime.program import Program
    from ostinato.tune.graphs.tune_graph import Reports
    from ostinato.tune.policy import Budget
    from ostinato.tune.progress import Progress

__all__ = ["Usable"]


class Usable:
    """What a graph can be used for once it is recorded."""

    @property
    def is_recording(self) -> bool:
        """Whether a capture that records here is open."""
        raise NotImplementedError

    def compile(
        self, machine: Any = None, *, runs: Runs = "pipelined", lanes: int | None = None, costs: Any = None
    ) -> Program:
        """Compile to a program for a machine.

        Parameters
        ----------
        machine
            The machine; None for the default one of the process.
        runs
            ``"pipelined"``: runs go in the order of submission, overlapping as far as accesses allow. ``"serial"``: one
            whole run at a time, in the order in which their default preconditions are met. ``"concurrent"``: runs are
            independent; arrays that they share are the caller's business. ``"once"``: there is one run.
        lanes
            At most so many threads' worth.
        costs
            How long ops take, and which variants of their tasks they run. None: what the default store knows from
            `tune`, and estimates for the rest. The path of another store. A mapping from op, task or name to seconds.
            Or a `Trace` of the same graph.

        Raises
        ------
        GraphError
            The graph has a cycle, an op is bound to a processor that there is not, or it is still being captured.
        TuningError
            There is no store at the path, or it cannot be read.
        """
        if self.is_recording:
            raise GraphError("this graph is still being captured; compile it after the block")
        from ostinato.runtime.compile import compile_graph

        return compile_graph(cast("Graph", self), machine, runs=runs, lanes=lanes, costs=costs)

    def tune(
        self,
        machine: Machine | None = None,
        *,
        store: str | os.PathLike[str] | None = None,
        budget: float | Budget | None = None,
        rtol: float = 0.0,
        everything: bool = False,
        progress: Progress | bool | None = None,
    ) -> Reports:
        """Measure every variant of every op, once for all ops alike, and remember which one is the fastest.

        It calls tasks that have variants, native tasks and kernels, and does copies and fills. Other Python tasks are
        called with ``everything=True`` only, since they may act on more than copies can stand for, such as a file.
        Tasks declared ``pure=False`` or ``blocking=True`` are never called. The reports say what was left out.

        Ops are alike if they are calls of one task with arrays of the same shapes and dtypes, for the same kind of
        processor; those of nested graphs count, and so do copies and fills. Everything happens on copies of the arrays.
        A variant counts only if what it writes equals what the task itself writes. What is known from before is not
        measured again, unless the code of the task or of a variant, the processor, or a library has changed since.
        `compile` finds the results in the store.

        Variants for devices of the machine, and tasks with a stream, are measured on the first device of each kind, in
        this process: on arrays that are there already, from the issue of the first of many calls until the device is
        done with the last. What copies there and back take is measured by itself, once for each device.

        Parameters
        ----------
        machine
            The machine to tune for; None for the default one of the process.
        store
            The file that results are kept in, made where it does not exist; None for the default one, without which
            tuning goes on where it cannot be written.
        budget
            Seconds, or a `Budget`. What it leaves no time for is ``cancelled`` in the reports.
        rtol
            By how much, relative to the task's, floating-point outputs of a variant may differ; by default not at all.
        everything
            Whether Python tasks without variants are called, too.
        progress
            Who is told what happens: a `ostinato.tune.progress.Progress`, False for nobody, None for a display if
            stderr is a terminal.

        Returns
        -------
        dict of str to Report
            By the name of the task, followed by its arrays where there are several cases of one name, and on devices by
            their kind: ``"blur on opencl"``. ``table()`` gives a line for each; ``plot(path)`` a picture.

        Raises
        ------
        GraphError
            The graph is still being captured, or has a cycle.
        TuningError
            The store that `store` names cannot be used.
        KeyboardInterrupt
            After Ctrl-C. What was found until then is in the store.

        Examples
        --------
        >>> import numpy as np, ostinato as ost, os, tempfile
        >>> @ost.task
        ... def double(x: ost.ReadWrite):
        ...     for i in range(len(x)):
        ...         x[i] *= 2
        >>> @double.variant
        ... def double_at_once(x: ost.ReadWrite):
        ...     x *= 2
        >>> x = np.ones(1000)
        >>> with ost.capture() as graph:
        ...     op = double(x)
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     store = os.path.join(directory, "tune.db")
        ...     reports = graph.tune(store=store, progress=False)
        ...     program = graph.compile(costs=store)
        >>> reports["double"].best.candidate.config
        {'variant': 'double_at_once'}
        >>> "variant double_at_once" in program.explain()
        True
        """
        if self.is_recording:
            raise GraphError("this graph is still being captured; tune it after the block")
        from ostinato.tune.graphs.tune_graph import tune_graph

        return tune_graph(
            cast("Graph", self),
            machine,
            store=store,
            budget=budget,
            rtol=rtol,
            everything=everything,
            progress=progress,
        )
