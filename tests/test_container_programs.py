"""Random programs whose tasks take nested containers give what a plain loop over the same functions gives."""

from __future__ import annotations

import os
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost

MORE = int(os.environ.get("OSTINATO_MORE_EXAMPLES", "1"))

Pair = namedtuple("Pair", "first second")


@dataclass
class Box:
    x: Any
    rest: Any = None


class Items(list):
    pass


BASE = np.zeros(12, np.int64)
PLANE = np.zeros((3, 4), np.int64)
TURNS = tuple(np.zeros(6, np.int64) for _ in range(3))
MEMORY = (BASE, PLANE, *TURNS)
RING = ost.ring(*TURNS)
PLACES = [
    *(("base", part) for part in (np.s_[:], np.s_[:6], np.s_[6:], np.s_[3:9], np.s_[::2], np.s_[5:6], np.s_[::-1])),
    *(("plane", part) for part in (np.s_[:], np.s_[0], np.s_[:, 1], np.s_[1:, 2:])),
    *((offset, part) for offset in (0, 1, 2) for part in (np.s_[:], np.s_[:3], np.s_[1::2])),
]


def recorded(place):
    """The array at a place, as a call in a capture names it."""
    where, part = place
    return {"base": BASE, "plane": PLANE}[where][part] if isinstance(where, str) else RING[where][part]


def in_step(place, step):
    """The array at a place in a step of a plain loop."""
    where, part = place
    if isinstance(where, str):
        return recorded(place)
    return TURNS[(step + where) % len(TURNS)][part]


class Leaf(tuple):
    """A place; tuples are containers."""

    __slots__ = ()


leaves = st.sampled_from(PLACES).map(Leaf)
beside = st.one_of(leaves, leaves, leaves, st.sampled_from([None, 3, 2.5, "text", "step", "param"]))
KINDS = {
    "list": list,
    "tuple": tuple,
    "Items": Items,
    "dict": lambda parts: dict(enumerate(parts)),
    "OrderedDict": lambda parts: OrderedDict((str(place), part) for place, part in enumerate(parts)),
    "Pair": lambda parts: Pair(parts[0], list(parts[1:])),
    "Box": lambda parts: Box(parts[0], tuple(parts[1:])),
}
containers = st.recursive(
    beside,
    lambda inner: st.tuples(st.sampled_from(sorted(KINDS)), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=6,
)
arguments = st.tuples(st.sampled_from(sorted(KINDS)), st.tuples(leaves, containers, containers).map(list))
"""A container with an array in it, as (kind, parts)."""


def made(form, leaf):
    """The value that a form stands for, with what `leaf` gives for places and words."""
    if isinstance(form, Leaf) or not isinstance(form, tuple):
        return leaf(form)
    kind, parts = form
    return KINDS[kind]([made(part, leaf) for part in parts])


def walk(value):
    """The structure of a container as numbers and arrays, in order."""
    if isinstance(value, Box):
        yield 7
        yield from walk(value.x)
        yield from walk(value.rest)
    elif isinstance(value, dict):
        yield 5
        for key, part in value.items():
            yield len(str(key)) + int(key)
            yield from walk(part)
    elif isinstance(value, list | tuple):
        yield 2 + len(value) + len(type(value).__name__)
        for part in value:
            yield from walk(part)
    elif isinstance(value, np.ndarray):
        yield value
    else:
        yield len(str(value)) + (int(value) if isinstance(value, int | float) else 0)


def mix(reads, changes, k):
    total = k
    for place, part in enumerate([*walk(reads), *walk(changes)]):
        if isinstance(part, np.ndarray):
            flat = part.ravel()
            total = (total * 31 + int(flat @ np.arange(1, flat.size + 1)) + place) % 1_000_003
        else:
            total = (total * 17 + part) % 1_000_003
    for place, part in enumerate(walk(changes)):
        if isinstance(part, np.ndarray):
            part += total % (97 + place)


def task_of(options):
    @ost.task(**options)
    def work(reads: ost.Read, changes: ost.ReadWrite, k=0):
        mix(reads, changes, k)

    return work


TASKS = [task_of(options) for options in ({}, {"releases_gil": True}, {"blocking": True})]
NAMES = ["holds", "releases", "blocks"]
calls = st.tuples(st.sampled_from([0, 0, 1, 1, 1, 2]), arguments, arguments, st.integers(0, 3), st.booleans())


@pytest.fixture(scope="module")
def machines():
    found = [ost.Machine(cpus=cpus, gpus=0) for cpus in range(1, 7)]
    yield found
    for machine in found:
        machine.close()


def start():
    for place, array in enumerate(MEMORY):
        array.flat = np.arange(array.size) * (place + 3)


def plain_loop(program, steps, value):
    """What the calls do in a loop without Ostinato."""
    start()
    for step in range(steps):
        words = {"step": step, "param": value}

        def leaf(form, step=step, words=words):
            return in_step(form, step) if isinstance(form, Leaf) else words.get(form, form)

        for _, reads, changes, k, _ in program:
            mix(made(reads, leaf), made(changes, leaf), k)
    return [array.copy() for array in MEMORY]


@settings(max_examples=60 * MORE, derandomize=MORE == 1, deadline=None)
@given(
    program=st.lists(calls, min_size=1, max_size=8),
    cpus=st.integers(1, 6),
    steps=st.integers(1, 6),
    checked=st.integers(0, 7),
)
def test_programs_over_containers_equal_a_plain_loop(machines, program, cpus, steps, checked):
    expected = plain_loop(program, steps, 9)
    start()
    with ost.capture() as graph:

        def leaf(form):
            if isinstance(form, Leaf):
                return recorded(form)
            return {"step": ost.step, "param": ost.param("param", 4)}.get(form, form)

        graph.param("param", 4)
        for which, reads, changes, k, named in program:
            task = TASKS[which]
            if named:
                task(changes=made(changes, leaf), reads=made(reads, leaf), k=k)
            else:
                task(made(reads, leaf), made(changes, leaf), k)
    with graph.compile(machines[cpus - 1]) as compiled:
        compiled.submit(steps // 2, param=9)
        compiled.submit(steps - steps // 2, param=9).result(60)
        for array, wanted in zip(MEMORY, expected, strict=True):
            assert np.array_equal(array, wanted)
        if checked == 0:
            compiled.verify(2)
