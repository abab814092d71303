"""Variants of a case that was not finished: what was measured of it is kept, and need not be measured again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from ostinato.tune.candidate import Candidate
from ostinato.tune.known import Known
from ostinato.tune.outcome import OpOutcome, Outcome
from ostinato.tune.status import Status
from ostinato.tune.store.source import Sources
from ostinato.tune.store.store import Search
from ostinato.tune.trial import Trial

__all__ = ["Keeping", "Kept", "operation_of_variants"]

_GOOD = (Status.OK, Status.RACED)
_KEPT = (*_GOOD, Status.WRONG_RESULT, Status.CRASH, Status.HANG_KILLED)


def operation_of_variants(task: str) -> str:
    """Return the operation under which the store has the variants of a task's cases, each for itself."""
    return f"graph variants: {task}"


class Kept(Known):
    """The variants of one case, as they are measured, in the store.

    Only what was compared with a default that works says anything about a variant. So nothing is kept of a default
    that failed, nor of variants that could not be compared with it. Where the default is not measured, variants that
    failed are measured again: there may be no other.

    Parameters
    ----------
    label
        What the case is called in the report that is being made.
    stored
        The store's view of the case.
    source
        Digest of all that an outcome depends on: the code of the variants, and how and where they are compared.
    device
        The device that `stored` is for.
    default
        Id of the default among the candidates; None if it is not measured.
    said
        What becomes of a variant whose message begins with one of these and a colon, whatever its status says.
    verify
        As for a search.
    seconds, memory
        The limits that variants run under.
    note
        Is told what the user should know.
    """

    def __init__(
        self,
        label: str,
        stored: Search,
        source: str,
        device: str,
        *,
        default: str | None,
        said: Mapping[str, Status] = MappingProxyType({}),
        verify: str | None = None,
        seconds: float,
        memory: int | None = None,
        note: Callable[[str], None],
    ) -> None:
        sources = _CaseSources(source, verify)
        super().__init__(label, stored, sources, answers=True, seconds=seconds, memory=memory, note=note)
        self._label = label
        self._device = device
        self._default = default
        self._said = said

    def find(self, trial: Trial) -> tuple[str | None, Outcome] | None:
        found = super().find(trial)
        if found is None:
            return None
        device, outcome = found
        # Another graph may have called the case something else.
        return device, replace(outcome, ops=tuple(replace(op, op=self._label) for op in outcome.ops))

    def add(self, trial: Trial, outcome: Outcome, device: str | None, *, first: str | None = None) -> None:
        ops = outcome.ops or (OpOutcome(self._label, outcome.status, message=outcome.message),)
        statuses = {self._said.get(op.message.partition(": ")[0], op.status) for op in ops}
        if device is not None and statuses.issubset(self._allowed(trial)):
            super().add(trial, outcome, self._device, first=first or device)

    def _allowed(self, trial: Trial) -> tuple[Status, ...]:
        """Return the statuses with which a variant is kept."""
        if trial.candidate.id == self._default:
            return (Status.OK,)
        return _KEPT if self._default is not None else _GOOD


class _CaseSources(Sources):
    """What a worker imports is found as for any candidate, but what an outcome depends on is the case's."""

    def __init__(self, source: str, verify: str | None) -> None:
        super().__init__(verify)
        self._source = source

    def of(self, candidate: Candidate) -> str:
        return self._source


Keeping: TypeAlias = Callable[..., Kept]
"""Makes what keeps the variants of a case, given the arguments of `Kept` from `default` on, but for `note`."""
