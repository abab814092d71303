"""Which copies programs need, case by case."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.memories import Bench, Interpreter, bounds
from ostinato.compiler.inserted import InstanceCopy, Note
from ostinato.compiler.ir import HOST, Node
from ostinato.errors import GraphError
from ostinato.graph.access import Read, ReadWrite, Stream, Write
from ostinato.graph.graph import Graph
from ostinato.graph.ring import ring


def body(*_: object) -> None:
    """What the ops of these graphs call."""


class Recorded:
    """A graph that is made op by op, with where they run."""

    def __init__(self, *homes: tuple[Any, int], infer: bool = True) -> None:
        self.graph = Graph(infer=infer)
        self.where: list[int] = []
        self.homes = homes

    def add(self, name: str, device: int, *accesses: tuple[Any, Any], **more: Any) -> Any:
        self.where.append(device)
        arrays, modes = zip(*accesses, strict=True)
        return self.graph.task(body, *arrays, access=(Stream, *modes), name=name, **more)

    def bench(self) -> Bench:
        return Bench(self.graph, self.where, self.homes)


def instance_copies(bench: Bench) -> list[tuple[int, InstanceCopy]]:
    return [(op.index, op.body) for op in bench.found.nodes if isinstance(op.body, InstanceCopy)]


def copied(bench: Bench, *runs: int) -> list[int]:
    """How many bytes are copied in runs of so many steps."""
    interpreter = Interpreter(bench)
    found = []
    for steps in runs:
        interpreter.copied = 0
        interpreter.run(steps)
        found.append(interpreter.copied)
    return found


def test_an_array_that_is_only_read_is_copied_once_a_run() -> None:
    a, b, c = np.zeros(8), np.zeros(8), np.zeros(8)
    recorded = Recorded()
    recorded.add("here", HOST, (a, Read), (b, Write))
    recorded.add("there", 0, (a, Read), (c, Write))
    bench = recorded.bench()
    assert bench.copies == [("there", "fake:0", 64)]
    assert copied(bench, 5, 1, 3) == [64, 64, 64]


def test_what_is_overwritten_is_not_copied_before() -> None:
    a = np.zeros(8)
    recorded = Recorded()
    recorded.add("there", 0, (a, Write))
    bench = recorded.bench()
    assert bench.copies == []
    assert [(each.flag, each.device) for each in bench.coherence.write_backs] == [(0, 0)]
    assert bench.coherence.sets == {0: ((0,),)}


def test_what_is_changed_is_copied_before() -> None:
    a = np.zeros(8)
    recorded = Recorded()
    recorded.add("there", 0, (a, ReadWrite))
    bench = recorded.bench()
    assert bench.copies == [("there", "fake:0", 64)]
    assert copied(bench, 5) == [64]  # later steps find it there


def test_a_part_that_is_written_does_not_take_the_rest_along() -> None:
    a = np.zeros(8)
    recorded = Recorded()
    recorded.add("there", 0, (a[:6], Write))
    recorded.add("here", HOST, (a[4:], ReadWrite))
    bench = recorded.bench()
    assert bench.copies == [("here", "host", 16)]


def test_a_part_that_is_not_dense_takes_all_along() -> None:
    a = np.zeros(8)
    recorded = Recorded()
    recorded.add("there", 0, (a[::2], Write))
    assert recorded.bench().copies == [("there", "fake:0", 56)]


def test_halos_go_and_the_rest_stays() -> None:
    u = np.zeros((10, 4))
    recorded = Recorded()
    recorded.add("inner", 0, (u[0:6], ReadWrite))
    recorded.add("outer", HOST, (u[5:10], ReadWrite))
    bench = recorded.bench()
    row = u[0].nbytes
    first = 6 * row + row  # all of it, once; then a row to the host
    assert copied(bench, 1, 3) == [first, first + 2 * 2 * row]


def test_a_pipeline_copies_in_and_out_in_each_step() -> None:
    raw, done = [np.zeros(6) for _ in range(3)], [np.zeros(6) for _ in range(3)]
    recorded = Recorded()
    r, d = ring(*raw), ring(*done)
    recorded.add("decode", HOST, (r[0], Write))
    recorded.add("filter", 0, (r[0], Read), (d[0], Write))
    recorded.add("encode", HOST, (d[0], Read))
    bench = recorded.bench()
    assert bench.copies == [("filter", "fake:0", 48), ("encode", "host", 48)]
    assert bench.coherence.activity == {}
    assert copied(bench, 1, 7) == [96, 7 * 96]
    (_, to), (_, back) = instance_copies(bench)
    assert [bounds(pairs[0][0]) for pairs in to.pairs] == [bounds(array) for array in raw]
    assert [bounds(pairs[0][1]) for pairs in back.pairs] == [bounds(array) for array in done]


def test_a_ring_on_one_side_is_copied_where_the_other_looks() -> None:
    arrays = [np.zeros(4) for _ in range(3)]
    u = ring(*arrays)
    recorded = Recorded()
    recorded.add("relax", 0, (u[0], Read), (u[1], Write))
    recorded.add("look", HOST, (u[1], Read))
    bench = recorded.bench()
    # The first array that is read comes from home, all others are there.
    assert copied(bench, 1, 4) == [64, 32 + 4 * 32]
    assert len(bench.coherence.write_backs) == 3


def test_arrays_of_a_device_have_instances_on_the_host() -> None:
    a, b = np.zeros(4), np.zeros(4)
    recorded = Recorded((a, 0))
    recorded.add("there", 0, (a, ReadWrite))
    recorded.add("here", HOST, (a, Read), (b, Write))
    bench = recorded.bench()
    assert bench.copies == [("here", "host", 32)]
    assert [(each.memory, each.home) for each in bench.coherence.instances] == [(HOST, 0)]
    assert bench.coherence.write_backs == ()


def test_what_the_host_writes_of_an_array_of_a_device_is_noted() -> None:
    a = np.zeros(4)
    recorded = Recorded((a, 1))
    recorded.add("here", HOST, (a, Write))
    bench = recorded.bench()
    assert [type(op.body) for op in bench.added] == [Note]
    (note,) = bench.added
    assert bench.device_of(note.index) == 1
    assert bench.coherence.sets == {note.index: ((0,),)}
    (write_back,) = bench.coherence.write_backs
    assert write_back.device == 1
    assert bounds(write_back.pairs[0][1]) == bounds(a)


def test_what_the_host_overwrites_is_not_written_back() -> None:
    a = np.zeros(4)
    recorded = Recorded()
    recorded.add("there", 0, (a, Write))
    recorded.add("here", HOST, (a, Write))
    bench = recorded.bench()
    (note,) = bench.added
    assert bench.coherence.sets == {0: ((0,),)}
    assert bench.coherence.clears == {note.index: ((0,),)}


def test_from_device_to_device_by_way_of_the_host() -> None:
    a, b = np.zeros(4), np.zeros(4)
    recorded = Recorded()
    recorded.add("first", 0, (a, Write))
    recorded.add("second", 1, (a, Read), (b, Write))
    bench = recorded.bench()
    assert bench.copies == [("second", "host", 32), ("second", "fake:1", 32)]
    devices = [bench.device_of(op.index) for op in bench.added]
    assert devices == [0, 1]


def test_copies_look_on_both_sides() -> None:
    a, b = np.zeros(4), np.zeros(4)
    recorded = Recorded((b, 0))
    recorded.graph.copy(a, b)
    recorded.where.append(0)
    bench = recorded.bench()
    assert bench.added == []
    assert bench.coherence.instances == ()
    assert bench.found.nodes == bench.ops


def test_until_reads_on_the_host() -> None:
    flag = np.zeros(1, np.int32)
    recorded = Recorded((flag, 0))
    recorded.add("there", 0, (flag, Write))
    recorded.graph.until(flag)
    recorded.where.append(HOST)
    bench = recorded.bench()
    assert bench.copies == [("until", "host", 4)]
    stop = bench.found.nodes[-1]
    assert isinstance(stop, Node)
    assert stop.original is recorded.graph.stop
    assert bounds(stop.body.flag.array)[0] == bench.coherence.instances[0].base  # type: ignore[union-attr]


def test_nested_graphs_are_looked_into() -> None:
    a, b = np.zeros(4), np.zeros(4)
    inner = Graph()
    inner.task(body, a, b, access=(Stream, Read, Write), name="inner")
    outer = Graph()
    outer.subgraph(inner)
    outer.subgraph(inner)
    outer.task(body, b, access=(Stream, Read), name="look")
    bench = Bench(outer, [0, 0, HOST])
    assert bench.copies == [("inner", "fake:0", 32), ("look", "host", 32)]


def test_edges_say_what_comes_first_where_nothing_is_inferred() -> None:
    a = np.zeros(4)
    recorded = Recorded(infer=False)
    recorded.add("look", HOST, (a, Read))
    recorded.add("there", 0, (a, Write))
    recorded.graph.edge(recorded.graph.ops[1], recorded.graph.ops[0])
    bench = recorded.bench()
    assert copied(bench, 3) == [3 * 32]
    (copy,) = (op.index for op in bench.added)
    of = {op.original.name: op.index for op in bench.found.nodes if op.index != copy}
    edges = set(zip(*(row.tolist() for row in bench.found.edges), strict=True))
    assert {(of["there"], copy, 0), (copy, of["look"], 0), (of["there"], of["look"], 0)} <= edges


def test_arrays_without_elements_go_nowhere() -> None:
    a, b = np.zeros((0, 3)), np.zeros(4)
    recorded = Recorded()
    recorded.add("there", 0, (a, ReadWrite), (b[:0], Write))
    bench = recorded.bench()
    assert bench.added == []
    assert bench.coherence.instances == ()
    assert bench.found.nodes == bench.ops


def test_what_is_used_only_at_home_is_left_alone() -> None:
    a, b = np.zeros(4), np.zeros(4)
    recorded = Recorded((b, 0))
    recorded.add("here", HOST, (a, ReadWrite))
    recorded.add("there", 0, (b, ReadWrite))
    bench = recorded.bench()
    assert bench.found.nodes == bench.ops
    assert all(x is y for x, y in zip(bench.found.nodes, bench.ops, strict=True))
    assert [row.tolist() for row in bench.found.edges] == [row.tolist() for row in bench.edges]


def test_an_instance_begins_where_what_is_used_does() -> None:
    a = np.zeros(100)
    recorded = Recorded()
    recorded.add("there", 0, (a[10:20], Read), (a[30:40], Write))
    (instance,) = recorded.bench().coherence.instances
    assert (instance.low, instance.high) == bounds(a[10:40])


def test_twice_is_the_same() -> None:
    u = ring(np.zeros((6, 4)), np.zeros((6, 4)))
    recorded = Recorded()
    recorded.add("there", 0, (u[0][:4], Read), (u[1][1:3], Write))
    recorded.add("here", HOST, (u[0][2:], Read), (u[1][3:], Write))
    first, second = recorded.bench(), recorded.bench()
    assert [op.name for op in first.found.nodes] == [op.name for op in second.found.nodes]
    assert [row.tolist() for row in first.found.ordering] == [row.tolist() for row in second.found.ordering]
    one, two = first.coherence, second.coherence
    assert [(m.memory, m.low, m.high) for m in one.instances] == [(m.memory, m.low, m.high) for m in two.instances]
    assert (one.sets, one.clears, one.activity.keys()) == (two.sets, two.clears, two.activity.keys())


def test_the_failure_of_a_copy_reaches_all_who_rely_on_it() -> None:
    a, b, c = np.zeros(4), np.zeros(4), np.zeros(4)
    recorded = Recorded()
    recorded.add("there", 0, (a, Read), (b, Write))
    recorded.add("also", 0, (a, Read), (c, Write))
    bench = recorded.bench()
    (copy,) = (op.index for op in bench.added)
    skipped = Interpreter(bench).run(4, frozenset({(copy, 0)}))
    assert skipped == {(op.index, step) for op in bench.found.nodes for step in range(4)}


def test_many_tiles_and_all_of_them() -> None:
    a = np.zeros((64, 8))
    recorded = Recorded()
    for k in range(64):
        recorded.add(f"tile {k}", HOST, (a[k], Write))
    recorded.add("there", 0, (a, Read))
    bench = recorded.bench()
    (copy,) = instance_copies(bench)
    assert [len(pairs) for pairs in copy[1].pairs] == [1]
    assert bench.copies == [("there", "fake:0", a.nbytes)]


def test_arrays_of_a_device_that_the_machine_has_not() -> None:
    a = np.zeros(4)
    recorded = Recorded((a, 0))
    recorded.add("here", HOST, (a, Read))
    bench = recorded.bench()
    bench.ranges[0] = (*bounds(a), "other:0")
    with pytest.raises(GraphError, match=r"'here' at .* uses an array in the memory of 'other:0'.* has fake:0"):
        bench.home_of(a)


def test_an_instance_is_as_large_as_what_is_used_there() -> None:
    a, b = np.zeros(1000), np.zeros(4)
    recorded = Recorded()
    recorded.add("here", HOST, (a, ReadWrite))
    recorded.add("there", 0, (a[10:20], Read), (b, Write))
    recorded.add("elsewhere", 1, (a[990:], Write))
    sizes = {(m.memory, m.high - m.low) for m in recorded.bench().coherence.instances}
    assert sizes == {(0, 80), (0, 32), (1, 80)}


def test_nothing_behind_an_array_is_copied() -> None:
    raw, b = np.zeros(192, np.uint8), np.zeros(4)  # bytes, as memory of a device is
    a = raw.view(float).reshape(3, 2, 4)
    recorded = Recorded((raw, 0))
    recorded.add("there", 0, (a[1:2, :, 2:4], ReadWrite))
    recorded.add("columns", HOST, (a[:, 0:1], Read), (b, ReadWrite))
    recorded.add("steps", HOST, (b, Read), (a[::2], ReadWrite))  # a box of two double rows: half a one is not there
    bench = recorded.bench()
    out = [pair for _, body in instance_copies(bench) if body.target == HOST for pairs in body.pairs for pair in pairs]
    assert all(bounds(raw)[0] <= bounds(source)[0] and bounds(source)[1] <= bounds(raw)[1] for source, _ in out)
    assert all(instance.high <= bounds(raw)[1] for instance in bench.coherence.instances if instance.home == 0)


def test_a_failure_does_not_reach_others_by_way_of_a_copy_that_they_share() -> None:
    a = np.zeros(8)
    recorded = Recorded()
    recorded.add("left", 0, (a[:4], Write))
    recorded.add("right", 0, (a[4:], Write))
    recorded.add("all", HOST, (a, Read))
    recorded.add("some", HOST, (a[4:], Read))
    bench = recorded.bench()
    of = {op.name: op.index for op in bench.found.nodes}
    skipped = Interpreter(bench).run(1, frozenset({(of["left"], 0)}))
    assert (of["all"], 0) in skipped
    assert (of["some"], 0) not in skipped
