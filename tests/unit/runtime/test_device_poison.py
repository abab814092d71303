"""Failures in random graphs with devices: what depends on one is skipped, and nothing that runs is wrong."""

from __future__ import annotations

import os
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ostinato as ost
from beds import made

MORE = int(os.environ.get("OSTINATO_MORE_EXAMPLES", "1"))
EXAMPLES = {"fake": 100 * MORE, "opencl": 25 * MORE}
STEPS = 5
SIZE = 4
PATIENCE = 60  # seconds
DEVICES = {"fake": ["fake:0", "fake:0", "fake:1"], "opencl": ["opencl:0", "opencl:0", "opencl:0"]}


@st.composite
def plans(draw, kind, kernels_only=False):
    """Ops by what they do, where, the array that each writes, and one that it reads; who fails, and when.

    `kernels_only`: nothing but tasks of the device, on arrays that are there.
    """
    everywhere = ["device"] if kernels_only else ["host", "host", "device"]
    homes = draw(st.lists(st.sampled_from(everywhere), min_size=2, max_size=4))
    array = st.integers(0, len(homes) - 1)
    places = DEVICES[kind] if kernels_only else [*DEVICES[kind], None]
    op = st.tuples(st.just("task"), st.sampled_from(places), array, array)
    if not kernels_only:
        op = st.one_of(op, op, op, st.tuples(st.sampled_from(["copy", "fill"]), st.none(), array, array))
    ops = draw(st.lists(op, min_size=1, max_size=7).filter(has_tasks))
    return {
        "homes": homes,
        "ops": ops,
        "failing": draw(st.sampled_from([number for number, op in enumerate(ops) if op[0] == "task"])),
        "step": draw(st.integers(0, STEPS - 1)),
        "cpus": draw(st.integers(1, 2)),
    }


def has_tasks(ops):
    return any(op[0] == "task" for op in ops)


def first_values(number):
    return (np.arange(SIZE, dtype=np.int32) + 10 * number) % 17


class World:
    """A graph of a plan, and what sequential Python makes of it.

    Attributes
    ----------
    fails_at
        Where the op that fails does so: ``"issue"``, ``"device"``, or nowhere.
    ran
        The tasks that were called, as (op, step).
    wrong
        Those on the host whose arguments were not what sequential Python would have passed.
    """

    def __init__(self, bed, plan, fails_at):
        self.plan, self.fails_at = plan, fails_at
        self.failures = []  # to be called
        self.ran, self.wrong = set(), []
        self.bed = bed
        self.first_step = 0
        self.seen = {}
        self.arrays = [
            bed.array(first_values(k)) if home == "device" else first_values(k) for k, home in enumerate(plan["homes"])
        ]
        self.graph = ost.Graph()
        on_device, on_host = self.tasks()
        for number, (what, where, written, read) in enumerate(plan["ops"]):
            x, y = self.arrays[written], self.arrays[read]
            if what == "task":
                self.graph.task(on_host if where is None else on_device, x, y, number, ost.step, on=where)
            elif what == "copy" and written != read:
                self.graph.copy(y, x)
            else:
                self.graph.fill(x, number)

    def tasks(self):
        def fails(number, step):
            return (number, step - self.first_step) == (self.plan["failing"], self.plan["step"])

        @ost.task
        def on_device(x: ost.ReadWrite, y: ost.Read, number, step, stream: ost.Stream):
            if fails(number, step):
                if self.fails_at == "issue":
                    raise ArithmeticError("cannot be issued")
                if self.fails_at == "device":
                    self.failures.append(self.bed.enqueue_failure(stream))
            self.ran.add((number, step - self.first_step))
            written, read = self.plan["ops"][number][2:]
            if written == read:
                self.bed.enqueue("shift", stream, (x,), number + 1)
            else:
                self.bed.enqueue("add", stream, (x, y), number + 1)

        @ost.task
        def on_host(x: ost.ReadWrite, y: ost.Read, number, step):
            if self.fails_at and fails(number, step):
                raise ArithmeticError("the host fails")
            self.ran.add((number, step - self.first_step))
            wanted = self.seen.get((number, step - self.first_step))
            if wanted is not None and (x.tolist(), y.tolist()) != wanted:
                self.wrong.append((number, step, x.tolist(), y.tolist(), wanted))
            effect(self.plan["ops"][number], number, x, y)

        return on_device, on_host

    def expect(self, steps, skipped=frozenset()):
        """Note what tasks see and return what arrays hold after steps from the first values, some ops left out."""
        arrays = [first_values(k) for k in range(len(self.arrays))]
        self.seen = {}
        for step in range(steps):
            for number, op in enumerate(self.plan["ops"]):
                if (number, step) in skipped:
                    continue
                x, y = arrays[op[2]], arrays[op[3]]
                if op[0] == "task":
                    self.seen[number, step] = x.tolist(), y.tolist()
                effect(op, number, x, y)
        return [array.tolist() for array in arrays]

    def skipped(self):
        """All (op, step) that come after the failure along the graph's edges, and the failure."""
        edges = [(a.index, b.index, d) for a, b, d in self.graph.edges]
        first = self.plan["failing"], self.plan["step"]
        found, waiting = {first}, [first]
        while waiting:
            at, when = waiting.pop()
            for a, b, d in edges:
                after = b, when + d
                if a == at and after[1] < STEPS and after not in found:
                    found.add(after)
                    waiting.append(after)
        return found

    def end(self, run):
        """Let the device fail once nothing goes on without it; return the run's exception."""
        deadline = time.monotonic() + PATIENCE
        while not run.done():
            assert time.monotonic() < deadline, run.stuck()
            standing = [line.partition(": ")[2] for line in run.stuck().splitlines()]
            if not {"running", "ready"} & set(standing) and any(each.endswith(" to finish") for each in standing):
                while self.failures:
                    self.failures.pop()()
            time.sleep(0.0005)
        try:
            return run.exception(PATIENCE)
        except CancelledError as cancelled:
            return cancelled

    def begin_again(self, program):
        """Give the arrays their first values, and find out which step is the next."""
        self.fails_at, self.seen = "", {}
        run = program.submit(1, profile=True)
        assert run.result(PATIENCE) == 1
        self.first_step = run.profile[0].step + 1
        for k, array in enumerate(self.arrays):
            if isinstance(array, np.ndarray):
                array[...] = first_values(k)
            else:
                array.set(first_values(k))
        self.ran.clear()

    def held(self):
        return [(array if isinstance(array, np.ndarray) else array.get()).tolist() for array in self.arrays]

    def check_clean_run(self, program):
        """A run without a failure gives what sequential Python gives."""
        self.begin_again(program)
        wanted = self.expect(STEPS)
        assert program.replay(STEPS) == STEPS
        assert self.held() == wanted
        assert self.wrong == []
        tasks = [number for number, op in enumerate(self.plan["ops"]) if op[0] == "task"]
        assert self.ran == {(number, step) for number in tasks for step in range(STEPS)}


def effect(op, number, x, y):
    what, _, written, read = op
    if what == "task":
        x += np.int32(number + 1) * (1 if written == read else y)
    elif what == "copy" and written != read:
        x[...] = y
    else:
        x[...] = number


def opened(kind, plan):
    return made(kind, plan["cpus"], **({"count": 2} if kind == "fake" else {}))


@pytest.mark.parametrize("kind", ["fake", "opencl"])
def test_exactly_what_depends_on_a_failing_call_is_skipped(kind):
    @settings(max_examples=EXAMPLES[kind], deadline=None)
    @given(plans(kind), st.booleans())
    def all_of_them(plan, profile):
        with opened(kind, plan) as bed:
            world = World(bed, plan, "issue")
            with world.graph.compile(bed.machine) as program:
                skipped = world.skipped()
                wanted = world.expect(STEPS, skipped)
                failure = program.submit(STEPS, on_error="continue", profile=profile).exception(PATIENCE)
                assert isinstance(failure, ost.TaskError)
                assert (failure.op, failure.step) == (world.graph.ops[plan["failing"]], plan["step"])
                assert world.held() == wanted
                assert world.ran == set(world.seen)
                assert world.wrong == []
                world.check_clean_run(program)

    all_of_them()


def check_failure_on_device(kind, plan, on_error, profile):
    with opened(kind, plan) as bed:
        bed.keeps_events = True
        world = World(bed, plan, "device")
        with world.graph.compile(bed.machine) as program:
            skipped = world.skipped()
            world.expect(STEPS, skipped)
            failure = world.end(program.submit(STEPS, on_error=on_error, profile=profile))
            held = world.held()
            assert isinstance(failure, ost.TaskError)
            assert isinstance(failure.__cause__, ost.DeviceError | ArithmeticError)
            on_host = {number for number, op in enumerate(plan["ops"]) if op[1] is None}
            assert not {(op, step) for op, step in world.ran if op in on_host} & skipped
            assert world.wrong == []
            bed.finish()
            assert world.held() == held
            world.check_clean_run(program)


@settings(max_examples=EXAMPLES["fake"], deadline=None)
@given(plans("fake"), st.sampled_from(["continue", "stop"]), st.booleans())
@example(
    {
        "homes": ["host"] * 2,
        "ops": [
            ("task", "fake:0", 0, 1),
            ("task", "fake:0", 1, 1),
            ("task", "fake:0", 0, 0),
            ("task", "fake:1", 0, 0),
            ("task", None, 1, 1),
        ],
        "failing": 0,
        "step": 0,
        "cpus": 1,
    },
    "continue",
    False,
)
def test_no_task_of_the_host_runs_on_what_a_device_failed_to_make(plan, on_error, profile):
    check_failure_on_device("fake", plan, on_error, profile)


@settings(max_examples=EXAMPLES["opencl"], deadline=None)
@given(plans("opencl", kernels_only=True), st.sampled_from(["continue", "stop"]), st.booleans())
def test_a_failure_of_an_opencl_device_is_told(plan, on_error, profile):
    """Where commands fail whose events nobody holds, as those of copies, PoCL aborts the process."""
    check_failure_on_device("opencl", plan, on_error, profile)


@pytest.mark.parametrize("kind", ["fake", "opencl"])
def test_every_run_ends_and_the_next_is_right(kind):
    """Whatever runs are in flight together with one that fails or is cancelled."""
    act = st.tuples(st.sampled_from(["run", "run", "cancel"]), st.integers(0, 2 * STEPS))

    places = ["issue", "device"] if kind == "fake" else ["issue"]

    @settings(max_examples=EXAMPLES[kind], deadline=None)
    @given(plans(kind), st.sampled_from(places), st.lists(act, min_size=1, max_size=4))
    def all_of_them(plan, fails_at, acts):
        with opened(kind, plan) as bed:
            world = World(bed, plan, fails_at)
            with world.graph.compile(bed.machine) as program:
                runs = []
                for what, steps in acts:
                    runs.append(program.submit(steps))
                    if what == "cancel":
                        runs[-1].cancel()
                for run in runs:
                    failure = world.end(run)
                    assert failure is None or isinstance(failure, ost.TaskError | ost.PoisonError | CancelledError)
                world.check_clean_run(program)

    all_of_them()
