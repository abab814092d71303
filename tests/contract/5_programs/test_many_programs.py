"""The contract on many programs in flight, in any order, from any threads, linked by events; and on what is stuck."""

from __future__ import annotations

import random
import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest

import ostinato as ost


@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k


def crossing(machine, x, reverse=False):
    """A program whose ops go to and fro between the first processor and the last."""
    names = [machine.processors[0].name, machine.processors[-1].name]
    g = ost.Graph()
    for k in range(6):
        g.task(add, x, on=names[(k + reverse) % 2])
    return g.compile(machine)


# In any order


@pytest.mark.parametrize("relation", ["pipelined", "concurrent"])
@pytest.mark.parametrize("seed", range(4))
def test_runs_of_many_programs_linked_by_events_at_random(relation, seed, machine, in_threads):
    """Each run comes after some with lower numbers, whoever submits it and when: that has no circles."""
    rng = random.Random(seed)
    n, count, threads = 8, 120, 4
    order, lock = [], threading.Lock()

    def note(k):
        with lock:
            order.append(k)

    programs = []
    for p in range(n):
        g = ost.Graph()
        op = g.task(note, g.param("k"), access=(None,), on=rng.choice([None, machine.processors[-1].name]))
        if p % 2:
            g.edge(g.precondition("in"), op)
        g.postcondition("out", after=op)
        programs.append(g.compile(machine, runs=relation))
    done = [ost.UserEvent() for _ in range(count)]
    sources = [rng.sample(range(k), min(k, rng.randint(0, 3))) for k in range(count)]
    owner = [rng.randrange(n) for _ in range(count)]
    runs = {}

    def work(thread):
        mine = [k for k in range(count) if owner[k] % threads == thread]
        if relation == "concurrent":
            random.Random(seed + thread).shuffle(mine)
        for k in mine:
            event = ost.merge(*(done[s] for s in sources[k]))
            after = {"in": event} if owner[k] % 2 else event
            runs[k] = programs[owner[k]].submit(after=after, k=k)
            runs[k].posts["out"].add_done_callback(lambda e, k=k: done[k].trigger())

    in_threads(*[lambda t=t: work(t) for t in range(threads)])
    for k in range(count):
        assert runs[k].result(60) == 1
    assert sorted(order) == list(range(count))
    place = {k: i for i, k in enumerate(order)}
    assert all(place[s] < place[k] for k in range(count) for s in sources[k])
    for program in programs:
        program.close()


@pytest.mark.parametrize("how", ["submit", "replay", "both"])
def test_opposite_orders_over_two_threads(how, machine, in_threads):
    x, y = np.zeros(1), np.zeros(1)
    first, second = crossing(machine, x), crossing(machine, y, reverse=True)
    with first, second:

        def work(programs, replay):
            for _ in range(60):
                runs = [(program.replay(2), None) if replay else (2, program.submit(2)) for program in programs]
                for steps, run in runs:
                    assert steps == (run.result(60) if run else 2)

        in_threads(
            lambda: work([first, second], how == "replay"),
            lambda: work([second, first], how != "submit"),
        )
    assert (x[0], y[0]) == (60 * 2 * 2 * 6,) * 2


def test_many_programs_on_the_same_threads_all_in_flight(machine):
    n = 24
    x = np.zeros(n)
    programs = [crossing(machine, x[k : k + 1], k % 2 == 1) for k in range(n)]
    start = ost.UserEvent()
    runs = [(k, programs[k].submit(3, after=start)) for k in random.Random(1).sample(list(range(n)) * 3, 3 * n)]
    assert not any(run.done() for _, run in runs)
    start.trigger()
    assert [run.result(60) for _, run in runs] == [3] * len(runs)
    assert (x == 3 * 3 * 6).all()
    for program in programs:
        program.close()


def test_a_chain_through_many_programs_submitted_last_first(machine):
    n = 30
    x = np.zeros(1)
    g = ost.Graph()
    g.task(lambda x, k: x.fill((3 * x[0] + k) % 1009), x, g.param("k"), access=(ost.ReadWrite, None))
    programs = [g.compile(machine) for _ in range(n)]
    starts = [ost.UserEvent() for _ in range(n + 1)]
    runs = []
    for k in reversed(range(n)):
        runs.append(programs[k].submit(after=starts[k], k=k))
        runs[-1].event.add_done_callback(lambda e, k=k: starts[k + 1].trigger())
    starts[0].trigger()
    starts[n].wait(60)
    expected = 0
    for k in range(n):
        expected = (expected * 3 + k) % 1009
    assert x[0] == expected
    assert all(run.done() for run in runs)
    for program in programs:
        program.close()


def test_two_machines_that_wait_for_each_other(machine):
    """Programs of two machines hand a turn to and fro."""
    log = []
    with ost.Machine(cpus=1) as other:
        programs = []
        for who, where in (("a", machine), ("b", other)):
            g = ost.Graph()
            op = g.task(log.append, who, access=(None,), after=g.precondition("turn"))
            g.postcondition("turn", after=op)
            programs.append(g.compile(where))
        event = start = ost.UserEvent()
        for k in range(100):
            event = programs[k % 2].submit(after={"turn": event}).posts["turn"]
        start.trigger()
        event.wait(60)
        for program in programs:
            program.close()
    assert "".join(log) == "ab" * 50


def test_barriers_and_reservations_of_several_programs_in_flight(machine):
    """Runs that wait, at a barrier or for a reservation, do not take the threads that others need."""
    n, steps = 6, 10
    barrier, reservation, total = ost.Barrier(n), ost.Reservation(), np.zeros(1)
    programs = []
    for k in range(n):
        g = ost.Graph()
        acquire = g.acquire(reservation)
        op = g.task(add, total, k, after=acquire)
        release = g.release(reservation, after=op)
        g.edge(g.wait(barrier, after=g.arrive(barrier, after=release)), acquire, distance=1)
        programs.append(g.compile(machine))
    runs = [program.submit(steps) for program in programs]
    assert [run.result(60) for run in runs] == [steps] * n
    assert total[0] == steps * sum(range(n))
    assert barrier.phase == steps
    for program in programs:
        program.close()


# What is stuck


def stuck(eventually, run, *words):
    """Wait until `Run.stuck` says all of some words."""
    return eventually(lambda: all(word in run.stuck() for word in words))


def test_stuck_names_the_precondition(machine, eventually):
    x, events = np.zeros(2), {"apples": ost.UserEvent(), "pears": ost.UserEvent()}
    g = ost.Graph()
    g.task(add, x[:1], after=g.precondition("apples"), name="eat")
    g.task(add, x[1:], after=g.precondition("pears"), name="peel")
    with g.compile(machine) as program:
        run = program.submit(after=events)
        stuck(eventually, run, "apples", "pears")
        events["apples"].trigger()
        eventually(lambda: "apples" not in run.stuck() and "pears" in run.stuck())
        assert not run.done()
        events["pears"].trigger()
        assert run.result(60) == 1
        assert isinstance(run.stuck(), str)


def test_stuck_says_something_of_the_default_precondition(machine):
    start = ost.UserEvent()
    g = ost.Graph()
    g.task(add, np.zeros(1))
    with g.compile(machine) as program:
        run = program.submit(after=start)
        second = program.submit()
        assert run.stuck().strip()
        assert second.stuck().strip()
        start.trigger()
        assert second.result(60) == 1


def test_stuck_names_a_barrier_and_its_phase(machine, eventually):
    barrier = ost.Barrier(2)
    for _ in range(7):
        barrier.arrive(2)
    g = ost.Graph()
    g.wait(barrier, after=g.arrive(barrier))
    with g.compile(machine) as program:
        run = program.submit(2)
        eventually(lambda: "barrier" in run.stuck().lower() and "7" in run.stuck())
        barrier.arrive()
        eventually(lambda: "8" in run.stuck())
        barrier.arrive()
        assert run.result(60) == 2


def test_stuck_names_a_reservation(machine, eventually):
    reservation = ost.Reservation()
    reservation.acquire().wait(60)
    g = ost.Graph()
    g.release(reservation, after=g.acquire(reservation))
    with g.compile(machine) as program:
        run = program.submit(2)
        eventually(lambda: "reservation" in run.stuck().lower())
        reservation.release()
        assert run.result(60) == 2


def test_a_deadlock_of_reservations_is_named_and_can_be_cancelled(machine, eventually):
    """Two programs take two reservations in opposite orders, and each has its first when it asks for its second."""
    reservations, go = [ost.Reservation(), ost.Reservation()], ost.UserEvent()
    runs, programs = [], []
    for k in range(2):
        g = ost.Graph()
        first = g.acquire(reservations[k])
        g.postcondition("has one", after=first)
        second = g.acquire(reservations[1 - k], after=[first, g.precondition("go")])
        g.release(reservations[k], after=g.release(reservations[1 - k], after=second))
        programs.append(g.compile(machine))
        runs.append(programs[-1].submit(after={"go": go}))
    for run in runs:
        run.posts["has one"].wait(60)
    go.trigger()
    for run in runs:
        eventually(lambda run=run: "reservation" in run.stuck().lower())
        assert not run.done()
    assert runs[0].cancel()
    with pytest.raises(CancelledError):
        runs[0].result(60)
    assert runs[1].result(60) == 1  # now it gets its second
    for reservation in reservations:
        reservation.acquire().wait(60)
        reservation.release()
    for program in programs:
        program.close()


def test_a_deadlock_of_events_is_named_and_can_be_cancelled(machine, eventually):
    """Each of two runs comes after what the other one ends with."""
    programs, events, runs = [], [ost.UserEvent(), ost.UserEvent()], []
    for k in range(2):
        g = ost.Graph()
        g.task(add, np.zeros(1), after=g.precondition(f"hen {k}"))
        programs.append(g.compile(machine))
        runs.append(programs[k].submit(after={f"hen {k}": events[k]}))
    for k in range(2):
        runs[k].event.add_done_callback(lambda e, k=k: events[1 - k].done or events[1 - k].trigger())
        stuck(eventually, runs[k], f"hen {k}")
    assert runs[0].cancel()
    with pytest.raises(CancelledError):
        runs[0].result(60)
    assert runs[1].result(60) == 1
    for program in programs:
        program.close()


def test_a_deadlock_of_barriers_is_named(machine, eventually):
    """Two runs wait for two barriers in opposite orders before they arrive."""
    barriers = [ost.Barrier(1), ost.Barrier(1)]
    programs = []
    for k in range(2):
        g = ost.Graph()
        g.arrive(barriers[k], after=g.wait(barriers[1 - k]))
        programs.append(g.compile(machine))
    runs = [program.submit() for program in programs]
    for run in runs:
        eventually(lambda run=run: "barrier" in run.stuck().lower())
        assert not run.done()
    for run in runs:
        assert run.cancel()
    for run in runs:
        with pytest.raises(CancelledError):
            run.result(60)
    assert [barrier.phase for barrier in barriers] == [0, 0]
    for program in programs:
        program.close()
