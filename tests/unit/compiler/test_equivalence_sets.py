"""Equivalence sets: they hold what views touch, and nothing before the first byte or behind the last of a view."""

from __future__ import annotations

import random

import numpy as np
import pytest

import ostinato as ost
from ostinato import _core
from ostinato.compiler.equivalence_sets import find_equivalence_sets
from support import fake_device as fake


def _slices(choice, shape, steps):
    for size in shape:
        first = choice.randrange(size)
        last = choice.randrange(first, size) + 1
        yield choice.choice([slice(None), slice(first, last), slice(first, None, choice.choice(steps))])


def _addresses(found, numbers):
    for number in numbers:
        each = found.all[number]
        for array in found.arrays(each.boxes, each.allocation):
            offsets = sum(
                np.ix_(*(np.arange(n) * stride for n, stride in zip(array.shape, array.strides, strict=True)))
            )
            yield from (array.__array_interface__["data"][0] + offsets).ravel().tolist()


@pytest.mark.parametrize("seed", range(60))
def test_equivalence_sets_hold_the_bytes_of_views_and_none_beyond_them(seed):
    choice = random.Random(seed)
    shape = choice.choice([(5, 6), (7,), (3, 2, 4), (3, 3, 3)])
    offset = choice.randrange(20)
    whole = np.zeros(offset + int(np.prod(shape)) + choice.randrange(20), np.int16)[offset:][: np.prod(shape)].reshape(
        shape
    )
    views = [whole[tuple(_slices(choice, shape, [1, 2, 3]))] for _ in range(choice.randrange(1, 6))]
    found = find_equivalence_sets(views)
    every = list(_addresses(found, range(len(found.all))))
    assert len(every) == len(set(every))
    for view, touched in zip(views, found.touched, strict=True):
        low, high = _core.passes.extent(view)
        own = {int(low + byte) for byte in np.flatnonzero(_touches(whole, view))}
        held = set(_addresses(found, touched))
        assert own <= held
        assert min(held) >= low
        assert max(held) < high


def _touches(whole, view):
    """By byte from the first of a view, whether it is one of its elements'."""
    low, high = _core.passes.extent(view)
    marked = np.zeros(high - low, bool)
    starts = np.array(0) + sum(np.ix_(*(np.arange(n) * abs(s) for n, s in zip(view.shape, view.strides, strict=True))))
    for byte in range(view.itemsize):
        marked[starts.ravel() + byte] = True
    return marked


def test_parts_of_many_views_end_where_these_do():
    choice = random.Random(7)
    base = np.zeros((200, 300), np.int8)
    views = []
    for _ in range(150):
        i, j = choice.randrange(1, 199), choice.randrange(1, 299)
        views.append(base[i : choice.randrange(i, 199) + 1, j : choice.randrange(j, 299) + 1])
    found = find_equivalence_sets(views)
    every = list(_addresses(found, range(len(found.all))))
    assert min(every) == min(_core.passes.extent(view)[0] for view in views)
    assert max(every) == max(_core.passes.extent(view)[1] for view in views) - 1


@pytest.mark.parametrize("begin", [15, 16, 18])
def test_what_others_do_beside_an_array_while_a_program_runs_is_kept(begin):
    base = np.zeros(64)
    array = base[begin : begin + 30].reshape(5, 6)

    def add(x):
        x += 1
        base[: begin + 12] = base[begin + 30 :] = 7  # all that the program does not name

    @ost.task
    def on_device(x: ost.ReadWrite, stream: ost.Stream):
        fake.launch(stream, add, x)

    @ost.task
    def on_host(x: ost.ReadWrite):
        x += 1

    with fake.install(), ost.Machine(cpus=1) as machine:
        graph = ost.Graph()
        graph.task(on_host, array[4:5, 0:5])
        graph.task(on_device, array[2:5, :])
        with graph.compile(machine) as program:
            program.replay(2)
    assert (base[: begin + 12] == 7).all()
    assert (base[begin + 30 :] == 7).all()
    assert (array[2:4] == 2).all()
    assert array[4].tolist() == [4, 4, 4, 4, 4, 2]


@pytest.mark.parametrize("home", ["host", "fake:0"])
def test_what_others_do_between_the_elements_of_a_stepped_view_is_kept(home):
    values = np.zeros((5, 6))

    def add(x):
        x += 1
        if home == "host":
            values[1::2] = values[::2, 1::2] = 7

    @ost.task
    def on_device(x: ost.ReadWrite, stream: ost.Stream):
        fake.launch(stream, add, x)

    @ost.task
    def on_host(x: ost.ReadWrite):
        x += 1
        if home != "host":
            array[1::2].set(7)
            array[::2, 1::2].set(7)

    with fake.install(), ost.Machine(cpus=1) as machine:
        array = values
        if home != "host":
            array = machine.processor(home).memory.empty((5, 6), np.float64)
            array.set(values)
        graph = ost.Graph()
        graph.task(on_device, array[::2, ::2])
        graph.task(on_host, array[::2, ::2])
        graph.task(on_device, array[::2, ::2])
        with graph.compile(machine) as program:
            program.replay(2)
    if home != "host":
        values = array.get()
    assert (values[1::2] == 7).all()
    assert (values[::2, 1::2] == 7).all()
    assert (values[::2, ::2] == 6).all()


def test_what_others_do_between_elements_is_kept_where_operations_cut_a_stepped_view():
    values = np.zeros(16)

    def add(x):
        x += 1
        values[1::2] = 7

    @ost.task
    def on_device(x: ost.ReadWrite, stream: ost.Stream):
        fake.launch(stream, add, x)

    @ost.task
    def on_host(x: ost.ReadWrite):
        x += 1

    with fake.install(), ost.Machine(cpus=1) as machine:
        graph = ost.Graph()
        graph.task(on_device, values[::2])
        graph.task(on_host, values[::2][3:])
        graph.task(on_device, values[::2][5:7])
        with graph.compile(machine) as program:
            program.replay(2)
    assert (values[1::2] == 7).all()
    assert values[::2].tolist() == [2, 2, 2, 4, 4, 6, 6, 4]
