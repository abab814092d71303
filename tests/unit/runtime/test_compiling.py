"""What compiling does to the process: nothing that stays."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import ostinato as ost


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
