"""Operations for devices in the core, on the fake device, with programs built by hand."""

import contextlib
import gc
import os
import threading
import time

import numpy as np
import pytest

from hand_built import DEVICE, EXTERNAL, NOTHING, PYTHON, call, plan, schedule
from ostinato import _core
from support.fake_device import FakeDevice

PROCESSOR = 5
"""What records say of who ran an operation of the device."""


@pytest.fixture
def machine():
    machine = _core.Machine([-1, -1], False, None)
    yield machine
    machine.close()


@pytest.fixture
def device():
    return FakeDevice(0, manual=True)


def stream_of(device):
    return _core.devices.Stream(device.core, device.name, PROCESSOR)


def nothing(op, stream, **more):
    return entry(op, stream, ("nothing",), **more)


def entry(op, stream, body, waits=(), records=False, activity=None, sets=(), clears=(), after=()):
    return (op, stream, body, list(waits), records, activity, sets, clears, list(after))


class Held(np.ndarray):
    """What the device's memory really holds; `place` says where it is."""

    def __array_finalize__(self, other):
        self.place = None


def on_device(device, n=4):
    allocation = device.allocate(n * 8)
    held = device.contents(allocation.array((n,), np.dtype(float))).view(Held)
    held.place = (allocation.base, 0, True)
    vars(device).setdefault("kept", []).append(allocation)
    held[:] = 0
    return held


def place(array):
    return getattr(array, "place", None) or (array.ctypes.data, 0, False)


def copied(source, target):
    return _core.devices.Transfer(place(source), place(target), [[source.nbytes, 1, 1, 0, 0, 0, 0, 0, 0]])


def filled(array, value):
    pattern = np.array(value, array.dtype).tobytes()
    return _core.devices.Pattern(place(array), [[array.nbytes, 1, 1, 0, 0, 0, 0, 0, 0]], pattern)


def launched(device, stream, done, value):
    """A body that has the device append to a list."""
    return lambda: device.core.call(stream.handle, lambda: done.append(value))


def program(machine, lanes, kinds, edges, periods=(1,), runs="pipelined", **more):
    scheduled = schedule(lanes, kinds, edges, periods)
    return _core.Program(machine, scheduled, plan(scheduled, len(kinds), **more), runs)


def submit(program, steps=1, traced=False, stop=True, objects=None):
    return program.submit(steps, 0, stop, None, objects, None, traced)


def until(condition):
    """Waits for what other threads are about to do."""
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.0005)


def drive(device, run):
    """Has the device work until the run is done."""

    def step():
        device.core.run()
        return run.done

    until(step)


def chain(machine, device, n=3, lazy=False, **more):
    """`n` kernels and the completion of the last one."""
    done = []
    stream = stream_of(device)
    built = program(
        machine,
        [range(n), [n]],
        [DEVICE] * n + [EXTERNAL],
        {n: [(n - 1, 0)], **{i: [(i - 1, 0)] for i in range(1, n)}},
        python=[call(i, launched(device, stream, done, i)) for i in range(n)],
        device=[entry(i, stream, ("python",), records=i == n - 1) for i in range(n)],
        external=[(n, "fence", (n - 1, lazy))],
        **more,
    )
    return built, done, stream


def test_all_is_issued_before_the_device_has_begun_and_the_run_ends_when_it_is_done(machine, device):
    built, done, _ = chain(machine, device)
    run = submit(built, 2)
    until(lambda: device.core.counters["call"] == 6)
    assert not done
    assert not run.wait(0.01)
    drive(device, run)
    assert done == [0, 1, 2, 0, 1, 2]
    assert run.good


def test_who_comes_after_a_completion_sees_what_the_device_did(machine, device):
    device.core.set_manual(False)
    array = on_device(device)
    seen = []
    stream = stream_of(device)
    built = program(
        machine,
        [[0], [1], [2]],
        [DEVICE, EXTERNAL, PYTHON],
        {0: [(2, 1)], 1: [(0, 0)], 2: [(1, 0)]},
        periods=(1, 2),
        period_class=[1, 0, 0],
        python=[call(2, lambda: seen.append(array.copy()))],
        device=[entry(0, stream, ("fill", [filled(array, 1.0), filled(array, 2.0)]), records=True)],
        external=[(1, "fence", (0,))],
    )
    assert built.replay(5, 0, True, None, None, None, False) == 5
    assert [list(values) for values in seen] == [[1.0] * 4, [2.0] * 4, [1.0] * 4, [2.0] * 4, [1.0] * 4]


def test_external_operations_of_unknown_kinds_are_refused(machine):
    with pytest.raises(ValueError, match="unknown kind"):
        program(machine, [[0]], [EXTERNAL], {}, external=[(0, "wish", (0,))])


def test_a_stream_waits_for_what_another_has_done(machine, device):
    a, b, c = np.arange(4.0), on_device(device), np.zeros(4)
    first, second = stream_of(device), stream_of(device)
    built = program(
        machine,
        [[0], [1], [2]],
        [DEVICE, DEVICE, EXTERNAL],
        {1: [(0, 0)], 2: [(1, 0)]},
        device=[
            entry(0, first, ("copy", [copied(a, b)]), records=True),
            entry(1, second, ("copy", [copied(b, c)]), waits=[(0, 0)], records=True),
        ],
        external=[(2, "fence", (1,))],
    )
    run = submit(built)
    until(lambda: device.core.counters["copy"] == 2)
    assert device.core.step(second.handle) is None, "it does not wait"
    drive(device, run)
    assert list(c) == [0, 1, 2, 3]


def test_tokens_are_used_again_for_ever(machine, device):
    device.core.set_manual(False)
    first, second = stream_of(device), stream_of(device)
    count = [0, 0]

    def counted(which, stream):
        def work():
            count[which] += 1
            assert count[0] > count[1] - (which == 1)

        return lambda: device.core.call(stream.handle, work)

    built = program(
        machine,
        [[0], [1], [2]],
        [DEVICE, DEVICE, EXTERNAL],
        {0: [(1, 1)], 1: [(0, 0), (0, 3)], 2: [(1, 0)]},
        python=[call(0, counted(0, first)), call(1, counted(1, second))],
        device=[
            entry(0, first, ("python",), waits=[(1, 1)], records=True),
            entry(1, second, ("python",), waits=[(0, 0), (0, 3)], records=True),
        ],
        external=[(2, "fence", (1,))],
    )
    for steps in (1, 999, 9000):
        assert built.replay(steps, 0, True, None, None, None, False) == steps
    assert count == [10_000, 10_000]


def test_a_launch_that_fails_is_told_of_the_op_and_poisons(machine, device):
    device.core.set_manual(False)
    array = on_device(device)
    calls = []
    stream = stream_of(device)
    built = program(
        machine,
        [[0], [1], [2]],
        [DEVICE, EXTERNAL, PYTHON],
        {1: [(0, 0)], 2: [(1, 0)]},
        python=[call(2, lambda: calls.append(1))],
        device=[entry(0, stream, ("fill", [filled(array, 1.0)]), records=True)],
        external=[(1, "fence", (0,))],
    )
    device.core.fail("fill", 2)
    run = built.replay(3, 0, True, None, None, None, False)
    ((op, step, error),), unlisted = run.failures()
    assert (op, step, unlisted) == (0, 1, 0)
    assert type(error).__name__ == "DeviceError"
    assert error.device == "fake:0"
    assert error.usable
    assert str(error).startswith("fake:0: ")
    assert calls == [1]
    assert run.steps == 2
    run.deliver()
    assert built.replay(2, 0, True, None, None, None, False) == 2
    assert calls == [1, 1, 1]


def test_work_that_fails_on_the_device_is_told_of_the_op_when_it_is_known(machine, device):
    built, _, _ = chain(machine, device)
    device.core.fail_piece(2)
    run = submit(built)
    drive(device, run)
    ((op, step, error),), _ = run.failures()
    assert (op, step) == (2, 0), "the last one, whose completion it is"
    assert type(error).__name__ == "DeviceError"


def test_what_is_issued_later_learns_of_work_that_failed(machine, device):
    calls = []
    stream = stream_of(device)
    built = program(
        machine,
        [[0], [1], [2, 3]],
        [DEVICE, EXTERNAL, PYTHON, PYTHON],
        {0: [(0, 1), (2, 1)], 1: [(0, 0)], 2: [(1, 0)], 3: [(2, 0)]},
        python=[
            call(0, lambda: device.core.call(stream.handle, lambda: calls.append("kernel"))),
            call(2, lambda: calls.append("host")),
            call(3, lambda: calls.append("after")),
        ],
        device=[entry(0, stream, ("python",), records=True)],
        external=[(1, "fence", (0,))],
    )
    device.core.fail_piece(2)
    run = submit(built, 10, stop=False)
    drive(device, run)
    assert calls == ["kernel", "host", "after"], "nothing that comes after the failure runs"
    assert run.failures()[0][0][:2] == (0, 1)


def test_a_lost_device_ends_runs_and_says_that_it_cannot_be_used(machine, device):
    built, _, _ = chain(machine, device)
    run = submit(built)
    until(lambda: device.core.counters["call"] == 3)
    device.core.lose()
    assert run.wait(60)
    errors = [error for _, _, error in run.failures()[0]]
    assert errors
    assert not errors[0].usable
    assert "cannot be used any more" in str(errors[0])


def test_a_python_body_that_raises_still_ends_after_what_it_enqueued(machine, device):
    stream = stream_of(device)
    done = []

    def body():
        device.core.call(stream.handle, lambda: done.append(1))
        raise ValueError("no")

    built = program(
        machine,
        [[0], [1]],
        [DEVICE, EXTERNAL],
        {1: [(0, 0)]},
        python=[call(0, body)],
        device=[entry(0, stream, ("python",), records=True)],
        external=[(1, "fence", (0,))],
    )
    run = submit(built)
    until(lambda: device.core.counters["call"] == 1)
    assert not run.wait(0.02)
    drive(device, run)
    assert done == [1]
    assert isinstance(run.failures()[0][0][2], ValueError)


def test_a_run_that_is_cancelled_and_aborted_ends_after_the_device(machine, device):
    built, done, _ = chain(machine, device)
    run = submit(built, 1_000_000)
    until(lambda: device.core.counters["call"] >= 30)
    run.cancel()
    assert not run.wait(0.3), "the device is at work on its arrays"
    assert any(what == "outside" and text == "fake:0 to finish" for what, _, _, text in run.stuck())
    drive(device, run)
    assert run.cancelled
    assert len(done) == device.core.counters["call"]


def test_a_program_that_nobody_holds_ends_after_the_device(machine, device):
    built, done, _ = chain(machine, device)
    run = submit(built, 3)
    del built
    gc.collect()
    until(lambda: device.core.counters["call"] == 9)
    drive(device, run)
    assert len(done) == 9
    del run
    gc.collect()


def test_streams_close_with_their_programs(machine, device):
    built, _, stream = chain(machine, device)
    assert device.core.streams == 1
    built.close()
    del built, stream
    gc.collect()
    until(lambda: device.core.streams == 0)


def test_lazy_completions_wait_now_and_then_and_at_the_end(machine, device):
    device.core.set_manual(False)
    built, done, _ = chain(machine, device, n=1, lazy=True)
    for replay in range(1, 4):
        before = device.core.counters["notify"]
        assert built.replay(100, 0, True, None, None, None, False) == 100
        assert len(done) == 100 * replay
        assert device.core.counters["notify"] - before < 30


def test_a_lazy_completion_waits_in_the_last_step_whichever_that_is(machine, device):
    built, done, _ = chain(machine, device, n=1, lazy=True)
    run = submit(built, 1_000_000)
    until(lambda: device.core.counters["call"] >= 10)
    run.cancel()
    assert not run.wait(0.15)
    drive(device, run)
    assert run.cancelled
    assert len(done) == device.core.counters["call"]


@pytest.mark.parametrize("lazy", [False, True])
def test_steps_are_done_when_the_device_has_done_them(machine, device, lazy):
    built, _, _ = chain(machine, device, n=1, lazy=lazy)
    run = submit(built, 10)
    until(lambda: device.core.counters["call"] == 10)
    assert run.steps == 0
    drive(device, run)
    assert run.steps == 10


def test_runs_overlap_where_nothing_is_written_back(machine, device):
    built, _, _ = chain(machine, device)
    runs = [submit(built) for _ in range(4)]
    until(lambda: device.core.counters["call"] == 12)
    for run in runs:
        drive(device, run)


def write_back_program(machine, device, more=(), **options):
    """A kernel that writes what is then copied back to `home`; and what the device holds."""
    home, mirror = np.zeros(4), on_device(device)
    stream = stream_of(device)
    built = program(
        machine,
        [[0], [1]],
        [DEVICE, EXTERNAL],
        {0: [(0, 1)], 1: [(0, 0)]},
        device=[entry(0, stream, ("fill", [filled(mirror, 3.0)]), records=True, sets=((0,),), **options), *more],
        external=[(1, "fence", (0,))],
        write_back=[(0, stream, copied(mirror, home)), (1, stream, copied(mirror, home))],
    )
    return built, home, stream


def test_what_was_written_is_copied_back_once_a_run(machine, device):
    built, home, _ = write_back_program(machine, device)
    runs = [submit(built, 3), submit(built, 2)]
    until(lambda: device.core.counters["fill"] == 3)
    drive(device, runs[0])
    assert list(home) == [3.0] * 4
    drive(device, runs[1])
    assert device.core.counters["copy"] == 2
    assert device.core.counters["fill"] == 5


def test_a_run_waits_for_what_is_written_back(machine, device):
    built, home, stream = write_back_program(machine, device)
    later = submit(built), submit(built)
    until(lambda: device.core.counters["fill"] == 1)
    while device.core.step(stream.handle) != "copy":
        until(lambda: device.core.in_flight)
        if device.core.counters["copy"]:
            break
    run = later[0]
    assert not run.wait(0.02)
    assert device.core.counters["fill"] == 1, "the next run waits for this one"
    assert ("device", -1, -1, "fake:0 to finish") in run.stuck()
    drive(device, later[1])
    assert list(home) == [3.0] * 4


def test_nothing_is_copied_back_that_no_run_has_written(machine, device):
    device.core.set_manual(False)
    never = (np.zeros((1, 1), np.uint8), np.zeros(1, np.uint8))
    built, home, _ = write_back_program(machine, device, activity=never)
    assert built.replay(3, 0, True, None, None, None, False) == 3
    assert device.core.counters["copy"] == device.core.counters["fill"] == 0
    assert not home.any()


@pytest.mark.parametrize("fails", ["copy", "piece", "record"])
def test_a_write_back_that_fails_is_told_of_who_wrote(machine, device, fails):
    built, *arrays = write_back_program(machine, device)
    run = submit(built)
    until(lambda: device.core.counters["fill"] == 1 and device.core.counters["notify"] == 1)
    if fails == "copy":
        device.core.fail("copy")
    elif fails == "record":
        device.core.fail("record")
    else:
        device.core.fail_piece(2)
    drive(device, run)
    ((op, step, error),), _ = run.failures()
    assert (op, step) == (0, 0)
    assert type(error).__name__ == "DeviceError"
    assert device.core.in_flight == 0 or fails == "record"
    device.core.run()
    run.deliver()
    again = submit(built)
    drive(device, again)
    assert again.good
    assert len(arrays) == 2  # the plan has their addresses: they must live until here


def test_operations_are_active_in_some_steps(machine, device):
    device.core.set_manual(False)
    done = []
    stream = stream_of(device)
    # In a run's first two steps when they are odd and even; later in every third.
    first = np.array([[0, 1], [1, 1], [0, 0]], np.uint8)
    later = np.array([1, 0, 0], np.uint8)
    built = program(
        machine,
        [[0], [1]],
        [DEVICE, EXTERNAL],
        {1: [(0, 0)]},
        python=[call(0, launched(device, stream, done, 1))],
        device=[entry(0, stream, ("python",), records=True, activity=(first, later))],
        external=[(1, "fence", (0,))],
    )
    counts = []
    for steps in (2, 4, 3):  # from steps 0, 2 and 6 on
        before = len(done)
        built.replay(steps, 0, True, None, None, None, False)
        counts.append(len(done) - before)
    assert counts == [1, 0, 1]  # {1}; 2, 3: not, 4, 5: not; 6: not, 7, 8: not


def test_poisoned_operations_keep_streams_in_order(machine, device):
    """The body is left out; what comes after the operation on other streams still comes after what it waits for."""
    order = []
    a, b, c = (stream_of(device) for _ in range(3))

    def raises():
        raise ValueError("no")

    built = program(
        machine,
        [[0], [1, 2], [3], [4], [5]],
        [PYTHON, DEVICE, DEVICE, DEVICE, DEVICE, EXTERNAL],
        {2: [(0, 0)], 3: [(2, 0)], 4: [], 5: [(4, 0)]},
        python=[
            call(0, raises),
            call(1, launched(device, a, order, "first")),
            call(2, launched(device, a, order, "never")),
            call(4, launched(device, c, order, "last")),
        ],
        device=[
            entry(1, a, ("python",)),
            entry(2, a, ("python",), records=True),
            entry(3, b, ("nothing",), waits=[(2, 0)], records=True),
            entry(4, c, ("python",), waits=[(3, 0)], records=True),
        ],
        external=[(5, "fence", (4,))],
    )
    run = submit(built)
    # 4 comes after 3 on its stream only where 3 has been issued before: give it time.
    drive(device, run)
    assert "never" not in order
    assert run.poisoned


@contextlib.contextmanager
def counting(device):
    before = device.core.counters
    found = {}
    yield found
    after = device.core.counters
    found.update({name: after[name] - before[name] for name in ("call", "copy", "fill", "launch", "capture")})


def captured_program(machine, device, n=4, values=()):
    done = []
    stream = stream_of(device)

    def body(number, on, value=0):
        device.core.call(on.handle, lambda: done.append((number, value)))

    built = program(
        machine,
        [range(n), [n]],
        [DEVICE] * n + [EXTERNAL],
        {n: [(n - 1, 0)], **{i: [(i - 1, 0)] for i in range(1, n)}},
        python=[call(i, body, (i, stream, 0), values=values if i == 0 else ()) for i in range(n)],
        device=[
            entry(i, stream, ("captured", device.stream, (1,)), records=i == n - 1, after=[i - 1] if i else [])
            for i in range(n)
        ],
        external=[(n, "fence", (n - 1,))],
    )
    return built, done


def test_a_segment_is_captured_and_launched_as_one(machine, device):
    device.core.set_manual(False)
    built, done = captured_program(machine, device)
    built.replay(1, 0, True, None, None, None, False)
    with counting(device) as count:
        assert built.replay(5, 0, True, None, None, None, False) == 5
    assert (count["launch"], count["capture"]) == (5, 1)
    assert done == [(i, 0) for _ in range(6) for i in range(4)]


def test_what_was_captured_is_captured_again_when_parameters_change(machine, device):
    device.core.set_manual(False)
    built, done = captured_program(machine, device, values=((2, 0),))
    for value, captures in ((7, 1), (7, 0), (7.5, 1), (8, 1), (8, 0)):
        done.clear()
        with counting(device) as count:
            built.replay(3, 0, True, None, [value], None, False)
        assert count["capture"] == captures
        assert done == [(i, value if i == 0 else 0) for _ in range(3) for i in range(4)]


def test_a_device_that_cannot_capture_is_given_every_call(machine, device):
    device.core.set_manual(False)
    device.core.set_captures(False)
    built, done = captured_program(machine, device)
    with counting(device) as count:
        assert built.replay(5, 0, True, None, None, None, False) == 5
    assert count["launch"] == 0
    assert count["call"] == 20
    assert done == [(i, 0) for _ in range(5) for i in range(4)]


def test_a_body_that_cannot_be_captured_is_called(machine, device):
    device.core.set_manual(False)
    stream = stream_of(device)
    handles = set()
    done = []

    def body(on):
        handles.add(on.handle)
        if on.handle != stream.handle:
            raise ValueError("not while capturing")
        device.core.call(on.handle, lambda: done.append(1))

    built = program(
        machine,
        [[0], [1]],
        [DEVICE, EXTERNAL],
        {1: [(0, 0)]},
        python=[call(0, body, (stream,))],
        device=[entry(0, stream, ("captured", device.stream, (0,)), records=True)],
        external=[(1, "fence", (0,))],
    )
    assert built.replay(6, 0, True, None, None, None, False) == 6
    assert len(done) == 6
    assert len(handles) == 2
    assert device.core.counters["capture"] == 1


def test_captures_follow_rings(machine, device):
    device.core.set_manual(False)
    arrays = [on_device(device, 2) for _ in range(6)]
    stream = stream_of(device)
    built = program(
        machine,
        [[0, 1], [2]],
        [DEVICE, DEVICE, EXTERNAL],
        {1: [(0, 0)], 2: [(1, 0)]},
        periods=(1, 2, 3),
        period_class=[1, 2, 0],
        device=[
            entry(0, stream, ("fill", [filled(arrays[i], i + 1) for i in range(2)])),
            entry(1, stream, ("copy", [copied(arrays[0], arrays[3 + i]) for i in range(3)]), records=True),
        ],
        external=[(2, "fence", (1,))],
    )
    built.replay(6, 0, True, None, None, None, False)
    for array in arrays:
        array[:] = 0
    with counting(device) as count:
        built.replay(6, 0, True, None, None, None, False)
    assert count["launch"] == count["capture"] == 6
    assert [list(array) for array in arrays[3:]] == [[1, 1]] * 3
    assert list(arrays[1]) == [2, 2]
    with counting(device) as count:
        built.replay(12, 0, True, None, None, None, False)
    assert (count["launch"], count["capture"]) == (12, 0)


RECORD = np.dtype(
    [("op", "u4"), ("seat", "u4"), ("step", "u8"), ("start", "i8"), ("end", "i8"), ("status", "u8"), ("issued", "i8")]
)


def test_records_say_when_the_device_was_at_work(machine, device):
    device.core.set_manual(False)
    stream = stream_of(device)
    built = program(
        machine,
        [[0, 1], [2]],
        [DEVICE, DEVICE, EXTERNAL],
        {1: [(0, 0)], 2: [(1, 0)]},
        python=[call(i, lambda: device.core.call(stream.handle, lambda: None, 0.01)) for i in range(2)],
        device=[entry(i, stream, ("python",), records=i == 1) for i in range(2)],
        external=[(2, "fence", (1, True))],
    )
    run = built.replay(3, 0, True, None, None, None, True)
    records = np.concatenate([np.frombuffer(data, RECORD) for data, _ in run.trace_records()])
    found = records[records["op"] < 2]
    assert len(found) == 6
    assert (found["seat"] == PROCESSOR).all()
    assert (found["status"] == 0).all()
    assert (found["issued"] <= found["start"]).all()
    assert (found["start"] <= found["end"]).all()
    assert (found["start"][1:] >= found["end"][:-1]).all(), "one after the other"
    assert found["issued"][-1] < found["end"][0], "all are issued before the first is done"
    assert (records["issued"][records["op"] == 2] == 0).all()


def test_a_traced_run_names_the_operation_that_failed(machine, device):
    built, _, _ = chain(machine, device)
    device.core.fail_piece(2)
    run = submit(built, traced=True)
    drive(device, run)
    ((op, step, _),), unlisted = run.failures()
    assert (op, step, unlisted) == (1, 0, 0)
    records = np.concatenate([np.frombuffer(data, RECORD) for data, _ in run.trace_records()])
    assert records["status"][records["op"] == 1] == 1
    run.deliver()
    again = submit(built, traced=True)
    drive(device, again)
    assert again.good


def test_a_traced_run_tells_failures_that_no_completion_has_asked_for(machine, device):
    built, _, _ = chain(machine, device, lazy=True)
    device.core.fail_piece(2)
    run = submit(built, 3, traced=True)
    drive(device, run)
    assert [(op, step) for op, step, _ in run.failures()[0]] == [(1, 0)]


@pytest.mark.parametrize("kind", ["chain", "write-back"])
def test_nobody_waits_for_the_device_with_the_gil(machine, device, kind):
    """Were it held, this thread could not go on to have the device do its work."""
    built, *_ = chain(machine, device) if kind == "chain" else write_back_program(machine, device)
    ended = []
    thread = threading.Thread(target=lambda: ended.append(built.replay(3, 0, True, None, None, None, False)))
    thread.start()
    while not ended:
        device.core.step()
        time.sleep(0.001)
    thread.join()
    assert ended == [3]


@pytest.mark.forks
def test_a_forked_child_calls_no_driver(machine, device):
    device.core.set_manual(False)
    built, _, stream = chain(machine, device)
    write_back = write_back_program(machine, device)
    assert built.replay(3, 0, True, None, None, None, False) == 3
    child = os.fork()
    if child == 0:
        del built, stream, write_back
        gc.collect()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert built.replay(3, 0, True, None, None, None, False) == 3


def test_a_plan_with_streams_has_no_copy(device):
    scheduled = schedule([[0]], [DEVICE], {})
    with pytest.raises(ValueError, match="build another"):
        plan(scheduled, 1, device=[nothing(0, stream_of(device))]).copy()


def test_mistakes_in_plans_are_told(device):
    stream, other = stream_of(device), stream_of(device)
    scheduled = schedule([[0, 1], [2]], [DEVICE, DEVICE, NOTHING], {})
    with pytest.raises(ValueError, match="one stream"):
        plan(scheduled, 3, device=[nothing(0, stream), nothing(1, other)])
    with pytest.raises(ValueError, match="not recorded"):
        plan(scheduled, 3, device=[nothing(0, stream), nothing(1, stream, waits=[(0, 0)])])
