"""What compiling does to the process: nothing that stays."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import ostinato as ost
from ostinato import _core


@ost.task
def change(x: ost.ReadWrite) -> None: ...


@pytest.mark.parametrize("collects", [True, False])
def test_the_cycle_collector_is_left_as_it_was(collects: bool) -> None:
    graph, bound = ost.Graph(), ost.Graph()
    graph.task(change, np.zeros(1))
    bound.task(change, np.zeros(1), on="cpu:7")
    before = gc.isenabled()
    with ost.Machine(cpus=1, gpus=0) as machine:
        (gc.enable if collects else gc.disable)()
        try:
            graph.compile(machine).close()
            with pytest.raises(ost.GraphError):
                bound.compile(machine)
            assert gc.isenabled() == collects
        finally:
            (gc.enable if before else gc.disable)()


def test_compiling_a_large_graph_gives_back_the_memory_that_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(_core, "return_memory", lambda: calls.append(1))
    nothing = ost.native(_core.nothing_address(), ())
    for n_ops, given_back in ((100, 0), (20_000, 1)):
        with ost.capture() as graph:
            for _ in range(n_ops):
                nothing()
        with graph.compile(lanes=1) as program:
            assert program.replay() == 1
        assert len(calls) == given_back
    monkeypatch.undo()
    _core.return_memory()
