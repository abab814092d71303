"""Adapting: the first replays of a program tell what its ops take, and which schedule by that is the fastest.

Replays go on as ever; only the schedule that runs them changes between two steps. A replay that is longer than a turn
runs in parts, and what other threads submit meanwhile waits until the last part is submitted: so runs stay in order.

Where a step uses more memory than caches hold, one of the schedules is of several steps as one, in an order for caches.
It runs parts of long replays; the steps that are left over run as before.
"""

from __future__ import annotations

import logging
import signal
import threading
import weakref
from collections.abc import Generator
from traceback import walk_tb
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ostinato import _core
from ostinato.compiler.pipeline.compile import schedule_unrolled
from ostinato.compiler.unroll import find_ring_period, unroll, why_not_unrolled
from ostinato.compiler.wording import duration
from ostinato.environment import cache_bytes
from ostinato.runtime.calibrate import LEARNED, level_costs, remember_ops
from ostinato.runtime.turns import Result, Times, Turn, compare, plan_turn, schedule_otherwise
from ostinato.text import counted

if TYPE_CHECKING:
    from ostinato.compiler.costs import Costs
    from ostinato.runtime.engine import Engine, LoadedExecutable
    from ostinato.view.trace import Trace

_log = logging.getLogger("ostinato")

_UNLIMITED = 2**64 - 1  # steps

_SCHEDULES, _FREE = 3, 5e-3
"""Other schedules are looked for when replays have taken so many times as long as the first one; less so many seconds.

To find two, and to load them onto the arrays, takes about that.
"""

_TRACED = 0.5e-3, 20e-3
"""Seconds that are traced: soon, and once more for better medians."""

_TRACES, _MOST_TRACED, _RECORDS = 3, 100, 1_000_000
"""So many traces are enough; at most so many steps in one, and so many records."""

_LOOK = 0.15e-3
"""To see whether a comparison is worth it, a schedule runs for so many seconds, and is timed for as many.

The first of them wake threads that slept while a schedule of one lane ran.
"""

_SHORTEST, _LONGEST = 0.3e-3, 10e-3
"""Seconds of a turn: those of the first comparison, which is to be over within some ten steps, and of later ones."""

_FIRST_ALPHA, _ALPHA = 1 / 8, 1 / 100
"""The greatest probability that a comparison takes a schedule for faster that is not: of the first, and later ones.

It need not be small: the schedule that lost is compared again.
"""

_MOST_PAIRS = 40

_REST, _PART, _LONGEST_REST = 0.1, 0.05, 10.0
"""Seconds of replays between comparisons: the least, how often in between the clock is read, and the most."""

_SHARE = 0.01
"""At most so much of the time is lost in comparisons with slower schedules."""

_EXPECTED_LOSSES = 10
"""So many turns of a schedule that is far slower, until that is known."""

_DRIFT = 1.5
"""Steps that take so many times as long as they did have a reason: other schedules are looked at at once."""

_UNROLLED, _LONGEST_STEP = 8, 0.08
"""Up to so many steps run as one, which takes up to so many seconds: a replay that is stopped ends between them."""

_FETCHED = 0.8
"""Several steps as one must fetch less than this share of the bytes to be worth a comparison."""

_MOST_NODES, _BEFORE_UNROLLING = 16_384, 0.3
"""Several steps as one have at most so many nodes, and are made after so many seconds of replays."""

_SHORT = 4
"""After so many replays in a row that are too short for several steps as one, it is left."""

_Turns: TypeAlias = Generator[Turn, Result, None]


def why_it_stays(engine: Engine) -> str:
    """Return why replays of a program can teach nothing; empty if they can."""
    executable = engine.executable
    costs = executable.step.costs
    if engine.runs in ("concurrent", "once"):
        return f"runs={engine.runs!r}: no two runs can be compared"
    if engine.shared is not None:
        return "other ranks take part in its runs"
    if engine.depends_on_others:
        return "steps wait for what is outside, so that their times say nothing of schedules"
    if engine.process_trace is not None:
        return "the process is traced"
    if executable.step.uses_devices:
        return "what devices take is learned by graph.tune and retune"
    if engine.threads == 1 or (executable.step.operations.thread_of[: len(executable.step.nodes)] >= 0).all():
        return "there is nothing to choose"
    estimated = ~costs.measured | (costs.source == costs.sources.index(LEARNED) if LEARNED in costs.sources else False)
    return "" if estimated.any() else "what its ops take is known"


class Adapter:
    """Gives the replays of a program to schedules in turn."""

    def __init__(self, engine: Engine, remembers: bool) -> None:
        engine = weakref.proxy(engine)  # which has this
        self._engine = engine
        self._remembers = remembers
        self._lock = threading.Lock()  # held during a replay in parts
        self._switched = True
        self._trace: Trace | None = None
        self._short = 0  # replays in a row that were too short for several steps as one
        self._begin()

    def replay(
        self,
        steps: int,
        priority: int,
        stops: bool,
        values: list[float] | None,
        objects: list[object] | None,
        given: tuple[object, ...] | None,
        traced: bool,
    ) -> object:
        """Replay, where the turn has not so many steps left, as `_core.Program.replay` does."""
        whole = not stops or given is not None or traced
        if whole or self._lock.locked():  # another thread's replay is in parts: this one comes after it
            return self._engine.core.replay_as_run(steps, priority, stops, values, objects, given, traced)
        with self._lock:
            self._short = 0 if steps >= self._turn.loaded.executable.unrolled else self._short + 1
            if self._short in (0, _SHORT):
                self._learning.asked = steps
            if self._timer.turn[0] == 0 or self._short == _SHORT:
                self._next_turn()
            core = self._engine.core
            if steps <= core.turn[0]:
                return core.replay(steps, priority, stops, values, objects, given, traced)
            caller = _core.Caller(self._engine.workers.core)
            try:
                if core.hold():
                    return self._replay_in_parts(steps, priority, values, objects, caller)
            finally:  # also where Ctrl-C comes just after the hold
                self._engine.core.release()
                caller.leave()
            return core.replay_as_run(steps, priority, stops, values, objects, given, traced)  # runs are in flight

    def _replay_in_parts(
        self,
        steps: int,
        priority: int,
        values: list[float] | None,
        objects: list[object] | None,
        caller: _core.Caller,
    ) -> object:
        engine, left = self._engine, steps
        run: _core.Run | None = None
        while True:
            turn = self._turn
            unrolled, part = self._plan_unrolled(left)
            traced = turn.traced and self._switched
            if unrolled is not None and not part:
                run = self._replay_unrolled(unrolled, left, priority, run, caller)
            else:
                part = part or (turn.steps if turn.traced else engine.core.turn[0]) or left
                # Others wait, and no schedule can take over: nothing is gained by parts.
                last = left <= part or engine.closed or not self._switched
                part = left if last else part
                run = engine.core.replay_part(part, priority, values, objects, traced, run, last, caller)
            left -= run.steps
            if not run.good:
                return run
            if traced:
                self._trace = engine.trace(run)
            if not left or run.met or run.steps < run.requested:
                return steps - left
            if traced or self._timer.turn[0] == 0:
                self._next_turn()

    def _plan_unrolled(self, left: int) -> tuple[LoadedExecutable | None, int]:
        """Return what runs several steps as one, if it is its turn; and how many steps come before that, one by one."""
        unrolled = self._engine.unrolled
        if unrolled is None or unrolled is not self._turn.loaded or not self._switched or self._engine.closed:
            return None, 0
        made = unrolled.executable
        first = -self._engine.step % made.ring_period
        return unrolled, left if left - first < made.unrolled else first

    def _replay_unrolled(
        self, unrolled: LoadedExecutable, left: int, priority: int, before: _core.Run | None, caller: _core.Caller
    ) -> _core.Run:
        """Replay several steps as one, as often as they are left, or the turn lasts; the program is held."""
        core, times = unrolled.core, unrolled.executable.unrolled
        part = max(1, min(left // times, core.turn[0]))
        core.number_from(self._engine.step)
        core.hold()
        try:
            run = core.replay_part(part, priority, None, None, False, before, part * times == left, caller)
        finally:  # also where Ctrl-C has ended it
            core.release()
            self._engine.core.advance(core.steps_run)
        if not run.good:
            self._engine.core.skip_held(run)
        return run

    @property
    def _timer(self) -> _core.Program:
        """What counts the steps of the turn."""
        unrolled = self._engine.unrolled
        return unrolled.core if unrolled is not None and unrolled is self._turn.loaded else self._engine.core

    def stop(self) -> None:
        """Let the program be as it is from now on."""
        with self._lock:
            self._end()

    def wait(self, cancel: bool) -> None:
        """Wait until no replay is in parts; the engine is closed."""
        while not self._lock.acquire(timeout=0.01):
            if cancel:
                for run in self._engine.in_flight():
                    run.cancel()
        self._lock.release()

    def describe(self) -> list[str]:
        """Return what was learned, as lines."""
        return self._learning.describe()

    def _begin(self) -> None:
        self._learning = Learning(self._engine, self._remembers)
        self._turns: _Turns | None = self._learning.turns()
        self._turn = next(self._turns)
        self._begin_turn()

    def _next_turn(self) -> None:
        if self._turns is None:
            return
        turn, trace = self._turn, self._trace
        left, steps, ns, disturbed = self._timer.turn
        self._trace = None
        result: Result = None
        if self._switched and turn.traced:
            result = trace
        elif self._switched and turn.timed and steps and not left and not disturbed:
            result = ns * 1e-9 / (steps * turn.loaded.executable.unrolled)
        try:
            self._turn = self._turns.send(result)
        except StopIteration:
            self._end()
        except BaseException as error:
            self._end()
            if not isinstance(error, Exception) or _is_of_signal_handler(error):  # Ctrl-C, for one
                self._begin()
                raise
            # Nobody's replay ends because of what it would have been better by.
            _log.exception("a program could not adapt; it stays as it is")
        else:
            self._begin_turn()

    def _begin_turn(self) -> None:
        turn, engine = self._turn, self._engine
        self._short = 0
        times = turn.loaded.executable.unrolled
        self._switched = engine.switch(engine.kept if times > 1 else turn.loaded)
        if times > 1:
            turn.loaded.core.begin_turn(-(-turn.steps // times), turn.timed)
        in_parts = self._switched and (turn.traced or turn.loaded is engine.unrolled)
        engine.core.begin_turn(0 if in_parts else turn.steps, turn.timed and times == 1)

    def _end(self) -> None:
        self._turns = None
        self._engine.drop_unrolled()
        self._engine.settle()
        self._turn = Turn(self._engine.kept, _UNLIMITED)
        self._begin_turn()


def _is_of_signal_handler(error: BaseException) -> bool:
    """Whether a signal's handler raised this: Python runs it wherever the main thread is."""
    handlers = filter(callable, map(signal.getsignal, signal.valid_signals()))
    functions = [getattr(handler, "__func__", handler) for handler in handlers]
    codes = {getattr(each, "__code__", None) or getattr(type(each).__call__, "__code__", None) for each in functions}
    return any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__))


class Learning:
    """Decides whose turn it is, by what turns took."""

    def __init__(self, engine: Engine, remembers: bool) -> None:
        self._engine, self._remembers = engine, remembers
        self._steps = self._traced = 0
        self._replayed = 0.0  # seconds
        self._step_seconds = 0.0  # of the schedule that is kept
        self._pairs = self._changes = 0
        self._others: dict[LoadedExecutable, float] = {}  # how long their steps take, as far as known
        self.asked = 0  # steps of the last replay that was seen
        self._unrolls = not why_not_unrolled(engine.kept.executable.step)
        self._unrolling: LoadedExecutable | None = None  # the schedule of which several steps were tried as one
        self._uses_unrolled = False

    def turns(self) -> _Turns:
        """Yield turns, for as long as the program lives, and take their results."""
        engine = self._engine
        yield Turn(engine.kept, 1)  # pays for what is set up once
        yield from self._time_kept(_SHORTEST)
        scheduling = _SCHEDULES * engine.kept.executable.schedule_seconds - _FREE
        while self._replayed < scheduling:
            yield from self._rest(scheduling - self._replayed)
        for seconds in _TRACED:
            yield from self._look_for_others(seconds)
            if not self._others and not self._unrolls:
                return
            yield from self._compare_all(_SHORTEST, _FIRST_ALPHA, _REST)
            yield from self._watch(_REST)
        yield from self._compare_for_ever()

    def _look_for_others(self, seconds: float) -> _Turns:
        """Learn what ops take, and load schedules by that."""
        from ostinato.view.simulation import predict_seconds  # here: short programs never get so far

        engine = self._engine
        costs = yield from self._trace(seconds)
        executable = engine.kept.executable
        expected = predict_seconds(executable.with_costs(costs), executable.target.model)
        engine.learn(costs, expected)
        if self._remembers:
            remember_ops(executable.step.nodes, costs)
        for loaded, taken in list(self._others.items()):
            if taken > _DRIFT * self._step_seconds and len(loaded.executable.lane_ops) > 1:
                del self._others[loaded]
                engine.unload(loaded)
        for predicted, other in schedule_otherwise(engine, costs, float("inf"), self._others):
            loaded = engine.add(other)
            self._others[loaded] = predicted * self._step_seconds / expected
            # A trace tells too much of what waits, such as for the GIL.
            yield from self._look(loaded)

    def _compare_for_ever(self) -> _Turns:
        rest, turn_seconds = _REST, 4 * _SHORTEST
        while True:
            changes = self._changes
            lost = 0.0
            if self._uses_unrolled or self._unroll():
                lost = yield from self._compare_unrolled(turn_seconds)
            if not self._uses_unrolled:
                lost += yield from self._compare_all(turn_seconds, _ALPHA, rest)
            turn_seconds = min(4 * turn_seconds, _LONGEST)
            rest = _REST if self._changes != changes else max(min(2 * rest, _LONGEST_REST), lost / _SHARE)
            if (yield from self._watch(rest)):
                rest, turn_seconds = _REST, 4 * _SHORTEST  # those that were hardly slower may be faster now

    def _compare_all(self, turn_seconds: float, alpha: float, rest: float) -> Generator[Turn, Result, float]:
        """Compare the schedule that is kept with those for which it is time; return the seconds lost.

        A schedule that seems too slow for a comparison is timed briefly first: perhaps other processes used the cores
        when it was timed before.
        """
        lost = 0.0
        for other in sorted(self._others, key=self._others.__getitem__):
            most = _SHARE * max(rest, self._replayed)
            loss = self._expect_loss(other, _EXPECTED_LOSSES, turn_seconds)
            if most < loss and self._expect_loss(other, 2, _LOOK) <= most:
                lost += yield from self._look(other)
                loss = self._expect_loss(other, _EXPECTED_LOSSES, turn_seconds)
            if loss <= most:
                lost += yield from self._compare(other, turn_seconds, alpha)
        return lost

    def _expect_loss(self, other: LoadedExecutable, turns: int, seconds: float) -> float:
        """Return the seconds lost if another schedule runs turns of `seconds` each, or of a step if that is more."""
        return turns * max(seconds, self._step_seconds) * (self._others[other] / self._step_seconds - 1)

    def _look(self, other: LoadedExecutable) -> Generator[Turn, Result, float]:
        """Learn roughly what a step of another schedule takes; return the seconds lost."""
        steps = max(1, round(_LOOK / self._step_seconds))
        yield Turn(other, steps)
        found = yield Turn(other, steps, timed=True)
        if isinstance(found, float):
            self._others[other] = max(found, 1e-9)
        self._count(2 * steps, 2 * steps * self._others[other])
        return max(0.0, 2 * steps * (self._others[other] - self._step_seconds))

    def _unroll(self) -> bool:
        """Have several steps as one to compare with the schedule that is kept; False if there is no reason to."""
        engine, kept = self._engine, self._engine.kept
        if not self._unrolls or self._replayed < _BEFORE_UNROLLING:
            return False
        unrolled, step = engine.unrolled, kept.executable.step
        period = find_ring_period(step)
        most = min(_UNROLLED, self.asked, _LONGEST_STEP / self._step_seconds, _MOST_NODES / len(step.nodes))
        times = int(most) // period * period
        if unrolled is not None and self._unrolling is kept:
            return unrolled.executable.unrolled <= self.asked
        engine.drop_unrolled()
        if times < 2 or self._unrolling is kept:
            return False
        self._unrolling = kept
        from ostinato.compiler.schedule.caches import find_footprints

        usable = cache_bytes()
        footprints = find_footprints(unroll(step, period).nodes)
        if not footprints.bytes.size:  # ops without arrays
            return False
        if np.maximum.reduceat(footprints.bytes, footprints.start[:-1]).sum() < usable:
            return False
        executable, fetched = schedule_unrolled(kept.executable, times, usable)
        return fetched < _FETCHED and engine.unroll(executable)

    def _compare_unrolled(self, turn_seconds: float) -> Generator[Turn, Result, float]:
        """Compare the schedule that is kept with several of its steps as one; return the seconds lost."""
        kept, unrolled = self._engine.kept, self._engine.unrolled
        if unrolled is None:
            self._uses_unrolled = False
            return 0.0
        pair = (unrolled, kept) if self._uses_unrolled else (kept, unrolled)
        times = unrolled.executable.unrolled
        warm, timed = plan_turn(turn_seconds, self._step_seconds)
        timed = max(timed, times)
        from ostinato.runtime.sequential_test import ABTest

        test, found = ABTest(_ALPHA), Times()
        yield from compare(pair, warm, timed, _MOST_PAIRS, test, found)
        self._pairs += test.pairs
        self._count(2 * test.pairs * (warm + timed), (sum(found.one) + sum(found.other)) * (warm + timed))
        if not found.one:
            self._uses_unrolled = self._uses_unrolled and self.asked >= times
            return 0.0
        one, two = float(np.median(found.one)), float(np.median(found.other))
        if test.verdict == "new":
            self._changes += 1
            self._uses_unrolled = not self._uses_unrolled
            self._step_seconds = two
            return 0.0
        self._step_seconds = one
        return max(0.0, two - one) * (warm + timed) * test.pairs

    def _compare(self, other: LoadedExecutable, turn_seconds: float, alpha: float) -> Generator[Turn, Result, float]:
        """Compare the schedule that is kept with another one, and keep the faster one; return the seconds lost."""
        kept = self._engine.kept
        warm, timed = plan_turn(turn_seconds, self._step_seconds)
        from ostinato.runtime.sequential_test import ABTest

        test, times = ABTest(alpha), Times()
        yield from compare((kept, other), warm, timed, _MOST_PAIRS, test, times)
        self._pairs += test.pairs
        self._count(2 * test.pairs * (warm + timed), (sum(times.one) + sum(times.other)) * (warm + timed))
        if not times.one:
            return 0.0
        one, two = float(np.median(times.one)), float(np.median(times.other))
        if test.verdict == "new":
            self._engine.kept = other
            self._changes += 1
            self._others[kept] = one
            del self._others[other]
            self._step_seconds = two
            return 0.0
        self._step_seconds, self._others[other] = one, two
        return max(0.0, two - one) * (warm + timed) * test.pairs

    def _watch(self, seconds: float) -> Generator[Turn, Result, bool]:
        """Run for so long; return whether steps take much longer than they did, so that it ended before."""
        end = self._replayed + seconds
        usual = self._step_seconds
        slow = 0
        while self._replayed < end and slow < 2:
            yield from self._rest(min(_PART, seconds))
            yield from self._time_kept(1e-3)
            slow = slow + 1 if self._step_seconds > _DRIFT * usual else 0
        return slow == 2

    def _rest(self, seconds: float) -> _Turns:
        steps = max(1, int(seconds / self._step_seconds))
        yield Turn(self._used, steps)
        self._count(steps, steps * self._step_seconds)
        unrolled = self._engine.unrolled
        self._uses_unrolled &= unrolled is not None and self.asked >= unrolled.executable.unrolled

    def _time_kept(self, seconds: float) -> _Turns:
        """Learn what a step of the schedule takes that is kept."""
        _, steps = plan_turn(seconds, self._step_seconds) if self._step_seconds else (0, 1)
        found = yield Turn(self._used, steps, timed=True)
        if isinstance(found, float):
            self._step_seconds = max(found, 1e-9)
        self._count(steps, steps * self._step_seconds)
        if not self._step_seconds:
            yield from self._time_kept(seconds)

    @property
    def _used(self) -> LoadedExecutable:
        """What runs between comparisons."""
        unrolled = self._engine.unrolled
        return unrolled if self._uses_unrolled and unrolled is not None else self._engine.kept

    def _trace(self, seconds: float) -> Generator[Turn, Result, Costs]:
        """Learn what ops take."""
        from ostinato.runtime.trace import durations  # here: short programs never get so far

        executable = self._engine.kept.executable
        costs = executable.step.costs
        most = min(_MOST_TRACED, 1 + _RECORDS // len(executable.step.nodes))
        wanted = max(1, min(most, round(seconds / self._step_seconds)))
        traced = 0
        found: list[Costs] = []
        while traced < wanted and len(found) < _TRACES:
            trace = yield Turn(self._engine.kept, wanted - traced, traced=True)
            if not isinstance(trace, float | None):
                traced += len(np.unique(trace.records["step"]))
                found.append(durations(trace, costs, "traced"))
        costs = found[0]._replace(
            seconds=np.median([each.seconds for each in found], axis=0),
            spread=np.max([each.spread for each in found], axis=0),
        )
        self._traced += traced
        self._count(traced, traced * self._step_seconds)
        return level_costs(executable.step.nodes, costs)

    def _count(self, steps: int, seconds: float) -> None:
        self._steps += steps
        self._replayed += seconds

    def describe(self) -> list[str]:
        """Return what was learned, as lines."""
        if not self._traced:
            return [f"learning what ops take; {counted(self._steps, 'step')} so far"]
        lines = [f"what ops take was learned from {counted(self._traced, 'step')}"]
        lanes = len(self._engine.kept.executable.lane_ops)
        if self._uses_unrolled and self._engine.unrolled is not None:
            times = self._engine.unrolled.executable.unrolled
            lines.append(f"{times} steps as one, ordered for caches: a step takes {duration(self._step_seconds)}")
        else:
            lines.append(f"a step of this schedule of {counted(lanes, 'lane')} takes {duration(self._step_seconds)}")
        for other, seconds in list(self._others.items()):
            what = f"another one, of {counted(len(other.executable.lane_ops), 'lane')}"
            lines.append(f"{what}, {'takes' if self._pairs else 'should take'} {duration(seconds)}")
        lines.append(f"compared in {counted(self._pairs, 'pair')} of turns; changed {counted(self._changes, 'time')}")
        return lines
