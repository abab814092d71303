"""Random programs over CPUs and devices, several runs with changes between them, against sequential Python."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from beds import host_add, host_put, host_scale, host_shift, made

SIZE, RING = 7, 3
PARTS = [slice(None), slice(0, 3), slice(3, None), slice(None, None, 2), slice(1, None, 3), slice(None, None, -1)]
KINDS = ["scale", "add", "shift", "put", "host_scale", "host_add", "host_shift", "host_put", "copy", "fill", "sum"]
KINDS += ["gather", "scatter"]
ON_DEVICES = ["scale", "add", "shift", "put", "copy", "fill"]
ONE = {"shift", "put", "host_shift", "host_put", "fill"}  # of one array
EXAMPLES = int(os.environ.get("OSTINATO_TEST_EXAMPLES", "25"))


def first_values(k):
    return ((np.arange(SIZE) * (k + 2) + 3 * k) % 11).astype(np.int32)


@st.composite
def plans(draw):
    captured = draw(st.booleans())  # all on the device, in segments that are captured
    homes = draw(
        st.lists(st.sampled_from(["device"] if captured else ["host", "host", "device"]), min_size=2, max_size=4)
    )
    rings = draw(st.lists(st.sampled_from(["device"] if captured else ["host", "device"]), max_size=2))
    names = [("array", k) for k in range(len(homes))] + [("ring", k) for k in range(len(rings))]

    def operand():
        return *draw(st.sampled_from(names)), draw(st.integers(-1, 1)), draw(st.sampled_from(range(len(PARTS))))

    def op():
        return (
            draw(st.sampled_from(ON_DEVICES if captured else KINDS)),
            operand(),
            operand(),
            draw(st.integers(-2, 3)),
            draw(st.booleans()),
        )

    ops = [op() for _ in range(draw(st.integers(4 if captured else 1, 7)))]
    acts = st.one_of(
        st.tuples(st.just("replay"), st.integers(0, 5)),
        st.tuples(st.just("submit"), st.lists(st.integers(0, 4), min_size=1, max_size=3)),
        st.tuples(st.just("change"), st.integers(0, len(homes) - 1)),
        st.tuples(st.just("rebind"), st.integers(0, len(homes) - 1)),
        st.tuples(st.just("verify"), st.integers(1, 2)),
        st.tuples(st.just("profile"), st.integers(1, 3)),
        st.tuples(st.just("trace"), st.integers(1, 3)),
        st.tuples(st.just("retune"), st.integers(1, 3)),
    )
    return {
        "homes": homes,
        "rings": rings,
        "ops": ops,
        "acts": draw(st.lists(acts, min_size=1, max_size=5)),
        "until": draw(st.sampled_from([None, None, "host", "device"])),
        "nested": draw(st.booleans()),
        "cpus": draw(st.integers(1, 2)),
        "launch_only": captured or draw(st.booleans()),
    }


def usable(op):
    """Whether what it reads and what it writes are arrays of one shape that have nothing in common."""
    kind, x, y, _, _ = op
    if kind in ONE:
        return True
    if kind == "copy":
        return np.empty(SIZE)[PARTS[x[3]]].shape == np.empty(SIZE)[PARTS[y[3]]].shape
    same = x[:2] == y[:2] and (x[0] == "array" or (x[2] - y[2]) % RING == 0)
    if kind in ("gather", "scatter"):
        return not same
    return not same and np.empty(SIZE)[PARTS[x[3]]].shape == np.empty(SIZE)[PARTS[y[3]]].shape


class Model:
    """Sequential Python."""

    def __init__(self, plan):
        self.plan = plan
        self.arrays = [first_values(k) for k in range(len(plan["homes"]))]
        self.rings = [[first_values(9 + 3 * k + j) for j in range(RING)] for k in range(len(plan["rings"]))]
        self.count, self.flag = np.zeros(1, np.int32), np.zeros(1, np.int32)
        self.step = 0

    def at(self, operand):
        kind, k, offset, part = operand
        array = self.arrays[k] if kind == "array" else self.rings[k][(self.step + offset) % RING]
        return array[PARTS[part]]

    def run(self, steps):
        for done in range(1, steps + 1):
            for op in self.plan["ops"]:
                self.one(*op)
            self.count += 1
            self.flag[:] = self.count % 3 == 0
            self.step += 1
            if self.plan["until"] and self.flag[0]:
                return done
        return steps

    def one(self, kind, x, y, by, _):
        x, y, by = self.at(x), self.at(y), np.int32(by)
        match kind.removeprefix("host_"):
            case "scale":
                y[...] = x * by
            case "add":
                x += y * by
            case "shift":
                x += by
            case "put" | "fill":
                x[...] = by
            case "copy":
                y[...] = x.copy()
            case "sum":
                y += x
            case "gather":
                y[...] = x[np.arange(len(y)) % len(x)]
            case "scatter":
                y[np.arange(len(x) if len(x) < len(y) else len(y))] = x[: len(y)]


def check(kind, plan):
    plan = plan | {"ops": [op for op in plan["ops"] if usable(op)]}
    model = Model(plan)
    with made(kind, plan["cpus"], plan["launch_only"]) as bed:

        def new(home, values):
            return bed.array(values) if home == "device" else values.copy()

        arrays = [new(home, values) for home, values in zip(plan["homes"], model.arrays, strict=True)]
        rings = [[new(home, each) for each in ring] for home, ring in zip(plan["rings"], model.rings, strict=True)]
        count, flag = np.zeros(1, np.int32), new(plan["until"] or "host", model.flag)
        inner = ost.Graph()
        turning = [ost.ring(*ring) for ring in rings]

        def at(operand):
            kind, k, offset, part = operand
            return (arrays[k] if kind == "array" else turning[k][offset])[PARTS[part]]

        tasks = {"scale": bed.scale, "add": bed.add, "shift": bed.shift, "put": bed.put}
        tasks |= {"host_scale": host_scale, "host_add": host_add, "host_shift": host_shift, "host_put": host_put}
        for name, x, y, by, bound in plan["ops"]:
            on = bed.name if bound else None
            a, b = at(x), at(y)
            na, nb = (len(np.empty(SIZE)[PARTS[each[3]]]) for each in (x, y))
            if name in ("shift", "put"):
                inner.task(tasks[name], a, by, on=on)
            elif name in ("host_shift", "host_put"):
                inner.task(tasks[name], a, by)
            elif name in ("scale", "add"):
                inner.task(tasks[name], a, b, by, on=on)
            elif name in ("host_scale", "host_add"):
                inner.task(tasks[name], a, b, by)
            elif name == "copy":
                inner.copy(a, b)
            elif name == "sum":
                inner.copy(a, b, reduce="+")
            elif name == "gather":
                inner.copy(a, b, indices=np.arange(nb) % na)
            elif name == "scatter":
                n = min(na, nb)
                inner.copy(a[:n], b, scatter=np.arange(n))
            else:
                inner.fill(a, by)
        if plan["until"]:
            inner.task(host_shift, count, 1)
            inner.task(bed.divides, count, flag, 3)
        graph = inner
        if plan["nested"]:
            graph = ost.Graph()
            graph.subgraph(inner)
        if plan["until"]:
            graph.until(flag)
        used = {each[:2] for name, *both, _, _ in plan["ops"] for each in both[: 1 if name in ONE else 2]}
        kept = []
        with graph.compile(bed.machine) as program:
            for number, (act, what) in enumerate(plan["acts"]):
                if act == "replay":
                    assert program.replay(what) == model.run(what), number
                elif act == "profile":
                    assert program.submit(what, profile=True).result(60) == model.run(what), number
                elif act == "trace":
                    assert program.trace(what).to_dict()
                    model.run(what)
                    assert program.explain()
                elif act == "retune":
                    program.retune(20 * what)
                    model.run(20 * what)
                elif act == "submit":
                    runs = [program.submit(steps) for steps in what]
                    assert [run.result(60) for run in runs] == [model.run(steps) for steps in what], number
                elif act == "change":
                    values = model.arrays[what]
                    values[number % SIZE] += 5
                    assign(arrays[what], values)
                elif act == "rebind":
                    kept.append(arrays[what])
                    model.arrays[what] = first_values(20 + number)
                    other = new(plan["homes"][what], model.arrays[what])
                    try:
                        program.rebind([(arrays[what], other)])
                    except ost.GraphError:
                        assert ("array", what) not in used  # such an array is none of the program's
                    arrays[what] = other
                else:
                    program.verify(what)
                found = [contents(array) for array in arrays]
                found += [contents(array) for ring in rings for array in ring]
                wanted = model.arrays + [array for ring in model.rings for array in ring]
                for k, (got, want) in enumerate(zip(found, wanted, strict=True)):
                    assert got.tolist() == want.tolist(), (number, k)


def contents(array):
    return array if isinstance(array, np.ndarray) else array.get()


def assign(array, values):
    if isinstance(array, np.ndarray):
        array[...] = values
    else:
        array.set(values)


@pytest.mark.parametrize("kind", ["fake", "opencl"])
def test_random_programs(kind):
    @settings(max_examples=EXAMPLES, deadline=None)
    @given(plans())
    def all_of_them(plan):
        check(kind, plan)

    all_of_them()
