"""Random graphs over host and device memory give what sequential Python gives, in every run."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.devices.array import DeviceArray, empty
from runtime.device_tasks import host_scale, scale
from support import fake_device as fake

SIZE = 6
RING = 3


@ost.task
def mix(stream: ost.Stream, x: ost.ReadWrite, y: ost.Read, factor):
    fake.launch(stream, lambda a, b: mixed(a, b.copy(), factor), x, y)


@ost.task
def host_mix(x: ost.ReadWrite, y: ost.Read, factor):
    mixed(x, y.copy(), factor)


def mixed(x, y, factor):
    x[...] = (x * 3 + y * factor + 1) % 1009


@st.composite
def plans(draw):
    """What each op does: to which arrays, in which part of them, and where."""
    homes = draw(st.lists(st.sampled_from(["host", "fake:0", "fake:1"]), min_size=2, max_size=4))
    rings = draw(st.lists(st.sampled_from(["host", "fake:0"]), max_size=2))
    names = [("array", k) for k in range(len(homes))] + [("ring", k) for k in range(len(rings))]
    part = st.sampled_from([slice(None), slice(0, 3), slice(2, None), slice(None, None, 2)])

    @st.composite
    def operands(draw, like=None):
        name = draw(st.sampled_from(names))
        return *name, draw(st.integers(-1, 1)), draw(part) if like is None else like

    @st.composite
    def ops(draw):
        kind = draw(st.sampled_from(["mix", "host_mix", "mix", "scale", "host_scale", "copy", "fill"]))
        first = draw(operands())
        second = draw(operands(first[3]))
        on = draw(st.sampled_from([None, None, "fake:0", "fake:1"])) if kind in ("mix", "scale") else None
        return kind, first, second, on, draw(st.integers(1, 5))

    steps = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    return homes, rings, draw(st.lists(ops(), min_size=1, max_size=7)), steps, draw(st.integers(1, 3))


def start(k):
    return (np.arange(SIZE) * (k + 2) + k) % 11.0


def same(first, second):
    return first[:2] == second[:2] and (first[0] == "array" or (first[2] - second[2]) % RING == 0)


@settings(max_examples=150, deadline=None)
@given(plans())
def test_replays_are_sequential_python(plan):
    homes, ring_homes, ops, runs, cpus = plan
    ops = [op for op in ops if op[0] not in ("scale", "host_scale", "copy") or not same(op[1], op[2])]
    with fake.install(count=2) as devices, ost.Machine(cpus=cpus) as machine:
        by_name = {device.name: device for device in devices}

        def made(home, values):
            if home == "host":
                return values.copy()
            array = empty(by_name[home], values.shape)
            array.set(values)
            return array

        arrays = [made(home, start(k)) for k, home in enumerate(homes)]
        rings = [[made(home, start(k + 5 + j)) for j in range(RING)] for k, home in enumerate(ring_homes)]
        wanted = [start(k) for k in range(len(homes))]
        wanted_rings = [[start(k + 5 + j) for j in range(RING)] for k in range(len(ring_homes))]
        graph = ost.Graph()
        turning = [graph.ring(*ring) for ring in rings]

        def at(operand):
            kind, k, offset, part = operand
            return (arrays[k] if kind == "array" else turning[k][offset])[part]

        for kind, first, second, on, factor in ops:
            if kind in ("mix", "host_mix"):
                graph.task(mix if kind == "mix" else host_mix, at(first), at(second), factor, on=on)
            elif kind in ("scale", "host_scale"):
                graph.task(scale if kind == "scale" else host_scale, at(second), at(first), factor, on=on)
                graph.task(mix, at(first), at(first), 0, on=on)
            elif kind == "copy":
                graph.copy(at(second), at(first))
            else:
                graph.fill(at(first), float(factor))
        step = 0
        with graph.compile(machine) as program:
            for number, steps in enumerate(runs):
                program.replay(steps)
                for _ in range(steps):
                    for op in ops:
                        sequential_op(op, wanted, wanted_rings, step)
                    step += 1
                found = [contents(array) for array in arrays] + [contents(each) for ring in rings for each in ring]
                expected = wanted + [each for ring in wanted_rings for each in ring]
                for got, want in zip(found, expected, strict=True):
                    assert np.array_equal(got, want), (number, steps)
                for array, want in zip(arrays, wanted, strict=True):  # what is changed between runs is seen
                    want[number % SIZE] = number
                    if isinstance(array, DeviceArray):
                        array.set(want)
                    else:
                        array[...] = want


def sequential_op(op, arrays, rings, step):
    kind, first, second, _, factor = op

    def at(operand):
        kind, k, offset, part = operand
        return (arrays[k] if kind == "array" else rings[k][(step + offset) % RING])[part]

    if kind in ("mix", "host_mix"):
        mixed(at(first), at(second).copy(), factor)
    elif kind in ("scale", "host_scale"):
        at(first)[...] = at(second) * factor
        mixed(at(first), at(first).copy(), 0)
    elif kind == "copy":
        at(first)[...] = at(second).copy()
    else:
        at(first)[...] = factor


def contents(array):
    return array.get() if isinstance(array, DeviceArray) else array
