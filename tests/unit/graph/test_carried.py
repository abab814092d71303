"""Arrays that a function makes itself: a program does not make them in every step."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest

import ostinato as ost


@ost.task
def put(x: ost.Read, y: ost.Write):
    y[...] = x


@ost.task
def add(x: ost.Read, y: ost.ReadWrite):
    y += x


@ost.task
def add_all(x: ost.Read, parts: ost.ReadWrite):
    for part in parts:
        part += x


def made(a, b):
    total = np.zeros(4)
    add(a, total)
    put(total, b)


def made_in_parts(a, b):
    total = np.zeros((2, 4))
    for row in total:
        add(a, row)
    put(total[0], b)


def made_in_a_list(a, b):
    totals = [np.zeros(4) for _ in range(2)]
    add_all(a, totals)
    put(totals[1], b)


def copied(a, b):
    total = np.ones(4)
    ost.copy(total, b)
    put(a, total)


def made_among_others(a, b):
    first, total = np.empty(4), np.zeros(4)
    put(a, first)
    add(first, total)
    put(total, b)


@pytest.mark.parametrize("step", [made, made_in_parts, made_in_a_list, copied, made_among_others])
def test_what_a_step_reads_before_it_writes_there_is_told(step, caplog):
    a, b = np.ones(4), np.zeros(4)
    with ost.compile(step, a, b) as program:
        (record,) = caplog.records
        assert f"{step.__name__}() made an array (shape" in record.message
        assert "test_carried.py" in record.message
        program.replay(1)
        if step is not copied:
            with pytest.raises(ost.ContractError):
                program.verify()


def cleared(a, b):
    total = np.empty(4)
    ost.fill(total, 0)
    add(a, total)
    put(total, b)


def only_read(a, b):
    put(a + np.arange(4.0) if isinstance(a, np.ndarray) else np.arange(4.0), b)


GLOBAL = np.zeros(4)
HELD = {"total": np.zeros(4), "list": [np.zeros(4)], "view": np.zeros(9)[2:6], "object": SimpleNamespace(x=np.zeros(4))}


def of_a_generator():
    total = np.zeros(4)
    while True:
        yield total


GENERATOR = of_a_generator()
DEFAULT = np.zeros(9)


class Solver:
    def __init__(self):
        self.total, self.part = np.zeros(4), np.zeros((3, 4))[1]

    def step(self, a, b):
        add(a, self.total)
        add(self.total, self.part[:4])
        put(self.part, b)


def keeps(total):
    def step(a, b):
        add(a, total())
        put(total(), b)

    return step


@pytest.mark.parametrize(
    "step",
    [
        cleared,
        only_read,
        Solver().step,
        keeps(lambda: GLOBAL),
        keeps(lambda: GLOBAL[:]),
        keeps(lambda: HELD["total"]),
        keeps(lambda: HELD["list"][0]),
        keeps(lambda: HELD["view"][:4]),
        keeps(lambda: HELD["object"].x),
        keeps(lambda: next(GENERATOR)),
        keeps(lambda default=DEFAULT[:4]: default),
    ],
)
def test_what_is_cleared_or_kept_elsewhere_is_not(step, caplog):
    with ost.compile(step, np.ones(4), np.zeros(4)) as program:
        program.replay(2)
        assert not caplog.records


def test_a_view_that_another_array_of_the_step_keeps(caplog):
    kept = np.zeros(8)
    with ost.compile(lambda a, b: (add(a, kept[:4]), put(kept[:4], b)), np.ones(4), np.zeros(4)):
        assert not caplog.records


@pytest.fixture(autouse=True)
def _warnings(caplog):
    caplog.set_level(logging.WARNING, "ostinato")
