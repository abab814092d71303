"""Variants: what can be declared, and what ops do with another implementation."""

import array
import copy
import functools
import gc
import math
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest

import ostinato as ost
from ostinato.errors import TaskError
from ostinato.graph.body import NativeCall, PythonCall
from ostinato.graph.kernel import Kernel
from ostinato.graph.native import NativeTask
from ostinato.graph.task import Task
from ostinato.graph.variant import Variant, default_variant, variants_of
from ostinato.runtime.sequential import AsCaptured, run_op
from support.interpreter import LOCKED

SCALE = (ost.Read, ost.Write, float, int)  # as in native_tasks.c: dst = src * factor + offset


def make_python():
    @ost.task
    def scale(src: ost.Read, dst: ost.Write, factor, offset=0):
        assert type(src) is type(dst) is np.ndarray
        np.multiply(src, factor, out=dst)
        dst += offset

    return scale


def make_native(library):
    return ost.native(library.scale, SCALE)


def make_kernel():
    pytest.importorskip("numba")

    @ost.kernel
    def scale(src: ost.Read, dst: ost.Write, factor, offset=0):
        for i in range(src.size):
            dst[i] = src[i] * factor + offset

    return scale


@pytest.fixture
def scale():
    return make_python()


@pytest.fixture(scope="module")
def makers(library):
    kernel = functools.cache(make_kernel)  # compiled once; the tests below do not declare variants of it
    return {"python": make_python, "native": lambda: make_native(library), "kernel": kernel}


def run(op, body, step=0, params=None):
    """Run an op with another body."""
    kept, op.body = op.body, body
    try:
        run_op(op, step, AsCaptured(), params or {})
    finally:
        op.body = kept


def variant_of(task, implementation, **options):
    task.variant(**options)(implementation)
    return task.variants[-1]


def test_declaring(scale):
    @scale.variant(config={"block": 4})
    @scale.variant(on="cpu", name="in blocks", config={"block": 8, "note": "x"})
    def blocks(src: ost.Read, dst: ost.Write, factor, offset, *, block):
        for at in range(0, len(src), block):
            dst[at : at + block] = src[at : at + block] * factor + offset

    assert type(blocks) is type(run)
    assert [each.label for each in scale.variants] == ["in blocks(block=8, note=x)", "blocks(block=4)"]
    assert [each.on for each in scale.variants] == ["cpu", None]
    a, b = np.arange(10.0), np.zeros(10)
    with ost.capture() as graph:
        op = scale(a, b, 3.0, offset=1)
    assert graph.ops[0].body.task is scale
    found = variants_of(op.body)
    assert found == (default_variant(op.body), *scale.variants)
    assert default_variant(op.body) is default_variant(op.body)
    assert (found[0].name, found[0].config, found[0].task, found[0].label) == ("scale", {}, scale, "scale")
    assert found[0].body(op.body) is op.body
    for variant in found[1:]:
        b[:] = 0
        run(op, variant.body(op.body))
        assert b.tolist() == (a * 3 + 1).tolist()


def test_what_is_declared_comes_back(library, scale):
    native, kernel = make_native(library), make_kernel()
    for implementation in (native, kernel, ost.task(name="x")(make_python().function), make_python().function):
        assert scale.variant(config={"n": len(scale.variants)})(implementation) is implementation
    assert [type(each.task) for each in scale.variants] == [NativeTask, Kernel, Task, Task]
    assert scale.variants[0].task is native
    assert [each.name for each in scale.variants] == ["native scale", "kernel scale", "x", "python scale"]


def test_without_parentheses(scale):
    @scale.variant
    def other(src: ost.Read, dst: ost.Write, factor, offset):
        pass

    scale.variant(ost.task(name="third")(other))
    assert [each.label for each in scale.variants] == ["other", "third"]
    assert type(other) is type(run)


def test_annotations_as_text_with_local_names(scale):
    local = ost
    made = {}
    source = """
    from __future__ import annotations
    def outer(scale, local):
        @scale.variant()
        def other(src: local.Read, dst: local.Write, factor, offset): ...
        @scale.variant
        def another(src: local.Read, dst: local.Write, factor, offset): ...
    """
    exec(textwrap.dedent(source), made)
    made["outer"](scale, local)
    assert len(scale.variants) == 2


def nothing(*_):
    pass


def declared(text, **names):
    """Make a function of a header."""
    space = {"ost": ost, **names}
    exec(f"def other({text}): pass", space)
    return space["other"]


GOOD = "src: ost.Read, dst: ost.Write, factor, offset"


@pytest.mark.parametrize(
    ("header", "config", "error", "message"),
    [
        ("src: ost.ReadWrite, dst: ost.Write, factor, offset", {}, TypeError,
         r"parameter 'src' of other\(\) is ost.ReadWrite, but parameter 'src' of scale\(\) is ost.Read"),
        ("dst: ost.Write, src: ost.Read, factor, offset", {}, TypeError,
         r"'dst' of other\(\) is ost.Write, but parameter 'src' of scale\(\) is ost.Read"),
        ("src: ost.Read, dst, factor, offset", {}, TypeError,
         r"'dst' of other\(\) is no array, but parameter 'dst' of scale\(\) is ost.Write"),
        ("src: ost.Read, dst: ost.Write, factor: ost.Read, offset", {}, TypeError,
         r"'factor' of other\(\) is ost.Read, but parameter 'factor' of scale\(\) is no array"),
        ("*arrays: ost.Read", {}, TypeError, r"'arrays' of other\(\) is ost.Read, but parameter 'dst' of scale\(\)"),
        ("src: ost.Read, dst: ost.Write, factor", {}, TypeError, "too many positional arguments"),
        (f"{GOOD}, block", {}, TypeError, "missing a required argument: 'block'.*has a default, or a value in config="),
        (f"{GOOD}, *, block", {"blck": 3}, TypeError, "missing a required.*'block'"),
        (f"{GOOD}, block, /", {"block": 3}, TypeError, "missing a required.*'block'"),
        (f"{GOOD}, buffer: ost.Write = None", {}, TypeError, r"'buffer' .* is ost.Write, but scale\(\) has no such"),
        (f"{GOOD}, *, buffer: ost.Write", {"buffer": 1}, TypeError, r"'buffer' .* but scale\(\) has no such array"),
        ("src: ost.Read, dst: ost.Write, block, offset", {"block": 2}, TypeError, "multiple values for argument"),
        ("src: ost.Read, dst: ost.Write, offset, factor", {}, TypeError,
         r"parameter 'offset' of other\(\) does not stand where scale\(\) has 'offset'"),
        ("src: ost.Read, dst: ost.Write, w, k, factor=1", {}, TypeError, r"'factor' of other\(\) does not stand where"),
        (GOOD, {"factor": 2}, ValueError, r"config= gives 'factor', which is an argument of scale\(\)"),
        (GOOD, {"variant": 2}, ValueError, "'variant'"),
        (GOOD, {1: 2}, TypeError, "must be str, got 1"),
        (GOOD, {"x": nothing}, TypeError, "plain values"),
        (GOOD, {"x": {1, 2}}, TypeError, "plain values"),
        (GOOD, {"x": [{"y": {1: 2}}]}, TypeError, "plain values"),
        (GOOD, {"x": np.zeros(3)}, TypeError, "plain values"),
        (GOOD, {"x": math.nan}, ValueError, "plain values"),
        (GOOD, [("x", 3)], TypeError, "config must be a dict"),
    ],
)  # fmt: skip
def test_what_cannot_be_declared(scale, header, config, error, message):
    with pytest.raises(error, match=message):
        scale.variant(config=config)(declared(header))
    assert scale.variants == ()


def test_names_and_kinds_that_cannot_be_declared(scale):
    for on, error in (("cpu:0", ValueError), ("gpu", ValueError), ("", ValueError), (3, TypeError), (int, TypeError)):
        with pytest.raises(error, match="on must be a kind"):
            scale.variant(on)
    with pytest.raises(TypeError, match="name of a variant"):
        scale.variant(name=3)
    with pytest.raises(ValueError, match="not be empty"):
        scale.variant(name="")
    for what in (3, None, "other"):
        with pytest.raises(TypeError, match="a variant must be a function or a task"):
            scale.variant()(what)

    async def coroutine(src: ost.Read, dst: ost.Write, factor, offset):
        pass

    with pytest.raises(TypeError, match="which does its work"):
        scale.variant()(coroutine)
    with pytest.raises(TypeError, match="not known to Python"):
        scale.variant()(min)


def test_labels_are_unique(scale):
    other = declared(GOOD)
    scale.variant(config={"a": 1, "b": [2, 3]})(other)
    for name, config in ((None, {"b": (2, 3), "a": np.int64(1)}), ("scale", {}), ("other", {"a": 1, "b": [2, 3]})):
        with pytest.raises(ValueError, match=r"scale: variant .* (is declared already|is the task itself)"):
            scale.variant(name=name, config=config, on="cpu")(other)
    scale.variant(config={"a": 1.0, "b": [2, 3]})(other)
    scale.variant(name="scale", config={"a": 1})(other)
    assert len(scale.variants) == 3


def test_a_configuration_is_a_copy(scale):
    config = {"blocks": [1]}
    variant = variant_of(scale, declared(GOOD), config=config)
    config["blocks"].append(2)
    config["x"] = 1
    assert variant.config == {"blocks": [1]}
    with pytest.raises(TypeError):
        variant.config["x"] = 1


def test_only_tasks_that_may_wait_have_variants_that_may(scale):
    @ost.task(blocking=True)
    def waits(src: ost.Read, dst: ost.Write, factor, offset):
        pass

    with pytest.raises(TypeError, match=r"only waits\(\) may wait"):
        scale.variant()(waits)
    with pytest.raises(TypeError, match=r"only waits\(\) may wait"):
        waits.variant()(scale)
    assert variant_of(waits, declared(GOOD)).task.blocking


def test_functions_are_declared_as_their_task_is(scale):
    free = ost.task(releases_gil=True)(declared(GOOD))
    assert variant_of(free, declared(GOOD), name="a").task.releases_gil
    assert not variant_of(free, ost.task(declared(GOOD)), name="b").task.releases_gil
    assert not variant_of(scale, declared(GOOD)).task.releases_gil


def test_accesses_of_native_code(library, scale):
    native = make_native(library)
    assert variant_of(scale, native).task is native
    for access, message in (
        ((ost.Read, ost.ReadWrite, float, int), r"argument 2 of scale\(\) is ost.ReadWrite.*'dst' of scale\(\) is ost"),
        ((ost.Read, ost.Write, ost.Read, int), r"argument 3 of scale\(\) is ost.Read, but parameter 'factor'"),
        ((ost.Read, ost.Write, float), "too many positional"),
        ((ost.Read, ost.Write, float, int, int), "missing a required argument"),
        ((), "too many positional"),
    ):
        with pytest.raises(TypeError, match=message):
            scale.variant(name="other")(ost.native(library.scale, access))
        with pytest.raises(TypeError):
            ost.native(library.scale, access).variant()(declared(GOOD))


A = np.arange(12.0)


@pytest.mark.parametrize("kind", ["python", "native", "kernel"])
@pytest.mark.parametrize("of", ["python", "native", "kernel"])
def test_all_kinds_stand_for_each_other(makers, of, kind):
    task, implementation = makers[of](), makers[kind]()
    variant = Variant(implementation, "other")
    b = np.zeros(12)
    u = ost.ring(np.arange(5.0), np.ones(5), np.zeros(5))
    expected_kind = PythonCall if kind == "python" else NativeCall
    with ost.capture() as graph:
        ops = [
            task(A, b, 2.0, 3),
            task(A[::2], b[5::-1], ost.param("w", 0.5), ost.step),
            task(A[3:8], u[1], np.float64(2), ost.param("k", 7)),
            task(u[0], u[-1], ost.param("v"), np.int32(1)),
            task(u[0], u[1], ost.param("c", 2.0, combine=math.fsum and (lambda x, y: x * y)), True),
        ]
    params = {"w": 3, "v": np.float32(0.25), "c": 4, "k": 11}
    for op in ops:
        results = []
        body = variant.body(op.body)
        assert type(body) is expected_kind, variant.refusal(op.body)
        for each in (op.body, body):
            state = [b, *u.arrays]
            for number, one in enumerate(state):
                one[...] = np.arange(one.size) + number
            for step in (0, 1, 5):
                run(op, each, step, params)
            results.append([one.tolist() for one in state])
        assert results[0] == results[1]
        assert [arg for arg in body.args if hasattr(arg, "mode")] == list(op.operands)
    assert len(graph) == 5


def test_python_variants_get_what_native_code_got(library):
    seen = []

    def other(src: ost.Read, dst: ost.Write, factor, offset):
        seen.append((type(src), src.flags.writeable, type(factor), type(offset), factor, offset))

    task = make_native(library)
    variant = variant_of(task, other)
    memory = array.array("d", [1, 2, 3])
    with ost.capture():
        op = task(memory, memory, 2, True)
        with_params = task(memory, memory, ost.param("w", 2), ost.param("k"))
    run(op, variant.body(op.body))
    run(with_params, variant.body(with_params.body), params={"k": np.int8(5)})
    run(with_params, variant.body(with_params.body), params={"k": np.bool_(1), "w": np.float32(0.5)})
    assert [each[:2] for each in seen] == [(np.ndarray, False)] * 3
    assert [each[2:] for each in seen] == [(float, int, 2.0, 1), (float, int, 2.0, 5), (float, int, 0.5, 1)]
    with pytest.raises(TaskError) as caught:
        run(with_params, variant.body(with_params.body), params={"k": 0.5})
    assert "must be an int" in str(caught.value.__cause__)


@pytest.mark.parametrize("kind", ["native", "kernel"])
def test_what_native_code_cannot_take(makers, scale, kind):
    variant = Variant(makers[kind](), "other")
    out = np.zeros(12)
    swapped, objects = np.arange(12.0).astype(">f8"), np.zeros(12, object)
    with ost.capture():
        refused = {
            "token": scale([1.0], out, 1.0),
            "byte order": scale(swapped, out, 1.0),
            "Python objects": scale(A, objects, 1.0),
            "complex": scale(A, out, 1j),
            "NoneType|None": scale(A, out, None),
            "str|'x'": scale(A, out, 1.0, "x"),
            "64 bits": scale(A, out, 1.0, 2**63),
        }
        taken = scale(A, out, 1, True)
        refused["int"] = scale(A, out, 1.0, ost.param("bad", "text"))
    for word, op in refused.items():
        assert variant.body(op.body) is None, word
        assert variant.refusal(op.body), word
    assert variant.refusal(refused["token"].body).endswith("token") or "no tokens" in variant.refusal(
        refused["token"].body
    )
    assert "byte order" in variant.refusal(refused["byte order"].body)
    assert variant.body(taken.body) is not None
    assert variant.refusal(taken.body) is None


def test_numbers_that_would_change_are_refused(library, scale):
    variant = Variant(make_native(library), "other")
    b = np.zeros(12)
    with ost.capture():
        ops = [scale(A, b, 2**53), scale(A, b, 2**53 + 1), scale(A, b, 1.0, 1.0), scale(A, b, ost.step)]
        ops += [scale(A, b, math.nan), scale(A, b, np.float32(0.1))]
    assert [variant.body(op.body) is None for op in ops] == [False, True, True, True, False, False]
    assert math.isnan(variant.body(ops[4].body).args[2])


def test_what_is_no_call_of_a_task(scale):
    graph = ost.Graph()
    for op in (graph.fill(np.zeros(3), 1.0), graph.copy(np.zeros(3), np.zeros(3))):
        assert default_variant(op.body) is None
        assert variants_of(op.body) == ()
        assert variant_of(scale, declared(GOOD), config={"n": len(scale.variants)}).body(op.body) is None
    op = graph.task(nothing, np.zeros(3), access=(ost.Read,))
    assert default_variant(op.body).name == "nothing"
    assert variants_of(op.body) == (default_variant(op.body),)


def test_scalars_of_kernels():
    pytest.importorskip("numba")
    sums = np.zeros(1)

    @ost.task
    def add(out: ost.ReadWrite, n, factor=1.0):
        out += n * factor

    @add.variant(config={"repeats": 3, "weight": 0.25})
    @ost.kernel
    def add_kernel(out: ost.ReadWrite, n, factor, repeats, weight, offset: int = 2):
        for _ in range(repeats):
            out[0] += n * factor * weight + (n * factor * weight) / repeats - offset + offset

    with ost.capture():
        plain, float_param = add(sums, 4), add(sums, ost.param("n", 4), 2)
    (variant,) = add.variants
    kinds = [variant.body(op.body).task.access[1:] for op in (plain, float_param)]
    # Parameters count as floats, since the function could be given one in any run;
    assert kinds == [(int, float, int, float, int), (float, int, int, float, int)]
    run(plain, variant.body(plain.body))
    assert sums[0] == 4.0
    assert len(add_kernel.compiled) == 2
    assert add_kernel.compiled[0].kernel is add_kernel
    for config, error in (
        ({"repeats": "x", "weight": 1}, "must be a number"),
        ({"repeats": 1, "weight": [1]}, "a number"),
    ):
        with pytest.raises(TypeError, match=error):
            add.variant(config=config)(add_kernel)

    @ost.kernel
    def typed(out: ost.ReadWrite, n, factor, repeats: int):
        pass

    with pytest.raises(TypeError, match="must be an int"):
        add.variant(config={"repeats": 1.5})(typed)
    # but not where integers are written: floats would round large ones.
    whole = np.zeros(1, int)
    with ost.capture():
        known, open_ = add(whole, ost.param("m", 4), 1), add(whole, ost.param("o"), 1)
    assert variant.body(known.body).task.access[1:3] == (int, int)
    assert "annotate it int or float" in variant.refusal(open_.body)


def test_kernels_that_do_not_compile_say_so(scale):
    pytest.importorskip("numba")

    @scale.variant()
    @ost.kernel
    def broken(src: ost.Read, dst: ost.Write, factor, offset):
        dst[0] = "text" + src

    with ost.capture():
        op = scale(A, np.zeros(12), 2.0)
    assert scale.variants[0].body(op.body) is None
    assert "Numba cannot compile" in scale.variants[0].refusal(op.body)


def test_without_numba_kernels_are_refused():
    code = """
    import sys
    sys.modules["numba"] = None
    import numpy as np, ostinato as ost
    @ost.task
    def clear(a: ost.Write): a[...] = 0
    @clear.variant()
    @ost.kernel
    def fast(a: ost.Write):
        for i in range(a.size): a[i] = 0
    with ost.capture():
        op = clear(np.ones(3))
    assert clear.variants[0].body(op.body) is None
    print(clear.variants[0].refusal(op.body))
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "pip install 'ostinato[numba]'" in found.stdout, found.stderr


def test_variable_and_named_arguments(library):
    @ost.task
    def total(out: ost.Write, *sources: ost.Read, scale=1.0, **options: ost.Read):
        out[...] = sum(sources) * scale + sum(options.values())

    def other(out: ost.Write, *arrays: ost.Read, scale, **more: ost.Read):
        out[...] = sum(arrays) * scale + sum(more.values())

    def two(out: ost.Write, a: ost.Read, b: ost.Read, scale=1.0):
        out[...] = (a + b) * scale

    def two_in_blocks(out: ost.Write, a: ost.Read, b: ost.Read, *, block, scale=1.0):
        out[...] = (a + b) * scale

    native = ost.native(library.scale, (ost.Write, ost.Read, ost.Read, float))
    all_of_them = [variant_of(total, each) for each in (other, two, native)]
    all_of_them.append(variant_of(total, two_in_blocks, config={"block": 2}))
    a, b, out = np.arange(3.0), np.ones(3), np.zeros(3)
    with ost.capture():
        ops = [
            total(out, a, b, scale=2.0),
            total(out, a, b),
            total(out, a),
            total(out, a, b, a),
            total(out, a, b, extra=a),
            total(out),
        ]
    taken = [[variant.body(op.body) is not None for variant in all_of_them] for op in ops]
    both, one = [True, True, True, True], [True, False, False, False]
    assert taken == [both, both, one, one, one, one]
    for op in ops:
        run(op, op.body)
        expected = out.tolist()
        for variant in all_of_them:
            body = variant.body(op.body)
            if isinstance(body, PythonCall):
                out[:] = -1
                run(op, body)
                assert out.tolist() == expected
    for header in ("out: ost.Write, *arrays: ost.Write, scale", "out: ost.Write, a: ost.Write, scale=1",
                   "out: ost.Write, *arrays: ost.Read, scale, **more"):  # fmt: skip
        with pytest.raises(TypeError, match="a variant has the accesses of its task"):
            total.variant()(declared(header))


def test_options_and_configurations_do_not_mix():
    @ost.task
    def act(out: ost.ReadWrite, **options):
        out += len(options)

    variant = variant_of(act, declared("out: ost.ReadWrite, *, block, **options"), config={"block": 2})
    out = np.zeros(1)
    with ost.capture():
        with_it, without = act(out, block=3), act(out, size=3)
    assert "'block'" in variant.refusal(with_it.body)
    assert sorted(variant.body(without.body).keywords) == ["block", "size"]


def test_options_that_native_code_cannot_know():
    pytest.importorskip("numba")

    @ost.task
    def act(out: ost.ReadWrite, *, by, **options):
        out += by

    @act.variant
    @ost.kernel
    def fast(out: ost.ReadWrite, by, extra=1):
        out[0] += by * extra

    out = np.zeros(1)
    with ost.capture():
        plain, with_option = act(out, by=2), act(out, by=2, size=3)
    assert "by names" in act.variants[0].refusal(with_option.body)
    run(plain, act.variants[0].body(plain.body))
    assert out[0] == 2


def test_methods():
    class Solver:
        def __init__(self, factor):
            self.factor = factor

        @ost.task
        def relax(self, x: ost.ReadWrite, shift=0):
            x *= self.factor
            x += shift

        @relax.variant
        def relax_slowly(self, x: ost.ReadWrite, shift):
            for i in range(len(x)):
                x[i] = x[i] * self.factor + shift

    solver, x = Solver(3), np.ones(4)
    with ost.capture() as graph:
        op = solver.relax(x, shift=1)
    explicit = graph.task(solver.relax, x, 1)
    assert [each.label for each in solver.relax.variants] == ["relax_slowly"]
    for each in (op, explicit):
        x[:] = 1
        run(each, Solver.relax.variants[0].body(each.body))
        assert x.tolist() == [4] * 4
    other = Solver(5)
    variant = variant_of(ost.task(declared("x: ost.ReadWrite, shift=0")), other.relax_slowly)
    with pytest.raises(TypeError):
        solver.relax.variant()(ost.native(1, (ost.ReadWrite, int)))
    assert variant.task.function.__self__ is other
    assert variant_of(ost.task(declared("x: ost.ReadWrite, shift=0")), other.relax).name == "relax"


def test_callables_of_other_kinds(scale):
    class Callable:
        def __call__(self, src: ost.Read, dst: ost.Write, factor, offset):
            dst[...] = src * factor + offset

    def generic(rounds, src: ost.Read, dst: ost.Write, factor, offset):
        dst[...] = src * factor + offset

    a, b = np.arange(4.0), np.zeros(4)
    with ost.capture():
        op = scale(a, b, 2.0)
    for made in (Callable(), functools.partial(generic, 3)):
        variant = variant_of(scale, made, name=f"v{len(scale.variants)}")
        b[:] = -1
        run(op, variant.body(op.body))
        assert b.tolist() == [0, 2, 4, 6]


def test_variants_of_variants_are_their_own(scale):
    first, second = ost.task(declared(GOOD)), declared(GOOD)
    scale.variant(name="first")(first)
    first.variant(name="second")(second)
    first.variant(name="back")(scale)
    scale.variant(name="itself")(scale)
    assert [each.name for each in scale.variants] == ["first", "itself"]
    with ost.capture():
        op = scale(A, np.zeros(12), 1.0)
    assert [each.name for each in variants_of(op.body)] == ["scale", "first", "itself"]
    assert scale.variants[1].body(op.body) is op.body
    body = scale.variants[0].body(op.body)
    assert [each.name for each in variants_of(body)] == ["other", "second", "back"]
    assert first.variants[1].body(body).args == op.body.args


def test_declared_of_what_a_kernel_was_compiled_to():
    kernel = make_kernel()
    with ost.capture():
        op = kernel(A, np.zeros(12), 1.0)
    assert default_variant(op.body).task is kernel
    op.body.task.variant(name="other")(declared(GOOD))
    assert [each.name for each in kernel.variants] == ["other"]
    assert [each.name for each in op.body.task.variants] == ["other"]
    assert [each.name for each in variants_of(op.body)] == ["scale", "other"]
    task = make_python()
    assert variant_of(task, op.body.task, name="k").task is kernel


def test_declared_while_capturing_and_after(scale):
    with ost.capture() as graph:
        op = scale(A, np.zeros(12), 1.0)
        scale.variant(name="inside")(declared(GOOD))
    assert len(graph) == 1
    scale.variant(name="after")(declared(GOOD))
    assert [each.name for each in variants_of(op.body)] == ["scale", "inside", "after"]


def test_declared_by_many_threads_at_once(scale):
    other, start, failed = declared(GOOD), threading.Barrier(8), []

    def declare(number):
        start.wait()
        for n in range(20):
            scale.variant(config={"n": n, "of": number})(other)
            try:
                scale.variant(config={"n": n})(other)
            except ValueError:
                failed.append(n)

    threads = [threading.Thread(target=declare, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(scale.variants) == 8 * 20 + 20
    assert len(failed) == 7 * 20
    for number in range(8):
        assert [v.config["n"] for v in scale.variants if v.config.get("of") == number] == [*range(20)]


@ost.task
def importable(a: ost.ReadWrite):
    a += 1


@importable.variant
def importable_too(a: ost.ReadWrite):
    a[...] = a + 1


def test_copies_are_the_same_task(library, scale):
    scale.variant()(declared(GOOD))
    for task in (scale, make_native(library), Kernel(make_python().function, None, {})):
        assert copy.copy(task) is task
        assert copy.deepcopy({"task": [task]})["task"][0] is task
    assert pickle.loads(pickle.dumps(importable)) is importable
    assert pickle.loads(pickle.dumps(importable_too)) is importable_too
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(scale)
    with pytest.raises(TypeError, match="has no name"):
        pickle.dumps(ost.task(functools.partial(nothing, 3)))


@pytest.mark.skipif(not LOCKED and sys.version_info < (3, 14), reason="this Python keeps functions for ever")
def test_tasks_and_variants_are_collected_together():
    def make():
        task, implementation = make_python(), declared(GOOD)
        task.variant()(implementation)
        default_variant(PythonCall(task, ()))
        return weakref.ref(implementation)

    gone = make()
    gc.collect()
    assert gone() is None
