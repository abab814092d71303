"""The contract on what tasks may do with events, runs and machines, and what they may not."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ostinato as ost


@ost.task
def nothing():
    return "nothing"


@pytest.fixture
def done():
    event = ost.UserEvent()
    event.trigger()
    return event


@pytest.fixture
def small(machine):
    x = np.zeros(1)
    g = ost.Graph()
    g.task(lambda x: x.__iadd__(1), x, access=(ost.ReadWrite,))
    with g.compile(machine) as program:
        yield program


KINDS = 15


@pytest.fixture
def ways(machine, small):
    """All ways to wait, for what is done and for what is not."""
    never, finished, poisoned = ost.UserEvent(), ost.merge(), ost.UserEvent()
    poisoned.poison()
    run = small.submit()
    run.result(60)
    spawned = machine.spawn(nothing)
    spawned.result(60)
    blocked = machine.spawn(nothing, after=never)
    barrier, reservation = ost.Barrier(1), ost.Reservation()
    yield {
        "event": never.wait,
        "event with a timeout": lambda: never.wait(0.001),
        "event without time": lambda: never.wait(0),
        "done event": finished.wait,
        "poisoned event": poisoned.wait,
        "merge": ost.merge(never, finished).wait,
        "run": blocked.result,
        "run with a timeout": lambda: blocked.result(0.001),
        "done run": run.result,
        "done run's exception": run.exception,
        "done run's event": run.event.wait,
        "spawned": spawned.result,
        "replay": small.replay,
        "barrier": barrier.event(0).wait,
        "reservation": lambda: reservation.acquire().wait(),
    }
    never.trigger()
    blocked.result(60)


@pytest.mark.parametrize("kind", range(KINDS))
@pytest.mark.parametrize("where", ["graph", "nested", "spawned", "called by a task"])
def test_waiting_in_a_task_is_a_contract_error_whether_done_or_not(kind, where, machine, ways):
    assert len(ways) == KINDS
    wait = list(ways.values())[kind]
    if where == "spawned":
        run = machine.spawn(ost.task(wait))
        with pytest.raises(ost.TaskError) as error:
            run.result(60)
    else:
        g = ost.Graph()
        if where == "called by a task":
            inner = ost.task(wait)
            g.task(lambda: inner(), access=())
        else:
            g.task(wait, access=())
        if where == "nested":
            outer = ost.Graph()
            outer.subgraph(g)
            g = outer
        with g.compile(machine) as program, pytest.raises(ost.TaskError) as error:
            program.replay()
    assert isinstance(error.value.__cause__, ost.ContractError)
    assert str(error.value.__cause__)


def test_the_contract_error_is_raised_at_once_so_that_a_task_may_go_on(machine):
    log = []

    def careful(event):
        try:
            event.wait()
        except ost.ContractError:
            log.append(event.done)

    g = ost.Graph()
    g.task(careful, ost.UserEvent(), access=(None,))
    with g.compile(machine) as program:
        assert program.replay(3) == 3
    assert log == [False] * 3


def test_what_is_allowed(machine, small):
    """`spawn`, `submit`, `trigger`, `arrive`, and all that does not wait."""
    made = {}
    triggered, poisoned, later = ost.UserEvent(), ost.UserEvent(), ost.UserEvent()
    barrier, reservation = ost.Barrier(1, reduce="+", initial=0), ost.Reservation()
    called = threading.Event()

    def work():
        made["spawned"] = machine.spawn(nothing)
        made["submitted"] = small.submit(2)
        made["after"] = small.submit(after=ost.merge(made["spawned"], made["submitted"], later))
        triggered.trigger()
        poisoned.poison(KeyError())
        barrier.arrive(value=3)
        made["grant"] = reservation.acquire()
        reservation.release()
        made["asked"] = (triggered.done, later.done, made["after"].done(), made["after"].running(), barrier.phase)
        later.add_done_callback(lambda e: called.set())
        made["cancelled"] = made["after"].cancel()
        made["user event"] = ost.UserEvent()
        assert isinstance(made["submitted"].stuck(), str)

    g = ost.Graph()
    g.task(work, access=())
    with g.compile(machine) as program:
        assert program.replay() == 1
    assert made["spawned"].result(60) == "nothing"
    assert made["submitted"].result(60) == 2
    triggered.wait(60)
    assert poisoned.exception() is not None
    assert (barrier.phase, barrier.result(0)) == (1, 3)
    made["grant"].wait(60)
    assert made["asked"][:3] == (True, False, False)
    assert made["cancelled"] is True
    later.trigger()
    assert called.wait(60)


def test_triggers_of_tasks_move_other_runs_of_the_same_threads(machine):
    """A task of one program starts another program's run, whose task starts the next, on one thread."""
    n = 20
    events, log = [ost.UserEvent() for _ in range(n + 1)], []

    def work(k):
        log.append(k)
        events[k + 1].trigger()

    programs = []
    for k in range(n):
        g = ost.Graph()
        g.task(work, k, access=(None,))
        programs.append(g.compile(machine))
    runs = [programs[k].submit(after=events[k]) for k in reversed(range(n))]
    events[0].trigger()
    events[n].wait(60)
    assert [run.result(60) for run in runs] == [1] * n
    assert log == list(range(n))
    for program in programs:
        program.close()


def test_a_thread_that_a_task_starts_may_wait(machine, small):
    results, finished = [], threading.Event()

    def other():
        results.append(small.submit(3).result(60))
        finished.set()

    g = ost.Graph()
    g.task(lambda: threading.Thread(target=other).start(), access=())
    with g.compile(machine) as program:
        program.replay()
        assert finished.wait(60)
    assert results == [3]


def test_a_task_called_outside_may_wait(done):
    ost.task(done.wait)()


# Blocking tasks


@ost.task(blocking=True)
def wait_for(event):
    event.wait(60)
    return "waited"


def test_a_blocking_task_may_wait(machine, small):
    event, log = ost.UserEvent(), []

    @ost.task(blocking=True)
    def every():
        event.wait(60)
        log.append(small.submit(2).result(60))
        log.append(small.replay(3))
        log.append(machine.spawn(nothing).result(60))
        ost.merge().wait()

    g = ost.Graph()
    g.postcondition("first", after=g.task(nothing))
    g.task(every)
    with g.compile(machine) as program:
        run = program.submit(2)
        assert not run.done()
        event.trigger()
        assert run.result(60) == 2
    assert log == [2, 3, "nothing"] * 2


def test_a_blocking_task_does_not_take_a_thread(machine, small):
    """More of them at once than there are threads, each let go by the one after it, the last by the user."""
    n = 12
    events = [ost.UserEvent() for _ in range(n + 1)]

    @ost.task(blocking=True)
    def hand_on(k):
        events[k + 1].wait(60)
        events[k].trigger()

    g = ost.Graph(infer=False)
    for k in range(n):
        g.task(hand_on, k)
    with g.compile(machine) as program:
        run = program.submit()
        assert machine.spawn(nothing).result(60) == "nothing"
        assert small.submit(3).result(60) == 3
        assert not run.done()
        events[n].trigger()
        assert run.result(60) == 1
    assert events[0].done


def test_a_blocking_task_joins_its_graph(machine):
    """It comes after what it reads, and what reads what it writes comes after it, step after step."""
    x, y = np.zeros(1), np.zeros(1)

    @ost.task(blocking=True)
    def slow(a: ost.Read, b: ost.ReadWrite, s, k):
        ost.merge().wait(60)
        b += a * k + s

    g = ost.Graph()
    g.task(lambda x: x.__iadd__(1), x, access=(ost.ReadWrite,))
    op = g.task(slow, x, y, ost.step, g.param("k"))
    g.task(lambda x, y: x.__iadd__(y), x, y, access=(ost.ReadWrite, ost.Read))
    g.postcondition("slow", after=op)
    a = b = 0
    with g.compile(machine) as program:
        for run in [program.submit(4, k=k) for k in range(3)]:
            assert run.result(60) == 4
            run.posts["slow"].wait(60)
    for s in range(12):
        a += 1
        b += a * (s // 4) + s
        a += b
    assert (x[0], y[0]) == (a, b)


def test_a_blocking_task_that_fails(machine):
    @ost.task(blocking=True)
    def bad(s):
        if s == 1:
            raise KeyError("original")

    log = []
    g = ost.Graph()
    op = g.task(bad, ost.step)
    g.task(log.append, ost.step, access=(None,), after=op)
    with g.compile(machine) as program:
        with pytest.raises(ost.TaskError) as error:
            program.replay(4)
        assert error.value.op is op
        assert error.value.step == 1
        assert isinstance(error.value.__cause__, KeyError)
        assert log == [0]
        assert program.replay(2) == 2


def test_a_blocking_task_spawned(machine):
    event = ost.UserEvent()
    runs = [machine.spawn(wait_for, event) for _ in range(8)]
    assert machine.spawn(nothing).result(60) == "nothing"
    assert not any(run.done() for run in runs)
    event.trigger()
    assert [run.result(60) for run in runs] == ["waited"] * 8


def test_a_blocking_task_called_in_a_task_is_the_tasks_own_doing(machine, done):
    g = ost.Graph()
    g.task(lambda: wait_for(done), access=())
    with g.compile(machine) as program, pytest.raises(ost.TaskError) as error:
        program.replay()
    assert isinstance(error.value.__cause__, ost.ContractError)


def test_a_blocking_task_called_outside_runs_at_once(done):
    assert wait_for(done) == "waited"
