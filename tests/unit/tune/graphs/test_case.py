"""Which ops are one signature, what it is called, and under which call contexts its variants are compared."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.compiler.flatten import flatten
from ostinato.tune.graphs.call_context import CallContext, CallContexts, Checked, representatives
from ostinato.tune.graphs.signature import Signature, group, kind_of, signatures_of
from tune.graphs.tasks import add, relax


def signatures(graph: ost.Graph, kinds: tuple[str, ...] = ("cpu",)) -> list[Signature]:
    return signatures_of(flatten(graph).ops, kinds)


def labels(graph: ost.Graph) -> list[str]:
    return [signature.label for signature in signatures(graph)]


def test_ops_alike_are_one_case() -> None:
    graph, a, b = ost.Graph(), np.zeros(8), np.zeros(8)
    graph.task(relax, a, b)
    graph.task(relax, b, a, 0.5)
    graph.task(relax, a[::-1], b, 0.5, on="cpu:0", name="other")
    graph.task(relax, *ost.ring(a, b), on="cpu")
    (signature,) = signatures(graph)
    assert (signature.label, signature.op, signature.kind) == ("relax", graph.ops[0], "cpu")
    assert signature.key == {
        "task": "tune.graphs.tasks:relax",
        "arrays": [["float64", [8], "r"], ["float64", [8], "w"]],
        "kind": "cpu",
    }
    assert json.loads(json.dumps(signature.key)) == signature.key
    assert [variant.label for variant in signature.variants] == [
        "relax",
        "at_once",
        "blocked(block=16)",
        "blocked(block=8)",
    ]
    assert signature.variants == signature.declared


def test_shapes_dtypes_and_accesses_tell_cases_apart() -> None:
    graph, a = ost.Graph(), np.zeros(8)
    for pair in ((a, a), (a[:4], a[4:]), (a, a.astype("f4")), (a[:4].reshape(2, 2), a[:4].reshape(2, 2))):
        graph.task(add, *pair)
    assert labels(graph) == [
        "add[8 float64, 8 float64]",
        "add[4 float64, 4 float64]",
        "add[8 float64, 8 float32]",
        "add[2x2 float64, 2x2 float64]",
    ]
    graph = ost.Graph()
    for access in ((ost.Read,), (ost.ReadWrite,)):
        graph.task(len, a, access=access)
    first, second = signatures(graph)
    assert first.key != second.key
    assert first.label != second.label


def test_tokens_count_by_their_type() -> None:
    graph = ost.Graph()
    for token in ([], [1], {}):
        graph.task(len, token, access=(ost.ReadWrite,))
    assert labels(graph) == ["len[token list]", "len[token dict]"]


def test_copies_and_fills_are_cases_without_variants() -> None:
    graph, a, b = ost.Graph(), np.zeros(4), np.zeros(4)
    index = np.arange(4)
    graph.copy(a, b)
    graph.copy(b, a)
    graph.copy(a, b, reduce="+")
    graph.copy(a, b, indices=index)
    graph.copy(a, b, scatter=index)
    graph.fill(a, 1.0)
    graph.fill(b, 2.0)
    found = signatures(graph)
    assert [signature.op.index for signature in found] == [0, 2, 3, 4, 5]
    assert [signature.key["task"] for signature in found] == ["copy", "copy +", "copy indices", "copy scatter", "fill"]
    assert not any(signature.variants for signature in found)
    assert found[-1].label == "fill"
    assert len({signature.label for signature in found}) == 5


def test_what_computes_nothing_is_no_case() -> None:
    graph, flag = ost.Graph(), np.zeros(1)
    ready = graph.precondition("ready")
    op = graph.fill(flag, 1.0, after=ready)
    graph.until(flag)
    graph.arrive(ost.Barrier(1), after=op)
    graph.postcondition("done", after=op)
    assert labels(graph) == ["fill"]
    assert group(graph.ops, "cpu").numbers == [-1, 0, -1, -1, -1]


def test_ops_of_nested_graphs_are_cases() -> None:
    inner, a, b = ost.Graph(), np.zeros(8), np.zeros(8)
    inner.task(relax, a, b, inner.param("omega", 0.5))
    graph = ost.Graph()
    graph.subgraph(inner, {"omega": 0.25})
    graph.subgraph(inner)
    graph.task(relax, a[:4], b[:4])
    found = signatures(graph)
    assert [signature.label for signature in found] == ["relax[8 float64, 8 float64]", "relax[4 float64, 4 float64]"]
    assert [op.body.args[2] for op in found[0].checked] == [0.25, 0.5]


def test_ops_bound_elsewhere_are_not_of_this_kind() -> None:
    graph, a, b = ost.Graph(), np.zeros(8), np.zeros(8)
    graph.task(relax, a, b, on="cuda:0")
    graph.task(relax, a, b)
    graph.task(relax, b, a, on="cpu:1")
    assert [kind_of(op.on) for op in graph.ops] == ["cuda", None, "cpu"]
    (signature,) = signatures(graph)
    assert signature.op is graph.ops[1]
    both = signatures(graph, ("cpu", "cuda"))
    assert [(signature.kind, signature.op.index) for signature in both] == [("cpu", 1), ("cuda", 0)]
    assert len({signature.label for signature in both}) == 2
    with ost.Machine(cpus=1) as machine:
        assert kind_of(machine.processors[0]) == "cpu"


def test_variants_are_those_for_the_kind_that_take_the_arguments() -> None:
    @ost.task
    def scale(x: ost.ReadWrite, by: object) -> None: ...

    @scale.variant(on="cuda")
    def on_gpu(x: ost.ReadWrite, by: object) -> None: ...

    @scale.variant(on="cpu")
    def on_cpu(x: ost.ReadWrite, by: object) -> None: ...

    scale.variant(ost.native(12345, (ost.ReadWrite, float), name="in C"))
    graph = ost.Graph()
    graph.task(scale, np.zeros(4), "a lot")
    graph.task(scale, np.zeros(5), 2.0)
    text, number = signatures(graph)
    assert [variant.name for variant in text.declared] == ["scale", "on_cpu", "in C"]
    assert [variant.name for variant in text.variants] == ["scale", "on_cpu"]
    assert [variant.name for variant in number.variants] == ["scale", "on_cpu", "in C"]


def made(k: int) -> ost.graph.Task:
    @ost.task
    def scale(x: ost.ReadWrite) -> None:
        x *= k

    return scale


def test_tasks_of_one_name_are_told_apart() -> None:
    graph, a = ost.Graph(), np.zeros(4)
    one, two = made(1), made(2)
    for task in (one, two, one):
        graph.task(task, a)
    first, second = signatures(graph)
    assert first.label != second.label
    assert (first.op, second.op) == graph.ops[:2]


def test_tasks_of_one_function_are_told_apart() -> None:
    def double(x: ost.ReadWrite) -> None:
        x *= 2

    plain, waiting, again = ost.task(double), ost.task(blocking=True)(double), ost.task(double)
    graph, a = ost.Graph(), np.zeros(4)
    for task in (plain, waiting, again, plain):
        graph.task(task, a)
    graph.task(double, a, access=(ost.ReadWrite,))
    graph.task(double, a, access=(ost.ReadWrite,))
    assert group(graph.ops, "cpu").numbers == [0, 1, 2, 0, 3, 3]
    assert len(labels(graph)) == len(set(labels(graph))) == 4


def test_functions_of_one_code_and_closure_are_one_task() -> None:
    graph, a = ost.Graph(), np.zeros(4)

    def with_factor(k: object) -> Callable[[Any], None]:
        def scaled(x: Any) -> None:
            x *= k

        return scaled

    factor = object()
    for k in (factor, factor, object()):
        graph.task(with_factor(k), a, access=(ost.ReadWrite,))
    for _ in range(2):
        graph.task(lambda x: None, a, access=(ost.ReadWrite,))
    assert group(graph.ops, "cpu").numbers == [0, 0, 1, 2, 2]


def test_kernels_are_one_case_for_all_layouts() -> None:
    pytest.importorskip("numba")

    @ost.kernel
    def double(x: ost.ReadWrite) -> None:
        for i in range(x.size):
            x[i] *= 2

    graph, a = ost.Graph(), np.zeros(8)
    graph.task(double, a[:4])
    graph.task(double, a[::2])
    (signature,) = signatures(graph)
    assert signature.key["task"].endswith("double")
    assert signature.label == "double"


def call_context(*args: Any, task: Any = relax) -> CallContext:
    graph = ost.Graph()
    return CallContexts().of(graph.task(task, *args))


def test_circumstances_are_layouts_overlaps_and_scalars() -> None:
    a, b = np.zeros(16), np.zeros(16)
    wide = np.zeros((16, 2))
    found = [
        call_context(a, b),
        call_context(a, b, 0.5),
        call_context(a, b, 1),
        call_context(a, b, np.float32(1)),
        call_context(wide[:, 0], b),
        call_context(a, wide[:, 0]),
        call_context(a[::-1], b),
        call_context(a, a),
        call_context(a[:-1], a[1:]),
        call_context(a[1:], a[:-1]),
        call_context(a[:-2], a[2:]),
        call_context(np.broadcast_to(a[:1], (16,)), b),
    ]
    assert len(set(found)) == len(found)


def test_circumstances_are_the_same_elsewhere() -> None:
    a, b, c = np.zeros(16), np.zeros(16), np.zeros((4, 20))
    assert call_context(a, b, 0.5) == call_context(b, a, 0.5) == call_context(b[1:9], b[9:], 0.5)
    assert call_context(c[:, :3], c[:, 3:6]) == call_context(c[:, 8:11], c[:, 11:14])
    assert call_context(a[3:4], b[::16]) == call_context(b[::16], a[3:4])  # never walked along
    assert call_context(a, a, task=add) == call_context(b, b, task=add)
    assert call_context(*ost.ring(a, b)) == call_context(a, b)


def test_two_arrays_that_are_only_read_may_overlap() -> None:
    @ost.task
    def dot(x: ost.Read, y: ost.Read, out: ost.Write) -> None: ...

    a, out = np.zeros(16), np.zeros(1)
    assert call_context(a, a, out, task=dot) == call_context(a[:], a.copy(), out, task=dot)


def test_parameters_count_by_their_defaults() -> None:
    a, b, graph = np.zeros(16), np.zeros(16), ost.Graph()
    of = CallContexts().of
    first = of(graph.task(relax, a, b, graph.param("omega", 0.5)))
    second = of(graph.task(relax, a, b, graph.param("sigma", 0.5)))
    third = of(graph.task(relax, a, b, graph.param("tau", 0.75)))
    assert first == second != third
    assert of(graph.task(relax, a, b, 0.5)) not in (first, third)


def test_ops_whose_parameters_have_no_default_are_not_measured_if_others_are() -> None:
    graph, a, b = ost.Graph(), np.zeros(8), np.zeros(8)
    required = graph.param("required")
    graph.task(relax, a, b, required)
    graph.fill(a, required)
    needed = [signature.op.index for signature in signatures(graph)]
    graph.task(relax, a, b, graph.param("omega", 0.5))
    graph.fill(b, 1.0)
    known = signatures(graph)
    assert needed == [0, 1]
    assert [signature.op.index for signature in known] == [2, 3]
    assert [op.body.args[2] for op in known[0].checked] == [graph.params["omega"], 0.4375]
    assert not Checked([CallContexts().of(graph.ops[2])]).covers(CallContexts().of(graph.ops[0]))


def test_objects_count_by_what_they_hold() -> None:
    a, b = np.zeros(16), np.zeros(16)
    assert call_context(a, b, {1: 2}) == call_context(a, b, {1: 2}) != call_context(a, b, {1: 3})
    assert call_context(a, b, {}) != call_context(a, b, [])


def test_objects_that_cannot_tell_what_they_hold_count_as_themselves() -> None:
    a, b, lock = np.zeros(16), np.zeros(16), threading.Lock()
    assert call_context(a, b, lock) == call_context(a, b, lock) != call_context(a, b, threading.Lock())


@ost.task
def by_token(token: ost.Read, target: ost.Write) -> None:
    target[...] = token.start


def test_tokens_that_are_only_read_count_by_what_they_hold_unless_that_is_data() -> None:
    graph, a = ost.Graph(), np.zeros(16)
    one, same, other = (CallContexts().of(graph.task(by_token, token, a)) for token in (range(2), range(2), range(3)))
    assert one == same != other
    empty, full = (CallContexts().of(graph.task(by_token, token, a)) for token in ([], [1]))
    assert empty == full


def test_what_differs_from_step_to_step_is_never_taken_as_checked() -> None:
    a, b, c = np.zeros(16), np.zeros(16), np.zeros(16)
    apart, same, strided = ost.ring(a, b), ost.ring(a, a), ost.ring(a, np.zeros((16, 2))[:, 0])
    assert call_context(apart[0], apart[1]) == call_context(a, b)
    assert call_context(apart[0], apart[0]) == call_context(same[0], same[1]) == call_context(a, a)
    for pair in ((apart[0], a), (apart[1], a), (strided[0], b), (c, strided[1])):
        changing = call_context(*pair)
        assert changing.layout == ""
        assert not Checked([changing]).covers(changing)


def test_each_circumstance_is_checked_on_one_op() -> None:
    graph, a, b = ost.Graph(), np.zeros(16), np.zeros(16)
    for pair, omega in (((a, b), 1.0), ((b, a), 1.0), ((a, a), 1.0), ((a, b), 2.0), ((a[::-1], b), 1.0)):
        graph.task(relax, *pair, omega)
    (signature,) = signatures(graph)
    assert [op.index for op in signature.checked] == [0, 3, 2, 4]
    graph = ost.Graph()
    for pair in ((a, b), (a, a)):
        graph.task(add, *pair)
    (signature,) = signatures(graph)
    assert signature.checked == (signature.op,)  # there is nothing to compare


def test_variants_are_compared_for_other_values_of_parameters_too() -> None:
    inner, a, b = ost.Graph(), np.zeros(8), np.zeros(8)
    inner.task(relax, a, b, inner.param("omega", 0.5))
    graph = ost.Graph()
    graph.subgraph(inner, {"omega": graph.param("sigma", 0.25)})
    (signature,) = signatures(graph)
    assert [op.body.args[2] for op in signature.checked] == [graph.params["sigma"], 0.21875]
    assert signature.checked[0] is signature.op
    for default in (0.0, 1, "text", np.inf):
        graph = ost.Graph()
        graph.task(relax, a, b, graph.param("omega", default))
        (signature,) = signatures(graph)
        assert signature.checked == (signature.op,)


def test_of_very_many_scalars_some_are_checked() -> None:
    graph, a, b = ost.Graph(), np.zeros(16), np.zeros(16)
    for omega in range(1000):
        graph.task(relax, a, b, omega)
    call_contexts = CallContexts()
    found = representatives(graph.ops, call_contexts)
    assert found[0] is graph.ops[0]
    assert found[-1] is graph.ops[-1]
    assert len(set(found)) == 32
    checked = Checked(map(call_contexts.of, found))
    assert all(checked.covers(call_contexts.of(op)) for op in graph.ops)
    assert not checked.covers(call_context(a, a, 0))
    few = Checked(map(call_contexts.of, found[:31]))
    assert [few.covers(call_contexts.of(op)) for op in (found[0], found[-1])] == [True, False]
    assert checked.includes(few)
    assert not few.includes(checked)
    assert (few | Checked([call_contexts.of(found[-1])])).includes(checked)
