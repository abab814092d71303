"""The contract on names: whatever they are, what is printed stays in its line and does nothing to a terminal."""

from __future__ import annotations

import time

import numpy as np
import pytest

import ostinato as ost
from measuring import tune

pytestmark = pytest.mark.usefixtures("places")

EVIL = "red\x1b[31m\nforged line\r\x07\x9b2J\u202e"
FORBIDDEN = {*map(chr, range(32)), *map(chr, range(127, 160)), "\u202e"} - {"\n"}


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


def relax(src: ost.Read, dst: ost.Write):
    time.sleep(0.002)  # slower than its variant by far, however busy the host
    dst[...] = src * 2


def other(src: ost.Read, dst: ost.Write):
    np.multiply(src, 2, out=dst)


@pytest.fixture
def evil():
    task = ost.task(relax, name=EVIL)
    task.variant(name=EVIL + "2", config={EVIL: EVIL})(other)
    return task


def graph_of(task):
    graph = ost.Graph()
    graph.task(task, np.ones(4), np.zeros(4), after=graph.precondition(EVIL + " before"))
    graph.fill(np.zeros(4), 1.0, name=EVIL + " fill")
    return graph


def check(text):
    assert not FORBIDDEN & set(text), repr(text)
    assert not any(line.startswith("forged line") for line in text.splitlines()), text
    assert "red" in text


def test_explain_and_what_is_measured(evil, machine):
    graph = graph_of(evil)
    check(graph.compile(machine, costs={}).explain())
    reports = tune(graph, machine)
    check(reports.table())
    for report in reports.values():
        check(report.table() + "red")
        check(str(report) + "red")
    program = graph.compile(machine)
    text = program.explain()
    check(text)
    assert "variant red" in text
    run = program.submit(after={EVIL + " before": (event := ost.UserEvent())})
    end = time.monotonic() + 60
    while "red" not in (stuck := run.stuck()) and time.monotonic() < end:
        time.sleep(0.001)  # until a lane has come to the wait
    event.trigger()
    run.result()
    check(stuck)
    check(repr(graph.ops[0]))


def test_messages(evil, machine):
    with pytest.raises(TypeError) as missing:
        ost.Graph().task(evil, np.zeros(3))
    check(str(missing.value))
    with pytest.raises(TypeError) as number:
        ost.native(12345, (ost.Read,), name=EVIL)(3)
    check(str(number.value))

    def fail(x: ost.ReadWrite):
        raise ValueError("on purpose")

    graph = ost.Graph()
    graph.task(ost.task(fail, name=EVIL), np.zeros(3))
    program = graph.compile(machine)
    with pytest.raises(ost.TaskError) as failed:
        program.replay()
    check(str(failed.value))
    with pytest.raises(ost.TaskError) as spawned:
        machine.spawn(ost.task(fail, name=EVIL), np.zeros(3)).result()
    check(str(spawned.value))


def test_a_retuning(machine):
    def count(x: ost.ReadWrite):
        x += 1

    graph = ost.Graph()
    for _ in range(3):
        graph.task(ost.task(count, name=EVIL), np.zeros(4))
    with graph.compile(machine, costs={EVIL: 1e-3}) as program:
        check(str(program.retune(200)) + "red")
        check(str(program.simulate()) + "red")


def test_the_name_itself_is_what_was_given(evil):
    assert graph_of(evil).ops[1].name == EVIL
