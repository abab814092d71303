"""What every device does, whatever its kind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from devices.kinds import DeviceEvent, Kind, has_driver_of_cuda
from ostinato.devices.array import empty
from ostinato.devices.transfers import plan, plan_fill
from ostinato.errors import DeviceError
from profilers import until

LONG = 0.15  # seconds; only what is certain to happen within is expected to


@pytest.mark.cuda
def test_cuda_is_among_the_kinds() -> None:
    if not has_driver_of_cuda():
        pytest.skip("the driver of CUDA is not installed: nothing here has run on a GPU")


def test_what_is_copied_to_a_device_comes_back(kind: Kind, streams: tuple[int, int]) -> None:
    source, target = np.arange(1000.0), np.zeros(1000)
    array = empty(kind.device, 1000)
    kind.core.copy(streams[0], plan(source, array))
    kind.core.copy(streams[0], plan(array, target))
    assert kind.ended(streams[0]).wait() == 0
    np.testing.assert_array_equal(target, source)


def test_work_of_a_stream_is_done_in_order(kind: Kind, streams: tuple[int, int]) -> None:
    stream, _ = streams
    first, second = kind.array(np.zeros(5)), kind.array(np.zeros(5))
    target = np.zeros(5)
    kind.work(stream, 0.02)
    kind.core.fill(stream, plan_fill(first, 3.0))
    kind.core.copy(stream, plan(first, second))
    kind.core.fill(stream, plan_fill(first, 4.0))
    kind.core.copy(stream, plan(second, target))
    assert kind.ended(stream).wait() == 0
    assert target.tolist() == [3.0] * 5
    assert first.get().tolist() == [4.0] * 5


def test_streams_go_on_side_by_side(kind: Kind, streams: tuple[int, int]) -> None:
    busy, free = streams
    array = empty(kind.device, 8)
    kind.work(busy, LONG)
    slow = kind.ended(busy)
    kind.core.fill(free, plan_fill(array, 1.0))
    quick = kind.ended(free)
    quick.wait()
    assert not slow.told
    slow.wait()


def test_finishing_a_stream_waits_for_its_work(kind: Kind, streams: tuple[int, int]) -> None:
    array, host = kind.array([1.0] * 4), np.zeros(4)
    kind.work(streams[0], 0.05)
    kind.core.copy(streams[0], plan(array, host))
    kind.core.finish_stream(streams[0])
    assert host.tolist() == [1.0] * 4


def test_no_other_method_waits_for_the_device(kind: Kind, streams: tuple[int, int]) -> None:
    stream, other = streams
    array, host = empty(kind.device, 8), kind.host(8)
    array.set(1.0)
    event = DeviceEvent()
    kind.work(stream, LONG)
    slow = kind.ended(stream)
    kind.core.fill(stream, plan_fill(array, 2.0))
    kind.core.copy(stream, plan(array, host))
    kind.core.record(stream, event)
    kind.core.wait(other, event)
    kind.core.copy(other, plan(host, array[:]))
    end = kind.ended(other)
    opened = kind.core.open()
    kind.core.close(opened)
    assert not slow.told
    assert end.wait() == 0
    assert host.tolist() == [2.0] * 8


def test_an_event_orders_two_streams(kind: Kind, streams: tuple[int, int]) -> None:
    first, second = streams
    array, host = kind.array([1.0] * 4), np.zeros(4)
    kind.work(first, 0.05)
    kind.core.fill(first, plan_fill(array, 7.0))
    kind.core.wait(second, kind.recorded(first))
    kind.core.copy(second, plan(array, host))
    assert kind.ended(second).wait() == 0
    assert host.tolist() == [7.0] * 4


def test_who_waits_for_an_event_waits_for_what_it_stood_for_then(kind: Kind, streams: tuple[int, int]) -> None:
    first, second = streams
    array = empty(kind.device, 4)
    event = DeviceEvent()
    kind.core.record(first, event)
    kind.core.wait(second, event)
    kind.core.fill(second, plan_fill(array, 5.0))
    quick = kind.ended(second)
    kind.work(first, LONG)
    kind.core.record(first, event)
    slow = kind.notice(event)
    quick.wait()
    assert not slow.told
    slow.wait()


def test_events_are_used_ten_thousand_times(kind: Kind, streams: tuple[int, int]) -> None:
    """Two streams hand a value to and fro; and each hand-over is seen by the host now and then."""
    first, second = streams
    here, there = kind.array([0.0]), kind.array([0.0])
    host, result = np.zeros(1), np.zeros(1)
    to_here, from_here = plan(host, here), plan(here, there)
    to_result = plan(there, result)
    there_read, here_written = DeviceEvent(), DeviceEvent()
    kind.core.record(second, there_read)
    for turn in range(10_000):
        kind.core.wait(first, there_read)
        if turn % 1000 == 0:
            assert kind.ended(first).wait() == 0  # it reads the host's array
            host[0] = turn
        kind.core.copy(first, to_here)
        kind.core.record(first, here_written)
        kind.core.wait(second, here_written)
        kind.core.copy(second, from_here)
        kind.core.record(second, there_read)
        if turn % 1000 == 999:
            kind.core.copy(second, to_result)
            assert kind.ended(second).wait() == 0
            assert result[0] == turn - 999
    kind.device.finish()


def test_word_comes_at_once_when_the_work_is_done(kind: Kind, streams: tuple[int, int]) -> None:
    event = kind.recorded(streams[0])
    assert kind.notice(event).wait() == 0
    assert kind.notice(event).wait() == 0  # once more


def test_word_comes_later_and_not_before(kind: Kind, streams: tuple[int, int]) -> None:
    array = kind.array([0.0])
    result = kind.host(1)
    kind.work(streams[0], LONG)
    kind.core.fill(streams[0], plan_fill(array, 9.0))
    kind.core.copy(streams[0], plan(array, result))
    notice = kind.ended(streams[0])
    assert not notice.told
    assert notice.wait() == 0
    assert result[0] == 9.0
    assert notice.thread != threading.get_ident()


def test_an_event_may_be_asked_about_often(kind: Kind, streams: tuple[int, int]) -> None:
    kind.work(streams[0], 0.05)
    event = kind.recorded(streams[0])
    notices = [kind.notice(event) for _ in range(20)]
    assert [notice.wait() for notice in notices] == [0] * 20


def test_each_word_comes_once(kind: Kind, streams: tuple[int, int]) -> None:
    """In any order: who asks when the work has ended is told at once, perhaps before one who asked earlier."""
    told: list[int] = []
    events = []
    for turn in range(20):
        kind.work(streams[0], 0.001)
        events.append(kind.recorded(streams[0]))
        kind.core.notify(events[-1], lambda code, turn=turn: told.append(turn))
    kind.ended(streams[0]).wait()
    until(lambda: len(told) >= 20, "all words came")
    assert sorted(told) == list(range(20))
    kind.device.finish()


def test_what_is_captured_is_launched_again_and_again(kind: Kind, streams: tuple[int, int]) -> None:
    core = kind.core
    source, middle, result = np.zeros(3), kind.array([-1.0] * 3), np.zeros(3)
    flag = kind.array([0.0])
    copies = plan(source, middle), plan(middle, result)
    one = plan_fill(flag, 1.0)

    def enqueue(recording: int) -> None:
        for transfer in copies:
            core.copy(recording, transfer)
        core.fill(recording, one)

    sequence = core.capture(streams[0], enqueue)
    kind.device.finish()
    assert middle.get().tolist() == [-1.0] * 3  # nothing has run
    assert sequence is not None
    for turn in range(5):
        source[:] = turn
        core.launch(streams[turn % 2], sequence)
        assert kind.ended(streams[turn % 2]).wait() == 0
        assert result.tolist() == [turn] * 3
    assert flag.get()[0] == 1.0
    for _ in range(100):
        core.launch(streams[0], sequence)
    del sequence
    assert kind.ended(streams[0]).wait() == 0


def test_what_is_captured_keeps_its_place_in_the_stream(kind: Kind, streams: tuple[int, int]) -> None:
    stream = streams[0]
    array, result = kind.array([0.0]), np.zeros(1)
    copy = plan(array, result)
    sequence = kind.core.capture(stream, lambda recording: kind.core.copy(recording, copy))
    kind.work(stream, 0.05)
    kind.core.fill(stream, plan_fill(array, 2.0))
    kind.core.launch(stream, sequence)
    kind.core.fill(stream, plan_fill(array, 3.0))
    assert kind.ended(stream).wait() == 0
    assert result[0] == 2.0


def test_parts_that_are_captured_keep_the_order_that_they_need(kind: Kind, streams: tuple[int, int]) -> None:
    source, middle, result = np.zeros(4), kind.array([-1.0] * 4), np.zeros(4)
    whole, back = plan(source, middle), plan(middle, result)
    first, second = plan_fill(middle[:1], 5.0), plan_fill(middle[1:2], 6.0)

    def enqueue(recording: int, part: int) -> None:
        if part in (0, 3):
            kind.core.copy(recording, whole if part == 0 else back)
        else:
            kind.core.fill(recording, first if part == 1 else second)

    sequence = kind.core.capture(streams[0], enqueue, [[], [0], [0], [1, 2]])
    assert sequence is not None
    for turn in range(4):
        source[:] = turn
        kind.core.launch(streams[turn % 2], sequence)
        assert kind.ended(streams[turn % 2]).wait() == 0
        assert result.tolist() == [5.0, 6.0, turn, turn]


def test_an_exception_while_capturing_is_raised(kind: Kind, streams: tuple[int, int]) -> None:
    array = kind.array([1.0])

    def enqueue(recording: int) -> None:
        kind.core.fill(recording, plan_fill(array, 2.0))
        raise KeyError("no such kernel")

    with pytest.raises(KeyError, match="no such kernel"):
        kind.core.capture(streams[0], enqueue)
    assert kind.ended(streams[0]).wait() == 0
    assert array.get()[0] == 1.0


def test_codes_have_words(kind: Kind) -> None:
    for code in (1, 2, 700, -5, 12345):
        message, usable = kind.core.diagnose(code)
        assert isinstance(message, str)
        assert message
        assert isinstance(usable, bool)


def test_a_stream_may_be_closed_with_work_in_flight(kind: Kind) -> None:
    array, result = kind.array([1.0]), np.zeros(1)
    stream = kind.core.open()
    kind.work(stream, 0.05)
    kind.core.copy(stream, plan(array, result))
    notice = kind.ended(stream)
    kind.core.close(stream)
    assert notice.wait() == 0
    assert result[0] == 1.0


def test_there_may_be_many_streams(kind: Kind) -> None:
    arrays = [kind.array([float(number)]) for number in range(48)]
    results = np.zeros(48)
    opened = [kind.core.open() for _ in arrays]
    for number, stream in enumerate(opened):
        kind.core.copy(stream, plan(arrays[number], results[number : number + 1]))
    for notice in [kind.ended(stream) for stream in opened]:
        assert notice.wait() == 0
    for stream in opened:
        kind.core.close(stream)
    assert results.tolist() == list(range(48))


def test_streams_may_be_used_by_many_threads(kind: Kind) -> None:
    failures: list[BaseException] = []

    def use(number: int) -> None:
        try:
            stream = kind.core.open()
            array, result = kind.array([0.0] * 16), np.zeros(16)
            for turn in range(50):
                kind.core.fill(stream, plan_fill(array, float(turn)))
                kind.core.copy(stream, plan(array, result))
                assert kind.ended(stream).wait() == 0
                assert result.tolist() == [turn] * 16
            kind.core.close(stream)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_others_run_python_while_someone_waits(kind: Kind, streams: tuple[int, int]) -> None:
    turns = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1
            time.sleep(0.001)

    counting = threading.Thread(target=count)
    counting.start()
    try:
        for wait in (kind.device.finish, lambda: kind.array(np.zeros(1 << 16)).get()):
            kind.work(streams[0], LONG)
            before = turns
            wait()
            if wait is kind.device.finish:
                assert turns > before + 2
    finally:
        stop.set()
        counting.join()


def test_memory_runs_out(kind: Kind) -> None:
    if kind.device.kind == "fake":
        kind.core.set_capacity(1 << 30)
    with pytest.raises(DeviceError, match=kind.device.name):
        kind.device.allocate(1 << 50)
    kind.array([1.0])  # and it goes on


def test_arrays_are_given_back_while_work_uses_them(kind: Kind, streams: tuple[int, int]) -> None:
    result = np.zeros(4)
    array = kind.array([3.0] * 4)
    kind.work(streams[0], 0.05)
    kind.core.copy(streams[0], plan(array, result))
    notice = kind.ended(streams[0])
    del array
    assert notice.wait() == 0
    assert result.tolist() == [3.0] * 4


def test_finish_waits_for_all_streams(kind: Kind, streams: tuple[int, int]) -> None:
    notices = []
    for stream in streams:
        kind.work(stream, 0.03)
        notices.append(kind.ended(stream))
    kind.device.finish()
    assert [notice.wait() for notice in notices] == [0, 0]


def test_streams_are_what_tasks_receive(kind: Kind, streams: tuple[int, int]) -> None:
    stream = kind.device.stream(streams[0])
    assert isinstance(stream, ost.Stream)
    assert stream.handle == streams[0]


def test_devices_have_names(kind: Kind) -> None:
    assert kind.device.name.startswith(f"{kind.device.kind}:")
    for name in (kind.device.identity, kind.device.model, kind.device.driver):
        assert isinstance(name, str)
        assert name


def test_plain_objects_are_not_adopted(kind: Kind) -> None:
    for obj in (None, 3, [1.0], np.zeros(3), "text", object()):
        assert kind.device.adopt(obj) is None


def test_host_memory_may_be_pinned(kind: Kind, streams: tuple[int, int]) -> None:
    host = np.arange(5000.0)
    held = kind.device.pin(host.ctypes.data, host.ctypes.data + host.nbytes)
    again = kind.device.pin(host.ctypes.data + 80, host.ctypes.data + 160)  # what two programs do
    array = empty(kind.device, 5000)
    kind.core.copy(streams[0], plan(host, array))
    assert kind.ended(streams[0]).wait() == 0
    del held, again
    np.testing.assert_array_equal(array.get(), host)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["closed", "open", "by_a_thread"])
def test_the_interpreter_ends_with_work_in_flight(kind: Kind, how: str) -> None:
    if kind.device.name.startswith("cuda") and not has_driver_of_cuda():
        pytest.skip("its driver would be built anew")
    script = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import numpy as np
from devices.kinds import KINDS
from ostinato.devices.array import empty
from ostinato.devices.transfers import plan, wait_for
kind = KINDS[sys.argv[2]]()
stream, other = kind.core.open(), kind.core.open()
array, host = empty(kind.device, 1000), np.zeros(1000)
kind.work(stream, 0.1)
kind.core.copy(stream, plan(array, host))
notice = kind.ended(stream)
if sys.argv[3] == "by_a_thread":
    def wait():
        kind.work(other, 0.1)
        started.set()
        try:
            wait_for(kind.device, other)
        except ost.DeviceError:
            pass
    import ostinato as ost
    started = threading.Event()
    threading.Thread(target=wait).start()
    started.wait()
if sys.argv[3] == "closed":
    kind.core.close(stream)
"""
    command = [sys.executable, "-c", script, str(Path(__file__).parents[2]), kind.device.kind, how]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
