"""What workers answer. The candidate runs in that process, so nothing of it is taken on trust."""

from __future__ import annotations

import math

from ostinato.tune.outcome import OpOutcome, Outcome
from ostinato.tune.process.warm import Message
from ostinato.tune.status import Status
from ostinato.tune.trial import Task

__all__ = ["outcome_of"]

_MOST_SAMPLES = 100_000
_LONGEST_MESSAGE = 10_000


def outcome_of(task: Task, message: Message) -> Outcome:
    """Return what a worker's result says; `bad_output` if it makes no sense."""
    try:
        status = Status(message["status"])
        samples = tuple(map(float, message.get("ns", ())))[:_MOST_SAMPLES]
        timed = task.what not in ("build", "check") and status in (Status.OK, Status.RACED)
        if (timed or samples) and not (0 < sum(samples) < math.inf and min(samples) > 0):
            raise ValueError("its times are not positive and finite")
        overhead = float(message.get("overhead_ns", 0.0))
        if not math.isfinite(overhead):
            raise ValueError("its overhead is not finite")
        op = OpOutcome(
            op=task.op,
            status=status,
            samples=samples,
            workspace=_count(message, "workspace"),
            message=_text(message.get("message", "")),
            contended=_count(message, "contended"),
            overhead_ns=overhead,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return Outcome(Status.BAD_OUTPUT, (), f"the worker's report makes no sense: {_text(str(error))}")
    return Outcome(op.status, (op,), op.message)


def _count(message: Message, name: str) -> int:
    value = message.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"its {name} is no number that a file can hold")
    return value


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError("its message is no text")
    # Lone surrogates, which JSON can spell, have no place in what is stored.
    return text[:_LONGEST_MESSAGE].encode("utf-8", "replace").decode("utf-8")
