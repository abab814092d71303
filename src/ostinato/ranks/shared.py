"""A program that several ranks run together: its runs end as all ranks agree that they did."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ostinato.errors import ContractError, PoisonError, TaskError, describe_error
from ostinato.ranks.agreement import lost_error
from ostinato.ranks.coordinator import Ended, Failure, Verdict
from ostinato.text import counted

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.graph.op import Op
    from ostinato.ranks.agreement import Agreement


class SharedRuns:
    """The runs of one program, each of which all ranks take part in."""

    def __init__(
        self,
        agreement: Agreement,
        rank: int,
        ops: Sequence[Op],
        traffic: _core.messages.Traffic,
        outcome: Callable[[_core.Run, Sequence[Op]], int | BaseException],
        in_flight: Callable[[], list[_core.Run]],
    ) -> None:
        self._agreement, self._rank, self._ops, self._traffic = agreement, rank, ops, traffic
        self._outcome = outcome  # how a run of these operations ended on this rank
        self.in_flight = in_flight
        self.key = traffic.first_tag
        self._name = f"the program that begins with {ops[0].name!r} at {ops[0].call_site}" if ops else "a program"
        self._verdicts: dict[int, Verdict] = {}  # of runs that did not end well
        self._abandoned = ""
        self._closed = False
        agreement.add(self)

    def part(self) -> AbstractContextManager[None]:
        """Do this rank's part in a run: if it cannot, the other ranks do not wait for it."""
        return self._agreement.part(self)

    def begin(self, submit: Callable[[], _core.Run], steps: int, stops: bool) -> _core.Run:
        """Submit a run."""
        self._check()
        words = f"runs {counted(steps, 'step')} of {self._name}" + ("" if stops else ' with on_error="continue"')
        return self._agreement.begin(submit, self, (self.key, steps, stops), words)

    def check_parameters(self, params: Mapping[str, Any]) -> None:
        """Raise `ValueError` if other ranks give a run other parameters."""
        self._check()
        self._agreement.check_parameters(self, _digest(params), f"gives parameters for a run of {self._name}")

    def close(self, wait: bool) -> None:
        """Close the program on all ranks; a second time, do nothing."""
        closed, self._closed = self._closed, True
        if not (closed or self._abandoned):
            self._agreement.close(self, f"closes {self._name}", wait)

    def outcome_of(self, run: _core.Run, own: int | BaseException) -> int | BaseException:
        """Return how a run ended on all ranks together, given how it ended on this one."""
        verdict = self._verdicts.get(run.sequence)
        if verdict is None:
            return own
        if isinstance(own, KeyboardInterrupt | SystemExit):
            return own
        if verdict.lost is not None:
            return lost_error(verdict.lost)
        if verdict.contract:
            return ContractError(verdict.contract)
        if verdict.failure is not None:
            return self._task_error(verdict.failure, own)
        if verdict.cancelled:
            return CancelledError()
        return own if isinstance(own, PoisonError) else PoisonError(verdict.poisoned)

    def report(self, run: _core.Run, number: int) -> Ended:
        own = self._outcome(run, self._ops)
        failure = None
        if isinstance(own, TaskError):
            failure = Failure(
                own.step or 0,
                getattr(own.op, "index", 0),
                self._rank,
                getattr(own.op, "name", ""),
                str(own),
                _pickled(own.__cause__),
                tuple(getattr(own, "__notes__", ())),
            )
        poisoned = f"{own} (on rank {self._rank})" if isinstance(own, PoisonError) else ""
        leaves = isinstance(own, KeyboardInterrupt | SystemExit)
        return Ended(number, run.met, run.disagreed, run.cancelled or leaves, poisoned, failure)

    def judge(self, verdict: Verdict) -> None:
        if not verdict.good:
            self._verdicts[verdict.number] = verdict

    def abandon(self, why: str) -> None:
        self._abandoned = why
        self._traffic.abandon()

    def _check(self) -> None:
        self._agreement.check()
        if self._abandoned:
            raise ContractError(f"this program cannot run any more, since ranks used it differently: {self._abandoned}")

    def _task_error(self, failure: Failure, own: int | BaseException) -> TaskError:
        here = failure.rank == self._rank
        recorded = (op.original for op in self._ops)
        alike = next((op for op in recorded if op.index == failure.index and op.name == failure.op), None)
        error = TaskError(
            f"{failure.message}, on rank {failure.rank}",
            own.op if here and isinstance(own, TaskError) else alike,
            failure.step,
        )
        error.rank = failure.rank
        if here and isinstance(own, TaskError):
            error.__cause__ = own.__cause__
        elif failure.cause:
            error.__cause__ = _unpickled(failure.cause)
        for note in failure.notes:
            error.add_note(note)
        return error


def _pickled(error: BaseException | None) -> bytes:
    try:
        return b"" if error is None else pickle.dumps(error)
    except Exception:
        return pickle.dumps(RuntimeError(describe_error(error))) if error is not None else b""


def _unpickled(cause: bytes) -> BaseException | None:
    try:
        found = pickle.loads(cause)
    except Exception:  # of a class that this rank has not, or that cannot be made of its arguments
        return None
    return found if isinstance(found, BaseException) else None


def _digest(params: Mapping[str, Any]) -> bytes:
    """Return what differs where parameters differ; what cannot be pickled is not compared."""
    import hashlib  # here: programs of one rank do without

    told = hashlib.sha256()
    for name, value in sorted(params.items()):
        told.update(name.encode())
        try:
            told.update(pickle.dumps(value))
        except Exception:
            told.update(b"?")
    return told.digest()
