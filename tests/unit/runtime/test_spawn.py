"""Single tasks outside graphs: what a spawned task is given, what its run tells, and how it ends."""

import asyncio
import contextvars
import ctypes
import gc
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from concurrent.futures import CancelledError

import numpy as np
import pytest

import ostinato as ost
from native import load

DEADLINE = 60


@ost.task
def add(x, y=1):
    return x + y


@ost.task
def fail(error):
    raise error


@ost.task
def nap(seconds):
    time.sleep(seconds)


class Gate:
    """A task that holds a thread until it is opened."""

    def __init__(self):
        self.entered, self.open = threading.Event(), threading.Event()

        @ost.task
        def gate(value=None):
            self.entered.set()
            assert self.open.wait(DEADLINE)
            return value

        self.task = gate


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def single():
    with ost.Machine(cpus=1) as machine:
        yield machine


# --- what it is given ---


def test_the_result_is_the_task_s_value(machine):
    run = machine.spawn(add, 1, 2)
    assert isinstance(run, ost.Run)
    assert run.result(DEADLINE) == 3
    assert run.done()
    assert not run.running()
    assert not run.cancelled()
    assert run.exception() is None
    assert (run.steps_done, run.posts, run.profile) == (1, {}, None)
    assert machine.spawn(add, 5).result(DEADLINE) == 6  # with its default argument


def test_a_result_may_be_an_exception(machine):
    run = machine.spawn(add, ValueError("a value").args, ("more",))
    assert run.result(DEADLINE) == ("a value", "more")

    @ost.task
    def give():
        return ValueError("nothing is wrong")

    run = machine.spawn(give)
    assert isinstance(run.result(DEADLINE), ValueError)
    assert run.exception() is None


def test_only_tasks_are_spawned(machine):
    with pytest.raises(TypeError, match=r"@ostinato\.task"):
        machine.spawn(lambda: 1)
    with pytest.raises(TypeError, match="no value"):
        machine.spawn(add, ost.Graph().param("x"))
    with pytest.raises(TypeError, match="add"):
        machine.spawn(add)
    with pytest.raises(TypeError, match="add"):
        machine.spawn(add, 1, 2, 3)
    with pytest.raises(TypeError, match="event or a run"):
        machine.spawn(add, 1, after=1)


def test_accesses_are_those_of_a_call(machine):
    @ost.task
    def double(x: ost.Read, y: ost.Write):
        assert not x.flags.writeable
        y[:] = 2 * x
        return type(x)

    x, y = np.arange(4.0), np.zeros(4)
    assert machine.spawn(double, x, y).result(DEADLINE) is np.ndarray
    assert list(y) == [0, 2, 4, 6]
    assert x.flags.writeable


def test_native_tasks(machine):
    how = np.array([0, 1, 2])  # `mix` reads the first array and writes the second
    mix = ost.native(load("support/programs.c").mix, (ost.Read, ost.Write, int), user=how)
    x, called, spawned = np.arange(4), np.zeros(3, int), np.zeros(3, int)
    mix(x, called, 5)
    assert machine.spawn(mix, x, spawned, 5).result(DEADLINE) is None
    assert list(spawned) == list(called) != [0, 0, 0]
    error = machine.spawn(mix, x, spawned).exception(DEADLINE)
    assert isinstance(error.__cause__, TypeError)


def test_kernels(machine):
    pytest.importorskip("numba")

    @ost.kernel
    def scale(x: ost.ReadWrite, factor):
        for i in range(x.shape[0]):
            x[i] *= factor

    x = np.ones(3)
    assert machine.spawn(scale, x, 2.0).result(DEADLINE) is None
    assert list(x) == [2, 2, 2]


def test_it_runs_in_the_context_of_the_submitter(machine):
    variable = contextvars.ContextVar("variable", default="unset")

    @ost.task
    def look():
        found = variable.get()
        variable.set("changed")
        return found

    variable.set("given")
    runs = [machine.spawn(look) for _ in range(10)]
    assert {run.result(DEADLINE) for run in runs} == {"given"}
    assert variable.get() == "given"


def test_it_runs_in_the_floating_point_mode_of_the_submitter(machine):
    libm = ctypes.CDLL("libm.so.6")
    upward, nearest = 0x800, 0

    @ost.task
    def third(x):
        return 1.0 / x

    @ost.task(blocking=True)
    def third_elsewhere(x):
        return 1.0 / x

    assert libm.fesetround(upward) == 0
    try:
        up = [machine.spawn(task, 3.0) for task in (third, third_elsewhere)]
    finally:
        libm.fesetround(nearest)
    usual = [machine.spawn(task, 3.0) for task in (third, third_elsewhere)]
    assert {run.result(DEADLINE) for run in usual} == {1.0 / 3.0}
    assert {run.result(DEADLINE) for run in up} == {math.nextafter(1.0 / 3.0, 1.0)}


def test_on_binds_to_a_processor(machine):
    names = {}

    @ost.task
    def where():
        return threading.get_ident()

    for processor in machine.processors:
        runs = [machine.spawn(where, on=processor) for _ in range(20)]
        runs += [machine.spawn(where, on=processor.name) for _ in range(20)]
        threads = {run.result(DEADLINE) for run in runs}
        assert len(threads) == 1
        names[processor.name] = threads.pop()
    assert len(set(names.values())) == len(machine.processors)
    assert machine.spawn(add, 1, on="cpu").result(DEADLINE) == 2
    with pytest.raises(ValueError, match="cpu:99"):
        machine.spawn(add, 1, on="cpu:99")
    with pytest.raises(TypeError, match="on must be"):
        machine.spawn(add, 1, on=3)
    with ost.Machine(cpus=8, gpus=0) as other, pytest.raises(ValueError, match="cpu:7"):
        machine.spawn(add, 1, on=other.processor("cpu:7"))


def test_a_spawn_inside_a_capture_is_no_part_of_the_graph(machine):
    with ost.capture() as graph:
        run = machine.spawn(add, 1, 2)
        assert run.result(DEADLINE) == 3
        assert len(graph) == 0
        graph.fill(np.zeros(1), 1.0)


# --- events ---


def test_it_comes_after_an_event(machine):
    event = ost.UserEvent()
    run = machine.spawn(add, 1, 2, after=event)
    assert not run.done()
    assert "after=" in run.stuck()
    event.trigger()
    assert run.result(DEADLINE) == 3
    assert machine.spawn(add, 1, 2, after=event).result(DEADLINE) == 3
    assert machine.spawn(add, 1, 2, after=run).result(DEADLINE) == 3


def test_it_comes_after_a_run_of_a_program(machine):
    x = np.zeros(1)

    @ost.task
    def count(x: ost.ReadWrite):
        x += 1

    @ost.task
    def read(x: ost.Read):
        return float(x[0])

    g = ost.Graph()
    g.task(count, x)
    with g.compile(machine) as program:
        assert machine.spawn(read, x, after=program.submit(100)).result(DEADLINE) == 100
        between = machine.spawn(count, x)
        program.submit(10, after=between).result(DEADLINE)
    assert x[0] == 111


def test_its_event_happens_with_its_end(machine, gate):
    run = machine.spawn(gate.task)
    event = run.event
    assert event is run.event
    assert not event.done
    gate.open.set()
    event.wait(DEADLINE)
    assert event.exception() is None
    assert machine.spawn(add, 1).event.wait(DEADLINE) is None
    run.result()
    assert ost.merge(run, event).done


def test_failures_poison_what_comes_after(machine):
    cause = OSError("the disk is full")
    first = machine.spawn(fail, cause)
    second = machine.spawn(add, 1, after=first)
    third = machine.spawn(add, 1, after=second)
    for run in (second, third):
        error = run.exception(DEADLINE)
        assert isinstance(error, ost.PoisonError)
        assert isinstance(error.__cause__, ost.TaskError)
        assert error.__cause__.__cause__ is cause
        assert "add" in str(error)
        assert "test_spawn.py" in str(error)
        assert run.steps_done == 0
    with pytest.raises(ost.PoisonError):
        third.event.wait()
    assert machine.spawn(add, 1, after=ost.merge(first, ignore_poison=True)).result(DEADLINE) == 2


def test_poison_by_hand_is_told(machine):
    event = ost.UserEvent()
    run = machine.spawn(add, 1, after=event)
    cause = KeyError("by hand")
    event.poison(cause)
    with pytest.raises(ost.PoisonError) as caught:
        run.result(DEADLINE)
    assert caught.value.__cause__ is cause
    assert not run.cancel()


@pytest.mark.slow
def test_a_long_chain_takes_no_stack(single, gate):
    holder = single.spawn(gate.task)
    run = holder
    for _ in range(100_000):
        run = single.spawn(add, 1, after=run)
    gate.open.set()
    assert run.result(DEADLINE) == 2
    event = ost.UserEvent()
    run = event
    for _ in range(100_000):
        run = single.spawn(add, 1, after=run)
    event.poison(ValueError("at the beginning"))
    assert isinstance(run.exception(DEADLINE).__cause__, ValueError)


# --- how it ends ---


def test_a_failure_tells_what_and_where(machine):
    cause = ValueError("no")
    run = machine.spawn(fail, cause)
    with pytest.raises(ost.TaskError, match=r"'fail' raised ValueError: no.*test_spawn\.py") as caught:
        run.result(DEADLINE)
    error = caught.value
    assert error.op.name == "fail"
    assert "test_a_failure_tells" in str(error.op.call_site)
    assert error.step == 0
    assert error.__cause__ is cause
    assert run.exception() is error
    assert run.steps_done == 0
    assert not run.cancelled()
    with pytest.raises(ost.PoisonError) as poisoned:
        run.event.wait()
    assert poisoned.value.__cause__.__cause__ is cause


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit])
def test_exceptions_that_leave_the_program_are_raised_as_themselves(machine, leaving):
    run = machine.spawn(fail, leaving("bye"))
    assert type(run.exception(DEADLINE)) is leaving
    with pytest.raises(leaving):
        run.result()


def test_cancelled_before_it_begins_it_never_does(single, gate):
    seen = []

    @ost.task
    def see(what):
        seen.append(what)

    holder = single.spawn(gate.task)
    assert gate.entered.wait(DEADLINE)
    assert holder.running()
    ready, waiting = single.spawn(see, "ready"), single.spawn(see, "waiting", after=holder)
    last = single.spawn(see, "last")
    assert not ready.running()
    assert "thread" in ready.stuck()
    for run in (ready, waiting):
        assert run.cancel()
        assert run.done()
        assert run.cancelled()
        assert not run.cancel()
        with pytest.raises(CancelledError):
            run.result()
        with pytest.raises(CancelledError):
            run.exception()
    assert ready.event.exception() is not None
    gate.open.set()
    last.result(DEADLINE)
    assert seen == ["last"]


def test_cancelled_while_it_runs_it_ends_as_cancelled(machine, gate):
    run = machine.spawn(gate.task, 1)
    assert gate.entered.wait(DEADLINE)
    assert "running" in run.stuck()
    assert run.cancel()
    assert not run.done()
    assert not run.cancelled()
    gate.open.set()
    with pytest.raises(CancelledError):
        run.result(DEADLINE)
    assert run.cancelled()
    assert isinstance(machine.spawn(add, 1, after=run).exception(DEADLINE), ost.PoisonError)


def test_timeouts(machine, gate):
    run = machine.spawn(gate.task)
    with pytest.raises(TimeoutError, match="gate"):
        run.result(0.01)
    with pytest.raises(TimeoutError):
        run.exception(0)
    gate.open.set()
    run.result(DEADLINE)


def test_callbacks_and_await(machine, gate):
    told, all_told = [], threading.Event()
    run = machine.spawn(gate.task, "value")

    def tell(run):
        told.append((run.result(), threading.get_ident()))
        if len(told) == 2:
            all_told.set()

    run.add_done_callback(tell)
    run.add_done_callback(tell)
    gate.open.set()
    assert all_told.wait(DEADLINE)
    assert [value for value, _ in told] == ["value", "value"]
    assert len({thread for _, thread in told}) == 1
    run.add_done_callback(tell)
    assert told[2] == ("value", threading.get_ident())
    cancelled = machine.spawn(add, 1, after=ost.UserEvent())
    ended = threading.Event()
    cancelled.add_done_callback(lambda run: ended.set())
    cancelled.cancel()
    assert ended.wait(DEADLINE)

    async def main():
        assert await machine.spawn(add, 1, 2) == 3
        with pytest.raises(ost.TaskError):
            await machine.spawn(fail, ValueError())
        return await asyncio.gather(*(machine.spawn(add, i) for i in range(50)))

    assert asyncio.run(main()) == list(range(1, 51))


# --- inside tasks ---


def test_spawning_inside_tasks(machine):
    collected = []

    @ost.task
    def tree(depth):
        if depth == 0:
            collected.append(1)
        else:
            for _ in range(3):
                machine.spawn(tree, depth - 1)

    @ost.task
    def plant(x: ost.ReadWrite):
        machine.spawn(tree, 4)

    g = ost.Graph()
    g.task(plant, np.zeros(1))
    with g.compile(machine) as program:
        program.replay(2)
    machine.spawn(tree, 4)
    limit = time.monotonic() + DEADLINE
    while len(collected) < 3 * 81 and time.monotonic() < limit:
        time.sleep(0.001)
    assert len(collected) == 3 * 81


def test_waiting_inside_raises_and_inside_blocking_ones_does_not(machine):
    x, event = np.zeros(1), ost.UserEvent()

    @ost.task
    def count(x: ost.ReadWrite):
        x += 1

    g = ost.Graph()
    g.task(count, x)
    program = g.compile(machine)
    other = machine.spawn(add, 1)
    other.result(DEADLINE)

    def waits():
        yield lambda: event.wait(DEADLINE)
        yield lambda: other.result(DEADLINE)
        yield lambda: machine.spawn(add, 1).result(DEADLINE)
        yield lambda: program.submit().result(DEADLINE)
        yield lambda: program.replay()

    def body():
        errors = []
        for wait in waits():
            try:
                wait()
            except ost.ContractError as error:
                errors.append(error)
        return len(errors)

    assert machine.spawn(ost.task(body)).result(DEADLINE) == 5
    blocking = machine.spawn(ost.task(blocking=True)(body))
    event.trigger()
    assert blocking.result(DEADLINE) == 0
    program.close()


def test_as_many_blocking_tasks_as_there_are(single):
    n = 20
    barrier = threading.Barrier(n)

    @ost.task(blocking=True)
    def meet():
        barrier.wait(DEADLINE)
        return threading.get_ident()

    threads = {run.result(DEADLINE) for run in [single.spawn(meet) for _ in range(n)]}
    assert len(threads) == n
    again = {run.result(DEADLINE) for run in [single.spawn(meet) for _ in range(n)]}
    assert again & threads  # idle ones are used again


def test_blocking_tasks_are_cancelled_and_poisoned_like_others(machine, gate):
    @ost.task(blocking=True)
    def hold():
        assert gate.open.wait(DEADLINE)

    running, waiting = machine.spawn(hold), machine.spawn(hold, after=ost.UserEvent())
    assert waiting.cancel()
    assert waiting.cancelled()
    assert running.cancel()
    gate.open.set()
    assert running.event.exception() is not None
    poisoned = ost.UserEvent()
    poisoned.poison()
    assert isinstance(machine.spawn(hold, after=poisoned).exception(DEADLINE), ost.PoisonError)


def test_init_runs_once_on_threads_for_blocking_tasks():
    local, count = threading.local(), []

    def init():
        assert not hasattr(local, "made")
        local.made = True
        count.append(threading.get_ident())

    @ost.task(blocking=True)
    def look():
        return local.made and threading.get_ident()

    with ost.Machine(cpus=1, init=init) as machine:
        runs = [machine.spawn(look) for _ in range(50)]
        assert {run.result(DEADLINE) for run in runs} <= set(count)
    assert len(set(count)) == len(count)


# --- machines that end ---


def test_a_closed_machine_takes_no_more(machine):
    closed = ost.Machine(cpus=1)
    run = closed.spawn(add, 1)
    closed.close()
    assert run.result() == 2
    with pytest.raises(RuntimeError, match="closed"):
        closed.spawn(add, 1)


def test_closing_waits_for_what_was_spawned():
    ended = []

    @ost.task
    def slow(i):
        time.sleep(0.01)
        ended.append(i)

    with ost.Machine(cpus=2) as machine:
        event = ost.UserEvent()
        for i in range(10):
            machine.spawn(slow, i, after=event)
        threading.Timer(0.05, event.trigger).start()
    assert sorted(ended) == list(range(10))


def test_leaving_by_an_exception_cancels_what_was_spawned(gate):
    class LeftError(Exception):
        pass

    machine = ost.Machine(cpus=1)
    runs = [machine.spawn(gate.task)]
    assert gate.entered.wait(DEADLINE)
    runs += [machine.spawn(add, 1), machine.spawn(add, 1, after=ost.UserEvent())]
    threading.Timer(0.05, gate.open.set).start()
    with pytest.raises(LeftError), machine:
        raise LeftError
    assert all(run.cancelled() for run in runs)


def test_a_task_cannot_close_its_machine(machine):
    for blocking in (False, True):
        error = machine.spawn(ost.task(blocking=blocking)(machine.close)).exception(DEADLINE)
        assert isinstance(error.__cause__, ost.ContractError)


def test_nobody_needs_to_hold_the_run(machine):
    done = threading.Event()

    @ost.task
    def tell():
        done.set()

    machine.spawn(tell)
    gc.collect()
    assert done.wait(DEADLINE)


def test_a_forgotten_machine_ends_after_what_was_spawned():
    done, event = threading.Event(), ost.UserEvent()

    @ost.task
    def tell():
        done.set()

    machine = ost.Machine(cpus=2)
    gone = weakref.ref(machine)
    machine.spawn(tell, after=event)
    del machine
    gc.collect()
    assert gone() is None
    event.trigger()
    assert done.wait(DEADLINE)


def test_what_it_was_called_with_is_let_go(machine):
    class Thing:
        pass

    def refers(run_it):
        thing = Thing()
        reference = weakref.ref(thing)
        run = run_it(thing)
        del thing
        limit = time.monotonic() + DEADLINE
        while reference() is not None and time.monotonic() < limit:
            gc.collect()
            time.sleep(0.001)
        assert reference() is None
        return run

    @ost.task
    def take(thing):
        return None

    def cancelled(thing):
        run = machine.spawn(take, thing, after=ost.UserEvent())
        run.cancel()
        return run

    def poisoned(thing):
        event = ost.UserEvent()
        event.poison()
        run = machine.spawn(take, thing, after=event)
        assert isinstance(run.exception(DEADLINE), ost.PoisonError)
        return run

    runs = [refers(how) for how in (lambda thing: machine.spawn(take, thing), cancelled, poisoned)]
    assert all(run.done() for run in runs)
    run = machine.spawn(take, None)
    run.event.wait(DEADLINE)
    gone = weakref.ref(run)
    del run
    gc.collect()
    assert gone() is None


def in_a_process(text, status=0):
    prelude = "import gc, os, sys, threading, time\nimport ostinato as ost\n"
    done = subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.stdout, done.returncode, done.stderr) == ("end\n", status, "")


@pytest.mark.parametrize("ending", ["", "del machine", "sys.exit(0)", "machine.spawn(add, 1, after=runs[0])"])
def test_the_interpreter_ends_with_calls_in_every_state(ending):
    in_a_process(
        f"""
        @ost.task
        def add(x):
            return x + 1
        @ost.task
        def slow():
            time.sleep(0.05)
        @ost.task(blocking=True)
        def wait(event):
            event.wait(0.1)
        never = ost.UserEvent()
        machine = ost.Machine(cpus=2)
        runs = [machine.spawn(add, 1, after=never), machine.spawn(add, 1), machine.spawn(slow)]
        runs += [machine.spawn(slow) for _ in range(3)] + [machine.spawn(add, 1, after=runs[0])]
        runs[0].add_done_callback(lambda run: None)
        def wait_quietly():
            try:
                never.wait(0.1)
            except TimeoutError:
                pass
        machine.spawn(ost.task(blocking=True)(wait_quietly))
        print("end", flush=True)
        {ending}
        """
    )


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="sanitizers take all the address space there is")
def test_blocking_tasks_wait_for_threads_where_there_can_be_no_more():
    in_a_process(
        """
        import resource
        @ost.task(blocking=True)
        def nap():
            time.sleep(0.01)
            return threading.get_ident()
        def limit(more):
            with open("/proc/self/statm") as file:
                used = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + more, before[1]))
        before = resource.getrlimit(resource.RLIMIT_AS)
        with ost.Machine(cpus=1) as machine:
            machine.spawn(ost.task(lambda: None)).result()
            limit(4 << 20)  # no stack
            runs = [machine.spawn(nap) for _ in range(10)]
            time.sleep(0.1)
            assert not any(run.done() for run in runs)
            limit(20 << 20)  # a few
            assert 1 <= len({run.result(60) for run in runs}) < 5
            resource.setrlimit(resource.RLIMIT_AS, before)
        print("end")
        """
    )


def test_an_interrupt_while_a_replay_runs_a_call_is_the_replay_s(single):
    @ost.task
    def count(x: ost.ReadWrite):
        x += 1
        replaying.set()

    @ost.task
    def busy():
        begun.set()
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            pass
        return "undisturbed"

    replaying, begun, runs = threading.Event(), threading.Event(), []

    def interrupt():
        replaying.wait(DEADLINE)
        runs.append(single.spawn(busy, priority=1))
        begun.wait(DEADLINE)
        os.kill(os.getpid(), signal.SIGINT)

    g = ost.Graph()
    g.task(count, np.zeros(1))
    with g.compile(single) as program:
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            program.replay(10**9)
        interrupting.join(DEADLINE)
    assert runs[0].result(DEADLINE) == "undisturbed"


@pytest.mark.forks
def test_forks(machine, gate):
    held, ended = machine.spawn(gate.task), machine.spawn(add, 1, on="cpu:0" if len(machine.processors) > 1 else None)
    waiting = machine.spawn(add, 1, after=held)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            refused = 0
            for use in (held.result, held.cancel, waiting.result, lambda: machine.spawn(add, 1)):
                try:
                    use()
                except RuntimeError:
                    refused += 1
            machine.close()
            with ost.Machine(cpus=2) as own:
                status = 0 if refused == 4 and own.spawn(add, 1).result() == 2 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    gate.open.set()
    assert waiting.result(DEADLINE) == 2
    assert ended.result(DEADLINE) == 2


# --- many ---


def resident_kib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.slow
@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="sanitizers keep what was freed")
def test_memory_is_flat_over_100_000_spawns(machine):
    def spawn(n):
        for _ in range(n // 1000):
            runs = [machine.spawn(add, i) for i in range(1000)]
            for run in runs:
                run.result(DEADLINE)

    spawn(10_000)
    before = resident_kib()
    spawn(100_000)
    assert resident_kib() - before < 10_000


def test_spawns_from_many_threads(machine):
    counts = [0] * 8

    @ost.task
    def count(thread):
        counts[thread] += 1  # one after the other, by `after=`

    def spawn(thread):
        run = None
        for _ in range(300):
            run = machine.spawn(count, thread, after=run, priority=thread % 3, on="cpu:0" if thread == 7 else None)
        run.result(DEADLINE)

    threads = [threading.Thread(target=spawn, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert counts == [300] * 8
