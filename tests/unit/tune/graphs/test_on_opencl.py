"""A task with a variant in OpenCL C: measured on the device that is there, and run there."""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.device import usable
from ostinato.environment import usable_cores
from ostinato.tune.graphs import tune_graph
from ostinato.tune.leases.lock_file import holders
from ostinato.tune.progress import Progress
from ostinato.tune.worker.timers import Preemption

cl = pytest.importorskip("pyopencl")

SOURCE = """
__kernel void scale(__global const float *src, __global float *dst, float by) {
    int i = get_global_id(0);
    dst[i] = by * src[i];
}
"""


@functools.cache
def kernel(context: Any) -> Any:
    return cl.Kernel(cl.Program(context, SOURCE).build(), "scale")


def enqueue(stream: Any, src: Any, dst: Any, by: float) -> None:
    queue = stream.queue
    kernel(queue.context)(queue, src.shape, None, src.data, dst.data, np.float32(by))


def test_it_is_measured_there_and_runs_there(monkeypatch: pytest.MonkeyPatch) -> None:
    if not usable("opencl"):
        pytest.skip("there is no OpenCL device")

    @ost.task
    def scale(src: ost.Read, dst: ost.Write, by: float) -> None:
        time.sleep(0.02)  # longer than any device takes on a busy machine
        np.multiply(src, np.float32(by), out=dst)

    @scale.variant(on="opencl")
    def in_opencl(src: ost.Read, dst: ost.Write, by: float, stream: ost.Stream) -> None:
        enqueue(stream, src, dst, by)

    @scale.variant(on="opencl", config={"off": 1.5})
    def wrong(src: ost.Read, dst: ost.Write, by: float, stream: ost.Stream, *, off: float) -> None:
        enqueue(stream, src, dst, by * off)

    monkeypatch.setattr(Preemption, "waited", lambda self: 0)  # nothing is disturbed, however busy the machine is
    monkeypatch.setattr(tune_graph, "POLICY", ost.Policy(max_seconds=0.02, min_samples=2, rel_ci=0.5))
    held: set[str] = set()

    class Looking(Progress):
        def running(self, device: str, candidate: object, what: str) -> None:
            if device == "opencl:0":
                held.update(holder.identity for holder in holders())

    src, between, dst = np.random.default_rng(1).random((3, 4_000), np.float32)
    graph = ost.Graph()
    graph.task(scale, src, between, 2.0)
    graph.task(scale, between, dst, 3.0)
    with ost.Machine(cpus=1) as machine:
        reports = graph.tune(machine, progress=Looking())
        assert list(reports) == ["scale", "scale on opencl"]
        report = reports["scale on opencl"]
        assert [str(result.status) for result in report.results] == ["ok", "wrong_result"]
        assert usable("opencl")[0].identity in held or any(each.startswith("GPU-") for each in held)
        if usable("opencl")[0].device.type == cl.device_type.CPU:  # type: ignore[attr-defined]
            assert {f"cpu-core-{core}" for core in usable_cores()} <= held
        with graph.compile(machine) as program:
            program.replay(2)
            assert "variant in_opencl, on opencl:0: " in program.explain()
            program.verify(2)
    assert (dst == np.float32(3) * (np.float32(2) * src)).all()
