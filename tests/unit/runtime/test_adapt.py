"""Programs that adapt: whatever schedules take turns, what happens is what one replay after the other would do."""

from __future__ import annotations

import concurrent.futures
import contextvars
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import CancelledError

import numpy as np
import pytest

import ostinato as ost
from ostinato.compiler.costs import Costs, estimate
from ostinato.compiler.ir import COMMON
from ostinato.compiler.summary import summarize
from ostinato.runtime import adapt, calibrate, turns
from ostinato.runtime.calibrate import level_costs, recall_ops, remember_ops
from ostinato.runtime.sequential_test import ABTest
from ostinato.runtime.turns import schedule_otherwise
from support.interpreter import needs_lock

DEADLINE = 60


class Restless(ABTest):
    """Prefers now this one, now that one, after one pair."""

    def add(self, old, new):
        super().add(old, new)
        self.verdict = random.choice(("new", "hopeless"))


@pytest.fixture
def restless(monkeypatch):
    """Schedules change all the time, after turns of few steps."""
    schedule = adapt.schedule_otherwise

    def schedule_on_both(engine, costs, *others):
        return schedule(engine, costs._replace(seconds=np.full_like(costs.seconds, 1e-3)), *others)

    monkeypatch.setattr(adapt, "schedule_otherwise", schedule_on_both)
    monkeypatch.setattr("ostinato.runtime.sequential_test.ABTest", Restless)
    for name in ("_SHORTEST", "_LONGEST", "_REST", "_PART", "_LONGEST_REST"):
        monkeypatch.setattr(adapt, name, 1e-5)
    monkeypatch.setattr(adapt, "_SHARE", 1e9)
    monkeypatch.setattr(adapt, "_FREE", 1e9)


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


@ost.task(releases_gil=True)
def mix(src: ost.Read, other: ost.Read, dst: ost.Write, step, factor):
    dst[...] = factor * src - other[::-1] + step % 7


def rows_of(n):
    rng = np.random.default_rng(n)
    return [list(rng.integers(-9, 9, (3, 8))) for _ in range(n)]


def record(rows):
    factor = ost.param("factor", 1)
    for row, following in itertools.pairwise([*rows, rows[0]]):
        mix(row[0], following[1], row[2], ost.step, factor)


def changes(program):
    lines = [line for line in program.explain().splitlines() if "changed" in line]
    return int(lines[0].split("changed")[1].split()[0]) if lines else 0


@pytest.mark.parametrize("runs", ["pipelined", "serial"])
@pytest.mark.parametrize("seed", range(3))
def test_replays_do_what_the_loop_does(restless, machine, runs, seed):
    draw = random.Random(seed)
    arrays, same = rows_of(5), rows_of(5)
    rings = [[ost.ring(*each) for each in those] for those in (arrays, same)]
    with (
        ost.compile(record, rings[0], machine=machine, runs=runs, costs={}) as program,
        ost.compile(record, rings[1], machine=machine, adapt=False) as loop,
    ):
        end, replays = time.monotonic() + DEADLINE, 0
        while replays < 50 or (changes(program) <= 3 and time.monotonic() < end):
            replays += 1
            steps, factor = draw.choice([1, 1, 2, 7, 40, 200]), draw.randrange(3)
            if draw.randrange(4) == 0:
                assert program.submit(steps, factor=factor).result(DEADLINE) == steps
            else:
                assert program.replay(steps, factor=factor) == steps
            assert loop.replay_eagerly(steps, factor=factor) == steps
            assert program.step == loop.step
            np.testing.assert_array_equal(arrays, same)
        assert changes(program) > 3
        assert program.statistics().runs_submitted == replays


def test_what_others_submit_comes_after_the_whole_replay(restless, machine):
    order, five = [], threading.Event()

    @ost.task
    def note(x: ost.ReadWrite, who, step):
        order.append((who, step))
        if len(order) == 5:
            five.set()
            time.sleep(0.02)

    @ost.task
    def idle(x: ost.ReadWrite):
        x += 1

    x, y, z = np.zeros(1), np.zeros(1), np.zeros(1)

    def step():
        note(x, ost.param("who"), ost.step)
        idle(y)
        idle(z)

    def other():
        five.wait(DEADLINE)
        runs.append(program.submit(2, who="b"))
        assert program.replay(3, who="c") == 3

    runs = []
    with ost.compile(step, machine=machine) as program:
        thread = threading.Thread(target=other)
        thread.start()
        assert program.replay(3000, who="a") == 3000
        thread.join(DEADLINE)
        assert runs[0].result(DEADLINE) == 2
    assert order == [
        *(("a", n) for n in range(3000)),
        *(("b", n) for n in (3000, 3001)),
        *(("c", n) for n in range(3002, 3005)),
    ]
    assert program.statistics().runs_submitted == 3


def test_a_run_that_is_held_can_be_cancelled(restless, machine):
    reached, go_on = threading.Event(), threading.Event()

    @ost.task
    def gate(x: ost.ReadWrite, step):
        if step == 50:
            reached.set()
            go_on.wait(DEADLINE)
        x += 1

    x, y = np.zeros(1), np.zeros(1)

    def step():
        gate(x, ost.step)
        gate(y, 0)

    with ost.compile(step, machine=machine) as program:
        thread = threading.Thread(target=program.replay, args=(300,))
        thread.start()
        assert reached.wait(DEADLINE)
        first, second = program.submit(10), program.submit(20)
        assert first.cancel()
        go_on.set()
        thread.join(DEADLINE)
        assert second.result(DEADLINE) == 20
        assert first.cancelled()
        assert program.step == 320
    assert x[0] == y[0] == 320


def test_until_and_failures_end_the_whole_replay(restless, machine):
    @ost.task
    def count(x: ost.ReadWrite, stop: ost.Write, last, bad):
        x += 1
        if x[0] == bad:
            raise ValueError("enough")
        stop[...] = x[0] >= last

    @ost.task
    def idle(x: ost.ReadWrite):
        x += 1

    x, stop, y = np.zeros(1), np.zeros(1), np.zeros(1)
    with ost.capture() as graph:
        count(x, stop, ost.param("last"), ost.param("bad", -1))
        idle(y)
        ost.until(stop)
    with graph.compile(machine) as program:
        for last in (70, 71, 150, 500):
            done = program.step
            assert program.replay(10**6, last=last) == last - done
            assert x[0] == y[0] == program.step == last
        with pytest.raises(ost.TaskError, match=r"enough.* in step 599") as raised:
            program.replay(10**6, last=10**6, bad=600)
        assert raised.value.step == 599
        assert program.replay(400, last=10**6) == 400


def test_arrays_that_others_rebind_are_for_later_runs(restless, machine):
    reached, go_on = threading.Event(), threading.Event()

    @ost.task
    def add(x: ost.ReadWrite, step):
        if step == 50:
            reached.set()
            go_on.wait(DEADLINE)
        x += 1

    x, y, new = np.zeros(1), np.zeros(1), np.zeros(1)

    def step():
        add(x, ost.step)
        add(y, 0)

    with ost.compile(step, machine=machine) as program:
        thread = threading.Thread(target=program.replay, args=(300,))
        thread.start()
        assert reached.wait(DEADLINE)
        program.rebind([(x, new)])
        run = program.submit(7)
        go_on.set()
        thread.join(DEADLINE)
        assert run.result(DEADLINE) == 7
        assert program.replay(100) == 100
    assert (x[0], y[0], new[0]) == (300, 407, 107)


@pytest.mark.parametrize("fails", [False, True])
def test_closing_waits_for_the_whole_replay_or_cancels_it(restless, machine, fails):
    reached, go_on = threading.Event(), threading.Event()

    @ost.task
    def add(x: ost.ReadWrite, step):
        if step == 50:
            reached.set()
            go_on.wait(DEADLINE)
        x += 1

    x, y = np.zeros(1), np.zeros(1)

    def step():
        add(x, ost.step)
        add(y, 0)

    ended = []

    def replay():
        try:
            ended.append(program.replay(2000))
        except BaseException as error:
            ended.append(error)

    program = ost.compile(step, machine=machine)
    thread = threading.Thread(target=replay)
    thread.start()
    assert reached.wait(DEADLINE)
    threading.Timer(0.05, go_on.set).start()
    if fails:
        with pytest.raises(KeyError), program:
            raise KeyError
    else:
        program.close()
    thread.join(DEADLINE)
    assert x[0] == y[0]
    if fails:
        assert isinstance(ended[0], CancelledError)
        assert x[0] < 2000
    else:
        assert ended == [2000]
        assert x[0] == 2000


@needs_lock  # several lanes of Python tasks have contexts of their own
def test_context_variables_last_for_the_whole_replay(restless, machine):
    variable = contextvars.ContextVar("variable", default=0)
    seen = []

    @ost.task
    def note(x: ost.ReadWrite):
        seen.append(variable.get())
        variable.set(len(seen))

    @ost.task
    def idle(x: ost.ReadWrite):
        x += 1

    x, y = np.zeros(1), np.zeros(1)

    def step():
        note(x)
        idle(y)

    with ost.compile(step, machine=machine, lanes=2) as program:
        program.replay(300)
        program.replay(2)
    assert seen[:300] == list(range(300))
    assert seen[300] == 0
    assert variable.get() == 0


@ost.task(releases_gil=True)
def nap(src: ost.Read, other: ost.Read, dst: ost.Write):
    time.sleep(0.004)
    dst[...] = src + other


def test_work_that_was_thought_short_gets_a_second_lane(machine):
    first, second = ost.ring(np.ones(1), np.ones(1)), ost.ring(np.ones(1), np.ones(1))
    with ost.capture() as graph:
        nap(first[0], second[0], first[1])
        nap(second[0], first[0], second[1])
    with graph.compile(machine) as program:
        assert "on 1 lane," in program.explain()
        end = time.monotonic() + DEADLINE
        while "on 2 lanes," not in (text := program.explain()) and time.monotonic() < end:
            program.replay(1)
        assert "on 2 lanes," in text
        assert "traced" in text
        assert changes(program) >= 1
        assert program.current(first)[0] == program.current(second)[0] == 2.0**program.step


@pytest.mark.parametrize("spread", [0.05, 0.4])
def test_threads_get_one_lane_each_and_several_whether_ops_are_steady_or_not(machine, spread, monkeypatch):
    monkeypatch.setattr(turns, "measure_host", lambda processors: COMMON)
    tiles = np.zeros((16, 1))
    with ost.capture() as graph:
        for tile in tiles:
            mix(tile, tile, tile, ost.step, 2)
    with graph.compile(machine) as program:
        engine = program._engine
        costs = Costs(np.full(16, 1e-5), np.full(16, spread), np.ones(16, np.int32), ("estimated", "traced"))
        found = schedule_otherwise(engine, costs, float("inf"))
        present = engine.kept.executable
        assert {2, 8} <= {len(each.lane_ops) for each in (present, *(other for _, other in found))}


def learn_of_turns(machine, monkeypatch, op_seconds, step_seconds, until):
    """Have a program of eight ops learn until a time; yield for each turn its lanes, its start, and its seconds.

    Time is not that of a clock: a step takes `step_seconds(lanes, now)`.
    """
    monkeypatch.setattr(turns, "measure_host", lambda processors: COMMON)
    with ost.capture() as graph:
        for tile in np.zeros((8, 1)):
            mix(tile, tile, tile, ost.step, 2)
    costs = Costs(np.full(8, op_seconds), np.full(8, 0.01), np.ones(8, np.int32), ("estimated", "traced"))

    def trace(*_):
        yield from ()
        return costs

    monkeypatch.setattr(adapt.Learning, "_trace", trace)
    with graph.compile(machine) as program:
        engine = program._engine
        engine.settle()
        given = adapt.Learning(engine, False).turns()
        turn, now = next(given), 0.0
        while now < until:
            lanes = len(turn.loaded.executable.lane_ops)
            seconds = step_seconds(lanes, now)
            yield lanes, now, turn.steps * seconds, len(engine.kept.executable.lane_ops)
            now += turn.steps * seconds
            turn = given.send(seconds if turn.timed else None)


def test_lanes_that_seemed_slow_while_others_used_the_cores_are_taken_back(machine, monkeypatch):
    """Other processes use the cores for 0.3 s."""
    alone, disturbed, quiet = 42e-6, 600e-6, 0.3

    def step_seconds(lanes, now):
        return 80e-6 if lanes == 1 else disturbed if now < quiet else alone

    learned = list(learn_of_turns(machine, monkeypatch, 1e-5, step_seconds, 2.0))
    assert {(lanes, now < quiet) for lanes, now, _, _ in learned} >= {(1, True), (2, True), (2, False)}
    assert learned[-1][-1] > 1


def test_little_is_lost_to_far_slower_lanes_while_the_clock_of_the_cores_changes(machine, monkeypatch):
    """Steps of one lane take 66 ns, then 113, in turns of a second; those of more lanes take 30 times as long."""

    def step_seconds(lanes, now):
        slow = 1.7 if int(now) % 2 else 1.0
        return slow * (66e-9 if lanes == 1 else 2e-6)

    learned = list(learn_of_turns(machine, monkeypatch, 1e-5, step_seconds, 5.0))
    assert {lanes for lanes, _, _, _ in learned} > {1}
    assert sum(taken for lanes, _, taken, _ in learned if lanes > 1) < 0.02 * 5.0


def test_programs_that_stay_as_they_are(machine):
    x, y = np.zeros(1), np.zeros(1)

    def step():
        mix_none(x)
        mix_none(y)

    @ost.task
    def mix_none(x: ost.ReadWrite):
        x += 1

    def why(**arguments):
        with ost.compile(step, **({"machine": machine} | arguments)) as program:
            end = time.monotonic() + DEADLINE
            while True:
                program.replay(2)
                line = program.explain().split("Adapting\n")[1].splitlines()[0].strip()
                if not line.startswith("learning") or time.monotonic() > end:
                    return line

    assert why(adapt=False) == "not: adapt=False"
    assert why(lanes=1) == "not: there is nothing to choose"
    assert why(costs={mix_none: 1e-6}) == "not: what its ops take is known"
    assert why(runs="concurrent") == "not: runs='concurrent': no two runs can be compared"
    assert why().startswith("what ops take was learned from ")
    with ost.compile(step, machine=machine) as program:
        program.retune(20)
        assert "  not: it was retuned\n" in program.explain()
    with pytest.raises(TypeError, match="adapt must be True or False, got 'yes'"):
        ost.compile(step, machine=machine, adapt="yes")


def test_a_replay_does_not_end_because_its_program_cannot_adapt(machine, monkeypatch, caplog):
    def fail(*_):
        raise MemoryError("no room")

    monkeypatch.setattr(adapt, "schedule_otherwise", fail)
    arrays = rows_of(4)
    with ost.compile(record, [ost.ring(*each) for each in arrays], machine=machine, costs={}) as program:
        end = time.monotonic() + DEADLINE
        while not caplog.records and time.monotonic() < end:
            assert program.replay(1000) == 1000
        assert program.replay(10) == 10
        assert [entry.message for entry in caplog.records] == ["a program could not adapt; it stays as it is"]


def test_what_a_signal_handler_raises_while_a_program_adapts_ends_the_replay(machine, monkeypatch):
    class Stop(Exception):
        pass

    class Handler:
        def __call__(self, *_):
            raise Stop

        handle = __call__

    monkeypatch.setattr(adapt, "schedule_otherwise", lambda *_: signal.raise_signal(signal.SIGALRM))
    arrays = rows_of(4)
    for handler in (Handler(), Handler().handle):
        before = signal.signal(signal.SIGALRM, handler)
        try:
            program = ost.compile(record, [ost.ring(*each) for each in arrays], machine=machine, costs={})
            with pytest.raises(Stop), program:  # noqa: PT012  # in which of them is left open
                for _ in range(10_000):
                    program.replay(1000)
        finally:
            signal.signal(signal.SIGALRM, before)


def test_a_program_that_is_dropped_is_freed_at_once(machine):
    arrays = rows_of(4)
    program = ost.compile(record, [ost.ring(*each) for each in arrays], machine=machine, costs={})
    program.replay(500)
    engine = weakref.ref(program._engine)
    del program
    assert engine() is None


RETURNS = """
import sys, time
import numpy as np, ostinato as ost

@ost.task(releases_gil=True)
def nap(src: ost.Read, other: ost.Read, dst: ost.Write, seconds):
    time.sleep(seconds)
    dst[...] = src + other

first, second = ost.ring(np.ones(1), np.ones(1)), ost.ring(np.ones(1), np.ones(1))
with ost.capture() as graph:
    nap(first[0], second[0], first[1], float(sys.argv[1]))
    nap(second[0], first[0], second[1], float(sys.argv[1]))
with ost.Machine(cpus=2, gpus=0) as machine, graph.compile(machine) as program:
    print("learned in replays" in program.explain(), "on 2 lanes," in program.explain())
    while "was learned from" not in program.explain():
        program.replay(8)
"""


def test_the_next_process_starts_with_what_was_learned(tmp_path):
    def run(seconds):
        command = [sys.executable, "-c", RETURNS, seconds]
        environment = {**os.environ, "OSTINATO_CACHE_DIR": str(tmp_path)}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=DEADLINE
        ).stdout

    assert run("0.004") == "False False\n"
    assert run("0.004") == "True True\n"
    assert run("0.001") == "False False\n"  # other numbers, another time


@pytest.fixture
def own_store(tmp_path, monkeypatch):
    """What other tests have taught does not count."""
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path))


def test_what_is_learned_is_of_numbers_arrays_and_code(own_store):
    @ost.task
    def work(x: ost.ReadWrite, n):
        x += n

    x, y = np.zeros(4), np.zeros(5)
    with ost.capture() as graph:
        turns = ost.ring(np.zeros(4), np.zeros(4)), ost.ring(np.zeros(6), np.zeros(6))
        for args in ((x, 1), (x, 2.0), (y, 1), (x, ost.step), (turns[1][0], 1)):
            work(*args)
        graph.fill(x, 0.0)
    nothing = estimate(graph.ops)
    assert recall_ops(summarize(graph.ops), nothing) is nothing
    seconds = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    remember_ops(graph.ops, nothing._replace(seconds=seconds, spread=seconds / 10, source=np.ones(6, np.int32)))
    found = recall_ops(summarize(graph.ops), nothing)
    assert found.seconds.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, nothing.seconds[5]]
    assert found.sources[found.source[0]] == "learned in replays"
    assert not found.measured[5]
    given = nothing._replace(source=np.ones(6, np.int32))
    assert recall_ops(summarize(graph.ops), given).seconds.tolist() == nothing.seconds.tolist()


@pytest.mark.parametrize(
    "damage", ["[]", "{", '{"learned": 3}', '{"learned": {"a": [1]}}', '{"learned": {"a": [-1, 0]}}']
)
def test_what_is_damaged_counts_as_absent(own_store, monkeypatch, damage):
    monkeypatch.setattr(calibrate, "_learned", {})
    monkeypatch.setattr(calibrate._Entry, "read", lambda self: dict(json.loads(damage)))
    x = np.zeros(4)
    with ost.capture() as graph:
        mix(x, x[:], np.zeros(4), 0, 1)
    nothing = estimate(graph.ops)
    assert recall_ops(summarize(graph.ops), nothing) is nothing


def test_calls_of_one_kind_differ_by_more_than_noise_or_not_at_all():
    x = np.zeros(4)
    with ost.capture() as graph:
        for n in (1, 1, 1, 1, 2):
            mix(x, x[:], np.zeros(4), n, 1)
    costs = estimate(graph.ops)._replace(seconds=np.array([1.0, 1.1, 0.9, 3.0, 1.2]), source=np.ones(5, np.int32))
    assert level_costs(graph.ops, costs).seconds.tolist() == [1.05, 1.05, 1.05, 3.0, 1.2]


def test_only_the_latest_are_remembered(own_store, monkeypatch):
    monkeypatch.setattr(calibrate, "MOST_LEARNED", 3)
    x = np.zeros(4)
    with ost.capture() as graph:
        for n in range(5):
            mix(x, x[:], np.zeros(4), n, 1)
    nothing = estimate(graph.ops)
    remember_ops(graph.ops, nothing._replace(source=np.ones(5, np.int32)))
    assert recall_ops(summarize(graph.ops), nothing).measured.tolist() == [False, False, True, True, True]


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals come to the main thread")
def test_ctrl_c_leaves_a_whole_number_of_steps_and_a_program_that_runs(restless, machine):
    x, y = np.zeros(1), np.zeros(1)

    @ost.task(releases_gil=True)
    def count(x: ost.ReadWrite):
        x += 1

    def step():
        count(x)
        count(y)

    draw = random.Random(1)
    with ost.compile(step, machine=machine) as program:
        for _ in range(30):
            timer = threading.Timer(draw.random() / 50, signal.raise_signal, (signal.SIGINT,))
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # it may come before the replay
                timer.start()
                program.replay(10**9)
            timer.join()
            assert x[0] == y[0] == program.step
            assert program.replay(3) == 3
            assert program.submit(3).result(DEADLINE) == 3
        assert x[0] == y[0] == program.step


@pytest.fixture
def unrolling(restless, monkeypatch):
    """Several steps run as one now and then, whatever that gains."""
    monkeypatch.setattr(adapt, "_BEFORE_UNROLLING", 0)
    monkeypatch.setattr(adapt, "_FETCHED", float("inf"))
    monkeypatch.setattr(adapt, "cache_bytes", lambda: 0)
    runs = []
    made = adapt.Adapter._replay_unrolled

    def replay_unrolled(self, *given):
        run = made(self, *given)
        runs.append(run.requested)
        return run

    monkeypatch.setattr(adapt.Adapter, "_replay_unrolled", replay_unrolled)
    return runs


@ost.task(releases_gil=True)
def blend(src: ost.Read, other: ost.Read, dst: ost.Write):
    dst[...] = 3 * src - other[::-1] + 1


def record_blends(rings, single):
    for one, other in itertools.pairwise([*rings, rings[0]]):
        blend(one[0], other[-1], one[1])
    blend(rings[0][0], single[:8], single[8:])
    blend(single[8:], rings[0][1], single[:8])


@pytest.mark.parametrize("runs", ["pipelined", "serial"])
@pytest.mark.parametrize("seed", range(3))
def test_several_steps_as_one_do_what_the_loop_does(unrolling, machine, runs, seed):
    draw = random.Random(seed)
    rng = np.random.default_rng(seed)
    arrays = [list(rng.integers(-9, 9, (n, 8))) for n in (2, 3, 2)]
    single = rng.integers(-9, 9, 16)
    same, same_single = [[each.copy() for each in those] for those in arrays], single.copy()
    rings = [[ost.ring(*each) for each in those] for those in (arrays, same)]
    with (
        ost.compile(record_blends, rings[0], single, machine=machine, runs=runs) as program,
        ost.compile(record_blends, rings[1], same_single, machine=machine, adapt=False) as loop,
    ):
        end, replays = time.monotonic() + DEADLINE, 0
        while replays < 50 or (len(unrolling) < 20 and time.monotonic() < end):
            replays += 1
            steps = draw.choice([1, 2, 7, 40, 40, 201, 1000])
            if draw.randrange(8) == 0:
                assert program.submit(steps).result(DEADLINE) == steps
            else:
                assert program.replay(steps) == steps
            assert loop.replay_eagerly(steps) == steps
            assert program.step == loop.step
            for one, other in zip(arrays, same, strict=True):
                np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(single, same_single)
            if draw.randrange(16) == 0:
                step = draw.randrange(100)
                program.reset(step)
                loop.reset(step)
        assert len(unrolling) >= 20
        assert all(steps % 6 == 0 for steps in unrolling)
        assert program.statistics().runs_submitted == replays


def test_a_failure_in_several_steps_as_one_names_its_op_and_step(unrolling, machine):
    @ost.task
    def count(x: ost.ReadWrite):
        x += 1
        if x[0] == bad:
            raise ValueError("enough")

    bad = -1
    x, y = np.zeros(1), np.zeros(1)
    with ost.compile(lambda x, y: (count(x), count(y)), x, y, machine=machine) as program:
        end = time.monotonic() + DEADLINE
        for after in (20, 21, 28, 300):
            known = len(unrolling)
            while len(unrolling) < known + 3 and time.monotonic() < end:
                program.replay(64)
            np.testing.assert_array_equal(x, y)
            bad, step = x[0] + after, program.step
            with pytest.raises(ost.TaskError, match="enough") as raised:
                program.replay(10**6)
            assert raised.value.step == step + after - 1
            assert raised.value.op.index == 0
            assert program.step >= step + after
            bad = -1
            x[0] = y[0] = 0
            assert program.replay(64) == 64
            assert x[0] == y[0] == 64


def test_what_is_held_while_several_steps_as_one_fail_is_skipped(unrolling, machine):
    reached, go_on = threading.Event(), threading.Event()

    @ost.task
    def count(x: ost.ReadWrite):
        x += 1
        if x[0] == bad:
            reached.set()
            go_on.wait(DEADLINE)
            raise ValueError("enough")

    bad = -1
    x, y = np.zeros(1), np.zeros(1)
    with ost.compile(lambda x, y: (count(x), count(y)), x, y, machine=machine) as program:
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            while program._engine.adapter._turn.loaded.executable.unrolled == 1:
                program.replay(64)
            bad = x[0] + 20
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                failing = pool.submit(program.replay, 64)
                assert reached.wait(DEADLINE)
                later = program.submit(5)
                go_on.set()
                assert isinstance(failing.exception(DEADLINE), ost.TaskError)
            with pytest.raises(ost.PoisonError):
                later.result(DEADLINE)
            bad = -1
            reached.clear()
            go_on.clear()
            x[0] = y[0] = 0
            assert program.replay(8) == 8
            if len(unrolling) > 10:
                break
        assert len(unrolling) > 10


def test_short_replays_leave_several_steps_as_one(unrolling, machine):
    x, y = np.zeros(1), np.zeros(1)

    @ost.task(releases_gil=True)
    def count(x: ost.ReadWrite):
        x += 1

    with ost.compile(lambda x, y: (count(x), count(y)), x, y, machine=machine) as program:
        end, steps = time.monotonic() + DEADLINE, 0
        adapter = program._engine.adapter
        while adapter._turn.loaded.executable.unrolled == 1 and time.monotonic() < end:
            steps += program.replay(64)
        for _ in range(1000):
            steps += program.replay(1)
        assert adapter._learning.asked == 1
        assert adapter._turn.loaded.executable.unrolled == 1
        assert x[0] == y[0] == program.step == steps


def test_other_arrays_leave_several_steps_as_one(unrolling, machine):
    x, y, new = np.zeros(1), np.zeros(1), np.zeros(1)

    @ost.task(releases_gil=True)
    def count(x: ost.ReadWrite):
        x += 1

    with ost.compile(lambda x, y: (count(x), count(y)), x, y, machine=machine) as program:
        end, steps = time.monotonic() + DEADLINE, 0
        while not unrolling and time.monotonic() < end:
            steps += program.replay(64)
        assert x[0] == y[0] == steps
        program.rebind([(x, new)])
        known = len(unrolling)
        for _ in range(30):
            program.replay(64)
        assert len(unrolling) == known
        assert (x[0], y[0], new[0]) == (steps, steps + 30 * 64, 30 * 64)
        assert program.statistics().operations >= 2 * (steps + 30 * 64)


def test_ctrl_c_ends_between_several_steps_as_one(unrolling, machine):
    x, y = np.zeros(1), np.zeros(1)

    @ost.task(releases_gil=True)
    def count(x: ost.ReadWrite):
        x += 1

    draw = random.Random(2)
    with ost.compile(lambda x, y: (count(x), count(y)), x, y, machine=machine) as program:
        end, interrupts = time.monotonic() + DEADLINE, 0
        while interrupts < 30 or (len(unrolling) < 5 and time.monotonic() < end):
            interrupts += 1
            timer = threading.Timer(draw.random() / 50, signal.raise_signal, (signal.SIGINT,))
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # it may come before the replay
                timer.start()
                program.replay(10**9)
            timer.join()
            assert x[0] == y[0] == program.step
            assert program.replay(64) == 64
            assert program.submit(3).result(DEADLINE) == 3
        assert x[0] == y[0] == program.step
        assert len(unrolling) >= 5


def test_a_step_larger_than_the_caches_is_compared_with_several_as_one(machine, monkeypatch):
    monkeypatch.setattr(adapt, "_BEFORE_UNROLLING", 0)
    monkeypatch.setattr(adapt, "cache_bytes", lambda: 1 << 16)
    tiles, width = 32, 1 << 10
    plate = np.random.default_rng(1).random(tiles * width)
    ring, expected = ost.ring(plate, plate.copy()), [plate.copy(), plate.copy()]

    @ost.task(releases_gil=True)
    def smooth(old: ost.Read, new: ost.Write):
        new[...] = (old[:-2] + old[1:-1] + old[2:]) / 3

    def step(u):
        for tile in range(tiles):
            first, last = max(tile * width, 1), min((tile + 1) * width, tiles * width - 1)
            smooth(u[0][first - 1 : last + 1], u[1][first:last])

    with ost.compile(step, ring, machine=machine) as program:
        end = time.monotonic() + DEADLINE
        while program._engine.unrolled is None and time.monotonic() < end:
            program.replay(40)
        assert program._engine.unrolled is not None
        for _ in range(20):
            program.replay(40)
        for _ in range(program.step):
            old, new = expected
            new[1:-1] = (old[:-2] + old[1:-1] + old[2:]) / 3
            expected.reverse()
        np.testing.assert_array_equal(program.current(ring), expected[0])
