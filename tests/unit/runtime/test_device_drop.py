"""Programs for devices that nobody holds any more while they run."""

from __future__ import annotations

import gc
import logging
import time
import weakref
from contextlib import suppress

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import empty
from runtime.device_tasks import add, fail, raise_at_issue
from support import fake_device as fake


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("rebound", [False, True])
def test_arrays_live_as_long_as_the_device_uses_them(rebound):
    with fake.install(manual=True) as (device,), ost.Machine(cpus=1) as machine:
        graph = ost.Graph()
        x, filled = np.zeros(4), empty(device, 4)
        graph.task(add, x, np.ones(4))
        graph.fill(filled, 3.0)
        program = graph.compile(machine)
        if rebound:
            program.rebind([(x, y := np.zeros(4))])
            x = y
            del y
        program.submit(3)
        until(lambda: device.core.counters["call"])
        held = weakref.ref(x), weakref.ref(filled.allocation)
        del program, graph, x, filled
        gc.collect()
        assert all(reference() is not None for reference in held)
        while machine.workers.core.in_flight():
            device.core.run()
        until(lambda: not any(reference() is not None for reference in held))


@ost.task
def raise_on_host(x: ost.ReadWrite):
    raise ArithmeticError


@pytest.mark.parametrize("how", ["replay", "verify", "a run skipped for another"])
@pytest.mark.parametrize("failing", [raise_at_issue, fail, raise_on_host])
def test_failures_keep_nothing(failing, how, caplog):
    """What a body raised on the thread in replay has a traceback that leads to all frames of this thread."""
    caplog.set_level(logging.CRITICAL, "ostinato")  # a run that ends before it is dropped is logged, with its traceback
    with fake.install() as (device,), ost.Machine(cpus=1) as machine:

        def lose():
            x = np.zeros(4)
            with ost.capture() as graph:
                failing(x)
                add(x, np.ones(4))
            program = graph.compile(machine)
            if how == "verify":
                with suppress(ArithmeticError, ost.TaskError, ost.DeviceError):
                    program.verify()
            else:
                with suppress(ost.TaskError):
                    program.replay()
            if how == "a run skipped for another":
                program.submit()._core.wait(-1.0)
                with suppress(ost.PoisonError):
                    program.replay()
            return weakref.ref(program), weakref.ref(x)

        held = lose()
        gc.collect()
        until(lambda: device.core.streams == 0)
        assert [reference() for reference in held] == [None, None]
