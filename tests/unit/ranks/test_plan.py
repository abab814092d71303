"""Who runs what, and which messages go where, planned for ranks that do not exist."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.in_process_ranks import PlannedRanks, planned, run_on

import ostinato as ost
from ostinato.compiler.flatten import Flat
from ostinato.graph.body import Copy
from ostinato.graph.messages import Message, Receive, Send
from ostinato.view.explain import messages as messages_told


@ost.task
def relax(source: ost.Read, target: ost.Write) -> None:
    target[...] = source[1:-1, 1:-1] + 0.25 * (source[:-2, 1:-1] + source[2:, 1:-1])


@ost.task
def peak(source: ost.Read, out: ost.Write) -> None:
    out[...] = source.max()


@ost.task
def note(where: ost.ReadWrite, value: ost.Read) -> None:
    where.append(float(value[0]))


def messages(flat: Flat) -> list[tuple[bool, int, int]]:
    """Return whether each message is sent, the other rank, and its bytes."""
    return [
        (op.body.sends, op.body.peer, op.body.operand.arrays[0].nbytes)
        for op in flat.ops
        if isinstance(op.body, Message)
    ]


def heat(rank: int, grid: tuple[int, int], tiles: int = 4, *, near: int | None = 1, extent: int = 8) -> ost.Graph:
    """Record a step of the heat equation, with so many tiles along each axis of a rank's block."""
    ranks = PlannedRanks(rank, grid[0] * grid[1])
    counts = tuple(tiles * blocks for blocks in grid)
    # Only addresses: nothing is filled, so that large jobs cost nothing.
    make = super(PlannedRanks, ranks).array
    a, b = (make(tuple(extent * count + 2 for count in counts), tiles=counts) for _ in range(2))
    u = ost.ring(a, b)
    with ost.capture() as graph:
        for tile in a.tiles(margin=1, near=near):
            relax(u[0][tile.halo], u[1][tile.inner])
    return graph


def test_a_step_has_one_message_for_each_neighbour_and_direction() -> None:
    flat = planned(heat(4, (3, 3)))
    found = messages(flat)
    assert sorted((sends, peer) for sends, peer, _ in found) == [
        (sends, peer) for sends in (False, True) for peer in (0, 1, 2, 3, 5, 6, 7, 8)
    ]
    assert len([op for op in flat.ops if op.name == "relax"]) == 16
    assert not any(isinstance(op.body, Copy) for op in flat.ops), "each is one box, so nothing is packed"
    sides = {nbytes for _, peer, nbytes in found if peer in (1, 3, 5, 7)}
    corners = {nbytes for _, peer, nbytes in found if peer in (0, 2, 6, 8)}
    assert sides == {8 * 32}
    assert corners == {8}


@pytest.mark.parametrize("rank", [0, 5, 10, 15])
def test_neighbours_are_enough_to_plan(rank: int) -> None:
    near, everything = (planned(heat(rank, (4, 4), near=near)) for near in (1, None))
    assert messages(near) == messages(everything)
    assert [op.name for op in near.ops] == [op.name for op in everything.ops]


def test_what_a_rank_records_and_plans_does_not_grow_with_the_ranks() -> None:
    sizes = set()
    for blocks in (4, 16, 64):
        middle = (blocks // 2) * blocks + blocks // 2
        graph = heat(middle, (blocks, blocks))
        sizes.add((len(graph), len(planned(graph).ops), len(messages(planned(graph)))))
    assert sizes == {(36, 32, 16)}


def test_both_ends_of_every_channel_agree() -> None:
    flats = [planned(heat(rank, (3, 2), tiles=3)) for rank in range(6)]
    for source in range(6):
        for target in range(6):
            sent = [nbytes for sends, peer, nbytes in messages(flats[source]) if sends and peer == target]
            received = [nbytes for sends, peer, nbytes in messages(flats[target]) if not sends and peer == source]
            assert sent == received


def record(rank: int, size: int, step: Any, count: int = 1) -> Flat:
    ranks = PlannedRanks(rank, size)
    arrays = [ranks.array(8, tiles=4) for _ in range(count)]
    with ost.capture() as graph:
        graph.join(ranks)
        step(ranks, *arrays)
    return planned(graph)


def names(flat: Flat) -> list[str]:
    return [op.name for op in flat.ops]


def test_what_is_read_twice_is_sent_once_and_again_after_a_write() -> None:
    def step(ranks: PlannedRanks, a: Any, b: Any) -> None:
        ost.copy(a[0:2], b[4:6])
        ost.copy(a[0:2], b[6:8])
        ost.fill(a[0:1], 1.0)
        ost.copy(a[0:2], b[4:6])

    assert messages(record(0, 2, step, 2)) == [(True, 1, 16), (True, 1, 8)]
    assert names(record(1, 2, step, 2)) == ["receive from rank 0", "copy", "copy", "receive from rank 0", "copy"]


def test_pieces_of_several_arrays_travel_together() -> None:
    def step(ranks: PlannedRanks, a: Any, b: Any, c: Any) -> None:
        ost.copy(a[0:2], c[4:6])
        ost.copy(b[1:3], c[6:8])

    assert names(record(0, 2, step, 3)) == ["pack", "pack", "send to rank 1"]
    assert names(record(1, 2, step, 3)) == ["receive from rank 0", "unpack", "unpack", "copy", "copy"]


def test_pieces_that_change_in_between_travel_apart() -> None:
    def step(ranks: PlannedRanks, a: Any, b: Any, c: Any) -> None:
        ost.copy(a[0:2], c[4:6])
        ost.fill(b[1:3], 2.0)
        ost.copy(b[1:3], c[6:8])

    assert names(record(0, 2, step, 3)) == ["send to rank 1", "fill", "send to rank 1"]


def test_operations_on_replicated_arrays_run_everywhere_and_others_on_rank_0() -> None:
    total, seen = np.zeros(1), []

    def step(ranks: PlannedRanks, a: Any) -> None:
        ost.fill(total, 1.0)
        note(ost.token(seen), total)
        ost.current_graph().task(print, access=())

    assert names(record(0, 2, step)) == ["fill", "note", "print"]
    assert names(record(1, 2, step)) == ["fill"]


def test_an_operation_that_reads_parts_of_all_gets_them() -> None:
    total = np.zeros(8)

    def step(ranks: PlannedRanks, a: Any) -> None:
        ost.copy(a, total)

    assert sorted(messages(record(1, 4, step))) == sorted(
        [(True, peer, 16) for peer in (0, 2, 3)] + [(False, peer, 16) for peer in (0, 2, 3)]
    )


def test_a_fold_takes_two_messages_for_each_rank() -> None:
    out = np.zeros(1)
    flats = [record(rank, 8, lambda ranks, a: ranks.fold(a, out, "sum")) for rank in range(8)]
    assert sum(len(messages(flat)) for flat in flats) == 2 * (4 + 7), "from the four owners; along a tree"
    assert [names(flat).count("fold") for flat in flats] == [1, 0, 0, 0, 0, 0, 0, 0]


def test_a_rank_may_be_named() -> None:
    out = np.zeros(1)

    def step(ranks: PlannedRanks, a: Any) -> None:
        ost.current_graph().task(peak, a[0:2], out, on="rank:2")

    flats = [record(rank, 4, step) for rank in range(4)]
    assert [names(flat).count("peak") for flat in flats] == [0, 0, 1, 0]
    assert all(op.on is None for op in flats[2].ops)
    assert sum(isinstance(op.body, Receive) for flat in flats for op in flat.ops) == 1 + 3


def test_until_looks_at_a_flag_that_one_rank_owns() -> None:
    def program(ranks: PlannedRanks) -> Any:
        a, steps = ranks.array(4, tiles=4), ranks.array(4, tiles=4)

        @ost.task
        def count(x: ost.ReadWrite) -> None:
            x += 1

        @ost.task
        def enough(x: ost.Read, flag: ost.Write) -> None:
            flag[...] = x >= 3

        for array in (a, steps):
            for _, view in array.local:
                view[...] = 0

        def step() -> None:
            for tile in a.tiles():
                count(steps[tile.inner])
            enough(steps[3], a[3])
            ost.until(a[3:])

        return step, [a, steps], []

    one, four = run_on(1, program, 10), run_on(4, program, 10)
    assert one[:2] == four[:2]
    assert np.frombuffer(one[0][1]).tolist() == [3.0] * 4


def test_given_edges_between_ranks_are_messages() -> None:
    def step(ranks: PlannedRanks, a: Any) -> None:
        first = ost.fill(a[0:2], 1.0)
        second = ost.fill(a[6:8], 2.0, after=first)
        ost.fill(a[0:2], 3.0, after=ost.previous(second))

    first, second = record(0, 2, step), record(1, 2, step)
    assert names(first) == ["fill", "send to rank 1", "receive from rank 1", "fill"]
    assert names(second) == ["receive from rank 0", "fill", "send to rank 0"]
    assert {(0, 1, 0), (2, 3, 1)} <= set(first.explicit_edges)
    assert {(0, 1, 0), (1, 2, 0)} <= set(second.explicit_edges)


def test_explain_says_who_sends_what_to_whom() -> None:
    graph = heat(1, (3, 1))
    line = f"for relax at {graph.ops[0].call_site}"
    shared = frozenset({(False, 0), (True, 0)})
    assert messages_told(planned(graph).ops, 1e-5, shared, True) == [
        "Messages",
        f"  from rank 0: 1 message, 272 bytes a step, by memory, {line}",
        f"  to rank 0: 1 message, 272 bytes a step, by memory, {line}",
        f"  from rank 2: 1 message, 272 bytes a step, by MPI, {line}",
        f"  to rank 2: 1 message, 272 bytes a step, by MPI, {line}",
        "  progress by workers with nothing else to do",
    ]


def test_explain_says_when_messages_need_a_thread() -> None:
    ranks = PlannedRanks(0, 2)
    with ost.capture() as graph:
        ranks.send(np.zeros(2**17), to=1)
    ops = planned(graph).ops
    (advice,) = messages_told(ops, 0.02, frozenset(), True)[3:]
    assert advice == (
        "  a message of 1.05 MB may wait while all workers are in ops, of which the longest takes 20 ms; "
        "Ranks(progress='thread') avoids that"
    )
    for longest, shared, by_workers in ((1e-4, (), True), (0.02, [(True, 1)], True), (0.02, (), False)):
        told = messages_told(ops, longest, frozenset(shared), by_workers)
        assert len(told) == 3
        assert ("a thread of its own" in told[2]) is not by_workers
    assert messages_told(planned(heat(0, (1, 1))).ops, 1e-5, frozenset(), True) == []


class TestErrors:
    def refused(self, step: Any, words: str, size: int = 2) -> None:
        with pytest.raises(ost.GraphError, match=words) as caught:
            record(0, size, step)
        assert "test_plan.py" in str(caught.value)

    def test_a_write_that_spans_owners(self) -> None:
        self.refused(lambda ranks, a: ost.fill(a[2:6], 1.0), r"several ranks own \(0, 1\)")
        self.refused(lambda ranks, a: ost.fill(a, 1.0), r"several ranks own \(0, 1\)")

    def test_an_owned_and_a_replicated_write(self) -> None:
        @ost.task
        def both(x: ost.Write, y: ost.Write) -> None: ...

        self.refused(lambda ranks, a: both(a[0:2], np.zeros(2)), "both a distributed array")

    def test_a_binding_that_contradicts_the_owner(self) -> None:
        self.refused(
            lambda ranks, a: ost.fill(a[0:2], 1.0, on="rank:1"), "bound to rank 1, but writes what rank 0 owns"
        )

    def test_a_rank_that_there_is_not(self) -> None:
        self.refused(lambda ranks, a: ost.fill(a[0:2], 1.0, on="rank:2"), "rank:0 to rank:1")
        self.refused(lambda ranks, a: ost.fill(a[0:2], 1.0, on="rank:x"), "rank:0 to rank:1")

    def test_a_ring_of_arrays_with_different_owners(self) -> None:
        def step(ranks: PlannedRanks, a: Any) -> None:
            ost.fill(ost.ring(a, ranks.array(8, tiles=4, owner=lambda i: 1 - i[0] // 2))[0][0:2], 1.0)

        self.refused(step, "distributed in the same way")

    def test_a_ring_of_distributed_and_other_arrays(self) -> None:
        self.refused(lambda ranks, a: ost.fill(ost.ring(a, np.zeros(8))[0][0:2], 1.0), "distributed in the same way")

    def test_parts_in_messages_of_ones_own(self) -> None:
        self.refused(lambda ranks, a: ranks.send(a[0:2], to=1), "travel by themselves")

    def test_two_groups_in_one_graph(self) -> None:
        other = PlannedRanks(0, 2).array(8)
        with pytest.raises(ost.GraphError, match=r"one ostinato\.Ranks"):
            record(0, 2, lambda ranks, a: ost.copy(other[0:2], a[0:2]))

    def test_graphs_without_inference(self) -> None:
        a = PlannedRanks(0, 2).array(8, tiles=4)
        graph = ost.Graph(infer=False)
        graph.copy(a[6:8], a[0:2])
        with pytest.raises(ost.GraphError, match="infer=True"):
            planned(graph)


def test_nested_graphs_get_what_they_need() -> None:
    def step(ranks: PlannedRanks, a: Any, b: Any) -> None:
        inner = ost.Graph()
        inner.copy(a[0:2], b[6:8])
        inner.fill(a[0:2], 2.0)
        graph = ost.current_graph()
        graph.subgraph(inner)
        graph.subgraph(inner)

    assert names(record(1, 2, step, 2)) == ["receive from rank 0", "copy"] * 2
    assert [isinstance(op.body, Send) for op in record(0, 2, step, 2).ops] == [True, False, True, False]
