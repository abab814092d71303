"""A run: some steps of a program, as a future."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ostinato.errors import TaskError
from ostinato.events import Event
from ostinato.events.event import limit, make_future
from ostinato.graph.body import Precondition
from ostinato.graph.messages import Message
from ostinato.runtime.outcome import LeastFailure, log_failure
from ostinato.text import counted, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostinato import _core
    from ostinato.graph.op import Op
    from ostinato.runtime.engine import Engine
    from ostinato.runtime.profile import Profile

_log = logging.getLogger("ostinato")


class Run:
    """Steps of a program that were submitted together: a future of the number of steps run, which can be awaited.

    It is made by `Program.submit`. The methods are those of `concurrent.futures.Future`. Cancelling what awaits a run
    cancels the run, as it does a future.

    Examples
    --------
    >>> import asyncio, numpy as np, ostinato as ost
    >>> @ost.task
    ... def add_one(x: ost.ReadWrite):
    ...     x += 1
    >>> with ost.capture() as graph:
    ...     op = add_one(np.zeros(1))
    >>> async def run_for_a_moment(program):
    ...     run = program.submit(10**12)
    ...     try:
    ...         await asyncio.wait_for(run, 0.01)
    ...     except TimeoutError:
    ...         return run.exception()
    >>> with graph.compile() as program:
    ...     asyncio.run(run_for_a_moment(program))
    Traceback (most recent call last):
    ...
    concurrent.futures._base.CancelledError
    """

    _callbacks: list[Callable[[Run], object]] | None = None
    _outcome: int | BaseException | None = None
    _event: Event | None = None
    _posts: dict[str, Event] | None = None
    _profile: Profile | None = None
    _profiled = False

    def __init__(self, core: _core.Run, engine: Engine, profile: bool = False) -> None:
        self._core = core
        self._engine = engine  # a run in flight keeps what runs its program alive
        if profile:
            self._profiled = True
        engine.unretrieved.add(self)

    def __del__(self) -> None:
        core = self._core
        if core.settled:
            return
        if core.unretrieved:
            log_failure(cast(BaseException, self._ended()))
        self._engine.drop(core)

    def done(self) -> bool:
        """Whether the run has ended, in whatever way."""
        return self._core.done

    def running(self) -> bool:
        """Whether it has begun and not ended."""
        return not self._core.done and self._core.begun

    def cancelled(self) -> bool:
        """Whether it ended because it was cancelled."""
        return self._core.done and isinstance(self._ended(), CancelledError)

    def cancel(self) -> bool:
        """End the run at the first step boundary that all lanes can share.

        If that takes over 0.1 s, it ends at the next boundary between operations, and arrays hold parts of a step.

        Returns
        -------
        bool
            False if the run has ended already. Otherwise `result` raises `concurrent.futures.CancelledError`.
        """
        return self._core.cancel()

    def result(self, timeout: float | None = None) -> int:
        """Wait for the end of the run and return the number of steps run.

        Without `timeout`, the calling thread does a run itself that is known to be short, as `Program.replay` does:
        waiting for another thread would take longer.

        Parameters
        ----------
        timeout
            Seconds to wait at most.

        Raises
        ------
        TaskError
            A task failed.
        PoisonError
            Operations were skipped because of a failure in an earlier run.
        concurrent.futures.CancelledError
            The run was cancelled.
        TimeoutError
            It has not ended in time.
        ContractError
            A task called this.
        """
        end = self._wait(timeout)
        if isinstance(end, BaseException):
            raise end.with_traceback(None)  # not that of an earlier call
        return end

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the run and return what `result` raises, or None.

        As with `concurrent.futures.Future`, a cancelled run raises `concurrent.futures.CancelledError`.
        """
        end = self._wait(timeout)
        if isinstance(end, CancelledError):
            raise end
        return end if isinstance(end, BaseException) else None

    def add_done_callback(self, fn: Callable[[Run], object]) -> None:
        """Call ``fn(run)`` when the run has ended: on a thread of the machine's own, or at once if it has."""
        if not callable(fn):
            raise TypeError(f"a callback must be callable with the run, got {fn!r}")
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(fn)
                return
            self._callbacks = [fn]
            if self._core.set_callback(self._call_back):
                return
            self._callbacks = None
        self._call(fn)

    def __await__(self) -> Generator[Any, None, int]:
        import asyncio  # here, where it has been imported already: it takes as long as all of Ostinato

        ended, wake = make_future()
        self.add_done_callback(lambda _: wake())
        try:
            yield from ended
        except asyncio.CancelledError:  # not what a task that may block raises when its own run is cancelled
            self.cancel()
            raise
        return self.result()

    @property
    def steps_done(self) -> int:
        """How many steps all lanes have done."""
        return self._core.steps

    @property
    def event(self) -> Event:
        """The event of the run's end; poisoned if the run fails or is cancelled."""
        if self._event is None:
            self._event = Event(self._core.end(_Origin(self._core, self._engine)))
        return self._event

    @property
    def posts(self) -> dict[str, Event]:
        """The graph's postconditions by name, each an event that happens as soon as what it comes after is done."""
        if self._posts is None:
            names, origin = self._engine.executable.postconditions, _Origin(self._core, self._engine)
            self._posts = {name: Event(self._core.post(index, origin)) for index, name in enumerate(names)}
        return self._posts

    @property
    def profile(self) -> Profile | None:
        """A record of every operation in every step, once the run has ended; None unless ``profile=True`` asked for it.

        Raises
        ------
        RuntimeError
            The run has not ended.
        """
        if self._profile is None and self._profiled:
            if not self._core.done:
                raise RuntimeError("the run has not ended; its profile is there when it has")
            from ostinato.runtime.profile import make_profile

            self._profile = make_profile(self._core, self._engine.executable, self._engine.workers)
        return self._profile

    def stuck(self) -> str:
        """Return what each lane of the program waits for, as text: a line a lane."""
        ops = self._engine.executable.step.nodes
        return "\n".join(
            one_line(f"lane {lane}: {_standing(ops, *found)}") for lane, found in enumerate(self._core.stuck())
        )

    def __repr__(self) -> str:
        state = "ended" if self.done() else "running" if self.running() else "submitted"
        return f"<Run {state}, {counted(self.steps_done, 'step')} done>"

    def _wait(self, timeout: float | None) -> int | BaseException:
        if not self._core.wait(limit(timeout)):
            raise TimeoutError(f"the run has not ended in {timeout} s; it has done {counted(self.steps_done, 'step')}")
        end = self._ended()
        self._core.retrieve()
        return end

    def _ended(self) -> int | BaseException:
        found = self._outcome
        if found is None:  # of several threads that ask, all get what the first one found
            found = self.__dict__.setdefault("_outcome", self._engine.outcome_of(self._core))
        return found

    @property
    def _lock(self) -> threading.Lock:
        """What guards the callbacks; few runs have any."""
        lock: threading.Lock = self.__dict__.get("_own_lock") or self.__dict__.setdefault("_own_lock", threading.Lock())
        return lock

    @property
    def _explain(self) -> Explain:
        return self._engine.outcome_of

    def _call_back(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks or [], None
        for fn in callbacks:
            self._call(fn)

    def _call(self, fn: Callable[[Run], object]) -> None:
        self._core.retrieve()
        try:
            fn(self)
        except Exception:
            _log.exception("a callback of %r raised", self)


class _Origin:
    """Explains the end of a run to those who wait for its events, without keeping the `Run` alive."""

    def __init__(self, core: _core.Run, engine: Engine) -> None:
        self._core, self._engine = core, engine

    def __call__(self) -> BaseException | None:
        # Before the run has ended, too: a postcondition may be poisoned long before.
        end = self._engine.outcome_of(self._core)
        self._core.retrieve()
        return end if isinstance(end, BaseException) else None


_FEW = 64

Explain: TypeAlias = "Callable[[Any], int | BaseException | None]"
"""Returns what a run of the core ended with."""

_Dropped: TypeAlias = "tuple[_core.Run | _core.Spawned, Explain | None]"


class Unretrieved:
    """The runs of a program, or the spawned tasks of a machine, whose failure nobody may have retrieved.

    Runs that the user still holds are known by weak references, so that dropping one is noticed. A run that is dropped
    before it ends leaves its core's side here; of many that failed, only the least failure is kept, and a count.

    Any thread adds runs, without a lock: `list.append` is atomic, and the lists stay the same objects.
    """

    def __init__(self) -> None:
        self._held: list[weakref.ref[Run]] = []
        self._dropped: list[_Dropped] = []
        self._least = LeastFailure()
        self._enough = _FEW
        self._pruning = threading.Lock()

    def add(self, run: Run) -> None:
        """Watch a run that was just submitted."""
        if len(self._held) >= self._enough:
            self._prune()
        self._held.append(weakref.ref(run))

    def drop(self, core: _core.Run | _core.Spawned, explain: Explain, own: bool = False) -> None:
        """Watch a run that nobody holds any more; `explain` returns what it ended with: this one's `own`, or any's."""
        if len(self._dropped) >= self._enough:
            self._prune(explain)
        self._dropped.append((core, explain if own else None))

    def take(self, explain: Explain) -> list[BaseException]:
        """Return the failures that nobody was told of, each once; from then on they count as retrieved."""
        held = [run for run in (ref() for ref in list(self._held)) if run is not None]
        errors = self._least.take()
        for core, own in [*((run._core, run._explain) for run in held), *list(self._dropped)]:
            if core.unretrieved:
                errors.append(cast(BaseException, (own or explain)(core)))
                core.retrieve()
        return errors

    def in_flight(self) -> list[_core.Run | _core.Spawned]:
        """Return the dropped runs that have not ended."""
        return [core for core, _ in self._dropped if not core.done]

    def _prune(self, explain: Explain | None = None) -> None:
        """Forget the runs that ended well, or of which the user knows how they ended; count those that failed.

        Poisoned runs stay: the failure that they were poisoned by may still be retrieved.
        """
        if not self._pruning.acquire(blocking=False):
            return  # another thread prunes; or this one, and a run was dropped meanwhile
        try:
            count = len(self._held)  # what is appended meanwhile stays
            self._held[:count] = [
                ref
                for ref in self._held[:count]
                if (run := ref()) is not None and (not run._core.done or run._core.unretrieved)
            ]
            count = len(self._dropped)
            self._dropped[:count] = [
                entry for entry in self._dropped[:count] if not self._is_settled(entry[0], entry[1] or explain)
            ]
            self._enough = max(_FEW, 2 * len(self._held), 2 * len(self._dropped))
        finally:
            self._pruning.release()

    def _is_settled(self, core: _core.Run | _core.Spawned, explain: Explain | None) -> bool:
        """Whether a dropped run can be forgotten, its failure counted."""
        if not core.done:
            return False
        if not core.unretrieved:
            return True
        end = None if explain is None else explain(core)
        if not isinstance(end, TaskError):
            return False
        self._least.add(end)
        return True


_STANDING = {
    "running": "running",
    "ready": "ready",
    "idle": "has done all that was submitted",
    "earlier runs": "waits for the runs before to end",
    "start": "waits for the event that the run comes after (after=)",
}


def _standing(ops: Sequence[Op], what: str, first: int, second: int, text: str) -> str:
    """Say what a lane stands at; the first number is an op for some."""
    if what in _STANDING:
        return _STANDING[what]
    if what == "device":
        return f"waits for {text}"
    op = ops[first] if first < len(ops) else None
    name = "the end of a step" if op is None else f"{op.name!r} at {op.call_site}"
    if what == "lane":
        return f"waits for {name}, in step {second}"
    if op is not None and isinstance(op.body, Precondition):
        return f"waits in step {second} for the event given for precondition {op.body.name!r}"
    if op is not None and isinstance(op.body, Message):
        array = op.body.operand.arrays[0]
        needed = "" if op.original.name == op.name else f", for {op.original.name!r},"
        return f"{name} (shape {array.shape}, {array.dtype}){needed} waits for {text or 'another rank'}"
    return f"{name} waits, in step {second}, for {text or 'something outside'}"


_INTERVAL = 0.1  # seconds between two looks at the progress


def watch(run: Run, steps: int, progress: bool, limit: float) -> int:
    """Wait for the end of a run, and return the number of steps run; cancel it after `limit` seconds, if not negative.

    The calling thread watches, and workers do the steps.
    """
    core = run._core
    try:
        ended = _show_progress(run, steps, limit) if progress else core.wait(limit)
        late = not ended and run.cancel()
        core.wait(-1.0)
    except BaseException:  # of a signal handler: Ctrl-C, as a rule
        run.cancel()
        _wait_for_cancelled(core)
        core.retrieve()
        raise
    if late and run.cancelled():
        raise TimeoutError(f"the run did not end within {limit} s and was cancelled after {run.steps_done} steps")
    return run.result()


def _wait_for_cancelled(core: _core.Run) -> None:
    """Wait for the end of a run; raise each further Ctrl-C inside its Python tasks that are running."""
    while True:
        try:
            core.wait(-1.0)
            return
        except KeyboardInterrupt:
            core.interrupt()


def _show_progress(run: Run, steps: int, limit: float) -> bool:
    """Show how far a run is until it ends or the limit is reached; return whether it has ended."""
    from ostinato.view.progress import progress_bar

    end = time.monotonic() + limit if limit >= 0 else float("inf")
    with progress_bar(steps) as show:
        while not (ended := run._core.wait(max(0.0, min(_INTERVAL, end - time.monotonic())))):
            show(run.steps_done)
            if time.monotonic() >= end:
                break
        show(run.steps_done)
    return ended
