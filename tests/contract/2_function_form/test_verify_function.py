"""The contract on `verify` of programs made of functions: it calls the function itself, and compares."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import ostinato as ost


@ost.task
def double(src: ost.Read, dst: ost.Write):
    dst[:] = 2 * src


@ost.task
def put(value, dst: ost.Write):
    dst[...] = value


def test_it_passes_where_the_function_does_what_the_program_does():
    a, b, out = np.ones(3), np.zeros(3), np.zeros(3)

    def step(u, out, rate):
        double(u[0], u[1])
        put(rate, out[0])
        put(ost.step, out[1:])
        ost.copy(u[1][:1], out[2:])

    with ost.compile(step, ost.ring(a, b), out, ost.param("rate", 2.0)) as program:
        report = program.verify(3, rate=4.0)
        assert report
        assert report.function == "step"
        assert "compared with step(), called in every step" in str(report)
    assert (a.tolist(), b.tolist(), out.tolist()) == ([1, 1, 1], [0, 0, 0], [0, 0, 0])


@pytest.mark.parametrize(
    "expression", ["float(frozen[0])", "frozen * 10", "frozen[[0, 2]]"], ids=["element", "arithmetic", "fancy"]
)
def test_a_value_frozen_while_recording_is_found(expression):
    """front-door: put(x[0], y), double(x * 10, y), double(x[[0, 2]], y), of an array that no argument names."""
    frozen, names = np.ones(3), {}

    def step(y):
        value = eval(expression, names, {"frozen": frozen})
        if isinstance(value, float):
            put(value, y)
        else:
            double(value, y[: len(value)])
        double(y, frozen)

    with (
        ost.compile(step, np.ones(3)) as program,
        pytest.raises(ost.ContractError, match=r"step\(\).*called in every step.*the function gives"),
    ):
        program.verify(2)
    assert frozen.tolist() == [1, 1, 1]


def test_a_branch_on_a_value_is_found():
    """front-door: if x[0] > 0, of an array that no argument names."""
    level = np.zeros(1)

    def step(y):
        if level[0] < 2:
            put(1.0, y)
        else:
            put(2.0, y)
        double(y, level)

    y = np.zeros(1)
    with ost.compile(step, y) as program, pytest.raises(ost.ContractError, match="called in every step"):
        program.verify(3)
    assert (level[0], y[0]) == (0, 0)


def test_a_function_without_task_is_found():
    """front-door: a function without @ost.task in a capture."""
    total = np.zeros(3)

    def scale(x):
        x += 3

    def step(y):
        put(1.0, y)
        scale(total)

    with ost.compile(step, np.zeros(3)) as program:
        assert total.tolist() == [3, 3, 3]  # once, while recording
        with pytest.raises(ost.ContractError, match=r"step\(\) changes array 'total', which step\(\) uses"):
            program.verify()
    assert total.tolist() == [3, 3, 3]


def test_a_statement_before_an_array_is_recorded_is_found():
    """front-door: x += 1 before x is first recorded."""
    count = np.zeros(1)
    y = np.zeros(1)

    def step(y, first):
        if not first:
            count[0] += 1
        double(count, y)

    first = []
    with ost.compile(lambda y: step(y, first), y) as program, pytest.raises(ost.ContractError):
        program.verify(2)
    assert y[0] == 0


def test_two_tasks_that_talk_through_a_closed_over_array_are_found():
    """front-door: two tasks that talk through a closed-over array."""
    between = np.zeros(3)

    @ost.task
    def say(x: ost.Read):
        between[:] = x

    @ost.task
    def hear(y: ost.Write):
        y[:] = between

    x, y = np.ones(3), np.zeros(3)

    def step(x, y):
        say(x)
        hear(y)

    with ost.compile(step, x, y) as program, pytest.raises(ost.ContractError, match="'say' wrote to array 'between'"):
        program.verify()
    with ost.capture() as graph:
        step(x, y)
    with graph.compile() as program, pytest.raises(ost.ContractError, match="'say' wrote to array 'between'"):
        program.verify()
    assert between.tolist() == [0, 0, 0]


def test_arrays_in_containers_that_tasks_close_over_are_found():
    scratch = {"parts": [np.zeros(2)]}

    @ost.task
    def keep(x: ost.Read):
        scratch["parts"][0][:] = x

    with ost.compile(lambda x: keep(x), np.ones(2)) as program, pytest.raises(ost.ContractError, match="'scratch'"):
        program.verify()
    assert scratch["parts"][0].tolist() == [0, 0]


def test_a_closed_over_array_that_is_only_read_is_fine():
    weights = np.arange(3.0)

    @ost.task
    def weigh(x: ost.ReadWrite):
        x *= weights

    with ost.compile(lambda x: weigh(x), np.ones(3)) as program:
        report = program.verify(2)
    assert report.closed_over == ("array 'weights', which weigh() uses without receiving it",)


class Tank:
    """A simulation as people write it: arrays are attributes, a step is a method."""

    def __init__(self):
        self.level, self.drained, self.more = np.ones(3), np.zeros(3), [np.zeros(3)]
        self.again = self.step  # a cycle

    def step(self):
        self.drained += 1  # once only: no task does it
        double(self.level, self.more[0])

    def __call__(self):
        self.step()

    def steady(self):
        double(self.level, self.more[0])


def step_of(tank):
    tank.step()


def step_beside(field, tank):
    field += 1
    double(tank.level, tank.more[0])


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda tank: (tank.step,), "self.drained"),
        (lambda tank: (tank,), "self.drained"),
        (lambda tank: (functools.partial(tank),), "self.drained"),
        (lambda tank: (functools.partial(step_of, tank),), r"args\[0\].drained"),
        (lambda tank: (functools.partial(step_beside, tank.drained, tank=tank),), r"args\[0\]"),
        (lambda tank: (lambda: tank.step(),), "tank.drained"),
        (lambda tank: (step_of, tank), "tank.drained"),
    ],
    ids=["method", "callable", "partial of a callable", "partial", "array of a partial", "closure", "argument"],
)
def test_arrays_that_are_attributes_are_compared_and_restored(make, name):
    tank = Tank()
    with ost.compile(*make(tank)) as program:
        recorded = tank.drained.tolist()
        with pytest.raises(ost.ContractError, match=f"{name}'"):
            program.verify(2)
    assert tank.drained.tolist() == recorded
    with ost.compile(Tank().steady) as program:
        report = program.verify(2)
    assert report.closed_over == ("array 'self.drained', which steady() uses without receiving it",)


class Meter:
    def __init__(self):
        self.total = np.zeros(3)

    @ost.task
    def read(self, x: ost.Read):
        self.total += x


def test_a_task_that_writes_to_an_attribute_of_a_plain_argument_is_found():
    meter, x = Meter(), np.ones(3)
    with ost.capture() as graph:
        meter.read(x)
    with (
        graph.compile() as program,
        pytest.raises(ost.ContractError, match=r"'read' wrote to array 'Meter.total', which read\(\) reaches"),
    ):
        program.verify()
    assert meter.total.tolist() == [0, 0, 0]


def test_what_changes_from_call_to_call_is_found():
    numbers = itertools.count()

    def step(y):
        put(float(next(numbers)), y)

    with ost.compile(step, np.zeros(2)) as program, pytest.raises(ost.ContractError, match="'put'"):
        program.verify()


def test_a_function_that_raises_when_it_is_called_again():
    values = iter([1.0])

    def step(y):
        put(next(values), y)

    with ost.compile(step, np.zeros(2)) as program, pytest.raises(ost.ContractError, match="StopIteration"):
        program.verify()


def test_tokens_are_left_alone():
    log = []

    @ost.task
    def note(log: ost.ReadWrite, step):
        log.append(step)

    def step(log, y):
        note(log, ost.step)
        put(1.0, y)

    with ost.compile(step, log, np.zeros(1)) as program:
        program.verify(3)
        assert log == []
        program.replay(2)
    assert log == [0, 1]


def test_until_ends_both_alike():
    def step(x, flag):
        double(x, x)
        ost.until(flag)

    with ost.compile(step, np.ones(1), np.ones(1)) as program:
        assert program.verify(5).steps == 1


def test_nested_graphs_and_elements_are_called_as_recorded():
    inner = ost.Graph()
    x = np.ones(2)
    inner.task(put, inner.param("value", 1.0), x[0, ...])

    def step(x):
        ost.current_graph().subgraph(inner, {"value": 3.0})
        put(2.0, x[1])

    with ost.compile(step, x) as program:
        assert program.verify(2)
        program.replay()
    assert x.tolist() == [3, 2]


def test_tasks_that_are_not_pure_are_left_out():
    calls = []

    @ost.task(pure=False)
    def write(x: ost.ReadWrite):
        calls.append(1)
        x += 1

    def step(x, y):
        write(x)
        put(1.0, y)

    with ost.compile(step, np.zeros(1), np.zeros(1)) as program:
        report = program.verify()
    assert not calls
    assert "pure=False: 'write'" in str(report)
