"""The contract on variants that were chosen: a program runs them as it would run the task itself."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import ostinato as ost
from native import load


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


def fresh():
    """A task that nobody declared a variant of."""

    @ost.task
    def relax(src: ost.Read, dst: ost.Write, omega=0.5):
        dst[...] = src * omega

    return relax


def load_address(name):
    library = load("contract/variants.c")
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value


@pytest.fixture
def chosen(places, tmp_path, machine):
    """Tune a graph, compile it with what was found, and replay it; tell what explain says."""

    def run(graph, steps=1, **params):
        graph.tune(machine, store=tmp_path / "store.db", progress=False)
        with graph.compile(machine, costs=tmp_path / "store.db") as program:
            program.replay(steps, **params)
            program.verify(2, **params)
            return program.explain()

    return run


def slow():
    import time

    time.sleep(0.003)


def test_scalars_defaults_keywords_and_configuration(chosen):
    seen = []

    @ost.task
    def relax(src: ost.Read, dst: ost.Write, omega=0.5, *, shift=0.0):
        slow()
        dst[...] = src * omega + shift

    @relax.variant(config={"block": 8, "note": "only a description"})
    def quick(before: ost.Read, after: ost.Write, omega=99.0, block=0, *, shift=99.0):
        seen.append(block)
        after[...] = before * omega + shift

    a, b, c, d = np.ones(3), np.zeros(3), np.zeros(3), np.zeros(3)
    with ost.capture() as graph:
        relax(a, b)
        relax(dst=c, src=a, shift=2.0)
        relax(a, d, 0.25, shift=1.0)
    text = chosen(graph)
    assert (b[0], c[0], d[0]) == (0.5, 2.5, 1.25)
    assert "quick" in text
    assert set(seen) == {8}


def test_params_steps_and_rings(chosen):
    @ost.task
    def advance(src: ost.Read, dst: ost.Write, gain, step):
        slow()
        dst[...] = src * gain + step

    @advance.variant()
    def quick(src: ost.Read, dst: ost.Write, gain, step):
        np.add(src * gain, step, out=dst)

    a, b = np.ones(4), np.zeros(4)
    expected = [np.ones(4), np.zeros(4)]
    u = ost.ring(a, b)
    with ost.capture() as graph:
        advance(u[0][1:], u[1][1:], ost.param("gain", 2.0), ost.step)
    text = chosen(graph, 5, gain=3.0)
    for step in range(5):
        expected[(step + 1) % 2][1:] = expected[step % 2][1:] * 3.0 + step
    assert "quick" in text
    assert a.tolist() == expected[0].tolist()
    assert b.tolist() == expected[1].tolist()


def test_any_number_of_arrays(chosen):
    @ost.task
    def total(dst: ost.Write, *parts: ost.Read):
        slow()
        dst[...] = sum(parts)

    @total.variant()
    def quick(dst: ost.Write, *parts: ost.Read):
        np.sum(parts, axis=0, out=dst)

    a, b, c = np.ones(4), np.ones(4), np.zeros(4)
    with ost.capture() as graph:
        total(c, a, b, a)
    assert "quick" in chosen(graph)
    assert c.tolist() == [3, 3, 3, 3]


def test_a_native_variant_of_a_python_task(chosen):
    relax = fresh()
    function = relax.function

    @ost.task
    def scale(src: ost.Read, dst: ost.Write, omega):
        slow()
        function(src, dst, omega)

    scale.variant()(ost.native(load_address("scale"), (ost.Read, ost.Write, float), name="in_c"))
    a, b = np.ones(8), np.zeros(8)
    with ost.capture() as graph:
        scale(a, b, ost.param("omega", 0.25))
    assert "in_c" in chosen(graph, omega=0.125)
    assert b.tolist() == [0.125] * 8


def test_a_python_variant_of_a_native_task(chosen):
    in_c = ost.native(load_address("scale_slowly"), (ost.Read, ost.Write, float), name="in_c")

    @in_c.variant()
    def in_python(src: ost.Read, dst: ost.Write, omega):
        np.multiply(src, omega, out=dst)

    a, b = np.ones(8), np.zeros(8)
    with ost.capture() as graph:
        in_c(a, b, 0.25)
    assert "in_python" in chosen(graph)
    assert b.tolist() == [0.25] * 8


def test_a_kernel_as_variant(chosen):
    pytest.importorskip("numba")

    @ost.task
    def scale(src: ost.Read, dst: ost.Write, omega):
        slow()
        dst[...] = src * omega

    @scale.variant(config={"unused": 1})
    @ost.kernel
    def looped(src: ost.Read, dst: ost.Write, omega):
        for i in range(src.size):
            dst[i] = src[i] * omega

    a, b = np.ones(8), np.zeros(8)
    with ost.capture() as graph:
        scale(a, b, 0.25)
    assert "looped" in chosen(graph)
    assert b.tolist() == [0.25] * 8


def test_a_variant_of_a_kernel_with_a_configuration(chosen):
    pytest.importorskip("numba")

    @ost.kernel
    def scale(src: ost.Read, dst: ost.Write, omega):
        for times in range(20000):
            for i in range(src.size):
                dst[i] = src[i] * omega + (times - times % 20000)

    @scale.variant(config={"times": 1})
    @ost.kernel
    def less(src: ost.Read, dst: ost.Write, omega, times):
        for _ in range(times):
            for i in range(src.size):
                dst[i] = src[i] * omega

    a, b = np.ones(64), np.zeros(64)
    with ost.capture() as graph:
        scale(a, b, 0.25)
    assert "less" in chosen(graph)
    assert b.tolist() == [0.25] * 64


def test_a_task_that_fails_is_told_of_by_its_own_name(places, tmp_path, machine):
    @ost.task
    def relax(src: ost.Read, dst: ost.Write, limit):
        slow()
        dst[...] = src

    @relax.variant()
    def quick(src: ost.Read, dst: ost.Write, limit):
        if limit > 1:
            raise ArithmeticError("too much")
        dst[...] = src

    a, b = np.ones(3), np.zeros(3)
    with ost.capture() as graph:
        op = relax(a, b, ost.param("limit", 0))
    graph.tune(machine, store=tmp_path / "store.db", progress=False)
    with graph.compile(machine, costs=tmp_path / "store.db") as program:
        with pytest.raises(ost.TaskError, match="relax") as caught:
            program.replay(limit=2)
        assert caught.value.op is op
        assert isinstance(caught.value.__cause__, ArithmeticError)
        assert program.replay(limit=0) == 1


def test_graph_task_with_a_plain_callable_has_one_variant(places, tmp_path, machine):
    a = np.zeros(3)
    graph = ost.Graph()
    graph.task(lambda dst: dst.fill(3.0), a, access=(ost.Write,), name="plain")
    reports = graph.tune(machine, store=tmp_path / "store.db", progress=False)
    assert all(len(report.results) == 1 for report in reports.values())
    assert a.tolist() == [0, 0, 0]


def test_graph_task_with_a_task_has_its_variants(chosen):
    @ost.task
    def relax(src: ost.Read, dst: ost.Write):
        slow()
        dst[...] = src

    @relax.variant()
    def quick(src: ost.Read, dst: ost.Write):
        dst[...] = src

    a, b = np.ones(3), np.zeros(3)
    graph = ost.Graph()
    graph.task(relax, a, b, name="renamed")
    assert "quick" in chosen(graph)
    assert b.tolist() == [1, 1, 1]
