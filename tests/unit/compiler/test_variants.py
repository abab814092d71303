"""Variants in place of what was recorded: the same results, whatever runs them."""

import gc
import math
import random
import weakref
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from native import load
from ostinato.compiler.costs import Costed, cost_by_estimate, estimate
from ostinato.compiler.flatten import flatten
from ostinato.compiler.ir import Target
from ostinato.compiler.pipeline.compile import compile
from ostinato.compiler.summary import summarize
from ostinato.compiler.variants import replace_variants
from ostinato.errors import ContractError, TaskError
from ostinato.graph.body import NativeCall, PythonCall
from ostinato.graph.variant import default_variant, variants_of
from ostinato.runtime.program import Program
from ostinato.runtime.rebind import detach
from ostinato.runtime.sequential import run_sequentially

try:
    import numba
except ImportError:
    numba = None

# Sums and products of small whole numbers, which are exact in whatever order and by whatever instructions.


@pytest.fixture(scope="module")
def tasks():
    """Tasks with correct variants of all kinds: each does dst = src * factor + offset, or adds to it."""

    def scale_body(src, dst, factor, offset):
        dst[...] = src * factor + offset

    def scale_rows(src: ost.Read, dst: ost.Write, factor, offset, *, block):
        for at in range(0, len(src), block):
            dst[at : at + block] = src[at : at + block] * factor + offset

    def scale_loop(src: ost.Read, dst: ost.Write, factor, offset):
        for i in range(src.size):
            dst[i] = src[i] * factor + offset

    def scale_native():
        return ost.native(load("unit/graph/native_tasks.c").scale, (ost.Read, ost.Write, float, int))

    @ost.task
    def scale(src: ost.Read, dst: ost.Write, factor, offset=1):
        scale_body(src, dst, factor, offset)

    @ost.task
    def scale_named(src: ost.Read, dst: ost.Write, *, factor=2, offset=1):
        scale_body(src, dst, factor, offset)

    @ost.task(releases_gil=True)
    def add(src: ost.Read, dst: ost.ReadWrite, factor, offset=1):
        dst[...] = dst + src * factor + offset

    @add.variant
    def add_in_place(src: ost.Read, dst: ost.ReadWrite, factor, offset):
        dst += src * factor
        dst += offset

    native = scale_native()
    for task in (scale, native):
        task.variant(config={"block": 1})(scale_rows)
        task.variant(config={"block": 3})(scale_rows)
        task.variant()(scale_native())
        task.variant(name="loop")(ost.task(releases_gil=True)(scale_loop))
    scale_named.variant()(ost.task(name="named")(scale_loop))
    scale_named.variant()(scale_native())
    found = [scale, add, native, scale_named]
    if numba is not None:

        @ost.kernel
        def kernel(src: ost.Read, dst: ost.Write, factor: float, offset: int = 1):
            for i in range(src.size):
                dst[i] = src[i] * factor + offset

        @ost.kernel
        def add_loop(src: ost.Read, dst: ost.ReadWrite, factor: float, offset: int, repeats: int):
            for _ in range(repeats):
                for i in range(src.size):
                    dst[i] += src[i] * factor + offset

        for task in (scale, native, scale_named):
            task.variant()(kernel)
        add.variant(config={"repeats": 1})(add_loop)
        kernel.variant()(scale_loop)
        kernel.variant()(scale_native())
        found.append(kernel)
    return found


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2) as machine:
        yield machine


def choosing(seed):
    """A costing that takes any variant."""
    chance = random.Random(seed)
    labels = []

    def costing(summary):
        ops, chosen = summary.ops, {}
        for op in ops:
            fitting = [each for each in variants_of(op.recorded) if each.body(op.recorded) is not None]
            if fitting:
                chosen[op.index] = chance.choice(fitting)
        ops = replace_variants(ops, chosen)
        labels.append([op.variant and op.variant.label for op in ops])
        return Costed(ops, estimate(ops))

    return costing, labels


ARRAYS = 4
SOURCES = (np.s_[:], np.s_[::-1], np.s_[:4], np.s_[::2], np.s_[0:0])
TARGETS = {8: np.s_[:], 4: np.s_[3:7], 0: np.s_[5:5]}  # contiguous: fewer kernels to compile


def build(tasks, draw):
    """A graph of random calls, with its arrays."""
    arrays = [np.arange(8.0) + n for n in range(ARRAYS)]
    turns = [np.arange(8.0) - n for n in range(draw(st.integers(2, 3)))]
    ring = ost.ring(*turns)
    inner = ost.Graph()
    with ost.capture() as graph:
        scalars = [2, -1.0, 0.5, True, ost.param("w", 2), ost.param("v", -1.0), ost.param("c", 2, combine=max)]
        offsets = [1, np.int64(3), ost.step, ost.param("k", 4)]
        for _ in range(draw(st.integers(1, 8))):
            call(draw, draw(st.sampled_from(tasks)), arrays, ring, scalars, offsets)
    if draw(st.booleans()):
        w, k = inner.param("w"), inner.param("k", 2)
        for _ in range(draw(st.integers(1, 3))):
            call(draw, draw(st.sampled_from(tasks)), arrays, ring, [w, 2.0, k], [k, 1], inner)
        given = {"w": draw(st.sampled_from([3, -1.0, graph.param("v", -1.0)]))}
        graph.subgraph(inner, params=given)
        graph.subgraph(inner, params={**given, "k": 1})
    return graph, [*arrays, *turns]


def call(draw, task, arrays, ring, scalars, offsets, graph=None):
    source, target = draw(st.permutations(range(ARRAYS + 1)))[:2]
    part = draw(st.sampled_from(SOURCES))
    parts = (part, TARGETS[len(np.zeros(8)[part])])
    offset = draw(st.integers(0, 2))
    places = [ring[offset] if at == ARRAYS else arrays[at] for at in (source, target)]
    if draw(st.integers(0, 3)) == 0:
        places = [ring[offset], ring[offset + 1]]
    src, dst = (place[part] for place, part in zip(places, parts, strict=True))
    factor, add = draw(st.sampled_from(scalars)), draw(st.sampled_from(offsets))
    if graph is not None:
        args = (src, dst) if task.name == "scale_named" else (src, dst, factor, add)
        graph.task(task, *args)
    elif task.name == "scale_named":
        task(src, dst, factor=factor, offset=add)
    elif draw(st.booleans()) or not hasattr(task, "function"):
        task(src, dst, factor, add)
    elif task.name == "kernel":
        task(src, dst, offset=add, factor=factor)
    else:
        task(src, dst, factor=factor)


def start(arrays):
    for number, array in enumerate(arrays):
        array[:] = np.arange(8.0) % 5 + number


@pytest.mark.slow
@settings(max_examples=100)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_any_variants_give_what_the_defaults_give(tasks, machine, data, seed):
    graph, arrays = build(tasks, data.draw)
    params = data.draw(st.sampled_from([{}, {"w": 1.5, "k": 2}, {"v": np.float32(0.5), "c": 3}]))
    flat = flatten(graph)
    start(arrays)
    run_sequentially(flat.ops, 3, 0, params=params)
    run_sequentially(flat.ops, 2, 3)
    expected = [array.tolist() for array in arrays]
    costing, _ = choosing(seed)
    with Program(graph, machine, data.draw(st.integers(1, 2)), costing, "pipelined") as program:
        start(arrays)
        program.replay(3, params=params)
        program.replay(2)
        assert [array.tolist() for array in arrays] == expected
        chosen = costing(summarize(flat.ops)).ops
        assert [op.original for op in chosen] == [op.original for op in flat.ops]
        assert [op.operands for op in chosen] == [op.operands for op in flat.ops]
        start(arrays)
        run_sequentially(chosen, 3, 0, params=params)
        run_sequentially(chosen, 2, 3)
        assert [array.tolist() for array in arrays] == expected
        program.verify(2, params=params)


def one(task, *args, **options):
    with ost.capture() as graph:
        op = task(*args, **options)
    return graph, op


def by_name(name):
    """A costing that takes the variant of a name wherever there is one."""

    def costing(summary):
        pairs = ((op.index, each) for op in summary.ops for each in variants_of(op.recorded))
        ops = replace_variants(summary.ops, {index: each for index, each in pairs if each.name.startswith(name)})
        return Costed(ops, estimate(ops))

    return costing


def test_ops_say_what_they_run(tasks):
    scale = tasks[0]
    graph, op = one(scale, np.ones(4), np.zeros(4), 2.0)
    rows = scale.variants[0]
    (changed,) = replace_variants(graph.ops, {0: rows})
    assert (op.variant, op.recorded, op.original) == (None, op.body, op)
    assert (changed.variant, changed.recorded, changed.original) == (rows, op.body, op)
    assert (changed.name, changed.call_site, changed.operands) == (op.name, op.call_site, op.operands)
    again = replace_variants((changed,), {0: scale.variants[2]})[0]
    assert (again.variant.name, type(again.body), again.original) == ("native scale", NativeCall, op)
    (back,) = replace_variants((changed,), {0: default_variant(op.body)})
    assert (back.variant, back.body, back.recorded, back.original) == (None, op.body, op.body, op)
    assert replace_variants(graph.ops, {0: default_variant(op.body)}) == (op,)
    assert replace_variants(graph.ops, {}) == graph.ops


def test_a_variant_that_cannot_take_the_arguments_is_an_error(tasks):
    graph, _ = one(tasks[0], [1.0], np.zeros(1), 2.0)
    with pytest.raises(TypeError, match="token"):
        replace_variants(graph.ops, {0: tasks[0].variants[2]})


def test_arrays_are_rebound_with_a_variant_chosen(tasks, machine):
    a, b = np.arange(4.0), np.zeros(4)
    graph, op = one(tasks[0], a, b, 2.0)
    for name in ("scale_rows", "native", "loop"):
        with Program(graph, machine, 2, by_name(name), "pipelined") as program:
            new = np.zeros(4)
            program.rebind([(b, new)])
            program.replay()
            assert new.tolist() == [1, 3, 5, 7]
            newer = np.full(4, 10.0)
            program.rebind([(a, newer)])
            program.replay(2)
            assert new.tolist() == [21] * 4
            program.verify(2)
    assert b.tolist() == [0] * 4
    assert op.variant is None


def test_a_rebound_program_keeps_nothing_alive_but_its_arrays(tasks, machine):
    a, b = np.arange(4.0), np.zeros(4)
    graph, op = one(tasks[0], a, b, 2.0)
    gone = weakref.ref(op)
    with Program(graph, machine, 1, by_name("scale_rows"), "pipelined") as program:
        program.rebind([(a, np.ones(4)), (b, np.zeros(4))])
        del graph, op, a, b
        program.replay()
        gc.collect()
        assert gone() is None


def test_rebound_ops_take_other_variants(tasks):
    scale = tasks[0]
    a, b = np.arange(4.0), np.zeros(4)
    graph, op = one(scale, a, b, ost.step, 1)
    executable = compile(graph, Target(1, 1))
    step = replace(executable.step, nodes=replace_variants(graph.ops, {0: scale.variants[0]}))
    (apart,) = detach(replace(executable, step=step)).step.nodes
    assert apart.variant is scale.variants[0]
    assert variants_of(apart.recorded) == variants_of(op.body)
    (other,) = replace_variants((apart,), {0: scale.variants[1]})
    (back,) = replace_variants((other,), {0: default_variant(op.body)})
    assert (other.variant, back.variant) == (scale.variants[1], None)
    for each in (apart, other, back):
        b[:] = 0
        run_sequentially((each,), 1, 3)
        assert b.tolist() == [1, 4, 7, 10]


def test_failures_name_the_op_that_was_recorded(machine):
    @ost.task
    def act(a: ost.ReadWrite):
        a += 1

    @act.variant
    def fail(a: ost.ReadWrite):
        raise ValueError("no")

    graph, op = one(act, np.zeros(1))
    with Program(graph, machine, 1, by_name("fail"), "pipelined") as program:
        with pytest.raises(TaskError, match=r"'act' \(variant fail\) raised ValueError: no") as caught:
            program.replay()
        assert caught.value.op is op


def test_verify_looks_at_the_variant_that_runs(machine):
    hidden = np.zeros(2)

    @ost.task
    def act(a: ost.ReadWrite, b: ost.Read):
        a += b

    @act.variant
    def leaks(a: ost.ReadWrite, b: ost.Read):
        a += b
        hidden[0] += 1

    a, b = np.zeros(2), np.ones(2)
    with ost.capture() as graph:
        act(a, b)
        act(hidden, b)
    with Program(graph, machine, 1, cost_by_estimate, "pipelined") as program:
        program.verify(2)
    with Program(graph, machine, 1, by_name("leaks"), "pipelined") as program:  # noqa: SIM117
        with pytest.raises(ContractError, match=r"'act' \(variant leaks\) wrote to .* did not declare"):
            program.verify(2)


def right_here_only(task):
    """Declare a variant that is right for what is not negative."""

    @task.variant
    def quick(a: ost.ReadWrite, b: ost.Read, factor):
        a += np.abs(b) * factor


def test_verify_compares_variants_with_the_task_itself(machine):
    @ost.task
    def act(a: ost.ReadWrite, b: ost.Read, factor):
        a += b * factor

    right_here_only(act)
    a, b = np.zeros(3), np.ones(3)
    u = ost.ring(np.zeros(3), np.zeros(3))
    with ost.capture() as graph:
        act(a, b, 2.0)
        act(u[0][1:], u[1][1:], ost.param("w", 1.0))
    with Program(graph, machine, 2, by_name("quick"), "pipelined") as program:
        program.verify(3)
        b[1] = -1
        with pytest.raises(ContractError, match=r"'act' \(variant quick\) does not give what the task.*'a'") as caught:
            program.verify(3)
        assert "at index (1,) it gives 2.0 instead of -2.0" in str(caught.value)
        assert "step 0" in str(caught.value)
        program.rebind([(b, np.ones(3))])
        program.verify(2)
        new = -np.ones(3)
        program.rebind([(b, new)])
        with pytest.raises(ContractError, match=r"instead of -2\.0"):
            program.verify(1)
    assert a.tolist() == [0] * 3


@pytest.mark.parametrize("rtol", [0.0, 1e-3, 1e-9, math.inf])
def test_verify_lets_variants_differ_by_what_they_were_held_to(machine, rtol):
    @ost.task
    def act(a: ost.Write, n: ost.Write):
        a[...] = 1
        n[...] = 7

    @act.variant
    def nearly(a: ost.Write, n: ost.Write):
        a[...] = 1 + 1e-6
        n[...] = 7

    def costing(summary):
        ops = replace_variants(summary.ops, {0: act.variants[0]}, {0: rtol})
        assert ops[0].rtol == rtol
        return Costed(ops, estimate(ops))

    graph, op = one(act, np.zeros(3), np.zeros(1, int))
    assert op.rtol == 0
    a = graph.ops[0].operands[0].array
    with Program(graph, machine, 1, costing, "pipelined") as program:
        program.rebind([(a, np.zeros(3))])
        if rtol in (1e-3, math.inf):
            program.verify(2)
            return
        with pytest.raises(ContractError, match="does not give what the task itself gives"):
            program.verify(2)


def test_verify_names_the_task_where_that_is_wrong(machine):
    hidden = np.zeros(2)

    @ost.task
    def act(a: ost.ReadWrite):
        a += 1
        hidden[0] += 1

    @act.variant
    def proper(a: ost.ReadWrite):
        a += 1

    with ost.capture() as graph:
        act(np.zeros(2))
        ost.until(hidden[:1])
    with Program(graph, machine, 1, by_name("proper"), "pipelined") as program:  # noqa: SIM117
        with pytest.raises(ContractError, match=r"^'act' wrote to"):
            program.verify(1)


def test_verify_leaves_tokens_to_one_run(machine):
    @ost.task
    def log(token: ost.ReadWrite, a: ost.Write):
        token.append(1)
        a[...] = len(token)

    @log.variant
    def other(token: ost.ReadWrite, a: ost.Write):
        token += [1]
        a[...] = len(token)

    graph, _ = one(log, [], np.zeros(1))
    with Program(graph, machine, 1, by_name("other"), "pipelined") as program:
        program.verify(3)


def test_variants_declared_after_capture_count(machine):
    @ost.task
    def act(a: ost.ReadWrite):
        a += 1

    a = np.zeros(1)
    graph, _ = one(act, a)

    @act.variant
    def later(a: ost.ReadWrite):
        a += 10

    with Program(graph, machine, 1, by_name("later"), "pipelined") as program:
        program.replay()
    assert a[0] == 10


def test_many_ops_share_what_is_made_of_parameters(tasks, machine):
    native = tasks[2]
    a, b = np.ones(4), np.zeros(4)
    with ost.capture() as graph:
        w = ost.param("w", 2)
        for _ in range(50):
            native(a, b, w, 1)
    rows = native.variants[0]
    ops = replace_variants(graph.ops, dict.fromkeys(range(50), rows))
    assert all(isinstance(op.body, PythonCall) for op in ops)
    assert len({id(op.body.args[2]) for op in ops}) == 1
    assert graph.ops[0].body.args[2] is w
    with Program(graph, machine, 2, by_name("scale_rows"), "pipelined") as program:
        program.replay(w=3)
        assert b.tolist() == [4] * 4
        with pytest.raises(TypeError, match="'w'"):
            program.replay(w="text")


def test_programs_show_lanes_with_variants(tasks, machine):
    graph, _ = one(tasks[0], np.ones(4), np.zeros(4), 2.0)
    with Program(graph, machine, 2, by_name("native"), "pipelined") as program:
        assert "scale" in program.explain()
        assert program.trace(2).to_dict()
