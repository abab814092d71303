"""The anchor: one candidate that every device measures from time to time."""

from __future__ import annotations

from collections.abc import Iterable

from ostinato.tune.outcome import Outcome
from ostinato.tune.race.race import Race
from ostinato.tune.status import Status
from ostinato.tune.trial import Trial

__all__ = ["Anchor"]

_EVERY = 64  # measurements on a device between two of the anchor


class Anchor:
    """The candidate that every device measures from time to time, which tells how fast each is, and when it changes.

    Parameters
    ----------
    candidate
        Its id; None: the first that is measured well.
    devices
        Their names.
    alike
        Whether they are all of one model.
    race
        Is told what the anchor takes.
    """

    def __init__(self, candidate: str | None, devices: Iterable[str], alike: bool, race: Race) -> None:
        self._candidate = candidate
        self._alike = alike
        self._race = race
        self._trial: Trial | None = None
        self._op = ""
        self._since = dict.fromkeys(devices, 0)  # measurements of others

    def due(self, device: str) -> Trial | None:
        """Return the anchor if it is to be measured next on a device."""
        return self._trial if self._since[device] >= _EVERY else None

    def began(self, device: str, *, anchor: bool) -> None:
        """Note that a device measures the anchor, or another candidate."""
        self._since[device] = 0 if anchor else self._since[device] + 1

    def measured(self, device: str, outcome: Outcome) -> None:
        """Tell the race what the anchor took."""
        for op in outcome.ops:
            if op.op == self._op and op.status is Status.OK and op.samples:
                self._race.anchored(device, op.samples)

    def offer(self, trial: Trial, device: str, outcome: Outcome) -> None:
        """Take what was measured well as the anchor, if there is none yet and it may be."""
        if self._trial is not None or self._candidate not in (None, trial.candidate.id):
            return
        op = next((op for op in outcome.ops if op.status is Status.OK and op.samples), None)
        if op is None:  # it told a workspace only
            return
        self._trial, self._op = trial, op.op
        self._race.anchored(device, op.samples)
        if not self._alike:  # they are compared by the anchor, so it is the next on each
            self._since = {name: _EVERY * (name != device) for name in self._since}
