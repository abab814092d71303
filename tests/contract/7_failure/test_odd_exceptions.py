"""Failures that bring code of the user's own: exceptions whose methods raise, and what ends with them."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import ostinato as ost


class Odd(Exception):
    """Every method raises that anybody might call on the way to the one who is told."""

    def __str__(self):
        raise RuntimeError("no text")

    def __repr__(self):
        raise RuntimeError("no picture")

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    def __bool__(self):
        raise RuntimeError("no truth")

    def __len__(self):
        raise RuntimeError("no length")

    __hash__ = None


def failing(machine, fails, blocking=False):
    x = np.zeros(1)

    @ost.task(blocking=blocking)
    def run(x: ost.ReadWrite):
        x += 1
        if fails:
            raise Odd

    @ost.task
    def after(x: ost.ReadWrite):
        x += 1

    graph = ost.Graph()
    graph.task(run, x)
    graph.task(after, x)
    return graph.compile(machine)


def check(error):
    assert "Odd (whose __str__ raised RuntimeError)" in str(error)
    assert type(error.__cause__) is Odd


@pytest.fixture
def machine():
    with ost.Machine(cpus=2) as machine:
        yield machine


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("way", ["replay", "result", "exception", "callback"])
def test_an_exception_without_a_message_fails_one_run_only(machine, way, blocking):
    fails = [True]
    with failing(machine, fails, blocking) as program:
        if way == "replay":
            with pytest.raises(ost.TaskError) as raised:
                program.replay()
            check(raised.value)
        elif way == "result":
            run = program.submit(on_error="continue")
            with pytest.raises(ost.TaskError) as raised:
                run.result(60)
            check(raised.value)
        elif way == "exception":
            check(program.submit().exception(60))
        else:
            ended = ost.UserEvent()
            program.submit().add_done_callback(lambda run: ended.trigger())
            ended.wait(60)
        fails.clear()
        assert program.replay(3) == 3


def test_the_other_failures_of_a_run_are_told_too(machine):
    graph = ost.Graph()

    @ost.task
    def fail(token: ost.Write):
        raise Odd

    for token in ([], []):
        graph.task(fail, token)
    with graph.compile(machine) as program, pytest.raises(ost.TaskError) as raised:
        program.replay(on_error="continue")
    check(raised.value)
    assert "whose __str__" in raised.value.__notes__[0]


def test_what_comes_after_a_failed_run_is_told_of_it(machine):
    with failing(machine, [True]) as program, failing(machine, []) as other:
        failed = program.submit()
        later = other.submit(after=failed)
        with pytest.raises(ost.PoisonError, match=r"Odd \(whose __str__ raised RuntimeError\)"):
            later.result(60)
        with pytest.raises(ost.PoisonError, match="whose __str__"):
            failed.event.wait(60)
        assert other.replay() == 1


def test_a_spawned_task_and_an_event(machine):
    @ost.task
    def fail():
        raise Odd

    with pytest.raises(ost.TaskError) as raised:
        machine.spawn(fail).result(60)
    check(raised.value)
    event = ost.UserEvent()
    event.poison(Odd())
    with pytest.raises(ost.PoisonError, match="whose __str__"):
        event.wait(60)
    with pytest.raises(ost.PoisonError, match="whose __str__"):
        machine.spawn(fail, after=event).result(60)


def test_a_finalizer_that_raises_harms_nothing(monkeypatch, machine):
    monkeypatch.setattr("sys.unraisablehook", lambda told: None)

    class Loud:
        def __del__(self):
            raise RuntimeError("at the end")

    @ost.task
    def fail(argument):
        raise ValueError(Loud())

    with pytest.raises(ost.TaskError):
        machine.spawn(fail, Loud()).result(60)
    graph = ost.Graph()
    graph.task(fail, graph.param("argument"))
    with graph.compile(machine) as program:
        for _ in range(3):
            with pytest.raises(ost.TaskError):
                program.replay(argument=Loud())
    gc.collect()


def test_a_token_is_known_by_its_identity(machine):
    class Token:
        __eq__ = Odd.__eq__
        __bool__ = Odd.__bool__
        __repr__ = Odd.__repr__
        __hash__ = None

    seen = []

    @ost.task
    def use(token: ost.ReadWrite, number):
        seen.append(number)
        if number == 1 and len(seen) == 2:
            raise Odd

    token = Token()
    with ost.capture() as graph:
        for number in range(3):
            use(token, number)
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError):
            program.replay()
        assert program.replay() == 1
    assert seen == [0, 1, 0, 1, 2]
