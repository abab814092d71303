"""Who is woken when a device is done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import empty
from support import fake_device as fake

THREADS = Path("/proc/self/task")


def switches(thread: str) -> int:
    """How often a thread has slept."""
    for line in (THREADS / thread / "status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
    raise AssertionError(f"no switches of {thread}")


@ost.task
def put(stream: ost.Stream, x: ost.Write, value, seconds):
    fake.launch(stream, lambda a: np.copyto(a, value), x, delay=seconds)


@pytest.fixture
def device():
    with fake.install() as (device,):
        yield device


def test_the_worker_sleeps_on_when_the_thread_in_its_seat_is_woken(device):
    before = {entry.name for entry in THREADS.iterdir()}
    with ost.Machine(cpus=1) as machine:
        worker = min((entry.name for entry in THREADS.iterdir() if entry.name not in before), key=int)  # the first
        x = empty(device, (2,), np.float64)
        with ost.capture() as graph:
            put(x, 1.0, 0.002)
        with graph.compile(machine) as program:
            program.replay()
            slept = switches(worker)
            for _ in range(20):
                program.replay()
            assert switches(worker) - slept < 10
