"""The contract's section "Programs and runs", sentence by sentence."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import json
import threading
import time
import weakref

import numpy as np
import pytest

import ostinato as ost


@ost.task(releases_gil=True)
def add(x: ost.ReadWrite, k):
    x += k


@ost.task
def copy(src: ost.Read, dst: ost.Write):
    dst[...] = src


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2) as machine:
        yield machine


@pytest.fixture
def counter(machine):
    """A program that adds 1 to each of 4 numbers, and the numbers."""
    x = np.zeros(4)
    g = ost.Graph()
    for k in range(4):
        g.task(add, x[k : k + 1], g.param("k", 1))
    with g.compile(machine) as program:
        yield program, x


@pytest.fixture
def gated(machine):
    """A program whose step 0 waits for a gate."""
    gate, x = threading.Event(), np.zeros(1)

    @ost.task(releases_gil=True)
    def wait(x: ost.ReadWrite):
        assert gate.wait(60)
        x += 1

    g = ost.Graph()
    g.task(wait, x, on="cpu:1")
    program = g.compile(machine)
    yield program, gate, x
    gate.set()
    program.close()


def test_step_numbers_count_over_the_programs_life(counter, machine):
    seen = []
    g = ost.Graph()
    g.task(seen.append, ost.step, access=(None,))
    with g.compile(machine) as program:
        program.replay(2)
        program.submit(2).result()
        program.replay(0)
        program.replay(1)
    assert seen == list(range(5))


def test_steps_zero_does_nothing_and_returns_0(counter):
    program, x = counter
    assert program.replay(0) == 0
    assert program.submit(0).result() == 0
    assert (x == 0).all()


@pytest.mark.parametrize("bad", [-1, 1.5, "3", None, [1]])
def test_steps_is_checked(bad, counter):
    program, _ = counter
    for call in (program.replay, program.submit, program.trace, program.verify):
        with pytest.raises((TypeError, ValueError)):
            call(bad)


def test_steps_defaults_to_1_and_may_be_any_index(counter):
    program, x = counter
    assert program.replay() == 1
    assert program.submit().result() == 1
    assert program.replay(np.int32(3)) == 3
    assert program.replay(steps=2) == 2
    assert (x == 7).all()


def test_replay_returns_an_int(counter):
    assert type(counter[0].replay(3)) is int


def test_arguments_after_steps_are_keywords_only(counter):
    program, _ = counter
    for call in (program.replay, program.submit, program.trace):
        with pytest.raises(TypeError):
            call(1, None)


@pytest.mark.parametrize("bad", ["ignore", None, 3])
def test_on_error_is_checked(bad, counter):
    program, _ = counter
    for call in (program.replay, program.submit):
        with pytest.raises((TypeError, ValueError)):
            call(1, on_error=bad)


@pytest.mark.parametrize("bad", ["high", None, 1.5])
def test_priority_is_checked(bad, counter):
    program, _ = counter
    for call in (program.replay, program.submit):
        with pytest.raises((TypeError, ValueError)):
            call(1, priority=bad)


def test_priority_is_any_int(counter):
    program, x = counter
    for priority in (-5, 0, 7, 1000):
        program.replay(priority=priority)
        program.submit(priority=priority).result()
    assert (x == 8).all()


def test_progress_shows_a_bar_and_does_not_change_the_result(counter, capfd):
    program, x = counter
    assert program.replay(50, progress=True) == 50
    assert (x == 50).all()
    capfd.readouterr()


def test_params_hold_for_all_steps_of_the_run(counter):
    program, x = counter
    runs = [program.submit(3, k=k) for k in (1, 10, 100)]
    assert [run.result() for run in runs] == [3, 3, 3]
    assert (x == 333).all()


def test_submit_returns_at_once_and_runs_go_in_submission_order(gated):
    program, gate, x = gated
    first, second = program.submit(2), program.submit(3)
    assert not first.done()
    assert not second.done()
    gate.set()
    assert second.result(60) == 3
    assert first.done()
    assert x[0] == 5


def test_submit_from_any_thread(counter):
    program, x = counter
    runs, lock = [], threading.Lock()

    def work():
        for _ in range(25):
            run = program.submit(3)
            with lock:
                runs.append(run)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(run.result(60) for run in runs) == 450
    assert (x == 450).all()


def test_replay_from_many_threads(counter):
    program, x = counter
    threads = [threading.Thread(target=lambda: [program.replay(4) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (x == 320).all()


def test_submit_from_a_running_task_is_allowed(counter, machine):
    program, x = counter
    runs = []
    g = ost.Graph()
    g.task(lambda: runs.append(program.submit(2)), access=())
    with g.compile(machine) as outer:
        outer.replay(3)
    assert [run.result(60) for run in runs] == [2, 2, 2]
    assert (x == 6).all()


def test_waiting_in_a_task_is_a_contract_error_whether_done_or_not(counter, machine):
    program, _ = counter
    done = program.submit(1)
    done.result()
    for wait in (done.result, done.exception, program.replay, lambda: program.submit(1).result()):
        g = ost.Graph()
        g.task(wait, access=())
        with g.compile(machine) as outer, pytest.raises(ost.TaskError) as error:
            outer.replay()
        assert isinstance(error.value.__cause__, ost.ContractError)


# Run


def test_run_as_a_future(counter):
    program, _ = counter
    run = program.submit(5)
    assert isinstance(run, ost.Run)
    assert run.result() == 5
    assert run.result(timeout=0) == 5
    assert run.exception() is None
    assert run.done() is True
    assert run.running() is False
    assert run.cancelled() is False
    assert run.steps_done == 5


def test_run_not_done(gated):
    program, gate, _ = gated
    run = program.submit(4)
    assert run.done() is False
    with pytest.raises(TimeoutError):
        run.result(timeout=0.001)
    with pytest.raises(TimeoutError):
        run.exception(timeout=0)
    with pytest.raises(TimeoutError):
        run.result(0)
    assert run.steps_done == 0
    assert isinstance(run.stuck(), str)
    gate.set()
    assert run.result(60) == 4


def test_timeout_is_checked(gated):
    program, _, _ = gated
    run = program.submit()
    with pytest.raises(TypeError):
        run.result(timeout="x")


def test_negative_timeout_is_as_zero(gated):
    program, _, _ = gated
    with pytest.raises(TimeoutError):
        program.submit().result(-1)


def test_running_is_true_while_it_runs(gated):
    program, gate, _ = gated
    run = program.submit(1)
    while not run.running():
        time.sleep(0.001)
    gate.set()
    assert run.result(60) == 1
    assert run.running() is False


def test_callbacks_get_the_run_once_each_in_order(gated):
    program, gate, _ = gated
    seen, finished = [], threading.Event()
    run = program.submit()
    run.add_done_callback(lambda r: seen.append((1, r is run)))
    run.add_done_callback(lambda r: seen.append((2, r.done())))
    run.add_done_callback(lambda r: finished.set())
    assert seen == []
    gate.set()
    assert finished.wait(60)
    assert seen == [(1, True), (2, True)]


def test_callback_on_a_done_run_is_called_at_once(counter):
    run = counter[0].submit()
    run.result()
    seen = []
    run.add_done_callback(seen.append)
    assert seen == [run]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_callback_that_raises_harms_nobody(gated, caplog, capfd):
    program, gate, _ = gated
    run = program.submit()
    finished = threading.Event()
    run.add_done_callback(lambda r: 1 / 0)
    run.add_done_callback(lambda r: finished.set())
    gate.set()
    assert finished.wait(60)
    assert run.result() == 1
    run.add_done_callback(lambda r: 1 / 0)  # as in concurrent.futures: told, not raised


def test_callback_must_be_callable(counter):
    with pytest.raises(TypeError):
        counter[0].submit().add_done_callback(3)


def test_callback_may_submit_and_read_the_result(counter):
    program, _ = counter
    finished, results = threading.Event(), []

    def again(run):
        results.append(run.result())
        program.submit(2).add_done_callback(lambda r: (results.append(r.result()), finished.set()))

    program.submit(1).add_done_callback(again)
    assert finished.wait(60)
    assert results == [1, 2]


def test_run_is_awaitable(counter):
    program, _ = counter

    async def main():
        run = program.submit(5)
        first = await run
        second = await run
        return first, second

    assert asyncio.run(main()) == (5, 5)


@pytest.mark.parametrize("how", ["the run", "a coroutine", "a task"])
def test_cancelling_an_await_cancels_the_run(gated, how):
    program, gate, _ = gated

    async def main():
        run = program.submit(2)

        async def wait():
            return await run

        if how == "a task":
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run if how == "the run" else wait(), 0.001)
        gate.set()
        return run

    run = asyncio.run(main())
    with pytest.raises(concurrent.futures.CancelledError):
        run.result(60)
    assert run.cancelled()


def test_cancelling_an_await_of_the_event_leaves_the_run_alone(gated):
    program, gate, _ = gated

    async def main():
        run = program.submit(2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run.event, 0.001)
        gate.set()
        return await run

    assert asyncio.run(main()) == 2


def test_many_awaiters_from_several_loops(counter):
    program, _ = counter
    run = program.submit(20)
    results = []

    async def wait():
        async def one():
            return await run

        return await asyncio.gather(*(one() for _ in range(5)))

    threads = [threading.Thread(target=lambda: results.extend(asyncio.run(wait()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [20] * 15


def test_await_raises_the_task_error(machine):
    g = ost.Graph()
    g.task(lambda: 1 / 0, access=())

    async def main(program):
        with pytest.raises(ost.TaskError):
            await program.submit()

    with g.compile(machine) as program:
        asyncio.run(main(program))
        run = program.submit()
        assert isinstance(run.exception(), ost.TaskError)


def test_cancel_is_false_once_done_else_true(counter):
    program, x = counter
    run = program.submit(1)
    run.result()
    assert run.cancel() is False
    run = program.submit(10**12)
    assert run.cancel() is True
    with pytest.raises(concurrent.futures.CancelledError):
        run.result(60)
    assert run.cancelled() is True
    assert run.done() is True
    assert run.running() is False
    assert run.cancel() is False
    assert len(set(x.tolist())) == 1  # a whole number of steps
    assert x[0] == run.steps_done + 1
    with pytest.raises(concurrent.futures.CancelledError):
        run.exception()
    assert program.replay(3) == 3


def test_cancel_of_a_run_that_has_not_begun(gated):
    program, gate, x = gated
    first, second, third = program.submit(1), program.submit(5), program.submit(1)
    assert second.cancel() is True
    gate.set()
    assert first.result(60) == 1
    assert third.result(60) == 1
    assert second.cancelled()
    assert x[0] == 2 + second.steps_done


def test_await_of_a_cancelled_run_raises(counter):
    program, _ = counter

    async def main():
        run = program.submit(10**12)
        run.cancel()
        with pytest.raises((asyncio.CancelledError, concurrent.futures.CancelledError)):
            await run

    asyncio.run(main())


def test_cancel_from_a_task_and_from_many_threads(machine):
    x, box = np.zeros(1), []

    def stop(x):
        x += 1
        if x[0] == 5:
            box[0].cancel()

    g = ost.Graph()
    gate = threading.Event()
    g.task(lambda: gate.wait(60), access=())
    g.task(stop, x, access=(ost.ReadWrite,))
    with g.compile(machine) as program:
        box.append(program.submit(10**9))
        gate.set()
        with pytest.raises(concurrent.futures.CancelledError):
            box[0].result(60)
        assert x[0] >= 5
        run = program.submit(10**9)
        threads = [threading.Thread(target=run.cancel) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(concurrent.futures.CancelledError):
            run.result(60)


# close, homes


def test_close_waits_for_its_runs(counter):
    program, x = counter
    run = program.submit(300)
    program.close()
    assert run.done()
    assert (x == 300).all()


def test_program_left_by_an_exception_cancels_first(machine):
    g = ost.Graph()
    g.task(add, np.zeros(1), 1)
    with pytest.raises(KeyError), g.compile(machine) as program:  # noqa: PT012
        run = program.submit(10**12)
        raise KeyError
    assert run.cancelled()


def test_run_that_starts_after_the_one_before_was_done_sees_changes_others_made(counter):
    program, x = counter
    program.replay(2)
    x[:] = 100
    program.replay(2)
    assert (x == 102).all()


def test_close_raises_no_failures():
    machine = ost.Machine(cpus=2)
    g = ost.Graph()
    g.task(lambda: 1 / 0, access=())
    program = g.compile(machine)
    program.submit(3)
    program.close()
    machine.close()


# rebind


def test_rebind_for_runs_submitted_from_now_on(machine):
    a, b, out = np.zeros(4), np.full(4, 10.0), np.zeros(4)
    g = ost.Graph()
    g.task(add, a[:2], 1)
    g.task(copy, a, out)
    with g.compile(machine) as program:
        program.submit(5)
        program.rebind([(a, b)])
        program.submit(2).result()
        assert out.tolist() == [12, 12, 10, 10]  # views follow their base
        assert a.tolist() == [5, 5, 0, 0]
        program.rebind([(b, a)])
        program.replay()
        assert out.tolist() == [6, 6, 0, 0]


def test_rebind_while_a_run_is_in_flight(gated):
    program, gate, x = gated
    y = np.zeros(1)
    first = program.submit(3)
    program.rebind([(x, y)])
    second = program.submit(4)
    gate.set()
    assert (first.result(60), second.result(60)) == (3, 4)
    assert (x[0], y[0]) == (3, 4)


def adding_to(machine, x):
    graph = ost.Graph()
    graph.task(np.add, x, 1, x, access=(ost.Read, None, ost.Write))
    return graph.compile(machine)


def misaligned(shape, dtype=np.float64):
    """An array that begins one byte too late."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.zeros(size + 1, np.uint8)[1:].view(dtype).reshape(shape)


def test_a_misaligned_array_does_not_stand_for_an_aligned_one(machine):
    x = np.zeros(4)
    program = adding_to(machine, x)
    with pytest.raises(ost.GraphError, match="multiple of 8 bytes"):
        program.rebind([(x, misaligned(4))])
    program.replay()
    assert x.tolist() == [1.0] * 4
    program.rebind([(x, np.zeros(5)[1:])])  # aligned, though not to a cache line


def test_nor_where_a_view_of_it_is_aligned(machine):
    room = np.zeros(32, np.uint8)
    program = adding_to(machine, room.view(np.float64))
    with pytest.raises(ost.GraphError, match="multiple of 8 bytes"):
        program.rebind([(room, np.zeros(33, np.uint8)[1:])])


def test_any_array_stands_for_a_misaligned_one(machine):
    x = misaligned(4)
    program = adding_to(machine, x)
    for new in (misaligned(4), np.zeros(4)):
        program.rebind([(x, new)])
        program.replay()
        assert new.tolist() == [1.0] * 4


def test_rebind_that_does_not_fit_is_a_graph_error_and_changes_nothing(machine):
    a, c = np.zeros((2, 4)), np.zeros(4)
    g = ost.Graph()
    g.task(add, a, 1)
    g.task(add, c, 1)
    both = np.zeros(16)
    with g.compile(machine) as program:
        for old, new in [
            (a, np.zeros((4, 2))),
            (a, np.zeros((2, 4), "f4")),
            (a, np.zeros((2, 4), order="F")),
            (a, np.zeros((2, 8))[:, ::2]),
            (c, a[0]),
            (np.zeros(4), np.ones(4)),
        ]:
            with pytest.raises(ost.GraphError):
                program.rebind([(old, new)])
        with pytest.raises(ost.GraphError):
            program.rebind([(a, both[:8].reshape(2, 4)), (c, both[4:8])])
        for bad in (3, [a], [(a, 3)]):
            with pytest.raises((TypeError, ValueError)):
                program.rebind(bad)
        program.replay()
    assert a.sum() + c.sum() == 12


def test_rebind_releases_the_old_array_when_its_runs_have_ended(machine):
    old, new = np.zeros(4), np.zeros(4)
    with ost.capture() as g:
        add(old, 1)
    with g.compile(machine) as program:
        del g
        program.replay()
        program.rebind([(old, new)])
        program.replay()
        ref = weakref.ref(old)
        del old
        gc.collect()
        assert ref() is None
        program.replay()
    assert new[0] == 2


# verify


def test_verify_of_a_right_program_leaves_the_arrays_as_they_were(counter):
    program, x = counter
    x[:] = 7
    assert program.verify()
    program.verify(5, k=3)
    assert (x == 7).all()
    assert program.replay() == 1


def test_verify_finds_writes_to_arrays_not_declared_so(machine):
    a, hidden = np.zeros(4), np.zeros(4)

    @ost.task(name="sneaky")
    def sneaky(x: ost.ReadWrite):
        x += 1
        hidden[0] += x[0]

    g = ost.Graph()
    g.task(sneaky, a)
    g.task(copy, hidden, np.zeros(4))
    with g.compile(machine) as program, pytest.raises(ost.ContractError, match="sneaky"):
        program.verify(2)
    assert a[0] == 0


def test_verify_finds_unwritten_parts_of_a_write_region(machine):
    a, b = np.zeros(4), np.zeros(4)

    @ost.task(name="lazy")
    def lazy(src: ost.Read, dst: ost.Write):
        dst[1:] = src[1:]

    g = ost.Graph()
    g.task(lazy, a, b)
    with g.compile(machine) as program, pytest.raises(ost.ContractError, match="lazy") as error:
        program.verify()
    assert "dst" in str(error.value) or "shape" in str(error.value)
    assert (b == 0).all()


def test_verify_with_rings_until_params_and_tokens(machine):
    a, b, flag = np.zeros(4), np.ones(4), np.zeros(1)

    @ost.task
    def step_(src: ost.Read, dst: ost.Write, flag: ost.Write, s, k):
        dst[...] = src + k
        flag[0] = s == 3

    g = ost.Graph()
    r = g.ring(a, b)
    g.task(step_, r[0], r[1], flag, ost.step, g.param("k", 2))
    g.until(flag)
    with g.compile(machine) as program:
        program.verify(10)
        program.verify(3, params={"k": 4})
        assert program.replay(10) == 4


# explain, statistics, trace


def test_explain_is_text(counter):
    program, _ = counter
    text = program.explain()
    assert isinstance(text, str)
    for word in ("lane", "wait", "cost"):
        assert word in text.lower()


def test_statistics_is_an_immutable_snapshot(counter):
    program, _ = counter
    before = program.statistics()
    program.replay(10)
    after = program.statistics()
    assert before != after
    names = [n for n in dir(after) if not n.startswith("_") and isinstance(getattr(after, n), int)]
    assert names
    for name in names:
        with pytest.raises((AttributeError, TypeError)):
            setattr(after, name, 0)
    assert program.statistics() == after


def test_trace_saves_and_plots(counter, tmp_path):
    program, x = counter
    trace = program.trace(3, k=2)
    assert (x == 6).all()
    trace.save(tmp_path / "a.json")
    trace.save(str(tmp_path / "b.json"))
    data = json.loads((tmp_path / "a.json").read_text())
    events = data["traceEvents"] if isinstance(data, dict) else data
    spans = [e for e in events if e.get("ph") == "X"]
    assert len(spans) >= 12
    assert all({"name", "ts", "dur", "pid", "tid"} <= set(e) for e in spans)
    assert json.loads(json.dumps(trace.to_dict())) == data
    pytest.importorskip("matplotlib")
    trace.plot(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_trace_save_to_a_place_that_is_not_there_raises_oserror(counter, tmp_path):
    trace = counter[0].trace()
    with pytest.raises(OSError):  # noqa: PT011
        trace.save(tmp_path / "missing" / "a.json")
    with pytest.raises(OSError):  # noqa: PT011
        trace.save("/dev/full")


def test_trace_of_a_failing_program_raises(machine):
    g = ost.Graph()
    g.task(lambda: 1 / 0, access=())
    with g.compile(machine) as program, pytest.raises(ost.TaskError):
        program.trace(2)


def test_trace_of_an_empty_program(machine, tmp_path):
    with ost.Graph().compile(machine) as program:
        trace = program.trace(3)
        trace.save(tmp_path / "a.json")
        json.loads((tmp_path / "a.json").read_text())


# what a run carries


def test_contextvars_of_the_submitter(machine):
    var, seen = contextvars.ContextVar("var", default=0), []
    g = ost.Graph()
    g.task(lambda: seen.append(var.get()), access=(), on="cpu:1")
    g.task(lambda: seen.append(var.get()), access=(), on="cpu:0")
    with g.compile(machine) as program:
        token = var.set(5)
        run = program.submit(1)
        var.reset(token)
        run.result()
        program.replay()
        var.set(6)
        program.replay()
        var.set(0)
    assert seen == [5, 5, 0, 0, 6, 6]


def test_numpy_errstate_of_the_submitter(machine):
    x = np.zeros(1)
    g = ost.Graph()
    g.task(lambda x: 1 / x, x, access=(ost.Read,), on="cpu:1")
    with g.compile(machine) as program:
        with np.errstate(divide="ignore"):
            program.replay()
        with np.errstate(divide="raise"), pytest.raises(ost.TaskError) as error:
            program.replay()
        assert isinstance(error.value.__cause__, FloatingPointError)


def test_floating_point_environment_of_the_submitter(machine):
    import ctypes
    import platform

    if platform.machine() != "x86_64":
        pytest.skip("rounding modes by number")
    libm = ctypes.CDLL("libm.so.6")
    seen = []
    g = ost.Graph()
    g.task(lambda: seen.append(libm.fegetround()), access=(), on="cpu:1")
    g.task(lambda: seen.append(libm.fegetround()), access=(), on="cpu:0")
    with g.compile(machine) as program:
        try:
            libm.fesetround(0x800)
            run = program.submit()
        finally:
            libm.fesetround(0)
        run.result()
        program.replay()
        assert libm.fegetround() == 0
    assert seen == [0x800, 0x800, 0, 0]


def test_programs_and_runs_are_collected(machine):
    x = np.zeros(1)
    g = ost.Graph()
    g.task(add, x, 1)
    program = g.compile(machine)
    run = program.submit(3)
    run.result()
    ref = weakref.ref(x)
    program.close()
    del g, program, run, x
    gc.collect()
    assert ref() is None


@pytest.mark.parametrize("steps", [2**63, 2**64, 10**30])
def test_steps_beyond_all_bounds_are_a_value_error(steps, counter):
    program, _ = counter
    for call in (program.replay, program.submit):
        with pytest.raises((ValueError, OverflowError)):
            call(steps)


def test_run_that_outlives_the_event_loop_that_awaited_it(gated, caplog):
    program, gate, _ = gated
    run = program.submit()

    async def main():
        async def wait():
            await run

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(main())
    finished = threading.Event()
    run.add_done_callback(lambda r: finished.set())
    gate.set()
    assert finished.wait(60)
    with pytest.raises(concurrent.futures.CancelledError):
        run.result(60)
    assert not caplog.records


def test_replay_and_close_in_a_callback(counter):
    program, x = counter
    told, finished = [], threading.Event()

    def again(run):
        told.append(program.replay(2))
        program.close()
        finished.set()

    program.submit().add_done_callback(again)
    assert finished.wait(60)
    assert told == [2]
    assert (x == 3).all()


def test_cancel_ends_at_the_next_op_boundary_if_the_step_takes_long(machine):
    x, first = np.zeros(1), threading.Event()

    def slow(x):
        first.set()
        time.sleep(0.04)
        x += 1

    g = ost.Graph()
    for _ in range(100):
        g.task(slow, x, access=(ost.ReadWrite,))
    with g.compile(machine) as program:
        run = program.submit(3)
        first.wait(60)
        assert run.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            run.result(60)
    assert x[0] < 100


def test_close_while_others_submit_and_rebind(machine):
    wrong = []
    for _ in range(5):
        x, y = np.zeros(1), np.zeros(1)
        g = ost.Graph()
        g.task(add, x, 1)
        program = g.compile(machine)
        done = [0, 0, 0]

        def work(k, program=program, done=done):
            try:
                while True:
                    program.submit(3)
                    done[k] += 3
            except RuntimeError:
                pass
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        program.rebind([(x, y)])
        program.rebind([(y, x)])
        program.close()
        for thread in threads:
            thread.join()
        assert x[0] + y[0] == sum(done)
    assert not wrong


def test_verify_finds_a_native_habit_writing_past_the_end_of_a_tile(machine):
    base = np.zeros((8, 8))

    def over(a):
        a[...] = 1
        np.lib.stride_tricks.as_strided(a, (8, 5))[:, 4] = 7

    g = ost.Graph()
    g.task(over, base[:, :4], access=(ost.Write,), name="over")
    g.task(lambda a: None, base, access=(ost.Read,))
    with g.compile(machine) as program, pytest.raises(ost.ContractError, match="over"):
        program.verify(2)
    assert (base == 0).all()
