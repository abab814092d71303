"""A task with a variant for CUDA, on a driver that is none: the GPU's lease is held by its UUID."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from devices.cuda.driver import kernels
from devices.cuda.faked import fake_devices, library
from ostinato.devices import device as discovery
from ostinato.tune.graphs import tune_graph
from ostinato.tune.leases.lock_file import holders
from ostinato.tune.progress import Progress
from ostinato.tune.worker.timers import Preemption


def test_it_is_measured_there_and_runs_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OSTINATO_LEASE_DIR", str(tmp_path / "leases"))
    devices = fake_devices()
    cuda: Any = kernels(library(), devices[0])

    @ost.task
    def scale(x: ost.ReadWrite) -> None:
        time.sleep(0.01)
        x *= 2

    @scale.variant(on="cuda")
    def there(x: ost.ReadWrite, stream: ost.Stream) -> None:
        cuda.axpb(stream.handle, x, 2.0, 0.0)

    @scale.variant(on="cuda")
    def wrong(x: ost.ReadWrite, stream: ost.Stream) -> None:
        cuda.axpb(stream.handle, x, 2.0, 1.0)

    held: set[str] = set()

    class Looking(Progress):
        def running(self, device: str, candidate: object, what: str) -> None:
            if device == "cuda:0":
                held.update(holder.identity for holder in holders())

    monkeypatch.setattr(Preemption, "waited", lambda self: 0)
    monkeypatch.setattr(tune_graph, "POLICY", ost.Policy(max_seconds=0.02, min_samples=2, rel_ci=0.5))
    x = np.arange(100.0)
    graph = ost.Graph()
    graph.task(scale, x)
    with discovery.using(devices), ost.Machine(cpus=1) as machine:
        reports = graph.tune(machine, progress=Looking())
        assert [str(result.status) for result in reports["scale on cuda"].results] == ["ok", "wrong_result"]
        assert devices[0].identity in held
        with graph.compile(machine) as program:
            program.replay(2)
            assert "variant there, on cuda:0: " in program.explain()
    assert (x == 4 * np.arange(100.0)).all()
