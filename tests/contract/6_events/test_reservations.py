"""The contract on reservations, outside graphs and inside."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from itertools import pairwise

import numpy as np
import pytest

import ostinato as ost


@pytest.fixture
def reservation():
    return ost.Reservation()


def section(g, reservation, fn, *args, exclusive=True, access=None, after=()):
    """Add acquire, a task, release."""
    acquire = g.acquire(reservation, exclusive=exclusive, after=after)
    task = g.task(fn, *args, access=access or (None,) * len(args), after=acquire)
    return acquire, task, g.release(reservation, after=task)


def free(reservation):
    """Check that nobody holds it, and leave it so."""
    reservation.acquire().wait(60)
    reservation.release()


# Outside


def test_first_come_first_served(reservation):
    grants = [reservation.acquire() for _ in range(4)]
    assert all(isinstance(grant, ost.Event) for grant in grants)
    for k in range(4):
        grants[k].wait(60)
        assert [grant.done for grant in grants] == [j <= k for j in range(4)]
        reservation.release()
    free(reservation)


def test_neighbouring_shared_requests_hold_together(reservation):
    first = [reservation.acquire(exclusive=False) for _ in range(3)]
    middle = reservation.acquire()
    last = [reservation.acquire(exclusive=False) for _ in range(2)]
    for grant in first:
        grant.wait(60)
    for _ in range(3):
        assert not middle.done
        reservation.release()
    middle.wait(60)
    assert not any(grant.done for grant in last)  # those who come later do not overtake
    reservation.release()
    for grant in last:
        grant.wait(60)
    reservation.release()
    reservation.release()
    free(reservation)


def test_shared_requests_join_those_who_hold_it(reservation):
    reservation.acquire(exclusive=False).wait(60)
    reservation.acquire(False).wait(60)
    exclusive = reservation.acquire()
    assert not exclusive.done
    reservation.release()
    assert not exclusive.done
    reservation.release()
    exclusive.wait(60)
    reservation.release()
    free(reservation)


def test_releasing_what_is_not_held_is_a_runtime_error(reservation):
    for _ in range(2):
        with pytest.raises(RuntimeError):
            reservation.release()
        free(reservation)
    grants = [reservation.acquire(exclusive=False) for _ in range(2)]
    for _ in grants:
        reservation.release()
    with pytest.raises(RuntimeError):
        reservation.release()
    free(reservation)


def test_acquire_after_an_event_asks_when_it_happens(reservation):
    event = ost.UserEvent()
    grant = reservation.acquire(after=event)
    other = reservation.acquire(after=ost.merge())
    assert not grant.done
    other.wait(60)
    event.trigger()
    assert not grant.done
    reservation.release()
    grant.wait(60)
    reservation.release()
    free(reservation)


def test_acquire_after_a_poisoned_event_takes_nothing(reservation):
    event, cause = ost.UserEvent(), KeyError()
    grant = reservation.acquire(after=event)
    event.poison(cause)
    with pytest.raises(ost.PoisonError):
        grant.wait(60)
    free(reservation)
    assert isinstance(reservation.acquire(after=event).exception(), ost.PoisonError)
    free(reservation)


def test_release_after_an_event(reservation):
    event = ost.UserEvent()
    reservation.acquire().wait(60)
    reservation.release(after=event)
    second = reservation.acquire()
    assert not second.done
    event.trigger()
    second.wait(60)
    reservation.release(after=event)
    free(reservation)


def test_many_threads_one_holder(reservation, in_threads):
    inside, most, count = 0, 0, 0

    def work():
        nonlocal inside, most, count
        for _ in range(100):
            reservation.acquire().wait(60)
            inside += 1
            most = max(most, inside)
            count += 1
            inside -= 1
            reservation.release()

    in_threads(*[work] * 6)
    assert (most, count) == (1, 600)


def test_readers_and_writers_from_many_threads(reservation, in_threads):
    readers, writers, wrong, lock = 0, 0, [], threading.Lock()

    def work(exclusive):
        nonlocal readers, writers
        for _ in range(60):
            reservation.acquire(exclusive=exclusive).wait(60)
            with lock:
                readers, writers = readers + (not exclusive), writers + exclusive
                if writers > 1 or (writers and readers):
                    wrong.append((readers, writers))
            with lock:
                readers, writers = readers - (not exclusive), writers - exclusive
            reservation.release()

    in_threads(*[lambda k=k: work(k % 2 == 0) for k in range(6)])
    assert not wrong
    free(reservation)


# In graphs


@pytest.mark.parametrize("programs", [2, 4])
def test_sections_of_several_programs_exclude_each_other(programs, machine, reservation):
    inside, wrong, count = 0, [], 0

    def enter():
        nonlocal inside, count
        inside += 1
        if inside != 1:
            wrong.append(inside)
        count += 1

    def leave():
        nonlocal inside
        inside -= 1

    made = []
    for _ in range(programs):
        g = ost.Graph()
        entered = g.task(enter, access=(), after=g.acquire(reservation))
        g.release(reservation, after=g.task(leave, access=(), after=entered))
        made.append(g.compile(machine))
    runs = [program.submit(25) for program in made for _ in range(2)]
    assert [run.result(60) for run in runs] == [25] * (2 * programs)
    assert (count, wrong) == (50 * programs, [])
    free(reservation)
    for program in made:
        program.close()


def test_a_section_waits_for_who_holds_it_outside(machine, reservation):
    x = np.zeros(1)
    g = ost.Graph()
    section(g, reservation, lambda x: x.__iadd__(1), x, access=(ost.ReadWrite,))
    with g.compile(machine) as program:
        reservation.acquire().wait(60)
        run = program.submit(2)
        with pytest.raises(TimeoutError):
            run.result(0.02)
        assert x[0] == 0
        reservation.release()
        assert run.result(60) == 2
    assert x[0] == 2
    free(reservation)


def test_shared_sections_and_who_shares_it_outside(machine, reservation):
    x = np.zeros(1)
    g = ost.Graph()
    section(g, reservation, lambda x: x.__iadd__(1), x, exclusive=False, access=(ost.ReadWrite,))
    with g.compile(machine) as program:
        reservation.acquire(exclusive=False).wait(60)
        assert program.replay(3) == 3  # while it is shared
        writer = reservation.acquire()
        run = program.submit()  # comes after the writer
        assert not writer.done
        reservation.release()
        writer.wait(60)
        assert not run.done()
        reservation.release()
        assert run.result(60) == 1
    assert x[0] == 4
    free(reservation)


@pytest.mark.parametrize("infer", [True, False])
@pytest.mark.parametrize("overlap", [True, False])
def test_within_a_program_in_program_order_step_after_step(infer, overlap, machine, reservation):
    log = []
    g = ost.Graph(infer=infer)
    for k in range(3):
        acquire, task, release = section(g, reservation, lambda k, s: log.append((s, k)), k, ost.step)
        if overlap:
            for op in (acquire, task, release):
                g.edge(op, op, distance=1)
    with g.compile(machine) as program:
        runs = [program.submit(4) for _ in range(3)]
        assert [run.result(60) for run in runs] == [4] * 3
    assert log == [(s, k) for s in range(12) for k in range(3)]


def test_one_section_around_many_tasks_and_two_reservations(machine):
    first, second = ost.Reservation(), ost.Reservation()
    x = np.zeros(8)
    programs = []
    for _ in range(3):
        g = ost.Graph(infer=False)
        outer = g.acquire(first)
        inner = g.acquire(second, after=outer)
        tasks = [g.task(lambda x: x.__iadd__(1), x[k:], access=(ost.ReadWrite,), after=inner) for k in range(8)]
        for a, b in pairwise(tasks):
            g.edge(a, b)
        g.release(first, after=g.release(second, after=tasks))
        programs.append(g.compile(machine))
    for run in [program.submit(10) for program in programs]:
        assert run.result(60) == 10
    assert x.tolist() == [30 * (k + 1) for k in range(8)]
    for reservation in (first, second):
        free(reservation)
    for program in programs:
        program.close()


def test_releasing_what_is_not_held_is_a_task_error(machine, reservation):
    g = ost.Graph()
    op = g.release(reservation)
    with g.compile(machine) as program:
        for _ in range(2):
            with pytest.raises(ost.TaskError) as error:
                program.replay()
            assert error.value.op is op
            assert "test_reservations.py" in str(error.value)
    free(reservation)


@pytest.mark.parametrize("on_error", ["stop", "continue"])
def test_what_a_run_holds_is_released_though_the_task_inside_fails(on_error, machine, reservation):
    def fail(s):
        if s == 2:
            raise KeyError("original")

    g = ost.Graph()
    _, task, _ = section(g, reservation, fail, ost.step)
    with g.compile(machine) as program:
        with pytest.raises(ost.TaskError) as error:
            program.replay(5, on_error=on_error)
        assert error.value.op is task
        assert error.value.step == 2
        free(reservation)
        assert program.replay(3) == 3
    free(reservation)


def test_a_skipped_acquire_does_nothing_and_its_release_neither(machine, reservation):
    def fail(x, bad):
        if bad:
            raise KeyError("original")

    x = np.zeros(1)
    g = ost.Graph()
    first = g.task(fail, x, g.param("bad"), access=(ost.ReadWrite, None))
    section(g, reservation, lambda: None, after=first)
    with g.compile(machine) as program:
        reservation.acquire().wait(60)  # so that it could not be granted
        with pytest.raises(ost.TaskError) as error:
            program.submit(bad=True).result(60)
        assert error.value.op is first
        other = reservation.acquire()
        assert not other.done  # nobody gave back what others hold
        reservation.release()
        other.wait(60)
        reservation.release()
        assert program.replay(2, bad=False) == 2
    free(reservation)


def test_what_a_run_holds_is_released_though_it_is_cancelled(machine, reservation):
    barrier = ost.Barrier(1)
    g = ost.Graph()
    held = g.acquire(reservation)
    wait = g.wait(barrier, after=held)
    g.release(reservation, after=wait)
    reached = g.postcondition("held", after=held)
    assert reached.name == "held"
    with g.compile(machine) as program:
        run = program.submit()
        run.posts["held"].wait(60)
        ours = reservation.acquire()
        assert not ours.done
        assert run.cancel()
        with pytest.raises(CancelledError):
            run.result(60)
        ours.wait(60)
        reservation.release()
        free(reservation)


def test_cancel_while_a_reservation_is_waited_for(machine, reservation):
    g = ost.Graph()
    section(g, reservation, lambda: None)
    with g.compile(machine) as program:
        reservation.acquire().wait(60)
        run = program.submit(3)
        assert run.cancel()
        with pytest.raises(CancelledError):
            run.result(60)
        reservation.release()
        free(reservation)
        assert program.replay(2) == 2
    free(reservation)


@pytest.mark.parametrize("bad", [None, 3, threading.Lock()])
def test_what_is_no_reservation_is_refused(bad):
    g = ost.Graph()
    for add in (g.acquire, g.release):
        with pytest.raises((TypeError, ValueError)):
            add(bad)
    assert len(g) == 0
