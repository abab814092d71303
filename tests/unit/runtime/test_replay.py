"""Replay: the same result as running the step line by line, for all kinds of arguments."""

from __future__ import annotations

import contextvars
import gc
import threading

import numpy as np
import pytest

import ostinato as ost


@ost.task
def double(x: ost.ReadWrite):
    x *= 2


@ost.task
def add(a: ost.Read, b: ost.ReadWrite, factor=1.0):
    b += a * factor


def test_replay_returns_the_steps_and_gives_the_sequential_result(machine):
    x, y = np.ones(3), np.zeros(3)
    with ost.capture() as graph:
        double(x)
        add(x, y)
    with graph.compile(machine) as program:
        assert program.replay(5) == 5
    a, b = np.ones(3), np.zeros(3)
    for _ in range(5):
        double(a)
        add(a, b)
    assert (x == a).all()
    assert (y == b).all()


def test_no_steps_is_nothing(machine):
    x = np.ones(2)
    with ost.capture() as graph:
        double(x)
    with graph.compile(machine) as program:
        assert program.replay(0) == 0
        assert program.submit(0).result() == 0
    assert (x == 1).all()


def test_an_empty_graph_runs(machine):
    with ost.Graph().compile(machine) as program:
        assert program.replay(7) == 7
        assert program.submit(3).result(60) == 3


def test_the_default_machine_serves_when_none_is_given():
    x = np.ones(2)
    with ost.capture() as graph:
        double(x)
    with graph.compile() as program:
        program.replay(2)
    assert (x == 4).all()


def test_parameters_hold_for_one_run(machine):
    a, b = np.ones(2), np.zeros(2)
    with ost.capture() as graph:
        add(a, b, ost.param("factor", 2.0))
    with graph.compile(machine) as program:
        program.replay(3)
        assert (b == 6).all()
        program.replay(1, factor=10.0)
        assert (b == 16).all()
        program.replay(1, params={"factor": 100.0})
        assert (b == 116).all()
        program.replay()
        assert (b == 118).all()


def test_parameters_combine_with_their_default(machine):
    a, b = np.ones(1), np.zeros(1)
    with ost.capture() as graph:
        add(a, b, ost.param("factor", 2.0, combine=lambda default, given: default * given))
    with graph.compile(machine) as program:
        program.replay(1, factor=10.0)
    assert b[0] == 20


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"facter": 1.0}, TypeError, "no parameter 'facter'"),
        ({}, TypeError, "'needed' has no default"),
        ({"needed": 1.0, "on_error": "never"}, ValueError, "on_error"),
        ({"needed": 1.0, "steps": -1}, ValueError, "at least 0"),
        ({"needed": 1.0, "steps": 1.5}, TypeError, "must be an integer, got 1.5"),
        ({"needed": 1.0, "params": {"needed": 2.0}}, TypeError, "given twice"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(machine, arguments, error, says):
    a, b = np.ones(1), np.zeros(1)
    with ost.capture() as graph:
        add(a, b, ost.param("needed"))
    with graph.compile(machine) as program:
        for call in (program.replay, program.submit):
            with pytest.raises(error, match=says):
                call(**arguments)
    assert b[0] == 0


def test_a_value_that_cannot_fill_is_refused_before_anything_runs(machine):
    x, y = np.zeros((2, 3)), np.zeros(1)
    with ost.capture() as graph:
        double(y)
        graph.fill(x, ost.param("value"))
    with graph.compile(machine) as program:
        program.replay(value=[1, 2, 3])
        assert x.tolist() == [[1, 2, 3]] * 2
        y[:] = 1
        for wrong in ("text", [1, 2], object()):
            with pytest.raises((TypeError, ValueError), match="'value' cannot fill"):
                program.replay(value=wrong)
    assert y[0] == 1


def test_step_counts_over_the_life_of_the_program(machine):
    seen = []

    @ost.task
    def note(log: ost.ReadWrite, number):
        log.append(number)

    with ost.capture() as graph:
        note(seen, ost.step)
    with graph.compile(machine) as program:
        program.replay(2)
        program.submit(3).result()
        program.replay(1)
    assert seen == [0, 1, 2, 3, 4, 5]
    assert all(type(number) is int for number in seen)


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_rings_turn(machine, length):
    arrays = [np.full(4, float(i)) for i in range(length)]
    copies = [array.copy() for array in arrays]
    turn = ost.ring(*arrays)

    @ost.task
    def push(src: ost.Read, dst: ost.ReadWrite, number):
        dst += src * 2 + number

    with ost.capture() as graph:
        push(turn[0][1:3], turn[1][1:3], ost.step) if length > 1 else push(np.ones(2), turn[0][1:3], ost.step)
    with graph.compile(machine) as program:
        program.replay(3)
        program.replay(4)
    for step in range(7):
        src = copies[step % length] if length > 1 else np.ones(4)
        dst = copies[(step + 1) % length] if length > 1 else copies[0]
        push(src[1:3], dst[1:3], step)
    for array, copy in zip(arrays, copies, strict=True):
        assert (array == copy).all()


def test_until_ends_the_run_at_its_step(machine):
    x, flag = np.zeros(1), np.zeros(1, bool)

    @ost.task
    def count(x: ost.ReadWrite, flag: ost.Write, limit):
        x += 1
        flag[0] = x[0] >= limit

    with ost.capture() as graph:
        count(x, flag, ost.param("limit", 7))
        ost.until(flag)
        double(x := x)  # something after the verdict, in the same step
    with graph.compile(machine) as program:
        steps = program.replay(100)
    y = np.zeros(1)
    for expected in range(1, 101):  # noqa: B007
        y += 1
        stop = y[0] >= 7
        y *= 2
        if stop:
            break
    assert steps == expected
    assert x[0] == y[0]


def test_until_every_looks_only_there(machine):
    x, flag = np.zeros(1), np.zeros(1)

    @ost.task
    def count(x: ost.ReadWrite, flag: ost.Write):
        x += 1
        flag[0] = x[0] >= 4

    with ost.capture() as graph:
        count(x, flag)
        ost.until(flag, every=3)
    with graph.compile(machine) as program:
        assert program.replay(100) == 6
        assert program.replay(100) == 3


def test_fills_and_copies(machine):
    a, b, c = np.zeros((3, 4)), np.zeros((4, 3)), np.zeros(4, np.float32)
    graph = ost.Graph()
    graph.fill(a, 2.5)
    graph.copy(a.T, b)
    graph.copy(b[::-1, 1], c, reduce="+")
    graph.fill(a[1], [1, 2, 3, 4])
    graph.copy(a[1, :3], a[1, 1:])
    with graph.compile(machine) as program:
        program.replay(2)
    assert (b == 2.5).all()
    assert (c == 5).all()
    assert a[1].tolist() == [1, 1, 2, 3]


def test_gather_and_scatter_check_their_indices(machine):
    src, dst, places = np.arange(5.0), np.zeros(3), np.array([4, 0, 2])
    graph = ost.Graph()
    graph.copy(src, dst, indices=places)
    with graph.compile(machine) as program:
        program.replay()
        assert dst.tolist() == [4, 0, 2]
        places[1] = 5
        with pytest.raises(ost.TaskError, match="copy") as caught:
            program.replay()
        assert isinstance(caught.value.__cause__, IndexError)


def test_tasks_get_read_only_views(machine):
    x, y = np.ones(2), np.ones(2)

    @ost.task
    def cheat(x: ost.Read, y: ost.Write):
        x[0] = 5

    with ost.capture() as graph:
        cheat(x, y)
    with graph.compile(machine) as program, pytest.raises(ost.TaskError) as caught:
        program.replay()
    assert isinstance(caught.value.__cause__, ValueError)
    assert (x == 1).all()


def test_a_run_carries_the_context_of_its_submitter(machine):
    variable = contextvars.ContextVar("variable", default="nothing")
    seen = []

    @ost.task
    def look(log: ost.ReadWrite):
        log.append(variable.get())
        variable.set("changed inside")

    with ost.capture() as graph:
        look(seen)
    with graph.compile(machine) as program:
        variable.set("one")
        program.replay()
        variable.set("two")
        program.submit().result()
        assert variable.get() == "two"
    assert seen == ["one", "two"]


def test_replays_from_many_threads_follow_each_other(machine):
    x = np.zeros(1)

    @ost.task
    def count(x: ost.ReadWrite):
        x += 1

    with ost.capture() as graph:
        count(x)
    with graph.compile(machine) as program:
        threads = [threading.Thread(target=lambda: [program.replay(3) for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert x[0] == 600


def test_replay_inside_a_task_is_refused(machine):
    x = np.zeros(1)
    programs = []

    @ost.task
    def nested(x: ost.ReadWrite):
        programs[0].replay()

    with ost.capture() as graph:
        nested(x)
    with graph.compile(machine) as program:
        programs.append(program)
        with pytest.raises(ost.TaskError) as caught:
            program.replay()
        assert isinstance(caught.value.__cause__, ost.ContractError)


def test_changes_between_runs_are_seen(machine):
    x = np.ones(2)
    with ost.capture() as graph:
        double(x)
    with graph.compile(machine) as program:
        program.replay()
        x[:] = 5
        program.replay()
    assert (x == 10).all()


def test_rebinding_follows_views_and_releases_the_old_array(machine):
    import weakref

    class Owned(np.ndarray):
        pass

    x = np.ones(4).view(Owned)
    gone = weakref.ref(x)
    with ost.capture() as graph:
        double(x[1:3])
    with graph.compile(machine) as program:
        program.replay()
        assert x.tolist() == [1, 2, 2, 1]
        y = np.full(4, 10.0)
        program.rebind([(x, y)])
        program.replay(2)
        assert y.tolist() == [10, 40, 40, 10]
        assert x.tolist() == [1, 2, 2, 1]
        with pytest.raises(ost.GraphError, match="replaced"):
            program.rebind([(x, np.ones(5))])
        with pytest.raises(ost.GraphError, match="must be an array of the program"):
            program.rebind([(np.ones(4), np.ones(4))])
        del graph, x
        gc.collect()
        assert gone() is None
        program.replay()
        assert y.tolist() == [10, 80, 80, 10]


def test_rebinding_refuses_new_overlaps(machine):
    x, y = np.ones(4), np.zeros(4)
    with ost.capture() as graph:
        add(x, y)
    with graph.compile(machine) as program:
        with pytest.raises(ost.GraphError, match="overlaps"):
            program.rebind([(x, y)])
        program.rebind([(x, y), (y, x)])  # the two change places
        program.replay()
        assert x.tolist() == [1, 1, 1, 1]
        y[:] = 1
        program.replay()
        assert x.tolist() == [2, 2, 2, 2]


def test_runs_in_flight_keep_the_arrays_they_were_submitted_with(machine):
    x, gate = np.zeros(2), threading.Event()

    @ost.task
    def slow(x: ost.ReadWrite):
        gate.wait(60)
        x += 1

    with ost.capture() as graph:
        slow(x)
    with graph.compile(machine) as program:
        first = program.submit(2)
        y = np.full(2, 10.0)
        program.rebind([(x, y)])
        second = program.submit(3)
        gate.set()
        first.result(60), second.result(60)
    assert x.tolist() == [2, 2]
    assert y.tolist() == [13, 13]


def test_steps_of_an_explicit_graph_without_distances_do_not_overlap(machine):
    order = []
    graph = ost.Graph(infer=False)
    first = graph.task(order.append, "a", access=(None,))
    second = graph.task(order.append, "b", access=(None,))
    graph.task(order.append, "c", access=(None,), after=[first, second])
    with graph.compile(machine) as program:
        program.replay(3)
    assert [sorted(order[i : i + 2]) for i in (0, 3, 6)] == [["a", "b"]] * 3
    assert order[2::3] == ["c"] * 3


def test_use_after_close_is_refused(machine):
    x = np.ones(1)
    with ost.capture() as graph:
        double(x)
    program = graph.compile(machine)
    program.close()
    program.close()
    for call in (program.replay, program.submit, program.verify, lambda: program.rebind([(x, x)])):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_many_small_programs_on_one_machine(machine):
    arrays = [np.zeros(2) for _ in range(50)]
    programs = []
    for x in arrays:
        with ost.capture() as graph:
            add(np.ones(2), x)
        programs.append(graph.compile(machine))
    for _ in range(3):
        runs = [program.submit(5) for program in programs]
        for run in runs:
            assert run.result(60) == 5
    for program in programs:
        program.close()
    assert all((x == 15).all() for x in arrays)


def test_edges_may_reach_far_back_and_no_further(machine):
    order = []
    graph = ost.Graph(infer=False)
    op = graph.task(order.append, ost.step, access=(None,))
    graph.edge(op, op, 1000)
    with pytest.raises(ValueError, match="at most"):
        graph.edge(op, op, 2**40)
    with graph.compile(machine) as program:
        program.replay(2500)
    assert order == list(range(2500))
