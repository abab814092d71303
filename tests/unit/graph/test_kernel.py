"""Kernels: the same results as the function, for arrays of any strides."""

import importlib.util
import re
import sys
import traceback
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato._core import call_native
from ostinato.errors import TaskError
from ostinato.graph.kernel import ArrayType, compile_entry


def blend_function(a, b, out, weight, repeats):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            total = 0.0
            for _ in range(repeats):
                total += a[i, j] * weight + b[i, j] / 3.0
            out[i, j] = total


@pytest.fixture(scope="module")
def blend():
    pytest.importorskip("numba")

    def blend(a: ost.Read, b: ost.Read, out: ost.Write, weight, repeats: int = 2):
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                total = 0.0
                for _ in range(repeats):
                    total += a[i, j] * weight + b[i, j] / 3.0
                out[i, j] = total

    return ost.kernel(blend)


@pytest.fixture(scope="module")
def double():
    pytest.importorskip("numba")

    def double(src: ost.Read, dst: ost.Write):
        for i in range(dst.shape[0]):
            for j in range(dst.shape[1]):
                dst[i, j] = 2.0 * src[i, j]

    return ost.kernel(double)


LAYOUTS = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "parts of rows": lambda x: np.pad(x, ((0, 0), (1, 2)))[:, 1:-2],
    "parts of columns": lambda x: np.asfortranarray(np.pad(x, ((1, 2), (0, 0))))[1:-2],
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
}
# Each is compiled for itself: all in every place, and beside others.
TOGETHER = [(name, *(([*LAYOUTS] * 2)[k + 1 : k + 3])) for k, name in enumerate(LAYOUTS)]


@pytest.mark.slow
@settings(max_examples=40)
@given(
    layouts=st.sampled_from(TOGETHER),
    seed=st.integers(0, 9),
    weight=st.floats(-1e3, 1e3),
    repeats=st.integers(0, 3),
    n=st.integers(0, 4),
    m=st.integers(0, 4),
)
def test_same_results_for_all_layouts(blend, layouts, seed, weight, repeats, n, m):
    rng = np.random.default_rng(seed)
    a, b, out = (LAYOUTS[layout](rng.standard_normal((n, m))) for layout in layouts)
    expected = np.empty((n, m))
    blend_function(a, b, expected, weight, repeats)
    blend(a, b, out, weight, repeats)
    assert np.array_equal(out, expected)


def test_parts_of_rows_and_of_columns_are_known_to_have_adjacent_elements(double):
    whole = np.arange(400.0).reshape(20, 20)
    parts = {
        "c": whole[2:18, 1:17],
        "f": whole.T[1:17, 2:18],
        "A": whole[::2, ::2],
        "C": whole[:4],
        "F": whole.T[:, :4],
    }
    for layout, src in parts.items():
        assert ArrayType.of(src).layout == layout
        for dst in (np.zeros(src.shape), np.pad(np.zeros(src.shape), 1)[1:-1, 1:-1], np.zeros(src.shape, order="F")):
            for _ in range(2):  # the first call compiles; the second finds what is compiled
                double(src, dst)
                assert np.array_equal(dst, 2.0 * src)
                dst[...] = 0.0


def test_loops_along_parts_of_rows_are_vectorized(double):
    def vectors(array):
        types = (ArrayType.of(array), ArrayType.of(array))
        return re.findall(
            r"load <\d+ x double>", compile_entry(double.function, types, (True, False))[1].inspect_llvm()
        )

    whole = np.zeros((20, 20))
    assert vectors(whole)
    assert vectors(whole[2:18, 1:17])


@pytest.fixture(scope="module")
def numba():
    return pytest.importorskip("numba")


def test_loops_of_functions_that_a_kernel_calls_are_vectorized(numba):
    @numba.njit
    def double_all(src, dst):
        for i in range(dst.shape[0]):
            for j in range(dst.shape[1]):
                dst[i, j] = 2.0 * src[i, j]

    def double(src, dst):
        double_all(src, dst)

    rows = ArrayType.of(np.zeros((20, 20))[2:18, 1:17])
    compile_entry(double, (rows, rows), (True, False))
    (code,) = double_all.inspect_llvm().values()
    assert re.search(r"load <\d+ x double>", code)


def test_functions_that_a_kernel_calls_compute_the_same_for_all_layouts(numba):
    @numba.njit
    def add_row(row, out):
        for j in range(out.shape[0]):
            out[j] += row[j]

    @numba.njit("void(Array(float64, 2, 'A', readonly=True), Array(float64, 2, 'A'))")
    def add(src, out):
        out += src

    @numba.njit
    def choose(flag, one, other):
        chosen = one if flag else other
        return chosen.T

    @numba.njit
    def halve(src, out, times):
        if times:
            add_row(src[0, ::2], out[0, ::2])
            add_row(src[:, 0], out[:, 0])
            halve(src[::-1], out[::-1], times - 1)

    @ost.kernel
    def mix(src: ost.Read, out: ost.ReadWrite):
        add(src, out)
        halve(src, out, 3)
        out += choose(out.shape[0] > 2, src, src[:, ::-1]).T
        for pair in ((src, out), (src, out)):
            add_row(pair[0][1], pair[1][-1])

    src = np.arange(30.0).reshape(5, 6)
    expected = np.ones((5, 6))
    mix.function(src, expected)  # Python calls the functions with arrays of Numba's own types
    for layout in LAYOUTS.values():
        out = layout(np.ones((5, 6)))
        mix(layout(src), out)
        assert np.array_equal(out, expected)


def test_code_for_adjacent_elements_is_not_run_for_others(numba):
    @numba.njit
    def double_all(out):
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] *= 2.0

    @ost.kernel
    def double(out: ost.ReadWrite):
        double_all(out)

    whole = np.ones((4, 6))
    double(whole[:, :3])
    double_all.disable_compile()
    with pytest.raises(TypeError, match="cannot be passed array"):
        double(whole[:, ::2])
    assert (whole == [2, 2, 2, 1, 1, 1]).all()


def test_a_function_cached_by_numba_is_found_again(numba, tmp_path, monkeypatch):
    source = tmp_path / "helpers.py"
    source.write_text(
        "import numba\n@numba.njit(cache=True)\ndef fill(out):\n    for i in range(out.size):\n        out[0, i] = i\n"
    )
    hits = []
    for name in ("first", "second"):
        spec = importlib.util.spec_from_file_location(name, source)
        helpers = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, helpers)
        spec.loader.exec_module(helpers)
        fill = helpers.fill

        @ost.kernel
        def kernel(out: ost.Write):
            fill(out)  # noqa: B023

        out = np.zeros((2, 8))[:1, :5]
        kernel(out)
        assert out.tolist() == [[0, 1, 2, 3, 4]]
        hits.append(sum(fill.stats.cache_hits.values()))
    assert hits == [0, 1]


def test_a_ring_of_arrays_with_different_strides_gets_code_for_both(double):
    whole = np.arange(400.0).reshape(20, 20)
    apart, ring = whole[::2, ::2], ost.ring(np.zeros((20, 20))[2:12, 2:12], np.zeros((20, 20))[::2, ::2])
    with ost.capture():
        op = double(apart, ring[0])
    for dst in ring.arrays:  # code for both
        call_native(op.body.task.address, 0, [apart, dst], [])
        assert np.array_equal(dst, 2.0 * apart)


def test_what_is_recorded_is_what_runs_at_once(blend):
    a, b, out = np.ones((2, 3)), np.ones((2, 3)), np.zeros((2, 3))
    with ost.capture() as graph:
        op = blend(a, b, out, 0.5)
    assert op.name == "blend"
    assert op.body.args == (*op.operands, 0.5, 2)
    assert op.body.task.access == (ost.Read, ost.Read, ost.Write, float, int)
    again = graph.task(blend, a, b, out, 0.25, 1)
    assert again.body.task is op.body.task
    call_native(op.body.task.address, 0, [o.array for o in op.operands], [0.5, 2])
    expected = out.copy()
    blend(a, b, out, 0.5)
    assert np.array_equal(out, expected)


def test_dtypes_are_compiled_apart(blend):
    a, out = np.arange(6, dtype="i4").reshape(2, 3), np.zeros((2, 3), "f4")
    blend(a, a.astype("c8").real, out, 2, 1)
    expected = np.zeros((2, 3), "f4")
    blend_function(a, a.astype("f4"), expected, 2, 1)
    assert np.array_equal(out, expected)


def test_scalar_types_when_recorded(blend):
    a, out = np.ones((1, 1)), np.zeros((1, 1))
    with ost.capture():
        ops = [
            blend(a, a, out, weight, repeats)
            for weight, repeats in (
                (1, True),
                (np.float32(1), np.int8(1)),
                (ost.param("a"), ost.param("b")),
                (ost.param("c", 3), 1),
                (ost.param("d", 3, combine=max), ost.step),
                (ost.step, 1),
            )
        ]
        kinds = [op.body.task.access[3:] for op in ops]
        assert kinds == [(int, int), (float, int), (float, int), (int, int), (float, int), (int, int)]
        with pytest.raises(TypeError, match="must be an int"):
            blend(a, a, out, 1.0, 1.5)
        with pytest.raises(TypeError, match=r"parameter 'weight' of blend\(\) must be a number"):
            blend(a, a, out, None)
        with pytest.raises(TypeError, match="parameter 'weight'"):
            blend(a, a, out, a)


def test_rings_of_different_layouts(blend):
    rows, columns = np.ones((3, 3)), np.asfortranarray(np.ones((3, 3)))
    u, v = ost.ring(rows, columns), ost.ring(rows.copy(), rows.copy())
    with ost.capture():
        mixed, plain = blend(u[0], v[0], v[1], 1.0), blend(v[0], v[0], v[1], 1.0)
    assert mixed.body.task is not plain.body.task
    for array in u.arrays:
        call_native(mixed.body.task.address, 0, [array, *v.arrays], [1.0, 1])
        assert np.allclose(v.arrays[1], 4 / 3)


@pytest.mark.parametrize("captured", [False, True])
def test_writing_what_is_declared_read_says_so_in_a_few_lines(captured):
    pytest.importorskip("numba")

    @ost.kernel
    def wrong(src: ost.Read, dst: ost.Write):
        src[0] = 1.0
        dst[0] = src[0]

    a, b = np.zeros(2), np.zeros(2)
    told = pytest.raises(TypeError, match=r"kernel 'wrong' writes to 'src', which is declared ost\.Read")
    with told as caught, ost.capture() if captured else nullcontext():
        wrong(a, b)
    assert "test_kernel.py: src[0] = 1.0" in str(caught.value)
    assert len("".join(traceback.format_exception(caught.value)).splitlines()) <= 20


def test_what_numba_cannot_compile_is_told_in_a_few_lines():
    pytest.importorskip("numba")

    @ost.kernel
    def wrong(dst: ost.Write):
        dst[0] = dst.nosuch

    with pytest.raises(TypeError, match=r"Numba cannot compile kernel 'wrong' in line .*nosuch") as caught:
        wrong(np.zeros(2))
    assert len("".join(traceback.format_exception(caught.value)).splitlines()) <= 20


def test_a_kernel_that_raises_fails():
    pytest.importorskip("numba")

    @ost.kernel(name="picky")
    def check(a: ost.Read, n):
        if a[0] > n:
            raise ValueError("too large")

    check(np.zeros(1), 1)
    with pytest.raises(TaskError, match="'picky' failed"):
        check(np.ones(1), 0)


def test_zero_dimensions_structures_and_complex():
    pytest.importorskip("numba")

    @ost.kernel
    def add(a: ost.Read, out: ost.ReadWrite):
        out[()] += a[()]

    @ost.kernel
    def first(a: ost.Read, out: ost.Write):
        for i in range(a.size):
            out[i] = a[i]["x"]

    out = np.array(1j)
    add(np.array(2.0 + 1j), out)
    assert out == 2 + 2j
    pairs, found = np.array([(1, 2.5), (2, 3.5)], [("n", "i4"), ("x", "f8")]), np.zeros(2)
    first(pairs, found)
    assert found.tolist() == [2.5, 3.5]


def test_wrong_kernels():
    with pytest.raises(TypeError, match="must decorate a Python function"):
        ost.kernel("name")
    with pytest.raises(TypeError, match="not positional"):
        ost.kernel(lambda *args: None)


def test_wrong_calls(blend):
    a = np.zeros((1, 1))
    with pytest.raises(TypeError, match=r"blend\(\): missing a required argument: 'weight'"):
        blend(a, a, a)
    with pytest.raises(TypeError, match=r"must be an array, got \[1\]: compiled code takes arrays only"):
        blend([1], a, a, 1.0)
    with pytest.raises(TypeError, match="outside a capture"):
        blend(a, a, a, ost.step)
    with pytest.raises(TypeError, match="Python objects"):
        blend(a.astype(object), a, a, 1.0)
    frozen = a.copy()
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        blend(a, a, frozen, 1.0)


def test_without_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)

    @ost.kernel
    def anything(a: ost.Read): ...

    with pytest.raises(ImportError, match=r"pip install 'ostinato\[numba\]'"):
        anything(np.zeros(3))


SCALE = 2.0


def test_a_global_that_changes_is_compiled_again():
    pytest.importorskip("numba")
    global SCALE

    @ost.kernel
    def scale(x: ost.ReadWrite):
        for i in range(x.size):
            x[i] *= SCALE

    x = np.ones(2)
    try:
        for SCALE in (2.0, 3.0):
            with ost.compile(scale, x) as program:
                program.replay()
                program.verify()
                SCALE = 10.0
                with pytest.raises(
                    ost.ContractError, match=r"'scale' was compiled when SCALE was [23]\.0, and it is 10"
                ):
                    program.verify()
    finally:
        SCALE = 2.0
    assert x.tolist() == [6.0, 6.0]


def test_each_program_is_checked_by_the_values_it_was_compiled_with():
    pytest.importorskip("numba")
    global SCALE

    @ost.kernel
    def scale(x: ost.ReadWrite):
        x[0] *= SCALE

    x = np.ones(2)
    try:
        SCALE = 2.0
        with ost.compile(scale, x) as first:
            SCALE = 3.0
            with ost.compile(scale, x) as second:
                second.verify()
                with pytest.raises(ost.ContractError, match=r"compiled when SCALE was 2\.0, and it is 3\.0 now"):
                    first.verify()
                SCALE = 2.0
                first.verify()
    finally:
        SCALE = 2.0


size, PAIR = 3, (np.ones(2), 1.0)


def test_attributes_and_tuples_of_arrays():
    pytest.importorskip("numba")
    global size, PAIR

    @ost.kernel
    def add(x: ost.ReadWrite):
        x[0] += x.size + PAIR[0][0]

    x = np.zeros(2)
    with ost.compile(add, x) as program:
        size = 8  # another name than x.size
        program.verify()
        PAIR = (np.ones(2), 1.0)  # the same values
        program.verify()
        PAIR = (np.full(2, 5.0), 1.0)
        with pytest.raises(ost.ContractError, match="was compiled when PAIR was"):
            program.verify()
    with ost.compile(add, x) as program:
        program.verify()


def test_an_index_error_of_the_kernel_itself():
    pytest.importorskip("numba")

    @ost.kernel
    def fail(x: ost.ReadWrite):
        raise IndexError("mine")

    with ost.compile(fail, np.zeros(2)) as program, pytest.raises(TaskError, match="'fail' raised"):
        program.verify()


def test_an_array_of_an_enclosing_function_is_a_constant():
    pytest.importorskip("numba")
    table = np.ones(2)

    @ost.kernel
    def add(x: ost.ReadWrite):
        for i in range(x.size):
            x[i] += table[i]

    with ost.compile(add, np.zeros(2)) as program:
        program.verify()
        table[0] = 5.0
        with pytest.raises(ost.ContractError, match="pass table as an argument"):
            program.verify()


def test_what_numba_does_not_know():
    pytest.importorskip("numba")

    @ost.kernel
    def add(x: ost.ReadWrite, value):
        x[0] += value

    with pytest.raises(TypeError, match="float16"):
        add(np.zeros(2, np.float16), 1.0)
    with pytest.raises(TypeError, match=r"'value' of add\(\) must be a number, an int or a float, .* got 1j"):
        add(np.zeros(2, complex), 1j)


def test_a_failure_says_that_it_is_of_a_kernel():
    pytest.importorskip("numba")

    @ost.kernel
    def fail(x: ost.ReadWrite):
        raise ValueError("wrong")

    with ost.compile(fail, np.zeros(2)) as program, pytest.raises(TaskError, match="'fail' raised an exception; comp"):
        program.replay()
