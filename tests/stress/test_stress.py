"""Stress: random graphs that watch themselves, with delays, more lanes than cores, many threads, failures and cancels.

`OSTINATO_STRESS_SECONDS` says for how long; `make soak` for long. Each round prints its seed when it fails, and
`OSTINATO_STRESS_SEED` begins with that one.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import CancelledError
from random import Random

import numpy as np
import pytest

import ostinato as ost
from stress.watched import STEPS, Watched, fails

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("OSTINATO_STRESS_SECONDS", "7"))
FIRST_SEED = int(os.environ.get("OSTINATO_STRESS_SEED", "0"))
PATIENCE = 90  # seconds


@pytest.fixture(scope="module")
def machines():
    found = [ost.Machine(cpus=cpus) for cpus in (1, 2, 3, 8)]
    yield found
    for machine in found:
        machine.close()


def runs_from_many_threads(random, machine):
    """Every op runs once in every step, after all that it comes after, whoever submits."""
    programs = [prepared(random, machine) for _ in range(random.choice([1, 1, 3]))]
    done = [0] * len(programs)
    errors = []

    def work(seed):
        own = Random(seed)
        try:
            for _ in range(own.randint(1, 8)):
                which = own.randrange(len(programs))
                steps = own.choice([0, 1, 2, 10, 50])
                options = {"priority": own.randint(-1, 1), "on_error": own.choice(["stop", "continue"])}
                program = programs[which][1]
                if own.random() < 0.3:
                    ran = program.replay(steps, **options)
                else:
                    run = program.submit(steps, **options)
                    ran = steps if own.random() < 0.5 else result(run)
                assert ran == steps
                done[which] += steps
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(random.random(),)) for _ in range(random.choice([1, 2, 6]))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, program in programs:
        program.close()  # waits
    assert not errors, errors
    for (watched, _), steps in zip(programs, done, strict=True):
        assert (watched.counts[:, :steps] == 1).all()
        assert (watched.counts[:, steps:] == 0).all()
        assert watched.violations == 0


def failures_that_go_on(random, machine):
    """What depends on a failure, and nothing else, is skipped, in all runs submitted before the failure was told."""
    watched, program = prepared(random, machine)
    with program:
        for _ in range(3):
            first = clean_step(watched, program) + 1
            steps = [random.choice([1, 2, 5, 40]) for _ in range(random.randint(1, 4))]
            seed, odds = random.randrange(2**32), random.choice([1, 5, 50, 500])
            watched.look_from(first + STEPS)
            runs = [program.submit(count, on_error="continue", seed=seed, odds=odds) for count in steps]
            outcomes = [outcome(run) for run in runs]
            skipped = watched.downstream(first, sum(steps), seed, odds)
            ran = watched.counts[:, first : first + sum(steps)]
            assert ((ran == 0) == skipped).all(), (ran, skipped)
            assert (ran <= 1).all()
            begin = first
            for count, end in zip(steps, outcomes, strict=True):
                failed = first_failure(skipped, first, begin, count, seed, odds)
                if failed is not None:
                    assert isinstance(end, ost.TaskError), end
                    assert (end.step, end.op.index) == failed
                elif skipped[:, begin - first : begin - first + count].any():
                    assert isinstance(end, ost.PoisonError), end
                else:
                    assert end == count
                begin += count


def failures_that_stop(random, machine):
    """After a failure, the steps begun go on to their end, but for what depends on it, and no other begins."""
    watched, program = prepared(random, machine)
    with program:
        for _ in range(5):
            first = clean_step(watched, program) + 1
            count, seed, odds = random.choice([1, 5, 100]), random.randrange(2**32), random.choice([20, 200, 2000])
            watched.look_from(first + STEPS)
            end = outcome(program.submit(count, seed=seed, odds=odds))
            ran = watched.counts[:, first : first + count]
            skipped = watched.downstream(first, count, seed, odds)
            if not isinstance(end, ost.TaskError):
                assert end == count
                assert not skipped.any()
                assert (ran == 1).all()
                continue
            reached = int(np.flatnonzero(ran.any(axis=0)).max()) + 1
            assert ((ran[:, :reached] == 0) == skipped[:, :reached]).all(), (ran, skipped)
            assert reached > end.step - first
            assert (end.step, end.op.index) == first_failure(skipped, first, first, count, seed, odds)


def cancels(random, machine):
    """However a run is cancelled, nothing has run before what it comes after, and the program stays usable."""
    watched, program = prepared(random, machine)
    with program:
        for _ in range(3):
            first = clean_step(watched, program) + 1
            watched.look_from(first)
            runs = [program.submit(random.choice([1, 10, 300])) for _ in range(random.randint(1, 3))]
            if random.random() < 0.7:
                time.sleep(random.random() * 1e-3)
            for run in runs:
                if random.random() < 0.6:
                    run.cancel()
            for run in runs:
                outcome(run)
            assert watched.violations == 0
            assert (watched.counts <= 1).all()


def mayhem(random, machine):
    """Threads submit, fail, cancel and wait at once: all runs end, and the program is as good as new."""
    watched, program = prepared(random, machine)
    watched.look_from(2 * STEPS)
    runs = []

    def work(seed):
        own = Random(seed)
        for _ in range(own.randint(1, 10)):
            on_error, odds = own.choice(["stop", "continue"]), own.choice([0, 10, 1000])
            run = program.submit(own.choice([1, 5, 50]), on_error=on_error, seed=own.randrange(99), odds=odds)
            runs.append(run)
            if own.random() < 0.3:
                run.cancel()
            if own.random() < 0.5:
                outcome(run)

    threads = [threading.Thread(target=work, args=(random.random(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with program:
        for run in runs:
            outcome(run)
        clean_step(watched, program)
    assert (watched.counts <= 1).all()


SCENARIOS = (runs_from_many_threads, failures_that_go_on, failures_that_stop, cancels, mayhem)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_stress(machines, scenario):
    end = time.monotonic() + SECONDS / len(SCENARIOS)
    seed = FIRST_SEED
    while time.monotonic() < end:
        random = Random(f"{scenario.__name__} {seed}")
        try:
            scenario(random, random.choice(machines))
        except BaseException:
            print(f"OSTINATO_STRESS_SEED={seed}")
            raise
        seed += 1
    assert seed > FIRST_SEED


def prepared(random, machine):
    cpus = sum(each.kind == "cpu" for each in machine.processors)
    watched = Watched(random, cpus)
    costs = watched.costs if random.random() < 0.7 else None
    return watched, watched.graph.compile(machine, lanes=random.randint(1, cpus), costs=costs)


def clean_step(watched, program):
    """Run a step without failures, those before having been delivered, and return its number."""
    watched.look_from(2 * STEPS)
    before = watched.counts.copy()
    assert result(program.submit()) == 1
    ran = watched.counts - before
    step = int(np.flatnonzero(ran.any(axis=0)).max())
    assert (ran[:, step] == 1).all()
    assert ran.sum() == watched.ops
    return step


def first_failure(skipped, first, begin, count, seed, odds):
    """The failure least in (step, program order) of the steps of a run; None without one."""
    for step in range(begin, begin + count):
        for op in range(len(skipped)):
            if not skipped[op, step - first] and fails(op, step, seed, odds):
                return step, op
    return None


def result(run):
    try:
        return run.result(PATIENCE)
    except TimeoutError:
        pytest.fail(f"a run hangs:\n{run.stuck()}")


def outcome(run):
    """What a run ended with: its number of steps, or an exception."""
    try:
        return result(run)
    except (ost.TaskError, ost.PoisonError, CancelledError) as error:
        return error
