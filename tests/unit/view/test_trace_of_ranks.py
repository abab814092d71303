"""One trace of several ranks: messages are arrows, times are of one clock, waits name the rank waited for."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.compiler.ir import edges_of
from ostinato.view.trace import RECORD, Trace
from ostinato.view.trace_of_ranks import EndOfMessage, PartOfTrace, join_traces, part_of
from view.test_trace_events import check_format

BOOT = 10**15
WORK, SEND, RECEIVE = range(3)


def part(
    rows: list[tuple[int, int, int, int]], ahead: int = 0, error: int = 0, slots: int = 4
) -> tuple[Trace, int, int, int]:
    """Of a rank that works, sends and receives, by records of (op, step, start, end)."""
    records = [(op, step, 0, op, BOOT + start - ahead, BOOT + end - ahead, 0) for op, step, start, end in rows]
    trace = Trace(
        np.array(records, RECORD),
        ["work", "send", "receive"],
        [f"a.py:{line}" for line in range(3)],
        ["cpu:0"] * 3,
        edges=edges_of(3, [WORK, RECEIVE], [SEND, WORK], [0, 1]),
        submitted=BOOT - ahead,
    )
    return trace, ahead, error, slots


def joined(*parts: tuple[Trace, int, int, int]) -> Trace:
    made = []
    for rank, (trace, ahead, error, slots) in enumerate(parts):
        ends = (EndOfMessage(SEND, True, 1 - rank, slots), EndOfMessage(RECEIVE, False, 1 - rank, slots))
        made.append(PartOfTrace(trace, ends, ahead, error))
    return join_traces(made, 0)


SLOW = [(WORK, 0, 10, 500), (SEND, 0, 500, 510), (RECEIVE, 0, 515, 520)]
FAST = [(WORK, 0, 20, 100), (SEND, 0, 100, 110), (RECEIVE, 0, 530, 540)]


@pytest.fixture
def trace() -> Trace:
    return joined(part(SLOW), part(FAST))


def test_messages_are_arrows_between_the_processes_of_ranks(trace):
    check_format(trace.to_dict())
    events = trace.to_dict()["traceEvents"]
    arrows = {(e["ph"], e["pid"], round(e["ts"] * 1000)) for e in events if e["name"] == "message"}
    assert arrows == {("s", 0, 509), ("f", 1, 530), ("s", 1, 109), ("f", 0, 515)}
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {0: "ostinato, rank 0", 1: "ostinato, rank 1"}
    assert not [e for e in events if e["name"] == "dependence"], "what is a message is no other arrow"
    assert repr(trace) == "<Trace: 6 records of 1 step on 2 ranks, 2 threads>"


def test_summary_says_which_rank_waits_for_which(trace):
    found = trace.summary()
    (first, *rest) = found.rank_waits
    assert first[:2] == (1, 0)
    assert first.times == 1
    assert first.seconds == pytest.approx(420e-9)
    assert [(each.rank, each.awaited, round(each.seconds * 1e9)) for each in rest] == [(0, 1, 5)]
    assert "rank 1   rank 0" in str(found)
    assert [(each.name, each.thread) for each in found.critical_path] == [
        ("work", "rank 0, thread 0"),
        ("send", "rank 0, thread 0"),
        ("receive", "rank 1, thread 0"),
    ]


def test_times_are_by_the_clock_of_rank_0(trace):
    apart = joined(part(SLOW), part(FAST, ahead=10**9, error=700))
    assert (apart.records == trace.records).all()
    assert apart.to_dict()["otherData"]["clocks"] == {"rank 1": "within 700 ns of rank 0"}
    assert "clocks" not in trace.to_dict()["otherData"]
    unknown = joined(part(SLOW), part(FAST, error=-1))
    assert unknown.to_dict()["otherData"]["clocks"] == {"rank 1": "not compared"}


def test_clocks_that_are_far_apart_leave_arrows_out():
    late = [(op, step, start + 10_000, end + 10_000) for op, step, start, end in SLOW]
    found = joined(part(late), part(FAST))
    check_format(found.to_dict())
    assert sum(e["name"] == "message" for e in found.to_dict()["traceEvents"]) == 2


def test_a_send_waits_for_room():
    """The memory has room for one message: the second send waits until the first one has been received."""
    sender = [(WORK, 0, 0, 10), (SEND, 0, 10, 20), (SEND, 1, 300, 310)]
    receiver = [(WORK, 0, 0, 250), (RECEIVE, 0, 250, 290), (RECEIVE, 1, 320, 330)]
    found = joined(part(sender, slots=1), part(receiver, slots=1)).summary()
    waits = {(each.name, each.awaited): round(each.seconds * 1e9) for each in found.waits}
    assert waits[("send", "receive")] == 270


def test_the_part_of_a_rank_is_what_it_recorded():
    parts = part(SLOW), part(FAST)
    whole = joined(*parts)
    for rank, (own, *_) in enumerate(parts):
        found = part_of(whole, rank)
        assert (found.records == np.sort(own.records, order="start")).all()
        assert found.op_names == own.op_names
        assert [column.tolist() for column in found.edges] == [column.tolist() for column in own.edges]
    assert part_of(parts[0][0], 0) is parts[0][0]


def test_pictures(trace, tmp_path):
    pytest.importorskip("matplotlib")
    trace.plot(tmp_path / "trace.svg")
    assert (tmp_path / "trace.svg").stat().st_size
    assert "rank 1, thread 0" in trace._repr_html_()
