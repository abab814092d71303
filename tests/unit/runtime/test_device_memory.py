"""What programs hold of devices, and give back: mirrors, streams, page-locked memory, arrays."""

from __future__ import annotations

import _thread
import gc
import threading
import time
import weakref

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import empty
from runtime.device_tasks import add, host_add, scale
from support import fake_device as fake

DEADLINE = 60


@pytest.fixture
def device():
    with fake.install() as (device,):
        yield device
        device.core.set_manual(False)


@pytest.fixture
def machine(device):
    with ost.Machine(cpus=2) as machine:
        yield machine


def held(device):
    gc.collect()
    return device.core.allocated, device.core.streams, len(device.pinned)


@pytest.mark.parametrize("runs", ["pipelined", "concurrent"])
def test_all_is_given_back_when_a_program_is_closed(device, machine, runs):
    before = held(device)
    x, y = np.ones(100), np.zeros(100)
    with ost.capture() as graph:
        scale(x, y, 2.0)
        host_add(x, y)
    program = graph.compile(machine, runs=runs)
    program.replay(3)
    during = held(device)
    assert all(now > then for now, then in zip(during, before, strict=True))
    program.close()
    del program
    end = time.monotonic() + DEADLINE
    while held(device) != before and time.monotonic() < end:
        time.sleep(0.001)  # the thread that ended the last run may still have to let go of it
    assert held(device) == before


def test_host_memory_that_is_copied_is_page_locked(device, machine):
    x, y = np.ones(100), np.zeros(100)
    with ost.capture() as graph:
        scale(x, y, 2.0)
    with graph.compile(machine):
        for array in (x, y):
            low, high = np.lib.array_utils.byte_bounds(array)
            assert any(a <= low and high <= b for a, b in device.pinned)
    gc.collect()
    assert device.pinned == []


def test_a_rebind_lets_go_of_old_arrays_and_mirrors(device, machine):
    x, there = np.ones(100), empty(device, 100)
    there.set(0.0)
    with ost.capture() as graph:
        add(there, x)
    program = graph.compile(machine)
    program.replay()
    gone = weakref.ref(there.allocation)
    during = held(device)
    other = empty(device, 100)
    other.set(5.0)
    program.rebind([(there, other), (x, np.full(100, 2.0))])
    del graph, there, x
    program.replay(2)
    assert (other.get() == 9).all()
    assert held(device) == during
    assert gone() is None
    program.close()


def test_ctrl_c_ends_a_replay_when_the_device_is_done(device, machine):
    x, one = empty(device, 2), np.ones(2)
    x.set(0.0)
    with ost.capture() as graph:
        add(x, one)
    with graph.compile(machine) as program:
        program.replay()
        device.core.set_manual(True)

        def interrupt():
            while device.core.in_flight == 0:
                time.sleep(0.001)
            _thread.interrupt_main()
            time.sleep(0.3)
            device.core.set_manual(False)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            program.replay(10**7)
        thread.join(DEADLINE)
        assert device.core.in_flight == 0
        done = x.get()[0]
        program.replay()
        assert x.get()[0] == done + 1
