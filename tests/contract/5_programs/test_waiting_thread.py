"""A thread in `result` may do a short run or call itself; nothing but the time that it takes may tell."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import sys
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import numpy as np
import pytest

import ostinato as ost

TRIES = 3000
"""Whether a thread does the work itself is a matter of the clock: so often it is tried."""


def program_of(machine, function):
    graph = ost.Graph()
    graph.task(function, access=())
    return graph.compile(machine)


@pytest.fixture(params=["spawn", "submit", "submit, concurrent"])
def starting(request, machine):
    """Makes of a function without arguments one that starts it, and returns the run."""
    programs = []

    def starting(function):
        task = ost.task(function)
        if request.param == "spawn":
            return lambda: machine.spawn(task)
        runs = "concurrent" if "concurrent" in request.param else "pipelined"
        graph = ost.Graph()
        graph.task(task)
        programs.append(graph.compile(machine, runs=runs))
        return programs[-1].submit

    yield starting
    for program in programs:
        program.close()


def until_here(start, ran, tries=TRIES):
    """Start and wait until the waiting thread has done the work itself; return the run, or None."""
    for _ in range(tries):
        run = start()
        run.result()
        if ran[-1] == threading.get_ident():
            return run
    return None


def test_the_waiting_thread_does_short_work_itself(starting):
    ran = []
    start = starting(lambda: ran.append(threading.get_ident()))
    assert until_here(start, ran) is not None


def test_a_run_that_is_waited_for_with_a_limit_is_left_to_workers(starting):
    ran = []
    start = starting(lambda: ran.append(threading.get_ident()))
    until_here(start, ran)
    del ran[:]
    for _ in range(100):
        start().result(timeout=60)
    assert len(ran) == 100
    assert threading.get_ident() not in ran


def test_long_work_is_left_to_workers(starting):
    ran = []

    def work():
        ran.append(threading.get_ident())
        time.sleep(0.002)

    start = starting(work)
    for _ in range(20):
        start().result()
    assert threading.get_ident() not in ran[1:]  # the first may be at the address of a function that was short


def test_work_has_the_context_that_it_was_started_in(starting):
    variable = contextvars.ContextVar("variable")
    ran, found = [], []

    def work():
        ran.append(threading.get_ident())
        found.append(variable.get())
        variable.set("by the task")

    start = starting(work)
    variable.set(0)
    assert until_here(start, ran)
    for value in range(200):
        variable.set(value)
        run = start()
        variable.set("later")
        run.result()
        assert found[-1] == value
        assert variable.get() == "later"


def test_what_work_raises_does_not_lead_to_what_the_waiting_thread_handles(starting):
    ran, fails, handled = [], [], []

    def work():
        ran.append(threading.get_ident())
        handled.append(sys.exc_info()[1])
        if fails:
            raise KeyError("of the task")

    start = starting(work)
    try:
        raise ValueError("handled outside")
    except ValueError as outside:
        assert until_here(start, ran)
        assert not any(handled)
        fails.append(True)
        for _ in range(50):
            with pytest.raises(ost.TaskError) as failed:
                start().result()
            assert isinstance(failed.value.__cause__, KeyError)
            assert failed.value.__cause__.__context__ is None
        kept = sys.exc_info()[1] is outside
    assert kept


def test_work_may_not_wait_on_the_waiting_thread_either(starting):
    ran, errors, never = [], [], ost.UserEvent()

    def work():
        ran.append(threading.get_ident())
        try:
            never.wait()
        except ost.ContractError as error:
            errors.append(error)

    assert until_here(starting(work), ran)
    assert len(errors) == len(ran)


def test_ctrl_c_is_raised_when_the_work_is_done(starting):
    ran, interrupting, ended = [], [], []

    def work():
        ran.append(threading.get_ident())
        if interrupting and ran[-1] == threading.main_thread().ident:
            signal.raise_signal(signal.SIGINT)
        ended.append(True)

    start = starting(work)
    assert until_here(start, ran)
    interrupting.append(True)
    for _ in range(TRIES):
        run = start()
        try:
            run.result()
        except KeyboardInterrupt:
            break
    else:
        pytest.fail("never interrupted")
    run.result()
    assert run.exception() is None
    assert len(ended) == len(ran)
    interrupting.clear()
    start().result()


def test_an_exit_is_raised_as_itself(starting):
    ran, leaving = [], []

    def work():
        ran.append(threading.get_ident())
        if leaving:
            raise SystemExit(3)

    start = starting(work)
    assert until_here(start, ran)
    leaving.append(True)
    with pytest.raises(SystemExit):
        start().result()


def test_cancelled_work_is_not_done(machine):
    ran = []
    task = ost.task(lambda: ran.append(threading.get_ident()))
    assert until_here(lambda: machine.spawn(task), ran)
    for _ in range(300):
        before = len(ran)
        run = machine.spawn(task)
        if run.cancel():
            with pytest.raises(CancelledError):
                run.result()
        else:
            run.result()
        assert len(ran) - before in ((0, 1) if run.cancelled() else (1,))


def test_awaiting_and_callbacks_go_on(starting):
    ran = []
    start = starting(lambda: ran.append(threading.get_ident()))
    until_here(start, ran)

    async def awaits():
        for _ in range(50):
            await start()
            await asyncio.gather(*(start() for _ in range(5)))

    before = len(ran)
    asyncio.run(awaits())
    assert len(ran) - before == 300
    told = threading.Semaphore(0)
    for _ in range(50):
        start().add_done_callback(lambda _: told.release())
    for _ in range(50):
        assert told.acquire(timeout=60)


def test_runs_before_are_done_first(machine):
    order, x = [], np.zeros(1)
    graph = ost.Graph()
    graph.task(lambda x, k: order.append(k), x, graph.param("k"), access=(ost.ReadWrite, None))
    with graph.compile(machine) as program:
        for k in range(200):
            program.submit(k=k).result()
        for k in range(200, 2000, 3):
            runs = [program.submit(k=k + i) for i in range(3)]
            runs[k % 3].result()
        runs[-1].result()
    assert order == list(range(200 + 1800))


def test_no_more_threads_than_processors_are_in_tasks():
    inside, most = [], []

    def work():
        inside.append(1)
        most.append(len(inside))
        time.sleep(0)
        inside.pop()

    task = ost.task(work)
    with ost.Machine(cpus=2, gpus=0) as machine, ThreadPoolExecutor(4) as pool:
        program = program_of(machine, work)

        def waits(number):
            for _ in range(400):
                (machine.spawn(task) if number % 2 else program.submit()).result()

        for done in [pool.submit(waits, number) for number in range(4)]:
            done.result()
        program.close()
    assert len(most) == 1600
    assert max(most) <= 2


def test_the_only_processor_is_shared():
    ran = []
    with ost.Machine(cpus=1, gpus=0) as machine, ThreadPoolExecutor(3) as pool:
        task = ost.task(lambda: ran.append(1))
        program = program_of(machine, lambda: ran.append(1))

        def waits(number):
            for _ in range(300):
                (machine.spawn(task) if number else program.submit()).result()
                if number == 2:
                    program.replay()

        for done in [pool.submit(waits, number) for number in range(3)]:
            done.result()
        program.close()
    assert len(ran) == 1200


def test_every_thread_is_prepared_before_its_first_task():
    prepared, ran = set(), []
    with ost.Machine(cpus=2, gpus=0, init=lambda: prepared.add(threading.get_ident())) as machine:
        task = ost.task(lambda: ran.append(threading.get_ident()))
        for _ in range(500):
            machine.spawn(task).result()
    assert set(ran) <= prepared
