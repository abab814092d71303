"""The contract on `Run.profile`."""

from __future__ import annotations

import resource
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError

import numpy as np
import pytest

import ostinato as ost
from beds import made, zeros

STATUSES = {"ok", "failed", "poisoned", "cancelled"}


@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k


@ost.task
def move(src: ost.Read, dst: ost.ReadWrite):
    dst += src


def name_of(processor):
    return getattr(processor, "name", processor)


def check(records, machine):
    names = {processor.name for processor in machine.processors}
    for record in records:
        assert isinstance(record.op, ost.Op)
        assert isinstance(record.step, int)
        assert name_of(record.processor) in names
        assert record.status in STATUSES
        if record.status in ("ok", "failed"):
            for time in (record.ready, record.start, record.end):
                assert isinstance(time, int)
            assert record.ready <= record.start <= record.end


@pytest.fixture
def chain(machine):
    x = np.zeros(3)
    g = ost.Graph()
    g.task(add, x[0:1], name="a")
    g.task(move, x[0:1], x[1:2], name="b")
    g.copy(x[1:2], x[2:3], name="c")
    g.fill(np.zeros(1), 1, name="free")
    with g.compile(machine) as program:
        yield program, g


def test_a_record_per_op_and_step(chain, machine):
    program, g = chain
    program.replay(2)
    run = program.submit(3, profile=True)
    assert run.result(60) == 3
    records = list(run.profile)
    check(records, machine)
    assert Counter((r.op, r.step) for r in records) == Counter((op, s) for op in g.ops for s in (2, 3, 4))
    assert {r.status for r in records} == {"ok"}


def test_times_are_of_one_clock_and_in_the_order_of_the_edges(chain):
    program, g = chain
    run = program.submit(20, profile=True)
    run.result(60)
    found = {(r.op, r.step): r for r in run.profile}
    compared = 0
    for a, b, distance in g.edges:
        for step in range(distance, 20):
            assert found[a, step - distance].end <= found[b, step].start
            compared += 1
    assert compared > 40


def test_each_run_has_its_own(chain):
    program, g = chain
    runs = [program.submit(2, profile=k % 2 == 0) for k in range(6)]
    for run in runs:
        run.result(60)
    for k in (0, 2, 4):
        assert sorted({r.step for r in runs[k].profile}) == [2 * k, 2 * k + 1]
        assert len(list(runs[k].profile)) == 2 * len(g)


def test_a_profile_outlives_its_program(machine):
    g = ost.Graph()
    g.task(add, np.zeros(1))
    with g.compile(machine) as program:
        run = program.submit(3, profile=True)
    check(run.profile, machine)
    assert len(list(run.profile)) == 3


def test_statuses_say_what_was_skipped_and_why(machine):
    def fail(x, s):
        if s == 1:
            raise KeyError

    x, y, z = np.zeros(1), np.zeros(1), np.zeros(1)
    g = ost.Graph()
    bad = g.task(fail, x, ost.step, access=(ost.ReadWrite, None))
    down = g.task(move, x, y)
    arrive = g.arrive(ost.Barrier(100), after=down)
    free = g.task(add, z)
    with g.compile(machine) as program:
        run = program.submit(3, on_error="continue", profile=True)
        assert isinstance(run.exception(60), ost.TaskError)
        records = list(run.profile)
        check(records, machine)
        found = {(r.op, r.step): r.status for r in records}
    assert [found[free, s] for s in range(3)] == ["ok"] * 3
    assert [found[bad, s] for s in range(2)] == ["ok", "failed"]
    for op in (down, arrive):
        assert found[op, 0] == "ok"
        assert found[op, 1] == "poisoned"
    for op in (bad, down, arrive):
        assert found.get((op, 2), "poisoned") == "poisoned"


def test_what_a_poisoned_precondition_skips_is_poisoned(machine):
    x, y, go = np.zeros(1), np.zeros(1), ost.UserEvent()
    g = ost.Graph()
    gated = g.task(add, x, after=g.precondition("go"))
    free = g.task(add, y)
    go.poison()
    with g.compile(machine) as program:
        run = program.submit(after={"go": go}, profile=True)
        assert isinstance(run.exception(60), ost.PoisonError)
        found = {r.op: r.status for r in run.profile}
    assert found[free] == "ok"
    assert found[gated] == "poisoned"


def test_what_a_cancel_skips_is_cancelled(machine):
    go = ost.UserEvent()
    g = ost.Graph(infer=False)
    free = g.task(lambda: None, access=())
    gated = g.task(lambda: None, access=(), after=[free, g.precondition("go")])
    g.postcondition("free", after=free)
    with g.compile(machine) as program:
        run = program.submit(after={"go": go}, profile=True)
        run.posts["free"].wait(60)
        assert run.cancel()
        with pytest.raises(CancelledError):
            run.result(60)
        found = {r.op: r.status for r in run.profile}
    assert found[free] == "ok"
    assert found.get(gated, "cancelled") == "cancelled"


def test_of_nested_and_blocking_ops_and_ops_that_wait(machine):
    barrier, reservation = ost.Barrier(1), ost.Reservation()
    inner = ost.Graph()
    op = inner.task(ost.task(blocking=True)(lambda: None), name="inner")
    inner.release(reservation, after=inner.acquire(reservation))
    g = ost.Graph()
    g.subgraph(inner)
    g.subgraph(inner)
    g.wait(barrier, after=g.arrive(barrier))
    with g.compile(machine) as program:
        run = program.submit(2, profile=True)
        run.result(60)
        records = list(run.profile)
    check(records, machine)
    assert sum(r.op.name == op.name for r in records) == 4
    assert {r.status for r in records} == {"ok"}


@pytest.mark.parametrize("runs", ["serial", "concurrent", "once"])
def test_in_every_relation_of_runs(runs, machine):
    g = ost.Graph()
    g.task(add, np.zeros(1))
    with g.compile(machine, runs=runs) as program:
        run = program.submit(4, profile=True)
        run.result(60)
    assert sorted(r.step for r in run.profile) == [0, 1, 2, 3]


@pytest.mark.slow
def test_memory_is_bounded(machine):
    x = np.zeros(1)
    g = ost.Graph()
    g.task(add, x)
    with g.compile(machine) as program:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB
        run = program.submit(300_000, profile=True)
        assert run.result(110) == 300_000
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 * 1024
    check(run.profile, machine)


@pytest.mark.parametrize("relation", ["pipelined", "concurrent"])
def test_a_profile_changes_no_result(relation, machine):
    x, y = np.zeros(1), np.zeros(1)
    results = []
    for profile, array in ((True, x), (False, y)):
        g = ost.Graph()
        g.task(add, array, g.param("k"))
        with g.compile(machine, runs=relation) as program:
            for k in range(5):
                results.append(program.submit(3, k=k, profile=profile).result(60))
    assert x[0] == y[0]
    assert results == [3] * 10


def test_records_say_when_operations_were_issued_and_what_copies_moved(chain):
    program, _ = chain
    run = program.submit(2, profile=True)
    run.result(60)
    for record in run.profile:
        assert record.issued == record.start
        assert record.nbytes == (8 if record.op.name == "c" else 0)


@pytest.mark.parametrize("kind", ["fake", "opencl"])
def test_what_was_issued_ahead_was_issued_before_it_was_ready(kind):
    with made(kind) as bed:
        x, gate, called = bed.array(zeros()), bed.gate(), threading.Event()

        @ost.task
        def shift(x: ost.ReadWrite, stream: ost.Stream):
            bed.enqueue("shift", stream, (x,), 1)
            called.set()

        g = ost.Graph()
        first = g.task(bed.hold, x, gate)
        second = g.task(shift, x)
        with g.compile(bed.machine) as program:
            run = program.submit(1, profile=True)
            assert called.wait(15)  # the gate opens by itself after 20 s
            opened = time.monotonic_ns()
            gate.open()
            run.result(60)
            found = {record.op: record for record in run.profile}
        assert found[first].issued <= found[second].issued < opened
        assert found[second].issued < found[second].ready <= found[second].start <= found[second].end
        assert found[second].ready >= opened


@pytest.mark.parametrize("kind", ["fake", "opencl"])
def test_totals_add_up(kind):
    with made(kind) as bed:
        x, y, there = np.zeros(100, np.int32), np.zeros(100, np.int32), bed.array(np.zeros(100))
        g = ost.Graph()
        g.task(bed.shift, x, 1, name="shift")  # copied there in the first step, and back at the end
        g.copy(there, y, name="copy")
        g.fill(y[:10], 3, name="fill")
        with g.compile(bed.machine) as program:
            before = program.statistics().devices[0]
            run = program.submit(5, profile=True)
            run.result(60)
            counted = program.statistics().devices[0].copied_bytes - before.copied_bytes
        records, profile = list(run.profile), run.profile
        for by, label in [
            ("op", lambda each: each.op.name),
            ("processor", lambda each: each.processor.name),
            ("run", lambda each: "run"),
        ]:
            totals = {total.what: total for total in profile.totals(by)}
            assert set(totals) == set(map(label, records))
            for what, total in totals.items():
                those = [each for each in records if label(each) == what]
                assert total.ran == len(those)
                assert total.skipped == 0
                assert total.time == sum(each.end - each.start for each in those)
                assert total.longest == max(each.end - each.start for each in those)
                assert total.nbytes == sum(each.nbytes for each in those) + profile.written_back * (by == "run")
        kinds = {total.what: total for total in profile.totals("kind")}
        assert kinds["task"].ran == kinds["fill"].ran == 5
        assert kinds["copy"].nbytes == 5 * y.nbytes + x.nbytes
        assert profile.written_back == x.nbytes
        assert profile.totals("run")[0].nbytes == counted
        with pytest.raises(ValueError, match="by must be"):
            profile.totals("colour")


def test_totals_count_what_was_skipped(machine):
    @ost.task
    def fails(x: ost.ReadWrite):
        raise ArithmeticError

    x = np.zeros(1)
    with ost.capture() as g:
        fails(x)
        add(x)
    with g.compile(machine) as program:
        run = program.submit(1, profile=True)
        assert isinstance(run.exception(60), ost.TaskError)
    found = {total.what: (total.ran, total.skipped) for total in run.profile.totals()}
    assert found == {"fails": (1, 0), "add": (0, 1)}
    assert run.profile.totals("run")[0].ran == 1
