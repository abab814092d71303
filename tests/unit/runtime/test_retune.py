"""Retuning: the same results as a replay, whatever schedule runs which steps; and never a worse schedule after it."""

from __future__ import annotations

import _thread
import gc
import itertools
import json
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
import programs
from ostinato.compiler.costs import Costs
from ostinato.compiler.ir import Target
from ostinato.compiler.pipeline.compile import schedule_again
from ostinato.runtime.retune import StepBudget, retune

MORE = int(os.environ.get("OSTINATO_MORE_EXAMPLES", "1"))


@pytest.fixture(scope="module")
def machines():
    found = {cpus: ost.Machine(cpus=cpus, gpus=0) for cpus in (1, 2, 3, 4)}
    yield found
    for machine in found.values():
        machine.close()


@ost.task
def count(x: ost.ReadWrite):
    x += 1


@ost.task(releases_gil=True)
def work(x: ost.ReadWrite):
    np.sqrt(x * x + 1, out=x)


@ost.task
def log(entries: ost.ReadWrite, number):
    entries.append(number)


def capture(width=4, size=16, entries=None):
    """A graph of some chains, which may go on several lanes, and of a log of step numbers."""
    arrays = [np.zeros(size) for _ in range(width)]
    entries = [] if entries is None else entries
    with ost.capture() as graph:
        log(entries, ost.step)
        for array in arrays:
            count(array)
            work(array)
    return graph, arrays, entries


def begin(program):
    """Begin what `retune` does."""
    program._engine.begin_retuning()
    return program._engine


def add_others(engine, draw):
    """Add two schedules, for costs drawn at random, on as many lanes as they like and on one."""
    present = engine.kept.executable
    processors = sum(processor.kind == "cpu" for processor in engine.workers.processors)
    added = []
    for threads in (processors, 1):
        seconds = np.array([draw.choice((1e-8, 1e-6, 1e-4)) for _ in present.step.nodes])
        costs = Costs(seconds, np.zeros(len(seconds)), np.ones(len(seconds), np.int32), ("estimated", "drawn"))
        added.append(engine.add(schedule_again(present, costs, Target(processors, threads, present.target.model))))
    return added


def in_turns(budget, entrants, draw):
    """Run all steps part by part, by executables drawn at random."""
    while budget.left:
        budget.switch(draw.choice(entrants))
        budget.run(draw.randint(1, budget.left))
    return budget.done


@pytest.mark.slow
@settings(max_examples=250 * MORE, derandomize=MORE == 1)
@given(recipe=programs.recipes(most_ops=10), seed=st.integers(0, 2**16))
def test_programs_that_change_their_form_equal_sequential_execution(machines, recipe, seed):
    draw = random.Random(seed)
    graph, costs = programs.build(recipe)
    programs.start()
    ends, bindings = [], programs.Bindings()
    with graph.compile(machines[recipe.cpus], lanes=recipe.lanes, costs=costs) as program:
        engine = begin(program)
        entrants = [engine.kept, *add_others(engine, draw)]
        for run in recipe.runs:
            if programs.uses(graph, run.rebinds):
                program.rebind([bindings.change(run.rebinds)])
            params = programs.parameters(run.seed)
            if run.waits:
                ends.append(in_turns(StepBudget(engine, run.steps, None, params, time.perf_counter_ns), entrants, draw))
            else:
                ends.append(program.submit(run.steps, params=params))
        steps = [end if isinstance(end, int) else end.result(60) for end in ends]
        engine.kept = draw.choice(entrants)
        engine.settle()
        assert engine._loaded == [engine.kept]
        assert program._engine.core is engine.kept.core
    assert (steps, programs.state()) == programs.sequential(recipe, graph)


@pytest.mark.parametrize("steps", [0, 1, 5, 50, 200, 1000])
def test_a_retuning_runs_exactly_the_steps(machine, steps):
    graph, arrays, entries = capture()
    with graph.compile(machine, costs={"count": 1e-3, "work": 1e-9, "log": 1e-9}) as program:
        program.replay(3)
        found = program.retune(steps)
        assert found.steps == steps
        program.replay(2)
        program.submit(1).result()
        assert entries == list(range(steps + 6))
    expected = np.zeros(16)
    for _ in range(steps + 6):
        count(expected)
        work(expected)
    for array in arrays:
        assert (array == expected).all()


def test_what_it_returns_can_be_read(machine):
    graph, _, _ = capture()
    with graph.compile(machine, costs={"count": 1e-3, "work": 1e-9, "log": 1e-9}) as program:
        found = program.retune(400)
        assert found.kept in ("old", "new")
        assert found.before.low <= found.before.seconds <= found.before.high
        assert found.after.low <= found.after.seconds <= found.after.high
        assert (found.kept == "old") == (found.before == found.after)
        assert {change.name for change in found.changed} >= {"count"}
        assert found.changed[0].before == 1e-3
        assert 0 < found.changed[0].after < 1e-3
        assert "test_retune.py" in found.changed[0].call_site
        assert "retuned over 400 steps" in str(found)
        assert found.kept in str(found)
        assert found.why in str(found)
        assert "count: 1 ms was assumed" in str(found)
        assert "traced" in program.explain()


def test_without_steps_nothing_is_known(machine):
    graph, _, entries = capture()
    with graph.compile(machine) as program:
        found = program.retune(0)
        assert (found.steps, found.kept, found.before, found.after, found.pairs) == (0, "old", None, None, 0)
        assert "too few" in str(found)
        assert program.retune(3).kept == "old"
    assert entries == [0, 1, 2]


def test_an_empty_graph_is_retuned(machine):
    with ost.Graph().compile(machine) as program:
        assert program.retune(300).kept == "old"


@pytest.mark.parametrize("runs", ["concurrent", "once"])
def test_runs_that_cannot_be_compared_are_refused(machine, runs):
    graph, _, _ = capture()
    with graph.compile(machine, runs=runs) as program, pytest.raises(ValueError, match=f"runs='{runs}'"):
        program.retune()


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"steps": -1}, ValueError, "at least 0"),
        ({"steps": 1.5}, TypeError, "must be an integer, got 1.5"),
        ({"nonsense": 1}, TypeError, "nonsense"),
        ({"after": 3}, TypeError, "an event"),
        ({"params": {"nonsense": 1}, "nonsense": 2}, TypeError, "twice"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(machine, arguments, error, says):
    graph, _, entries = capture()
    with graph.compile(machine) as program:
        with pytest.raises(error, match=says):
            program.retune(**arguments)
        assert entries == []
        assert program.retune(30).steps == 30


def test_after_close_it_is_refused(machine):
    graph, _, _ = capture()
    program = graph.compile(machine)
    program.close()
    with pytest.raises(RuntimeError, match="closed"):
        program.retune()


def test_inside_a_task_it_is_refused(machine):
    raised = []

    @ost.task
    def inner(x: ost.ReadWrite):
        try:
            box[0].retune(10)
        except ost.ContractError as error:
            raised.append(str(error))

    with ost.capture() as graph:
        inner(np.zeros(1))
    box = []
    with graph.compile(machine) as program:
        box.append(program)
        program.replay(2)
        machine.spawn(inner, np.zeros(1)).result()
        assert program.retune(30).steps == 30
    assert len(raised) == 33


@pytest.mark.parametrize("last", [0, 1, 9, 10, 11, 49, 50, 51, 52, 61, 62, 63, 99])
@pytest.mark.parametrize("every", [1, 4])
def test_until_ends_it_where_it_ends_a_replay(last, every):
    """Whatever bit the step falls on, its last one included."""
    results = []
    for start in ("replay", "retune"):
        arrays, entries, flag = [np.zeros(16) for _ in range(2)], [], np.zeros(1)

        @ost.task
        def decide(flag: ost.Write, number):
            flag[0] = number >= last

        with ost.capture() as graph:
            log(entries, ost.step)
            for array in arrays:
                count(array)
                work(array)
            decide(flag, ost.step)
            ost.until(flag, every=every)
        with graph.compile() as program:
            steps = getattr(program, start)(200)
            results.append((steps if start == "replay" else steps.steps, len(entries), arrays[0].tobytes()))
            flag[0] = 0
            program.replay(1)
            results[-1] += (entries[-1],)
    assert results[0] == results[1]


def test_rings_parameters_and_preconditions(machine):
    ring = [np.zeros(4) for _ in range(3)]
    opened = ost.UserEvent()

    @ost.task
    def push(source: ost.Read, target: ost.Write, factor, number):
        target[...] = source * factor + number

    with ost.capture() as graph:
        turn = ost.ring(*ring)
        gate = graph.precondition("gate")
        graph.task(push, turn[0], turn[1], ost.param("factor", 1.0), ost.step, after=gate)
    with graph.compile(machine) as program:
        timer = threading.Timer(0.05, opened.trigger)
        timer.start()
        assert program.retune(100, after={"gate": opened}, factor=0.5).steps == 100
        assert program.retune(100, after={"gate": opened}, params={"factor": 0.25}).steps == 100
        with pytest.raises(ValueError, match="gate"):
            program.retune(100)
    expected = [np.zeros(4) for _ in range(3)]
    for step in range(200):
        push(expected[step % 3], expected[(step + 1) % 3], 0.5 if step < 100 else 0.25, step)
    for array, other in zip(ring, expected, strict=True):
        assert (array == other).all()


@pytest.mark.parametrize("as_param", [False, True])
def test_barriers_go_on_from_phase_to_phase(machine, as_param):
    """Each step arrives, and so does somebody outside, much later: phases are those of a replay."""
    barrier = ost.Barrier(2)
    graph = ost.Graph()
    graph.arrive(graph.param("barrier") if as_param else barrier)
    graph.task(count, np.zeros(1))
    with graph.compile(machine) as program:
        program.retune(120, params={"barrier": barrier} if as_param else {})
        assert barrier.phase == 0
        for phase in range(120):
            assert barrier.phase == phase
            barrier.arrive()
        assert barrier.phase == 120


def test_what_is_held_of_a_reservation_is_held_by_the_next_form(machine):
    """Step k acquires what step k + 1 releases."""
    reservation = ost.Reservation()
    graph = ost.Graph()
    first = graph.task(count, np.zeros(1))
    graph.acquire(reservation, exclusive=False, after=first)
    graph.task(count, np.zeros(1))
    with graph.compile(machine) as program:
        engine = begin(program)
        entrants = [engine.kept, *add_others(engine, random.Random(1))]
        in_turns(StepBudget(engine, 40, None, {}, time.perf_counter_ns), entrants, random.Random(2))
        engine.settle()
        holdings = reservation.acquire(exclusive=True)
        assert not holdings.done


def test_threads_that_submit_meanwhile_lose_nothing(machine):
    graph, arrays, entries = capture(width=2)
    done = threading.Event()
    submitted = [0, 0, 0]

    def replay():
        while not done.is_set():
            submitted[0] += program.replay(2)

    def submit():
        runs = []
        while not done.is_set():
            runs.append(program.submit(3))
            time.sleep(0.001)
        submitted[1] = sum(run.result(60) for run in runs)

    with graph.compile(machine, costs={"count": 1e-3, "work": 1e-9, "log": 1e-9}) as program:
        threads = [threading.Thread(target=replay), threading.Thread(target=submit)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            submitted[2] += program.retune(300).steps
            time.sleep(0.01)
        done.set()
        for thread in threads:
            thread.join()
        assert program.statistics().runs_done == program.statistics().runs_submitted
        assert program.statistics().operations >= 5 * len(entries)
    assert entries == list(range(sum(submitted)))
    assert submitted[2] == 900
    assert (arrays[0] == arrays[1]).all()


def test_tasks_may_submit_to_the_program_that_is_retuned(machine):
    entries = []

    @ost.task
    def again(entries: ost.ReadWrite, number):
        entries.append(number)
        if number < 1000 and number % 7 == 0:
            runs.append(program.submit(1))

    with ost.capture() as graph:
        again(entries, ost.step)
    runs = []
    with graph.compile(machine) as program:
        program.retune(300)
        for run in runs:
            run.result(60)
    assert entries == list(range(300 + len(runs)))


def test_two_retunings_follow_each_other(machine):
    graph, _, entries = capture()
    with graph.compile(machine) as program:
        threads = [threading.Thread(target=program.retune, args=(100,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert entries == list(range(300))


@pytest.mark.parametrize("when", [0, 3, 30, 61, 150, 299])
def test_a_failure_is_raised_and_the_program_goes_on(machine, when):
    @ost.task
    def fail(x: ost.ReadWrite, number):
        if number == when:
            raise ValueError("enough")

    arrays, entries = [np.zeros(16) for _ in range(2)], []
    with ost.capture() as graph:
        log(entries, ost.step)
        for array in arrays:
            count(array)
            work(array)
        fail(np.zeros(1), ost.step)
    with graph.compile(machine, costs={"count": 1e-3, "work": 1e-9, "log": 1e-9}) as program:
        with pytest.raises(ost.TaskError, match="enough") as caught:
            program.retune(300)
        assert caught.value.step == when
        assert len(program._engine._loaded) == 1
        begun = len(entries)
        assert begun > when
        assert program.retune(100).steps == 100
        program.replay(5)
        assert entries == list(range(begun + 105))


def test_failures_that_nobody_was_told_of_stay_with_their_program():
    """Then no other form takes over, which would not know of them."""
    with ost.Machine(cpus=2) as machine:

        @ost.task
        def fail(x: ost.ReadWrite, number):
            if number == 0:
                raise ValueError("enough")

        arrays = [np.zeros(16) for _ in range(2)]
        with ost.capture() as graph:
            fail(np.zeros(1), ost.step)
            for array in arrays:
                count(array)
                work(array)
        with graph.compile(machine, costs={"count": 1e-3, "work": 1e-9}) as program:
            failed = program.submit(1)
            while not failed.done():
                time.sleep(0.001)
            with pytest.raises(ost.PoisonError):
                program.retune(300)
            assert isinstance(failed.exception(), ost.TaskError)
            assert program.retune(300).steps == 300


def test_an_interrupt_ends_it_at_a_step():
    graph, arrays, entries = capture()
    with ost.Machine(cpus=2) as machine, graph.compile(machine) as program:

        def interrupt():
            while len(entries) < 100:
                time.sleep(0.001)
            _thread.interrupt_main()

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            program.retune(10**7)
        thread.join()
        program.replay(3)
        assert entries == list(range(len(entries)))
        expected = np.zeros(16)
        for _ in entries:
            count(expected)
            work(expected)
        for array in arrays:
            assert (array == expected).all()
        program.retune(50)


def test_rebinding_before_and_after(machine):
    graph, arrays, _ = capture(width=2)
    first = weakref.ref(arrays[0])
    second, third = np.zeros(16), np.zeros(16)
    with graph.compile(machine, costs={"count": 1e-3, "work": 1e-9, "log": 1e-9}) as program:
        program.rebind([(arrays[0], second)])
        del graph, arrays[0]
        gc.collect()
        assert first() is None
        program.retune(300)
        program.rebind([(second, third)])
        program.retune(200)
        program.verify(3)
    assert (second == run_alone(300)).all()
    assert (third == run_alone(200)).all()
    assert (arrays[0] == run_alone(500)).all()


def run_alone(steps):
    expected = np.zeros(16)
    for _ in range(steps):
        count(expected)
        work(expected)
    return expected


def test_rebinding_meanwhile(machine):
    """From a task, of which it is known in which step it was: the rest of that bit is on the old arrays."""
    x, y = np.zeros(1), np.zeros(1)

    @ost.task
    def swap(x: ost.ReadWrite, number):
        x += 1
        if number == 200:
            threading.Thread(target=program.rebind, args=([(a, b)],)).start()

    a, b = x, y
    with ost.capture() as graph:
        swap(x, ost.step)
    with graph.compile(machine) as program:
        program.retune(1000)
    assert x[0] + y[0] == 1000
    assert x[0] > 200


def test_serial_runs_that_still_wait_hold_nothing_up(machine):
    graph, _, entries = capture()
    gate = ost.UserEvent()
    with graph.compile(machine, runs="serial", costs={"count": 1e-3, "work": 1e-9, "log": 1e-9}) as program:
        waiting = program.submit(5, after=gate)
        assert program.retune(300).kept == "old"
        gate.trigger()
        assert waiting.result(60) == 5
        assert program.retune(300).steps == 300
    assert entries == list(range(605))


def test_a_run_that_waits_holds_up_the_way_back_but_not_the_program():
    """It was submitted to the form that is not to stay: that stays until it is idle, and goes then."""
    graph, _, entries = capture()
    gate = ost.UserEvent()
    with ost.Machine(cpus=2) as machine, graph.compile(machine, runs="serial") as program:
        engine = begin(program)
        other = add_others(engine, random.Random(1))[0]
        assert engine.switch(other)
        waiting = program.submit(5, after=gate)
        engine.settle()
        assert program._engine.core is other.core
        assert len(program._engine._loaded) == 3
        assert program.replay(2) == 2
        assert len(program._engine._loaded) == 3
        gate.trigger()
        assert waiting.result(60) == 5
        before = program.statistics()
        assert program.replay(2) == 2
        assert program._engine.core is engine.kept.core
        assert len(program._engine._loaded) == 1
        assert program._engine.direct is not None
        after = program.statistics()
        assert after.runs_done == before.runs_done + 1
        assert after.operations > before.operations
    assert entries == list(range(9))


def test_what_an_earlier_retuning_left_is_not_done_in_a_later_one(machine):
    """A thread that submits may have looked for it before that one began."""
    graph, _, entries = capture()
    with graph.compile(machine) as program:
        engine = begin(program)
        add_others(engine, random.Random(1))
        engine._unsettled = True
        begin(program)
        engine.kept = add_others(engine, random.Random(2))[0]
        assert engine.switch(engine.kept)
        engine.settle(if_due=True)
        assert len(engine._loaded) == 5
        engine.settle()
        assert engine._loaded == [engine.kept]
        assert engine.direct is engine.kept.core
        engine.settle(if_due=True)
        assert engine._loaded == [engine.kept]
        assert program.replay(3) == 3
        assert program.statistics().runs_done == 1
        assert len(program._engine._retired) == 1  # the counters of all that are no more
    assert entries == [0, 1, 2]


def test_what_was_learned_of_a_program_that_is_closed_meanwhile_is_lost(machine):
    graph, _, _ = capture()
    program = graph.compile(machine)
    engine = begin(program)
    program.close()
    with pytest.raises(RuntimeError, match="closed"):
        engine.learn(engine.kept.executable.step.costs, 1e-6)
    engine.settle()


def test_closing_meanwhile_ends_it():
    graph, _, entries = capture()
    machine = ost.Machine(cpus=2)
    program = graph.compile(machine)
    ended = []

    def tune():
        try:
            ended.append(program.retune(10**6))
        except RuntimeError as error:
            ended.append(error)

    thread = threading.Thread(target=tune)
    thread.start()
    while len(entries) < 10:
        time.sleep(0.001)
    program.close()
    thread.join(60)
    assert "closed" in str(ended[0])
    assert entries == list(range(len(entries)))
    machine.close()


def test_earlier_runs_can_still_be_asked(machine):
    graph, _, _ = capture()
    with graph.compile(machine, costs={"count": 1e-3, "work": 1e-9, "log": 1e-9}) as program:
        run = program.submit(3, profile=True)
        trace = program.trace(2)
        assert run.result() == 3
        program.retune(300)
        program.replay(2)
        assert len(run.profile) == 3 * 9
        assert {record.status for record in run.profile} == {"ok"}
        assert len(trace) == 2 * 9
        assert program.trace(2).records["step"].tolist()[0] == 307
        assert run.stuck()


class Clock:
    """Time on a machine where a form takes what it is said to, under noise that does not know of forms."""

    def __init__(self, program, ratio, noise, seed):
        self._program = program
        self._first = program._engine._loaded[0]
        self._ratio = ratio
        self._noise = noise
        self._draw = random.Random(seed)
        self._now = 0.0
        self._reads = itertools.count()

    def __call__(self):
        read = next(self._reads)
        if read % 2:
            present = self._program._engine.core is self._first.core
            self._now += 1e5 * self._noise(self._draw, read // 2) * (1 if present else self._ratio)
        else:
            self._now += 10
        return int(self._now)


NOISES = {
    "drift": lambda draw, place: 1 + place / 40,
    "burst": lambda draw, place: (4 if place // 5 % 2 else 1) + draw.random() / 10,
    "every other": lambda draw, place: (1.5 if place % 2 else 1) + draw.random() / 100,
    "every other turn": lambda draw, place: (1.5 if place // 2 % 2 else 1) + draw.random() / 100,
    "heavy tails": lambda draw, place: 1 + 0.05 * draw.paretovariate(0.8),
    "growing": lambda draw, place: 1.1 ** min(place, 300),
}


@pytest.mark.parametrize("noise", NOISES)
def test_it_never_makes_a_program_worse(noise):
    with ost.Machine(cpus=2) as machine:
        for seed in range(12):
            graph, _, entries = capture(width=2, size=1)
            with graph.compile(machine, costs={"count": 1e-3, "work": 1e-9, "log": 1e-9}, lanes=2) as program:
                ratio = (1.0, 1.02, 2.0)[seed % 3]
                found = retune(
                    program._engine, 400, None, {}, seed=seed, clock=Clock(program, ratio, NOISES[noise], seed)
                )
                assert found.kept == "old"
                assert len(entries) == 400


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["drift", "every other", "every other turn", "heavy tails"])
def test_it_finds_what_is_better(noise):
    with ost.Machine(cpus=2) as machine:
        for seed in range(6):
            graph, _, _ = capture(width=2, size=30_000)
            with graph.compile(machine, costs={"count": 1e-3, "work": 1e-9, "log": 1e-9}, lanes=2) as program:
                present = program._engine._loaded[0]
                found = retune(
                    program._engine, 1000, None, {}, seed=seed, clock=Clock(program, 0.6, NOISES[noise], seed)
                )
                if found.pairs:  # there was another schedule
                    assert found.kept == "new", found
                    assert found.after.seconds < found.before.seconds
                    assert program._engine._loaded[0] is not present


def test_the_trace_of_a_process_has_all_of_it(tmp_path):
    """Program by program, and schedule by schedule where one was retuned."""
    script = """
        import numpy as np, ostinato as ost
        @ost.task
        def double(x: ost.ReadWrite):
            x *= 2
        with ost.capture() as graph:
            for array in [np.ones(4) for _ in range(3)]:
                double(array)
        with ost.Machine(cpus=2) as machine, graph.compile(machine, costs={"double": 1e-3}) as program:
            program.retune(200)
            program.replay(5)
    """
    path = tmp_path / "trace.json"
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env={**os.environ, "OSTINATO_TRACE": str(path)}, check=True
    )
    events = json.loads(path.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert sorted(event["args"]["step"] for event in slices) == [step for step in range(205) for _ in range(3)]
    assert len({event["pid"] for event in slices}) <= 3
