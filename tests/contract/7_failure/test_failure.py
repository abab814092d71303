"""The contract's section "Failure", and what bad input gets, sentence by sentence."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest

import ostinato as ost


@ost.task
def add(x: ost.ReadWrite, k):
    x += k


@ost.task(name="fails")
def fail_at(x: ost.ReadWrite, step, at):
    if step == at:
        raise ValueError("by design")
    x += 1


@pytest.fixture(scope="module", params=[1, 2])
def machine(request):
    with ost.Machine(cpus=request.param, gpus=0) as machine:
        yield machine


def failing(machine, at, n=1):
    """A chain a -> b beside a free c; a fails in step `at`."""
    a, b, c = np.zeros(n), np.zeros(n), np.zeros(n)
    g = ost.Graph()

    def down(src, dst):
        dst += 1

    op = g.task(fail_at, a, ost.step, g.param("at", at))
    g.task(down, a, b, access=(ost.Read, ost.ReadWrite), name="down")
    g.task(add, c, 1)
    return g.compile(machine), op, (a, b, c)


def test_one_tree_of_errors():
    for name in ("GraphError", "ContractError", "TaskError", "PoisonError", "DeviceError", "TuningError"):
        assert issubclass(getattr(ost, name), ost.OstinatoError)
    assert issubclass(ost.OstinatoError, Exception)


def test_task_error_has_op_step_cause_and_the_captures_file_and_line(machine):
    program, op, _ = failing(machine, 3)
    with program, pytest.raises(ost.TaskError) as error:
        program.replay(10)
    assert error.value.op is op
    assert error.value.step == 3
    assert isinstance(error.value.__cause__, ValueError)
    assert str(error.value.__cause__) == "by design"
    assert "test_failure.py" in str(error.value)
    line = str(op.call_site).rsplit(":", 1)[-1].split()[0]
    assert line in str(error.value)
    assert "fails" in str(error.value)


def test_cause_has_the_tasks_traceback(machine):
    program, _, _ = failing(machine, 0)
    with program, pytest.raises(ost.TaskError) as error:
        program.replay()
    frame = error.value.__cause__.__traceback__
    names = []
    while frame is not None:
        names.append(frame.tb_frame.f_code.co_name)
        frame = frame.tb_next
    assert "fail_at" in names


def test_stop_everything_else_of_the_steps_already_begun_runs_and_no_further_step_begins(machine):
    program, _, (a, b, c) = failing(machine, 3)
    with program:
        with pytest.raises(ost.TaskError):
            program.replay(10**9)
        assert (a[0], b[0]) == (3, 3)
        assert c[0] >= 4


def test_continue_everything_that_is_not_downstream_runs_to_the_end(machine):
    program, _, (a, b, c) = failing(machine, 3)
    with program, pytest.raises(ost.TaskError) as error:
        program.replay(50, on_error="continue")
    assert error.value.step == 3
    assert (a[0], b[0], c[0]) == (3, 3, 50)


def test_run_ends_when_nothing_unpoisoned_is_left(machine):
    x = np.zeros(1)
    g = ost.Graph()
    g.task(fail_at, x, ost.step, 3)
    with g.compile(machine) as program, pytest.raises(ost.TaskError):
        program.replay(10**9, on_error="continue")
    assert x[0] == 3


def test_poison_reaches_what_is_reachable_along_edges_of_every_kind_and_distance_and_nothing_else(machine):
    ran = [[] for _ in range(4)]

    def work(k, s):
        ran[k].append(s)
        if (k, s) == (0, 2):
            raise KeyError

    g = ost.Graph(infer=False)
    ops = [g.task(work, k, ost.step, access=(None, None)) for k in range(4)]
    g.edge(ops[0], ops[1])
    g.edge(ops[1], ops[2], distance=3)
    with g.compile(machine) as program, pytest.raises(ost.TaskError):
        program.replay(8, on_error="continue")
    every = list(range(8))
    assert sorted(ran[0]) == every
    assert sorted(ran[1]) == [s for s in every if s != 2]
    assert sorted(ran[2]) == [s for s in every if s != 5]
    assert sorted(ran[3]) == every


def test_error_is_the_least_in_step_and_program_order_others_are_notes(machine):
    x, y, z = np.zeros(1), np.zeros(1), np.zeros(1)
    g = ost.Graph()
    g.task(fail_at, x, ost.step, 5, name="late")
    g.task(fail_at, y, ost.step, 2, name="first")
    g.task(fail_at, z, ost.step, 2, name="second")
    with g.compile(machine) as program, pytest.raises(ost.TaskError) as error:
        program.replay(10, on_error="continue")
    assert (error.value.op.name, error.value.step) == ("first", 2)
    notes = "\n".join(error.value.__notes__)
    assert "second" in notes
    assert "late" in notes


def test_poison_reaches_runs_submitted_before_the_failure_was_delivered(machine):
    gate = threading.Event()

    @ost.task(releases_gil=True)
    def wait(x: ost.ReadWrite, s):
        assert gate.wait(60)
        if s == 1:
            raise KeyError("original")
        x += 1

    x = np.zeros(1)
    g = ost.Graph()
    g.task(wait, x, ost.step)
    if len(machine.processors) == 1:
        pytest.skip("the gate would close the only lane")
    with g.compile(machine) as program:
        first, second, third = (program.submit(3) for _ in range(3))
        gate.set()
        with pytest.raises(ost.PoisonError) as error:
            third.result(60)
        cause = error.value
        while cause.__cause__ is not None:
            cause = cause.__cause__
        assert isinstance(cause, KeyError)
        with pytest.raises(ost.TaskError):
            first.result(60)
        assert isinstance(second.exception(60), ost.PoisonError)
        assert x[0] == 1
        assert program.replay(2) == 2  # starts clean
        assert x[0] == 3


@pytest.mark.parametrize("how", ["result", "exception", "replay", "callback", "await"])
def test_run_submitted_after_every_earlier_failure_was_delivered_starts_clean(how, machine):
    program, _, (a, b, _) = failing(machine, 0)
    with program:
        if how == "replay":
            with pytest.raises(ost.TaskError):
                program.replay()
        else:
            run = program.submit()
            if how == "result":
                with pytest.raises(ost.TaskError):
                    run.result(60)
            elif how == "exception":
                assert isinstance(run.exception(60), ost.TaskError)
            elif how == "callback":
                called = threading.Event()
                run.add_done_callback(lambda r: called.set())
                assert called.wait(60)
            else:
                import asyncio

                async def main():
                    await run

                with pytest.raises(ost.TaskError):
                    asyncio.run(main())
        for _ in range(3):
            assert program.replay(2) == 2
        assert (a[0], b[0]) == (6, 6)


def test_program_and_machine_stay_usable_through_many_failures(machine):
    program, _, (_, _, c) = failing(machine, -1)
    x = np.zeros(1)
    g = ost.Graph()
    g.task(add, x, 1)
    with program, g.compile(machine) as other:
        step = 0
        for _ in range(30):
            with pytest.raises(ost.TaskError) as error:
                program.replay(20, at=step)
            assert error.value.step == step
            step = _next_step(program)
            other.replay()
    assert x[0] == 30
    assert c[0] >= 30


def _next_step(program):
    seen = program.trace(1, at=-1).to_dict()
    events = seen["traceEvents"]
    return 1 + max(e["args"]["step"] for e in events if "step" in e.get("args", {}))


def test_same_exception_object_is_not_shared_between_results(machine):
    program, _, _ = failing(machine, 0)
    with program:
        run = program.submit()
        for _ in range(3):
            with pytest.raises(ost.TaskError) as error:
                run.result()
        depth, frame = 0, error.value.__traceback__
        while frame is not None:
            depth, frame = depth + 1, frame.tb_next
        assert depth < 20


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("on", ["cpu:0", "cpu:1"])
def test_keyboard_interrupt_or_system_exit_out_of_a_task_cancels_the_run_and_is_raised_as_itself(kind, on, machine):
    if len(machine.processors) == 1 and on == "cpu:1":
        pytest.skip("one processor")
    x = np.zeros(1)

    @ost.task
    def stop(x: ost.ReadWrite, s):
        x += 1
        if s == 3:
            raise kind(7)

    g = ost.Graph()
    g.task(stop, x, ost.step, on=on)
    with g.compile(machine) as program:
        with pytest.raises(kind) as error:
            program.replay(10**9)
        assert error.value.args == (7,)
        program.replay(2)
        run = program.submit(3)
        assert run.result(60) == 3


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_the_same_of_a_submitted_run(kind, machine):
    @ost.task
    def stop(s):
        if s == 3:
            raise kind(7)

    g = ost.Graph()
    g.task(stop, ost.step)
    with g.compile(machine) as program:
        run = program.submit(10**9)
        with pytest.raises(kind):
            run.result(60)
        assert isinstance(run.exception(60), kind)


@pytest.mark.parametrize(
    "kind", [GeneratorExit, StopIteration, CancelledError, MemoryError, RecursionError, BaseException]
)
def test_any_exception_out_of_a_task_is_a_cause(kind, machine):
    def boom():
        raise kind("x")

    g = ost.Graph()
    g.task(boom, access=())
    with g.compile(machine) as program:
        with pytest.raises(ost.TaskError) as error:
            program.replay()
        assert isinstance(error.value.__cause__, kind)


def test_endless_recursion_in_a_task_is_a_task_error(machine):
    def deep():
        deep()

    g = ost.Graph()
    g.task(deep, access=(), on=f"cpu:{len(machine.processors) - 1}")
    gc.collect()  # garbage of other tests: its finalizers would run where no further call is possible
    with g.compile(machine) as program, pytest.raises(ost.TaskError) as error:
        program.replay()
    assert isinstance(error.value.__cause__, RecursionError)


def test_until_that_never_comes_because_its_writer_failed(machine):
    flag, n = np.zeros(1), np.zeros(1)
    g = ost.Graph()
    g.task(fail_at, n, ost.step, 3)
    g.task(lambda n, f: f.fill(n[0] >= 100), n, flag, access=(ost.Read, ost.Write))
    g.until(flag)
    for on_error in ("stop", "continue"):
        n[0] = 0
        with g.compile(machine) as program, pytest.raises(ost.TaskError):
            program.replay(1000, on_error=on_error)
        assert n[0] == 3


def test_task_writes_what_it_declared_read_raises_at_once_everywhere(machine):
    @ost.task
    def liar(x: ost.Read):
        x += 1

    x = np.zeros(2)
    with pytest.raises(ValueError, match="read-only"):
        liar(x)
    with ost.capture() as g:
        liar(x)
    with g.compile(machine) as program:
        for _ in range(2):
            with pytest.raises(ost.TaskError, match="read-only"):
                program.replay()
    assert (x == 0).all()


def test_more_lanes_than_cores_says_so_in_explain():
    import os

    n = len(os.sched_getaffinity(0)) * 2 + 2
    x = np.zeros(n)
    g = ost.Graph()

    @ost.task(releases_gil=True)
    def own(x: ost.ReadWrite):
        x += 1

    for k in range(n):
        g.task(own, x[k : k + 1], on=f"cpu:{k}")
    with ost.Machine(cpus=n) as machine, g.compile(machine) as program:
        program.replay(20)
        text = program.explain().lower()
    assert (x == 20).all()
    assert "core" in text


def test_failures_of_a_hundred_thousand_steps_stay_bounded(machine):
    g = ost.Graph()

    def bad(s):
        raise ValueError(s)

    g.task(bad, ost.step, access=(None,))
    h = ost.Graph(infer=False)
    h.task(bad, ost.step, access=(None,))
    with h.compile(machine) as program, pytest.raises(ost.TaskError) as error:
        program.replay(20_000, on_error="continue")
    assert error.value.step == 0
    assert len("".join(error.value.__notes__)) < 100_000


def test_task_error_pickles(machine):
    import pickle

    program, _, _ = failing(machine, 0)
    with program, pytest.raises(ost.TaskError) as error:
        program.replay()
    copied = pickle.loads(pickle.dumps(ost.TaskError("m", None, 3)))
    assert copied.step == 3
    assert error.value.step == 0
