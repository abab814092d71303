"""The contract on integer arguments: whatever cannot be one is a TypeError or ValueError that says what must be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ostinato as ost


@ost.task
def add(x: ost.ReadWrite):
    x += 1


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


def program_of(machine, value, **options):
    graph = ost.Graph()
    graph.task(add, np.zeros(1))
    return graph.compile(machine, **options)


def two_ops(machine, distance):
    graph = ost.Graph()
    graph.edge(graph.fill(np.zeros(1), 1.0), graph.fill(np.zeros(1), 1.0), distance)


def until_every(machine, every):
    graph = ost.Graph()
    graph.until(np.zeros(1), every=every)
    graph.compile(machine).close()


def op_priority(machine, priority):
    graph = ost.Graph()
    graph.task(add, np.zeros(1), priority=priority)
    graph.compile(machine).close()


def count_given(machine, count):
    graph = ost.Graph()
    graph.arrive(ost.Barrier(2**40), graph.param("n"))
    graph.compile(machine).submit(n=count).result()


ARGUMENTS: dict[str, Callable[[ost.Machine, Any], Any]] = {
    "priority of an op": op_priority,
    "priority of a fill": lambda _, v: ost.Graph().fill(np.zeros(1), 1.0, priority=v),
    "priority of replay": lambda m, v: program_of(m, v).replay(priority=v),
    "priority of submit": lambda m, v: program_of(m, v).submit(priority=v).result(),
    "priority of a concurrent run": lambda m, v: program_of(m, v, runs="concurrent").submit(priority=v).result(),
    "priority of spawn": lambda m, v: m.spawn(add, np.zeros(1), priority=v).result(),
    "steps of replay": lambda m, v: program_of(m, v).replay(v),
    "steps of submit": lambda m, v: program_of(m, v).submit(v).cancel(),
    "every": until_every,
    "distance": two_ops,
    "count of arrive": lambda _, v: ost.Graph().arrive(ost.Barrier(1), v),
    "count as a parameter": count_given,
    "arrivals": lambda _, v: ost.Barrier(v),
    "count of Barrier.arrive": lambda _, v: ost.Barrier(3).arrive(v),
    "phase of an event": lambda _, v: ost.Barrier(3).event(v),
    "phase of a result": lambda _, v: ost.Barrier(1, "+", 0).result(v),
    "lanes": lambda m, v: program_of(m, v, lanes=v),
    "cpus": lambda _, v: ost.Machine(cpus=v, gpus=0),
    "gpus": lambda _, v: ost.Machine(cpus=1, gpus=v),
    "copies": lambda m, v: program_of(m, v).simulate(copies=v),
}

NOT_COUNTS = {"priority of an op", "priority of a fill"} | {name for name in ARGUMENTS if name.startswith("priority")}
MAY_BE_NONE = {"lanes", "cpus", "gpus"}
RAW = re.compile("incompatible function|bad_cast|cannot be interpreted|too large to convert|out of bounds for int")


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_is_no_integer(name, machine):
    for value in (1.5, float("nan"), "1", b"1", None, [1], np.float64(1), np.ones(2)):
        if value is None and name in MAY_BE_NONE:
            continue
        with pytest.raises(TypeError) as caught:
            ARGUMENTS[name](machine, value)
        assert not RAW.search(str(caught.value)), str(caught.value)
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_is_out_of_bounds(name, machine):
    for value in (-(10**30), -(2**63) - 1, -(2**31) - 1, *(() if name in NOT_COUNTS else (-1,)), 2**64, 10**30):
        if name == "lanes" and value > 0:
            continue  # at most so many: there are no more than the machine has
        with pytest.raises(ValueError, match=re.escape(str(value))) as caught:
            ARGUMENTS[name](machine, value)
        assert not RAW.search(str(caught.value)), str(caught.value)


@pytest.mark.parametrize("name", sorted(ARGUMENTS.keys() - {"gpus", "phase of a result"}))
def test_what_is_an_integer(name, machine):
    for value in (1, np.int8(1), np.int64(1), np.uint64(1)):
        found = ARGUMENTS[name](machine, value)
        if isinstance(found, ost.Machine):
            found.close()


@pytest.mark.parametrize("priority", [-(2**31), 2**31 - 1])
def test_the_ends_of_priorities(priority, machine):
    for name in sorted(NOT_COUNTS):
        ARGUMENTS[name](machine, priority)


def test_a_value_that_fills_names_its_parameter(machine):
    graph = ost.Graph()
    graph.fill(np.zeros(2, np.int64), graph.param("value"))
    program = graph.compile(machine)
    with pytest.raises(OverflowError, match="parameter 'value' cannot fill"):
        program.replay(value=2**64)
