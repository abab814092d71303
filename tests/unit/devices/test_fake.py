"""The fake device does what a test tells it, in an order that does not depend on the machine."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import ostinato_fake_device
import pytest

from devices.kinds import DeviceEvent, Kind, Notice
from ostinato import _core
from ostinato.devices import device as discovery
from ostinato.devices.array import empty
from ostinato.devices.transfers import plan, plan_fill
from ostinato.errors import DeviceError
from support import fake_device as fake
from support.fake_device import FakeDevice

Core = ostinato_fake_device.FakeDevice


@pytest.fixture
def manual() -> Kind:
    """A fake device whose work is done step by step."""
    device = FakeDevice(manual=True)
    return Kind(device, lambda stream, seconds: device.core.call_native(stream, 0, delay=seconds))


def test_work_is_done_step_by_step(manual: Kind) -> None:
    core = manual.core
    first, second = core.open(), core.open()
    done: list[str] = []
    for stream, names in ((first, "ab"), (second, "cd")):
        for name in names:
            core.call(stream, lambda name=name: done.append(name), what=name)
    assert core.in_flight == 4
    assert core.step(second) == "c"
    assert core.step() == "a"
    assert core.step(second) == "d"
    assert core.step(second) is None
    assert core.run() == 1
    assert done == ["c", "a", "d", "b"]
    assert core.log == [("c", second, 0), ("a", first, 0), ("d", second, 0), ("b", first, 0)]
    assert core.in_flight == 0


def test_a_stream_that_waits_does_not_step(manual: Kind) -> None:
    core = manual.core
    first, second = core.open(), core.open()
    core.call_native(first, 0, what="before")
    core.wait(second, manual.recorded(first))
    core.call_native(second, 0, what="behind")
    notice = manual.ended(second)
    assert core.step(second) is None
    assert core.step(first) == "before"
    assert not notice.told
    assert core.step(second) == "behind"
    assert notice.told
    assert notice.thread == threading.get_ident()


def test_what_is_due_is_done_in_the_order_of_declared_ends() -> None:
    core = Core()
    streams = [core.open() for _ in range(3)]
    core.set_manual(True)
    for stream, delays in zip(streams, ((0.03, 0.03), (0.01, 0.03), (0.02, 0.02)), strict=True):
        for delay in delays:
            core.call_native(stream, 0, delay=delay, what=f"{stream}:{delay}")
    core.set_manual(False)
    core.finish()
    assert [stream for _, stream, _ in core.log] == [2, 3, 1, 2, 3, 1]


def test_functions_see_the_devices_memory() -> None:
    with fake.install() as (device,):
        array = empty(device, (4, 4))
        array.set(np.arange(16.0).reshape(4, 4))
        stream = device.stream(device.core.open())

        def transpose(source: np.ndarray, target: np.ndarray) -> None:
            target[...] = source.T.copy()

        fake.launch(stream, transpose, array, array, delay=0.001)
        device.finish()
        np.testing.assert_array_equal(array.get(), np.arange(16.0).reshape(4, 4).T)
        assert ("transpose", stream.handle, 0) in device.core.log


def test_a_function_that_raises_is_a_failure_of_the_device(manual: Kind) -> None:
    core = manual.core
    stream = core.open()

    def bad() -> None:
        raise ZeroDivisionError("by zero")

    core.call(stream, bad)
    failed, clean = manual.ended(stream), manual.ended(stream)
    core.run()
    assert failed.code == Core.RAISED
    assert clean.code == 0  # told once
    message, usable = core.diagnose(Core.RAISED)
    assert "by zero" in message
    assert usable


@pytest.mark.parametrize("method", ["copy", "fill", "call", "record", "wait", "capture", "launch", "open"])
def test_calls_fail_at_once(manual: Kind, method: str) -> None:
    core = manual.core
    stream = core.open()
    array, host = empty(manual.device, 4), np.zeros(4)
    event = manual.recorded(stream)
    sequence = core.capture(stream, lambda recording: core.call_native(recording, 0))
    calls = {
        "copy": lambda: core.copy(stream, plan(host, array)),
        "fill": lambda: core.fill(stream, plan_fill(array, 0.0)),
        "call": lambda: core.call_native(stream, 0),
        "record": lambda: core.record(stream, event),
        "wait": lambda: core.wait(stream, event),
        "capture": lambda: core.capture(stream, lambda recording: None),
        "launch": lambda: core.launch(stream, sequence),
        "open": lambda: core.open(),
    }
    core.fail(method, nth=2, code=77)
    for name, call in calls.items():
        if name != method:
            call()
    calls[method]()
    with pytest.raises(RuntimeError, match="code 77"):
        calls[method]()
    calls[method]()
    core.run()


def test_any_work_may_fail_at_once(manual: Kind) -> None:
    core = manual.core
    stream = core.open()
    core.fail("work", nth=2)
    array = empty(manual.device, 4)
    core.fill(stream, plan_fill(array, 0.0))
    with pytest.raises(RuntimeError, match="the device failed"):
        core.call_native(stream, 0)


def test_an_unknown_method_cannot_fail(manual: Kind) -> None:
    with pytest.raises(ValueError, match="no method 'jump'"):
        manual.core.fail("jump")


def test_pieces_fail_when_they_end(manual: Kind) -> None:
    core = manual.core
    stream = core.open()
    array = manual_array(manual, [1.0])
    core.fail_piece(nth=2, code=55)
    notices = []
    for value in (2.0, 3.0, 4.0):
        core.fill(stream, plan_fill(array, value))
        notices.append(manual.ended(stream))
    core.step()
    core.step()
    assert manual.device.contents(array)[0] == 2.0  # what fails does nothing
    core.step()
    assert [notice.code for notice in notices] == [0, 55, 0]


@pytest.mark.parametrize("code", [Core.STICKY, Core.LOST])
def test_after_a_sticky_error_nothing_works(manual: Kind, code: int) -> None:
    core = manual.core
    first, second = core.open(), core.open()
    core.call_native(first, 0)
    core.call_native(second, 0)
    other = manual.ended(second)
    core.fail_piece(code=code)
    core.step(first)
    assert other.code == code
    assert core.in_flight == 0
    assert core.diagnose(code)[1] is False
    assert core.diagnose(0)[1] is False
    for call in (core.open, lambda: core.call_native(first, 0), lambda: core.record(first, DeviceEvent())):
        with pytest.raises(RuntimeError, match=r"lost|recovers"):
            call()
    with pytest.raises(DeviceError, match="fake:0"):
        manual.device.allocate(1)
    core.close(first)
    manual.device.finish()


def test_a_lost_device_ends_all_waits() -> None:
    device = FakeDevice()
    stream, other = device.core.open(), device.core.open()
    device.core.call_native(stream, 0, delay=1000.0)
    event = DeviceEvent()
    device.core.record(stream, event)
    device.core.wait(other, event)
    device.core.call_native(other, 0)
    kind = Kind(device, lambda stream, seconds: None)
    notice = kind.notice(event)
    device.core.lose()
    assert notice.wait() == Core.LOST
    device.finish()


def test_memory_is_counted_and_bounded() -> None:
    device = FakeDevice(capacity=1000)
    array = empty(device, 100)
    assert device.core.allocated == 800
    with pytest.raises(DeviceError, match="300 bytes cannot be allocated: the device is out of memory"):
        device.allocate(300)
    del array
    assert device.core.allocated == 0
    device.allocate(300)


def test_bytes_outside_an_allocation_are_refused(manual: Kind) -> None:
    core = manual.core
    stream = core.open()
    array, host = empty(manual.device, 4), np.zeros(4)
    good = plan(host, array)
    base = array.handle
    core.copy(stream, good)
    for offset, rows, target in ((8, 1, base), (-8, 1, base), (0, 2, base), (0, 1, base + 100)):
        block = [32, rows, 1, 0, 0, 0, 0, 32, 0]
        transfer = _core.devices.Transfer((host.ctypes.data, 0, False), (target, offset, True), [block])
        with pytest.raises(RuntimeError, match="outside"):
            core.copy(stream, transfer)
    with pytest.raises(RuntimeError, match="unknown stream"):
        core.copy(stream + 1000, good)
    for use in (lambda event: core.wait(stream, event), lambda event: core.notify(event, print)):
        with pytest.raises(ValueError, match="stands for nothing"):
            use(_recorded_never(core))


def test_what_is_given_back_is_unknown(manual: Kind) -> None:
    stream = manual.core.open()
    host = np.zeros(4)
    transfer = plan(host, empty(manual.device, 4))
    gc.collect()
    with pytest.raises(RuntimeError, match="unknown stream or allocation"):
        manual.core.copy(stream, transfer)


def test_what_it_did_is_counted(manual: Kind) -> None:
    core = manual.core
    stream = core.open()
    a, b, host = empty(manual.device, 4), empty(manual.device, 4), np.zeros(4)
    core.clear_log()
    core.copy(stream, plan(host, a))
    core.copy(stream, plan(a[:2], b[2:]))
    core.copy(stream, plan(b[:3], host[:3]))
    core.fill(stream, plan_fill(a, 1.0))
    core.run()
    counters = core.counters
    assert (counters["to_device"], counters["within"], counters["to_host"]) == (32, 16, 24)
    assert (counters["copies"], counters["copy"], counters["fill"]) == (3, 3, 1)
    assert counters["largest_in_flight"] == 4
    assert [what for what, _, _ in core.log] == ["copy to device", "copy", "copy to host", "fill"]


def test_capture_can_be_switched_off() -> None:
    with fake.install(captures=False) as (device,):
        assert device.core.capture(device.core.open(), lambda recording: None) is None


def test_what_is_recorded_while_capturing_is_an_error(manual: Kind) -> None:
    core = manual.core
    stream = core.open()
    with pytest.raises(RuntimeError, match="unknown stream"):
        core.capture(stream, lambda recording: core.record(recording, DeviceEvent()))


def test_captured_functions_live_as_long_as_the_sequence(manual: Kind) -> None:
    core = manual.core
    stream = core.open()
    calls: list[int] = []

    def captured() -> tuple[object, weakref.ref[object]]:
        def function() -> None:
            calls.append(1)

        return core.capture(stream, lambda recording: core.call(recording, function)), weakref.ref(function)

    sequence, alive = captured()
    core.launch(stream, sequence)
    core.launch(stream, sequence)
    del sequence
    assert core.run() == 2
    gc.collect()
    assert calls == [1, 1]
    assert alive() is None


def test_functions_that_never_run_are_given_back() -> None:
    device = FakeDevice(manual=True)

    def function() -> None: ...

    alive = weakref.ref(function)
    device.core.call(device.core.open(), function)
    del function, device
    gc.collect()
    assert alive() is None


def test_c_functions_and_c_callers() -> None:
    device = FakeDevice()
    stream = device.core.open()
    kernel_type = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
    value = ctypes.c_int(0)

    @kernel_type
    def kernel(user: int) -> int:
        ctypes.c_int.from_address(user).value += 1
        return 0

    enqueue = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, kernel_type, ctypes.c_void_p, ctypes.c_int64
    )(Core.enqueue_address)
    assert enqueue(device.core.pointer, stream, kernel, ctypes.addressof(value), 1000) == 0
    device.core.call_native(stream, ctypes.cast(kernel, ctypes.c_void_p).value, ctypes.addressof(value))
    device.finish()
    assert value.value == 2


def test_pinned_ranges_are_noted() -> None:
    device = FakeDevice()
    held = device.pin(4096, 8192)
    assert device.pinned == [(4096, 8192)]
    del held
    assert device.pinned == []


def test_only_fakes_are_usable_while_they_are_installed() -> None:
    with fake.install(count=2) as devices:
        assert discovery.usable() == devices
        assert discovery.usable("fake") == devices
        assert discovery.usable("opencl") == ()
        with fake.install() as inner:
            assert discovery.usable() == inner
        assert discovery.usable() == devices


def test_foreign_arrays_are_adopted() -> None:
    with fake.install(count=2) as (first, second):
        array = empty(first, 3)
        foreign = fake.ForeignArray(array)
        assert first.adopt(foreign) is array
        assert second.adopt(foreign) is None


def test_launch_refuses_other_streams_and_other_memory() -> None:
    with fake.install(count=2) as (first, second):
        stream = first.stream(first.core.open())
        with pytest.raises(ValueError, match="lies in other memory than that of fake:0"):
            fake.launch(stream, print, empty(second, 3))
        with pytest.raises(TypeError, match="stream of a fake device"):
            fake.launch(7, print)  # type: ignore[arg-type]
        first.core.lose()
        with pytest.raises(DeviceError, match="fake:0: the device is lost"):
            fake.launch(stream, print)


def test_the_interpreter_ends_with_work_in_flight() -> None:
    script = """
import ostinato_fake_device
from ostinato import _core
core = ostinato_fake_device.FakeDevice()
core.call(core.open(), lambda: print("done", flush=True), delay=0.05)
core.call_native(core.open(), 0, delay=1e6)
by_hand = ostinato_fake_device.FakeDevice(manual=True)
event = _core.devices.DeviceEvent()
stream = by_hand.open()
by_hand.call(stream, print)
by_hand.record(stream, event)
by_hand.notify(event, print)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.forks
def test_a_device_of_the_parent_raises_in_the_child() -> None:
    device = FakeDevice()
    stream = device.core.open()
    array = empty(device, 3)
    device.core.call_native(stream, 0, delay=0.05)
    event = DeviceEvent()
    device.core.record(stream, event)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (
                device.core.open,
                lambda: device.core.call_native(stream, 0),
                lambda: device.core.record(stream, event),
                lambda: array.get(),
                lambda: device.allocate(8),
            ):
                with pytest.raises((RuntimeError, DeviceError), match="forked"):
                    call()
            notice = Notice(event)
            device.core.notify(event, notice.tell)
            assert notice.wait() != 0
            device.core.close(stream)
            device.finish()
            del array, device
            gc.collect()
            other = FakeDevice()  # and one of the child's own works
            mine = empty(other, 3)
            mine.set([1.0, 2.0, 3.0])
            assert mine.get().tolist() == [1.0, 2.0, 3.0]
            status = 0
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    device.finish()


def manual_array(kind: Kind, values: list[float]) -> object:
    array = empty(kind.device, len(values))
    kind.device.contents(array)[:] = values
    return array


def _recorded_never(core: Core) -> DeviceEvent:
    event = DeviceEvent()
    core.fail("record")
    with pytest.raises(RuntimeError):
        core.record(core.open(), event)
    return event
