"""The history is long enough for every reader.

Lanes look at each other every `period` steps, and the poison history is a ring of some steps. Mirrors the window in
`window_open` (lane_loop.cpp), `build_schedule` and `History`. In place of a bit, the entry of the history holds the
step that wrote it: a reader must find the step that it asks for, neither an older nor a newer one.
"""

from __future__ import annotations

import pytest

from explorer import ProtocolError, Thread, explore, load, store


def lane(
    name: str, other: str, period: int, history: int, distance: int | None, last: int, told: bool = True
) -> Thread:
    """`distance`: how many steps before its own are those whose entries the lane reads; None: it writes them.

    The reader waits for each step of the writer. Nobody waits for a step of the reader, so only windows see where it
    is: it publishes at the end of every `period`-th step, or, unless it is `told` to, never.
    """
    step = period
    while step < last:
        if step % period == 0:
            ended = yield load(f"ended {other}")
            while ended < step - period:
                ended = yield load(f"ended {other}")
        if distance is None:
            yield store(f"entry {step % history}", step)
        else:
            ended = yield load(f"ended {other}")
            while ended < step - distance + 1:
                ended = yield load(f"ended {other}")
            found = yield load(f"entry {(step - distance) % history}")
            assert found == step - distance or step - distance < period, f"step {step} finds {found}"
        step += 1
        if distance is None or (told and step % period == 0):
            yield store(f"ended {name}", step)


def check(period: int, history: int, distance: int, steps: int, told: bool = True) -> int:
    words = {"ended writer": period, "ended reader": period} | {f"entry {i}": -1 for i in range(history)}
    threads = {
        "writer": lambda: lane("writer", "reader", period, history, None, period + steps),
        "reader": lambda: lane("reader", "writer", period, history, distance, period + steps, told),
    }
    return explore(words, threads, lambda memory: memory["ended reader"] == period + steps)


PERIOD = 2


@pytest.mark.parametrize("distance", range(PERIOD + 1))
def test_four_periods_are_enough(distance):
    assert check(PERIOD, 4 * PERIOD, distance, steps=6 * PERIOD) > 10


def test_a_lane_that_does_not_publish_for_windows_holds_up_the_others():
    with pytest.raises(ProtocolError):
        check(PERIOD, 4 * PERIOD, 0, steps=6 * PERIOD, told=False)


def test_two_periods_are_not():
    with pytest.raises(ProtocolError, match="finds"):
        check(PERIOD, 2 * PERIOD, PERIOD, steps=6 * PERIOD)
