"""The contract on what waits for what on devices: run-ahead, gates, completion, priorities, many programs, the GIL."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from concurrent.futures import CancelledError
from itertools import pairwise

import numpy as np
import pytest

import ostinato as ost
from beds import host_add, host_put, host_scale, host_shift, made, ones, zeros

PATIENCE = 60


@pytest.fixture
def eventually():
    def wait(condition):
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end, "it never became true"
            time.sleep(0.001)

    return wait


@pytest.fixture(params=["fake", "opencl"])
def kind(request):
    return request.param


@pytest.fixture(params=[1, 2], ids=["1 thread", "2 threads"])
def bed(kind, request):
    with made(kind, request.param) as bed:
        yield bed


@pytest.fixture
def gate(bed):
    gate = bed.gate()
    yield gate
    gate.open()


class Counter:
    """How often a body was called."""

    def __init__(self):
        self.n = 0


def counted(bed, counter):
    @ost.task
    def shift(x: ost.ReadWrite, by, stream: ost.Stream):
        bed.enqueue("shift", stream, (x,), by)
        counter.n += 1

    return shift


# Run-ahead


def test_all_of_a_chain_is_issued_while_the_device_is_held_up(bed, gate, eventually):
    counter, x = Counter(), bed.array([0, 0])
    shift = counted(bed, counter)
    with ost.capture() as g:
        bed.hold(x, gate)
        for _ in range(12):
            shift(x, 1)
    with g.compile(bed.machine) as program:
        run = program.submit()
        eventually(lambda: counter.n == 12)
        assert not run.done()
        assert run.running()
        gate.open()
        assert run.result(PATIENCE) == 1
    assert x.get().tolist() == [12, 12]


def test_later_steps_are_issued_while_the_device_is_held_up(bed, gate, eventually):
    counter, x = Counter(), bed.array([0])
    shift = counted(bed, counter)
    with ost.capture() as g:
        bed.hold(x, gate)
        shift(x, 1)
    with g.compile(bed.machine) as program:
        run = program.submit(10)
        eventually(lambda: counter.n >= 8)
        assert run.steps_done == 0
        gate.open()
        assert run.result(PATIENCE) == 10
        assert run.steps_done == 10


def test_cpus_work_on_what_does_not_need_the_device_and_wait_for_what_does(bed, gate, eventually):
    x, y, free = bed.array([3]), zeros(1), zeros(1)
    with ost.capture() as g:
        bed.hold(x, gate)
        host_scale(x, y, 2)
        host_shift(free, 1)
    with g.compile(bed.machine) as program:
        run = program.submit()
        eventually(lambda: free[0] == 1)
        time.sleep(0.01)
        assert y[0] == 0
        assert bed.name in run.stuck()
        gate.open()
        run.result(PATIENCE)
        assert y[0] == 6


def test_a_chain_to_the_device_and_back_many_times(bed):
    x = zeros()
    with ost.capture() as g:
        for _ in range(4):
            host_shift(x, 1)
            bed.shift(x, 10)
    with g.compile(bed.machine) as program:
        for _ in range(3):
            program.replay(5)
    assert x.tolist() == [660] * 4


def test_tokens_are_used_again(bed):
    x, y, total = bed.array([0]), zeros(1), np.zeros(1, np.int64)
    with ost.capture() as g:
        bed.shift(x, 1)
        host_scale(x, y, 1)
        host_add(total, y)
    with g.compile(bed.machine) as program:
        program.replay(400)
        for _ in range(50):
            program.replay()
    assert x.get().tolist() == [450]
    assert total[0] == 450 * 451 // 2


@pytest.mark.parametrize(("name", "launch_only"), [("fake", False), ("opencl", True)])
def test_ten_thousand_replays(name, launch_only):
    with made(name) as bed:
        x = bed.array([0])

        @ost.task(launch_only=launch_only)
        def shift(x: ost.ReadWrite, by, stream: ost.Stream):
            bed.enqueue("shift", stream, (x,), by)

        with ost.capture() as g:
            shift(x, 1)
        with g.compile(bed.machine) as program:
            runs = [program.submit() for _ in range(200)]
            assert program.replay(9000) == 9000
            assert [run.result(PATIENCE) for run in runs] == [1] * 200
            for _ in range(800):
                program.replay()
        assert x.get().tolist() == [10_000]


# The gate


def test_device_work_waits_for_all_preconditions_of_its_run(bed, eventually):
    counter, x, y = Counter(), bed.array([0]), bed.array([0])
    shift, g, event = counted(bed, counter), ost.Graph(), ost.UserEvent()
    first = g.precondition("first")
    g.task(shift, x, 1, after=first)
    g.task(shift, y, 1)
    with g.compile(bed.machine) as program:
        run = program.submit(after={"first": event})
        time.sleep(0.01)
        assert counter.n == 0
        event.trigger()
        assert run.result(PATIENCE) == 1
        assert counter.n == 2


def test_but_what_a_postcondition_depends_on_waits_for_its_own(bed):
    x, y, g, event = bed.array([0]), bed.array([0]), ost.Graph(), ost.UserEvent()
    late = g.precondition("late")
    g.task(bed.shift, x, 1, after=late)
    told = g.task(bed.shift, y, 1)
    g.postcondition("told", after=told)
    with g.compile(bed.machine) as program:
        run = program.submit(after={"late": event})
        run.posts["told"].wait(PATIENCE)
        assert y.get()[0] == 1
        assert x.get()[0] == 0
        event.trigger()
        run.result(PATIENCE)
    assert x.get()[0] == 1


def test_two_programs_that_wait_for_each_other_by_conditions(bed):
    """Each one's second half waits for the first half of the other, on one device."""
    x = [bed.array([0]) for _ in range(4)]
    programs = []
    for a, b in (x[:2], x[2:]):
        g = ost.Graph()
        other = g.precondition("other")
        mine = g.task(bed.shift, a, 1)
        g.postcondition("mine", after=mine)
        g.task(bed.shift, b, 1, after=[mine, other])
        programs.append(g.compile(bed.machine))
    for _ in range(10):
        events = [ost.UserEvent(), ost.UserEvent()]
        runs = [program.submit(after={"other": event}) for program, event in zip(programs, events, strict=True)]
        for run, event in zip(runs, reversed(events), strict=True):
            run.posts["mine"].add_done_callback(lambda _, event=event: event.trigger())
        assert [run.result(PATIENCE) for run in runs] == [1, 1]
    assert [each.get()[0] for each in x] == [10] * 4
    for program in programs:
        program.close()


def test_a_run_after_another_program_s_run_on_the_same_device(bed):
    x = bed.array([1])
    with ost.capture() as g:
        bed.shift(x, 1)
    with ost.capture() as h:
        bed.scale(x, y := bed.array([0]), 10)
    with g.compile(bed.machine) as first, h.compile(bed.machine) as second:
        for k in range(20):
            run = first.submit()
            assert second.submit(after=run).result(PATIENCE) == 1
            assert y.get()[0] == 10 * (k + 2)


def test_postconditions_mean_done(bed, gate, eventually):
    counter, x, g = Counter(), bed.array([0]), ost.Graph()
    g.task(bed.hold, x, gate)
    issued = g.task(counted(bed, counter), x, 1)
    g.postcondition("done", after=issued)
    with g.compile(bed.machine) as program:
        run = program.submit()
        eventually(lambda: counter.n == 1)
        time.sleep(0.01)
        assert not run.posts["done"].done
        assert not run.event.done
        gate.open()
        run.posts["done"].wait(PATIENCE)
        assert x.get()[0] == 1
        run.event.wait(PATIENCE)


def test_runs_of_two_programs_with_work_of_the_user_s_own(bed):
    """What the user enqueues himself neither waits for programs nor holds them up."""
    arrays = [bed.array([0]) for _ in range(2)]
    programs = []
    for array in arrays:
        with ost.capture() as g:
            for _ in range(3):
                bed.shift(array, 1)
        programs.append(g.compile(bed.machine))
    runs = [program.submit(20) for program in programs for _ in range(3)]
    own = bed.array([0])
    for _ in range(20):
        bed.shift(own, 1)  # called: runs at once
    assert own.get()[0] == 20
    assert [run.result(PATIENCE) for run in runs] == [20] * 6
    assert [array.get()[0] for array in arrays] == [180] * 2
    for program in programs:
        program.close()


# The GIL


def waiting(name, bed, program, gate, x):
    """What waits for the device while it is held up, by name."""

    @ost.task
    def holds(x: ost.ReadWrite, stream: ost.Stream):
        bed.enqueue_hold(stream, gate)

    if name == "replay":
        return lambda: program.replay()
    if name == "result":
        return lambda: program.submit().result(PATIENCE)
    if name == "wait":
        return lambda: program.submit().event.wait(PATIENCE)
    if name == "close":
        return lambda: (program.submit(2), program.close())
    if name == "verify":
        return lambda: program.verify()
    if name == "trace":
        return lambda: program.trace()
    if name == "profile":
        return lambda: program.submit(profile=True).result(PATIENCE)
    if name == "call":
        return lambda: holds(x)
    if name == "spawn":
        return lambda: bed.machine.spawn(holds, x).result(PATIENCE)
    if name == "get":
        return lambda: (program.submit(), x.get(), bed.finish())
    if name == "machine":
        return lambda: (program.submit(), bed.machine.close())
    assert name == "cancel"

    def cancel():
        run = program.submit(1000)
        run.cancel()
        with pytest.raises(CancelledError):
            run.result(PATIENCE)

    return cancel


WAITS = [
    "replay",
    "result",
    "wait",
    "close",
    "verify",
    "trace",
    "profile",
    "call",
    "spawn",
    "get",
    "machine",
    "cancel",
]


@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize("home", ["host", "device"])
def test_who_waits_for_a_device_does_not_hold_the_gil(name, home, kind):
    """Only a thread that has the GIL lets the device go on: it would never come to that."""
    with made(kind, 2) as bed:
        gate = bed.gate()
        x = zeros() if home == "host" and name != "get" else bed.array(zeros())
        y = zeros()

        with ost.capture() as g:
            bed.hold(x, gate)
            host_add(y, x)
        program = g.compile(bed.machine)
        wait, count, began = waiting(name, bed, program, gate, x), 0, threading.Event()

        def called():
            began.set()
            wait()

        threads = [threading.Thread(target=called, daemon=True)]
        threads[0].start()
        began.wait()
        end = time.monotonic() + 0.05
        while time.monotonic() < end or count < 200:  # stands still where somebody holds the GIL
            count += 1
            time.sleep(0.0001)
        gate.open()
        threads[0].join(PATIENCE)
        assert not threads[0].is_alive()
        program.close()


# Completion, for all who wait


def test_await(bed, gate):
    x = bed.array([0])
    with ost.capture() as g:
        bed.hold(x, gate)
        bed.shift(x, 1)

    async def main(program):
        ticks = 0
        run = program.submit(3)
        task = asyncio.ensure_future(wait(run))
        for _ in range(10):
            await asyncio.sleep(0.001)
            ticks += 1
        assert not task.done()
        gate.open()
        assert await task == 3
        await run.event
        return ticks

    async def wait(run):
        return await run

    with g.compile(bed.machine) as program:
        assert asyncio.run(main(program)) == 10
    assert x.get()[0] == 3


def test_callbacks_and_timeouts(bed, gate):
    x, told = bed.array([0]), threading.Event()
    with ost.capture() as g:
        bed.hold(x, gate)
    with g.compile(bed.machine) as program:
        run = program.submit()
        run.add_done_callback(lambda _: told.set())
        with pytest.raises(TimeoutError):
            run.result(0.005)
        with pytest.raises(TimeoutError):
            run.event.wait(0.005)
        assert not told.is_set()
        gate.open()
        assert told.wait(PATIENCE)


def test_ctrl_c_waits_for_the_device(bed, gate, eventually):
    """What was issued is waited for before the interrupt is raised."""
    counter, x = Counter(), bed.array([0])
    with ost.capture() as g:
        bed.hold(x, gate)
        counted(bed, counter)(x, 1)
    ended = threading.Event()

    def interrupt():
        eventually(lambda: counter.n)
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.05)
        assert not ended.is_set()
        gate.open()

    main = threading.get_ident()
    thread = threading.Thread(target=interrupt)
    with g.compile(bed.machine) as program:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            program.replay(10**6)
        ended.set()
        thread.join()
        gate.open()
        before = int(x.get()[0])
        assert program.replay(3) == 3
        assert x.get()[0] == before + 3


def test_ctrl_c_while_a_task_is_captured_is_not_lost(bed):
    """A body whose capture fails is called again; the signal would not come again."""
    x, calls = bed.array([0]), []

    @ost.task(launch_only=True)
    def interrupted(x: ost.ReadWrite, stream: ost.Stream):
        calls.append(len(calls))
        if len(calls) == 2:  # the first call is plain, the second is captured
            signal.raise_signal(signal.SIGINT)
        bed.enqueue("shift", stream, [x], 1)

    with ost.capture() as g:
        interrupted(x)
    with ost.Machine(cpus=1) as machine, g.compile(machine) as program:
        with pytest.raises(KeyboardInterrupt):
            program.replay(10**5)
        assert len(calls) >= 2


def test_a_cancelled_run_ends_when_the_device_is_done_with_it(bed, gate, eventually):
    counter, x = Counter(), bed.array([0])
    with ost.capture() as g:
        bed.hold(x, gate)
        counted(bed, counter)(x, 1)
    with g.compile(bed.machine) as program:
        run = program.submit(10**6)
        eventually(lambda: counter.n)
        assert run.cancel()
        time.sleep(0.02)
        assert not run.done()
        gate.open()
        with pytest.raises(CancelledError):
            run.result(PATIENCE)
        assert x.get()[0] >= run.steps_done  # more where a step was cut, see Run.cancel
        assert not run.cancel()


def test_left_by_an_exception_a_program_cancels_and_waits(bed, gate):
    x = bed.array([0])
    with ost.capture() as g:
        bed.hold(x, gate)
        bed.shift(x, 1)
    timer = threading.Timer(0.02, gate.open)
    with pytest.raises(ZeroDivisionError), g.compile(bed.machine) as program:  # noqa: PT012
        run = program.submit(10**6)
        timer.start()
        raise ZeroDivisionError
    assert run.done()
    assert run.cancelled()
    with pytest.raises(RuntimeError):
        program.replay()
    timer.join()


# Many at once


@pytest.mark.parametrize("home", ["host", "device"])
def test_threads_that_submit_at_once(home, bed, in_threads):
    x = zeros() if home == "host" else bed.array(zeros())
    with ost.capture() as g:
        bed.shift(x, 1)
    with g.compile(bed.machine) as program:

        def some():
            runs = [program.submit(1 + k % 3) for k in range(20)]
            assert sum(run.result(PATIENCE) for run in runs) == 39
            assert program.replay(2) == 2

        in_threads(*[some] * 4)
    found = x if home == "host" else x.get()
    assert found.tolist() == [4 * 41] * 4


def test_priorities_do_not_change_results(bed):
    x, y = bed.array([0]), zeros()
    with ost.capture() as g:
        bed.shift(x, 1)
    g.task(bed.shift, y, 1, priority=5)
    with g.compile(bed.machine) as program:
        runs = [program.submit(2, priority=k % 3 - 1) for k in range(12)]
        assert [run.result(PATIENCE) for run in runs] == [2] * 12
        assert program.replay(1, priority=7) == 1
    assert x.get()[0] == y[0] == 25


def test_of_what_waits_the_more_urgent_is_issued_first(eventually):
    """On one thread that is kept busy, programs on the device begin by priority."""
    with made("fake") as bed:
        order, busy, free = [], threading.Event(), threading.Event()

        @ost.task
        def note(name, stream: ost.Stream):
            order.append(name)

        @ost.task
        def block():
            busy.set()
            free.wait(PATIENCE)

        programs = {}
        for name in ("low", "middle", "high"):
            with ost.capture() as g:
                note(name)
            programs[name] = g.compile(bed.machine)
        blocking = bed.machine.spawn(block)
        busy.wait(PATIENCE)
        runs = [programs[name].submit(priority=priority) for name, priority in zip(programs, (-1, 0, 1), strict=True)]
        free.set()
        for run in [blocking, *runs]:
            run.result(PATIENCE)
        assert order == ["high", "middle", "low"]
        for program in programs.values():
            program.close()


@pytest.mark.parametrize("relation", ["pipelined", "serial", "concurrent"])
def test_runs_of_every_relation(relation, bed):
    x, y, z = bed.array([0]), zeros(1), zeros(1)
    with ost.capture() as g:
        bed.scale(x, y, 1)
        host_scale(y, z, 3)
        if relation != "concurrent":
            bed.shift(x, 1)
    with g.compile(bed.machine, runs=relation) as program:
        runs = [program.submit(2) for _ in range(6)]
        assert [run.result(PATIENCE) for run in runs] == [2] * 6
    if relation != "concurrent":
        assert (x.get()[0], y[0], z[0]) == (12, 11, 33)
    else:
        assert (x.get()[0], y[0], z[0]) == (0, 0, 0)


def test_concurrent_runs_do_not_wait_for_each_other():
    with made("opencl") as bed:
        x, gate, open_gate = bed.array([0]), bed.gate(), bed.gate()
        open_gate.open()
        with ost.capture() as g:
            bed.hold(x, ost.param("gate"))
        with g.compile(bed.machine, runs="concurrent") as program:
            held = program.submit(gate=gate)
            assert program.submit(gate=open_gate).result(PATIENCE) == 1
            assert not held.done()
            gate.open()
            held.result(PATIENCE)


def test_once(bed):
    x = zeros()
    with ost.capture() as g:
        bed.shift(x, 1)
    with g.compile(bed.machine, runs="once") as program:
        assert program.submit(3).result(PATIENCE) == 3
        with pytest.raises(RuntimeError):
            program.submit()
    assert x.tolist() == [3] * 4


def test_serial_runs_go_by_their_preconditions(bed):
    x = bed.array([0])
    with ost.capture() as g:
        bed.add(x, x, 1)
        bed.shift(x, ost.param("by"))
    with g.compile(bed.machine, runs="serial") as program:
        event = ost.UserEvent()
        late = program.submit(after=event, by=1)
        assert program.submit(by=5).result(PATIENCE) == 1
        event.trigger()
        late.result(PATIENCE)
    assert x.get()[0] == 11


def test_close_while_work_is_in_flight(kind):
    with made(kind, 2) as bed:
        arrays, gate = [bed.array([0]) for _ in range(3)], bed.gate()
        programs, runs = [], []
        for array in arrays:
            with ost.capture() as g:
                bed.hold(array, gate)
                bed.shift(array, 1)
            programs.append(g.compile(bed.machine))
            runs.append(programs[-1].submit(5))
        threading.Timer(0.02, gate.open).start()
        bed.machine.close()
        assert [run.result(PATIENCE) for run in runs] == [5] * 3
        assert [array.get()[0] for array in arrays] == [5] * 3
        with pytest.raises(RuntimeError):
            programs[0].submit()
        bed.machine.close()


def test_empty_steps_and_no_steps(bed):
    x = zeros()
    with ost.capture() as g:
        bed.put(x, 7)
    with g.compile(bed.machine) as program:
        assert program.replay(0) == 0
        assert program.submit(0).result(PATIENCE) == 0
        assert x.tolist() == [0] * 4
        program.replay()
        assert x.tolist() == [7] * 4


def test_waiting_in_a_stream_task_is_refused(bed):
    x, seen = bed.array([0]), []
    event = ost.merge()

    @ost.task
    def waits(x: ost.ReadWrite, stream: ost.Stream):
        try:
            event.wait()
        except ost.ContractError as error:
            seen.append(error)
        raise ValueError("as it should be")

    with ost.capture() as g:
        waits(x)
    with g.compile(bed.machine) as program:
        with pytest.raises(ost.TaskError, match="as it should be"):
            program.replay()
        assert len(seen) == 1


def test_a_chain_over_many_arrays(bed):
    arrays = [bed.array(ones(1)) for _ in range(13)]
    with ost.capture() as g:
        for x, y in pairwise(arrays):
            bed.scale(x, y, 2)
        host_put(out := zeros(1), 0)
        host_add(out, arrays[-1])
    with g.compile(bed.machine) as program:
        program.replay(3)
    assert out[0] == 4096
