"""The contract on what fails on devices: who is told what, what is poisoned, what is usable afterwards; processes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import CancelledError
from contextlib import suppress

import numpy as np
import pytest

import ostinato as ost
from beds import host_add, host_put, host_shift, ints, made, zeros
from ostinato.devices import device as discovery
from support import fake_device as fake

PATIENCE = 60


@pytest.fixture(params=["fake", "opencl"])
def bed(request):
    with made(request.param) as bed:
        yield bed


def graph_that_fails(bed, x, y, z, other):
    g = ost.Graph()
    g.task(host_shift, x, 1)
    bad = g.task(bed.fails, x, name="bad")
    g.task(bed.add, y, x, 1)
    g.task(host_add, z, y)
    g.task(bed.shift, other, 1)
    g.postcondition("bad", after=bad)
    return g, bad


@pytest.mark.parametrize("home", ["host", "device"])
def test_a_launch_that_fails_is_named_and_poisons_what_depends_on_it(home, bed):
    x, y, z, other = (zeros() if home == "host" else bed.array(zeros()) for _ in range(4))
    g, bad = graph_that_fails(bed, x, y, z, other)
    good = g.task(bed.shift, free := zeros(), 1)
    g.postcondition("good", after=good)
    with g.compile(bed.machine) as program:
        run = program.submit(3)
        with pytest.raises(ost.TaskError, match=r"'bad'.*test_devices_failure\.py") as caught:
            run.result(PATIENCE)
        assert caught.value.op is bad
        assert caught.value.step == 0
        assert isinstance(caught.value.__cause__, ArithmeticError)
        with pytest.raises(ost.PoisonError):
            run.posts["bad"].wait(PATIENCE)
        run.posts["good"].wait(PATIENCE)
        got = [each if home == "host" else each.get() for each in (x, y, z, other)]
        assert [each.tolist() for each in got[:3]] == [[1] * 4, [0] * 4, [0] * 4]
        assert got[3][0] >= 1
        assert free[0] == got[3][0]
        assert isinstance(program.submit().exception(PATIENCE), ost.TaskError)  # and again


def test_on_error_continue_runs_what_is_not_downstream(bed):
    x, y, z, other = zeros(), bed.array(zeros()), zeros(), bed.array(zeros())
    g, _ = graph_that_fails(bed, x, y, z, other)
    with g.compile(bed.machine) as program, pytest.raises(ost.TaskError):
        program.replay(6, on_error="continue")
    assert other.get().tolist() == [6] * 4
    assert z.tolist() == y.get().tolist() == [0] * 4


def test_the_next_run_starts_clean(bed):
    x, y, fails = zeros(), bed.array(zeros()), [True]

    @ost.task
    def sometimes(x: ost.ReadWrite, stream: ost.Stream):
        if fails[0]:
            raise ValueError("now")
        bed.enqueue("shift", stream, (x,), 1)

    with ost.capture() as g:
        sometimes(x)
        bed.add(y, x, 1)
    with g.compile(bed.machine) as program:
        early = [program.submit(2) for _ in range(3)]
        for run in early:
            with pytest.raises((ost.TaskError, ost.PoisonError)):
                run.result(PATIENCE)
        fails[0] = False
        assert program.replay(3) == 3
        assert x.tolist() == [3] * 4
        assert y.get().tolist() == [6] * 4


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupts_out_of_stream_tasks_are_raised_as_themselves(interrupt, bed):
    x, first = zeros(), [True]

    @ost.task
    def interrupted(x: ost.ReadWrite, stream: ost.Stream):
        if first[0]:
            raise interrupt("stop")
        bed.enqueue("shift", stream, (x,), 1)

    with ost.capture() as g:
        interrupted(x)
    with g.compile(bed.machine) as program:
        with pytest.raises(interrupt):
            program.replay(5)
        first[0] = False
        assert program.replay(2) == 2
    assert x.tolist() == [2] * 4


def test_a_poisoned_precondition_reaches_devices(bed):
    x, g, event = zeros(), ost.Graph(), ost.UserEvent()
    g.task(bed.shift, x, 1, after=g.precondition("p"))
    with g.compile(bed.machine) as program:
        run = program.submit(after={"p": event})
        event.poison(ValueError("why"))
        with pytest.raises(ost.PoisonError) as caught:
            run.result(PATIENCE)
        assert isinstance(caught.value.__cause__, ValueError)
        assert x.tolist() == [0] * 4
        event = ost.UserEvent()
        event.trigger()
        program.submit(after={"p": event}).result(PATIENCE)
        assert x.tolist() == [1] * 4


def test_a_failing_host_task_between_devices(bed):
    x, y, z = zeros(), zeros(), bed.array(zeros())

    @ost.task
    def fails(x: ost.ReadWrite):
        raise ValueError("host")

    with ost.capture() as g:
        bed.shift(x, 1)
        op = fails(x)
        bed.add(y, x, 1)
        bed.shift(z, 1)
    with g.compile(bed.machine) as program:
        with pytest.raises(ost.TaskError, match="host") as caught:
            program.replay(4)
        assert caught.value.op is op
        assert x.tolist() == [1] * 4  # what the device had written is home
        assert y.tolist() == [0] * 4
        assert z.get()[0] >= 1


def test_calls_spawned_tasks_and_verify_tell_failures(bed):
    x = zeros()
    with pytest.raises((ost.TaskError, ArithmeticError)):
        bed.fails(x)
    with pytest.raises((ost.TaskError, ArithmeticError)):
        bed.machine.spawn(bed.fails, x).result(PATIENCE)
    with ost.capture() as g:
        bed.fails(x)
    with g.compile(bed.machine) as program:
        for call in (program.verify, program.replay, lambda: program.submit(profile=True).result(PATIENCE)):
            with pytest.raises(ost.TaskError):
                call()
    bed.shift(x, 1)
    assert x.tolist() == [1] * 4


@pytest.mark.parametrize("launch_only", [False, True])
def test_wrong_launches_of_opencl(launch_only):
    with made("opencl") as bed:
        x = bed.array([1, 2, 3])

        @ost.task(launch_only=launch_only)
        def wrong(x: ost.ReadWrite, stream: ost.Stream):
            kernel = bed.cl.Kernel(bed.kernels["shift"].program, "shift")
            kernel(stream.queue, (3,), (2,), x.base_data, np.int32(0), np.int32(1), np.int32(1))

        with ost.capture() as g:
            bed.shift(x, 1)
            op = wrong(x)
        with g.compile(bed.machine) as program:
            for _ in range(2):
                with pytest.raises(ost.TaskError, match="wrong") as caught:
                    program.replay()
                assert caught.value.op is op
                assert isinstance(caught.value.__cause__, bed.cl.Error | ost.DeviceError)
        assert x.get().tolist() == [3, 4, 5]


# What the device tells later; the fake one


@pytest.fixture
def faked():
    with made("fake", 1) as bed:
        yield bed


def fails_there(message="broken"):
    @ost.task
    def fails_there(x: ost.ReadWrite, stream: ost.Stream):
        def kernel(a):
            raise ArithmeticError(message)

        fake.launch(stream, kernel, x)

    return fails_there


@pytest.mark.parametrize("profile", [False, True])
@pytest.mark.parametrize("home", ["host", "device"])
def test_work_that_fails_on_the_device(home, profile, faked):
    x, y = (zeros() if home == "host" else faked.array(zeros()) for _ in range(2))
    z = zeros()
    with ost.capture() as g:
        op = fails_there()(x)
        faked.add(y, x, 1)
        host_add(z, y)
    with g.compile(faked.machine) as program:
        with pytest.raises(ost.TaskError, match="broken") as caught:
            program.submit(4, profile=profile).result(PATIENCE)
        error = caught.value
        assert error.op in g.ops
        assert op.name in "".join([str(error), *getattr(error, "__notes__", [])])
        assert isinstance(error.__cause__, ost.DeviceError)
        assert error.__cause__.device == "fake:0"
        assert error.__cause__.usable
        assert z.tolist() == [0] * 4


def test_a_device_that_is_lost(faked):
    x, y = faked.array(zeros()), zeros()
    with ost.capture() as g:
        faked.shift(x, 1)
    with ost.capture() as h:
        host_shift(y, 1)
    program, other = g.compile(faked.machine), h.compile(faked.machine)
    program.replay()
    faked.device.core.lose()
    with pytest.raises(ost.TaskError) as caught:
        program.replay(3)
    assert isinstance(caught.value.__cause__, ost.DeviceError)
    with pytest.raises((ost.TaskError, ost.DeviceError)):
        program.replay()
    with pytest.raises(ost.DeviceError, match="fake:0"):
        g.compile(faked.machine)
    with pytest.raises(ost.DeviceError):
        x.get()
    with pytest.raises((ost.DeviceError, ost.TaskError)):
        faked.machine.spawn(faked.shift, x, 1).result(PATIENCE)
    assert other.replay(2) == 2
    assert y.tolist() == [2] * 4
    program.close()
    other.close()


@pytest.mark.parametrize("method", ["copy", "fill", "record", "wait", "call", "notify", "launch", "open"])
@pytest.mark.parametrize("nth", [1, 2])
def test_any_call_of_the_driver_may_fail(method, nth, faked):
    """Whatever fails is told, nothing hangs, and the next run is right."""
    x, y, there = zeros(), zeros(), faked.array(zeros())
    g = ost.Graph()
    g.task(faked.shift, x, 1)
    g.copy(x, there)
    g.fill(there[:1], 5)
    g.task(faked.add, there, x, 1)
    g.copy(there, y)
    g.task(host_shift, x, 1)
    with g.compile(faked.machine) as program:
        program.replay()
        faked.device.core.fail(method, nth)
        with suppress(ost.TaskError, ost.DeviceError):
            x[:] = 0
            program.replay(3)
            assert x.tolist() == [6] * 4  # it did not need that, or not this way
            assert y.tolist() == [16, 12, 12, 12] or y.tolist() == [5 + x[0] - 1, 10, 10, 10]
        for _ in range(2):  # what was to fail has failed then
            with suppress(ost.OstinatoError):
                program.replay()
        x[:] = 0
        assert program.replay() == 1
        assert x.tolist() == [2] * 4
        assert y.tolist() == [6, 2, 2, 2]


def test_out_of_memory(capsys):
    with made("fake", capacity=1000) as bed:
        x = np.zeros(1000, np.int32)
        with ost.capture() as g:
            bed.shift(x, 1)
        for _ in range(3):
            with pytest.raises(ost.DeviceError, match="fake:0"):
                g.compile(bed.machine)
            with pytest.raises(ost.DeviceError, match="fake:0"):
                bed.memory.empty(2000, np.uint8)
            with pytest.raises((ost.DeviceError, ost.TaskError)):
                bed.shift(x, 1)
            with pytest.raises((ost.DeviceError, ost.TaskError)):
                bed.machine.spawn(bed.shift, x, 1).result(PATIENCE)
        y = zeros()
        with ost.capture() as h:
            bed.shift(y, 1)
        with h.compile(bed.machine) as program:
            program.replay(2)
            big = np.zeros(1000, np.int32)
            program.rebind([(y, big[:4])])
            program.replay(2)
            assert big[:5].tolist() == [2] * 4 + [0]
        gc.collect()
        assert bed.memory.empty(900, np.uint8).nbytes == 900


def test_what_was_written_is_home_after_failures_and_cancels(bed):
    x, steps = zeros(), []

    @ost.task
    def third(log: ost.ReadWrite):
        log.append(1)
        if len(log) == 3:
            raise ValueError("third")

    with ost.capture() as g:
        bed.shift(x, 1)
        third(steps)
    with g.compile(bed.machine) as program:
        run = program.submit(100)
        with pytest.raises(ost.TaskError) as caught:
            run.result(PATIENCE)
        assert caught.value.step == 2
        assert x[0] >= 3
        before = int(x[0])
        assert program.replay(4) == 4
        assert x[0] == before + 4
        run = program.submit(10**6)
        run.cancel()
        run.event.exception()
        with pytest.raises(CancelledError):
            run.result(PATIENCE)
        assert x[0] >= before + 4 + run.steps_done


# Wrong use


def test_wrong_declarations():
    with pytest.raises(TypeError):

        @ost.task(blocking=True)
        def blocks(x: ost.Read, stream: ost.Stream): ...

    with pytest.raises(TypeError):

        @ost.task
        def two(x: ost.Read, a: ost.Stream, b: ost.Stream): ...

    with pytest.raises(TypeError):
        ost.native(0x1000, (ost.Stream, ost.Stream, ost.Read))


def test_wrong_calls(bed):
    x = zeros()
    with ost.capture() as g:
        for arguments in [(), (x,), (x, 1, 2), (x, 1, 2, 3)]:
            with pytest.raises(TypeError):
                bed.shift(*arguments)
        assert len(g) == 0
        g.fill(x, 0)


def test_values_that_no_stream_task_takes(bed):
    """What is wrong with an argument is told by the task that gets it, as its failure."""
    for wrong in ("text", object()):
        x = zeros()
        with ost.capture() as g:
            bed.shift(x, wrong)
        with g.compile(bed.machine) as program:
            with pytest.raises((ost.TaskError, TypeError)):
                program.replay()
            assert x.tolist() == [0] * 4


def test_arrays_of_objects_do_not_go_to_devices(bed):
    x = np.array([1, None], object)
    with pytest.raises((ost.GraphError, TypeError, ost.DeviceError)):  # noqa: PT012
        with ost.capture() as g:
            bed.put(x, 1)
        g.compile(bed.machine)


@pytest.mark.parametrize("part", [slice(0, 0), slice(4, 4), slice(2, 1), slice(None, None, -1), slice(3, None, -2)])
def test_odd_parts(part, bed):
    x, y = ints(1, 2, 3, 4), bed.array([5, 6, 7, 8])
    a, b = ints(1, 2, 3, 4), ints(5, 6, 7, 8)
    g = ost.Graph()
    g.task(bed.shift, x[part], 1)
    g.task(bed.add, y[part], x[part], 2)
    g.copy(y[part], x[part])
    g.fill(y[part][:1], 9)
    g.task(host_shift, y[part], 1)
    with g.compile(bed.machine) as program:
        program.replay(2)
        program.verify()
    for _ in range(2):
        a[part] += 1
        b[part] += 2 * a[part]
        a[part] = b[part]
        b[part][:1] = 9
        b[part] += 1
    assert x.tolist() == a.tolist()
    assert y.get().tolist() == b.tolist()


def test_views_of_one_array_in_both_memories_at_once(bed):
    """Overlapping parts of one array, in turn here and there."""
    x = np.arange(12, dtype=np.int32)
    wanted = x.copy()
    with ost.capture() as g:
        bed.shift(x[:8], 1)
        host_shift(x[4:], 2)
        bed.add(x[2:6], x[6:10], 3)
        host_add(x[::3], x[1::3])
        bed.shift(x[::-2], 1)
        host_put(x[5:6], 7)
    with g.compile(bed.machine) as program:
        for steps in (1, 3):
            program.replay(steps)
            for _ in range(steps):
                wanted[:8] += 1
                wanted[4:] += 2
                wanted[2:6] += wanted[6:10] * 3
                wanted[::3] += wanted[1::3]
                wanted[::-2] += 1
                wanted[5:6] = 7
            assert x.tolist() == wanted.tolist()
            x[6] = wanted[6] = 100


def test_memory_that_is_read_only(bed):
    x, y = ints(1, 2), zeros(2)
    x.flags.writeable = False
    with ost.capture() as g:
        bed.scale(x, y, 2)
        with pytest.raises((ValueError, ost.GraphError)):
            bed.shift(x, 1)
    with g.compile(bed.machine) as program:
        program.replay()
    assert y.tolist() == [2, 4]


def test_captured_bodies_that_change_what_they_do():
    """A launch_only body promises not to; what comes of it is one of the two, and verify() finds it."""
    with made("opencl") as bed:
        x, by = bed.array([0]), [1]

        @ost.task(launch_only=True)
        def fickle(x: ost.ReadWrite, stream: ost.Stream):
            bed.enqueue("shift", stream, (x,), by[0])

        with ost.capture() as g:
            fickle(x)
        with g.compile(bed.machine) as program:
            program.replay(2)
            by[0] = 10
            program.replay(2)
            assert x.get()[0] in (4, 13, 22)


def test_exceptions_in_captured_bodies(bed):
    x, fails = bed.array([0]), [False]

    @ost.task(launch_only=True)
    def may(x: ost.ReadWrite, by, stream: ost.Stream):
        if fails[0]:
            raise ValueError("captured")
        bed.enqueue("shift", stream, (x,), by)

    with ost.capture() as g:
        may(x, ost.param("by", 1))
        bed.shift(x, 0)
    with g.compile(bed.machine) as program:
        program.replay(3)
        fails[0] = True
        with pytest.raises(ost.TaskError, match="captured"):
            program.replay(2, by=2)
        fails[0] = False
        assert program.replay(2, by=3) == 2
    assert x.get()[0] == 9


def test_memory_of_other_contexts_and_of_pyopencl():
    with made("opencl") as bed:
        cl = bed.cl
        elsewhere = cl.Context([bed.device.device])
        foreign = cl.Buffer(elsewhere, cl.mem_flags.READ_WRITE, 16)
        with pytest.raises(ValueError, match="context"), ost.capture():
            bed.shift(foreign, 1)
        import pyopencl.array as arrays

        queue = cl.CommandQueue(bed.device.context)
        mine = arrays.to_device(queue, ints(1, 2, 3, 4))
        out = zeros()
        with ost.capture() as g:
            bed.shift(mine, 1)
            bed.shift(mine[2:], 10)
            host_add(out, mine)
        with g.compile(bed.machine) as program:
            program.replay(2)
        assert mine.get().tolist() == [3, 4, 25, 26]
        assert out.tolist() == [5, 7, 39, 41]


def test_programs_in_cycles_are_collected(bed):
    before = set(threading.enumerate())
    for _ in range(3):
        x = bed.array([0])
        with ost.capture() as g:
            bed.shift(x, 1)
        program = g.compile(bed.machine)
        program.submit(20)
        holder = [program, x]
        holder.append(holder)
        del program, holder, g, x
        gc.collect()
    bed.finish()
    assert len(set(threading.enumerate()) - before) <= 1


# Processes

PRELUDE = """
import os, sys
sys.path[:0] = {path!r}
import numpy as np, ostinato as ost
from beds import made, zeros, host_add

def program_of(bed, x):
    with ost.capture() as g:
        bed.shift(x, 1)
        host_add(y, x)
    return g.compile(bed.machine)

y = zeros()
"""


def script(text):
    source = PRELUDE.format(path=os.environ["PYTHONPATH"].split(os.pathsep)) + textwrap.dedent(text)
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.parametrize("kind", ["fake", "opencl"])
def test_the_interpreter_ends_with_work_in_flight(kind):
    if kind == "opencl" and not discovery.usable("opencl"):
        pytest.skip(f"there is no OpenCL device{discovery.format_reasons()}")
    ended = script(f"""
    context = made({kind!r}, 2)
    bed = context.__enter__()
    x, z = bed.array(zeros()), zeros()
    programs = [program_of(bed, x), program_of(bed, z)]
    runs = [program.submit(10**6) for program in programs]
    bed.machine.spawn(bed.shift, z.copy(), 1)
    print("ends", flush=True)
    """)
    assert (ended.returncode, ended.stdout.strip()) == (0, "ends"), ended.stderr
    assert ended.stderr == ""


@pytest.mark.forks
@pytest.mark.parametrize("kind", ["fake", "opencl"])
def test_after_a_fork_every_handle_raises(kind):
    if kind == "opencl" and not discovery.usable("opencl"):
        pytest.skip(f"there is no OpenCL device{discovery.format_reasons()}")
    ended = script(f"""
    import warnings
    warnings.simplefilter("ignore")
    with made({kind!r}, 1) as bed:
        x = zeros()
        program = program_of(bed, x)
        run = program.submit(1000)
        child = os.fork()
        if child == 0:
            code = 0
            spawn = lambda: bed.machine.spawn(bed.shift, x, 1)
            for call in (program.replay, lambda: run.result(1), program.submit, spawn):
                try:
                    call()
                    code = 1
                except RuntimeError:
                    pass
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert run.result(60) == 1000
        assert x.tolist() == [1000] * 4
    """)
    assert ended.returncode == 0, ended.stderr


# Looking at arrays that streams are at work on


@pytest.mark.parametrize("method", ["get", "set"])
@pytest.mark.parametrize("what", ["argument", "mirror", "captured", "closed over"])
def test_a_task_that_takes_a_stream_may_not_look_at_arrays_of_its_program(what, method, bed):
    seen, other = bed.array(zeros()), bed.array(zeros())

    def look(array):
        return array.get() if method == "get" else array.set(1)

    @ost.task(launch_only=what == "captured")
    def peeks(x: ost.ReadWrite, stream: ost.Stream):
        bed.enqueue("shift", stream, (x,), 1)
        look(seen if what == "closed over" else x)

    with ost.capture() as g:
        bed.shift(seen, 1)
        op = peeks(zeros() if what == "mirror" else other if what == "closed over" else seen)
    with g.compile(bed.machine) as program:
        with pytest.raises(ost.TaskError, match="peeks") as raised:
            program.replay(2)
        assert raised.value.op is op
        assert isinstance(raised.value.__cause__, ost.ContractError)
        assert f"array.{method}() inside a task that takes a stream" in str(raised.value.__cause__)


def test_other_arrays_and_tasks_without_a_stream_may_be_looked_at(bed):
    x, table, seen = bed.array(zeros()), bed.array(ints(5, 6, 7, 8)), []

    @ost.task
    def uses_a_table(x: ost.ReadWrite, stream: ost.Stream):
        bed.enqueue("shift", stream, (x,), int(table.get()[2]))

    @ost.task
    def looks(results: ost.ReadWrite):
        results.append(x.get().tolist())

    graph = ost.Graph()
    graph.task(looks, seen, after=graph.task(uses_a_table, x))
    with graph.compile(bed.machine) as program:
        program.replay()
    assert seen == [[7] * 4]
