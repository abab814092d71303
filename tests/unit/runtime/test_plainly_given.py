"""The arguments of a run reach its ops in the same way, whether the core or Python code reads them."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import numpy as np
import pytest

import ostinato as ost


class Name(str):
    """A text that is no plain str."""

    __slots__ = ()


@pytest.fixture
def machine():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


def happened() -> ost.UserEvent:
    event = ost.UserEvent()
    event.trigger()
    return event


@ost.task
def put(out: ost.ReadWrite, value: Any) -> None:
    out[0] = value


def graph_of(out: np.ndarray, *names: str) -> ost.Graph:
    graph = ost.Graph()
    graph.task(put, out, graph.param("x", 1.0), after=[graph.precondition(name) for name in names])
    return graph


@pytest.mark.parametrize("runs", ["pipelined", "serial", "concurrent", "once"])
@pytest.mark.parametrize(
    "after",
    [
        lambda: {"a": happened(), "b": happened()},
        lambda: UserDict({"a": happened(), "b": happened()}),
        lambda: {Name("a"): happened(), "b": ost.merge(happened(), happened())},
    ],
)
def test_preconditions_and_a_parameter_in_whatever_form(machine: ost.Machine, runs: Any, after: Any) -> None:
    out = np.zeros(1)
    with graph_of(out, "a", "b").compile(machine, runs=runs) as program:
        program.submit(after=after(), x=7).result()
    assert out[0] == 7


@pytest.mark.parametrize("runs", ["pipelined", "serial", "concurrent"])
def test_a_run_may_come_after_a_run(machine: ost.Machine, runs: Any) -> None:
    out = np.zeros(1)
    with (
        graph_of(out, "a").compile(machine, runs=runs) as program,
        graph_of(np.zeros(1)).compile(machine, runs=runs) as other,
    ):
        program.submit(after={"a": other.submit()}, x=2.0).result()
        assert other.submit(after=program.submit(after={"a": happened()}, x=3.0), x=1).result() == 1
    assert out[0] == 3


@pytest.mark.parametrize("runs", ["pipelined", "serial", "concurrent"])
def test_what_is_wrong_is_said(machine: ost.Machine, runs: Any) -> None:
    with graph_of(np.zeros(1), "a", "b").compile(machine, runs=runs) as program:
        event = happened()
        for after, message in (
            (None, "precondition 'a' is not given"),
            ({"a": event}, "precondition 'b' is not given"),
            ({"a": event, "c": event}, "precondition 'b' is not given|gives precondition 'c'"),
            ({"a": event, "b": event, "c": event}, "gives precondition 'c'"),
        ):
            with pytest.raises(ValueError, match=message):
                program.submit(after=after)
        with pytest.raises(TypeError, match="an event or a run"):
            program.submit(after={"a": event, "b": 1})
        with pytest.raises(TypeError, match="no parameter 'y'"):
            program.submit(after={"a": event, "b": event}, y=1)
        assert program.submit(after={None: event, "a": event, "b": event}).result() == 1
    with pytest.raises(RuntimeError, match="closed"):
        program.submit(after={"a": event, "b": event})


@pytest.mark.parametrize("value", [3, True, np.float32(3), np.int64(3), 3.5, float("inf")])
def test_numbers_of_any_type_reach_native_tasks(machine: ost.Machine, value: Any) -> None:
    out, graph = np.zeros(1), ost.Graph()
    graph.fill(out, graph.param("x"))
    with graph.compile(machine) as program:
        program.submit(x=value).result()
        assert out[0] == value
        with pytest.raises(TypeError, match="give it"):
            program.submit()


def test_a_poisoned_precondition_poisons_the_run(machine: ost.Machine) -> None:
    event = ost.UserEvent()
    event.poison(ValueError("no"))
    with graph_of(np.zeros(1), "a").compile(machine) as program, pytest.raises(ost.PoisonError):
        program.submit(after={"a": event}).result()


def test_instances_for_runs_that_wait_are_kept_while_they_are_needed(machine: ost.Machine) -> None:
    """And go when as many runs as there are did without them."""
    with graph_of(np.zeros(1), "a").compile(machine, runs="concurrent") as program:

        def run(times: int) -> int:
            event = ost.UserEvent()
            waiting = [program.submit(after={"a": event}) for _ in range(times)]
            event.trigger()
            for each in waiting:
                each.result()
            return len(program._engine.cores)

        many = run(50)
        assert many >= 50
        for _ in range(3):
            assert run(50) == many
        for _ in range(200):
            few = run(1)
        assert few < 10


@pytest.mark.parametrize(
    ("steps", "error"),
    [(-1, ValueError), (2**62 + 1, ValueError), (2**80, ValueError), (1.0, TypeError), ("1", TypeError)],
)
def test_wrong_numbers_of_steps_are_refused(machine: ost.Machine, steps: Any, error: type[Exception]) -> None:
    with graph_of(np.zeros(1)).compile(machine) as program, graph_of(np.zeros(1), "a").compile(machine) as other:
        with pytest.raises(error, match="steps"):
            program.replay(steps)
        with pytest.raises(error, match="steps"):
            program.submit(steps)
        with pytest.raises(error, match="steps"):
            other.submit(steps, after={"a": happened()})


def test_replay_with_and_without_options(machine: ost.Machine) -> None:
    calls: list[int] = []
    graph = ost.Graph()
    graph.task(calls.append, ost.step, access=(None,))
    with graph.compile(machine) as program:
        assert [program.replay(), program.replay(2), program.replay(steps=np.int64(1)), program.replay(True)] == [
            1,
            2,
            1,
            1,
        ]
        assert program.replay(0) == 0
        assert program.replay(1, priority=3, on_error="continue") == 1
        assert program.replay(timeout=60.0) == 1
        with pytest.raises(TypeError, match="no parameter 'x'"):
            program.replay(x=1)
        with pytest.raises(TypeError, match="positional"):
            program.replay(1, 2)  # type: ignore[misc]
    assert calls == list(range(7))
    with pytest.raises(RuntimeError, match="closed"):
        program.replay()
