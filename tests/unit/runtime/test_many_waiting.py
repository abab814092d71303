"""Many runs that wait for something outside, at once: what one more costs does not depend on how many there are."""

from collections import deque
from concurrent.futures import CancelledError

import pytest

import ostinato as ost


@pytest.mark.parametrize("waiting", [300, 1500])
def test_the_lists_of_programs_are_not_copied_for_each_run(waiting: int) -> None:
    """Counted is work, not time. Copying would look at every lane for each run: at 300 or 1500, for each thread."""
    done: list[float] = []
    graph = ost.Graph()
    graph.task(ost.task(done.append), graph.param("x"), after=[graph.precondition("go")])
    with ost.Machine(cpus=2) as machine, graph.compile(machine, runs="concurrent") as program:

        def submit(x: float) -> tuple[ost.UserEvent, ost.Run]:
            event = ost.UserEvent()
            return event, program.submit(after={"go": event}, x=x)

        runs = deque(submit(float(x)) for x in range(waiting))
        before = machine.workers.core.lanes_looked_at
        for x in range(waiting, waiting + 300):
            event, run = runs.popleft()
            event.trigger()
            run.result()
            runs.append(submit(float(x)))
        looked_at = machine.workers.core.lanes_looked_at - before
        for event, _ in reversed(runs):
            event.trigger()
        for _, run in runs:
            run.result()
    assert sorted(done) == list(map(float, range(waiting + 300)))
    assert looked_at < 300 * 200


def test_cancelled_while_they_wait() -> None:
    graph = ost.Graph()
    graph.task(ost.task(lambda: print("never")), after=[graph.precondition("go")])
    with ost.Machine(cpus=2) as machine, graph.compile(machine, runs="concurrent") as program:
        never = ost.UserEvent()
        runs = [program.submit(after={"go": never}) for _ in range(300)]
        for run in runs:
            run.cancel()
        for run in runs:
            with pytest.raises(CancelledError):
                run.result()


def test_a_barrier_lists_the_programs_that_wait_for_it() -> None:
    """What they wait for is published by a lane of another program, not by an event."""
    graph = ost.Graph()
    given = graph.param("barrier")
    graph.wait(given, after=graph.arrive(given))
    barrier = ost.Barrier(200)
    with ost.Machine(cpus=2) as machine, graph.compile(machine, runs="concurrent") as program:
        runs = [program.submit(3, barrier=barrier) for _ in range(200)]
        assert [run.result(60) for run in runs] == [3] * 200
    assert barrier.phase == 3
