"""How fast devices are, relative to each other and over time: what an anchor candidate tells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ostinato.tune.race.stopping import interval, median

__all__ = ["UNEVEN", "Place", "Speeds"]

UNEVEN = 1.05
"""A device that is x times slower for the anchor is taken to be x times slower for every candidate within 5 %."""


class Place(NamedTuple):
    """A device, and how many times the anchor had been measured on it: between two anchors its speed is one."""

    device: str
    epoch: int


class _Anchor(NamedTuple):
    low: float
    middle: float
    high: float


class Speeds:
    """How fast devices are, by an anchor: one candidate that is measured on each of them, and again from time to time.

    A measurement between two anchors of its device counts with the geometric mean of both, so a slow drift cancels.

    Examples
    --------
    >>> speeds = Speeds()
    >>> speeds.anchored("cpu:0", [100.0])
    >>> speeds.anchored("cpu:1", [200.0])
    >>> speeds.factors
    {'cpu:0': 1.0, 'cpu:1': 2.0}
    """

    def __init__(self) -> None:
        self._anchors: dict[str, list[_Anchor]] = {}
        self._scales: dict[Place, tuple[float, float] | None] = {}

    def anchored(self, device: str, samples: Sequence[float]) -> None:
        """Note that the anchor was measured on a device."""
        ordered = sorted(samples)
        low, high = interval(ordered)
        self._scales.pop(self.place(device), None)  # of all places, this is the one that the anchor ends
        self._anchors.setdefault(device, []).append(_Anchor(low, median(ordered), high))

    def place(self, device: str) -> Place:
        """Return where a measurement on a device belongs that is made now."""
        return Place(device, len(self._anchors.get(device, ())))

    def factor(self, place: Place) -> float:
        """Return how many times slower a place is than the fastest device; 1 if no anchor was measured there."""
        around = self._around(place)
        if not around:
            return 1.0
        return math.sqrt(around[0].middle * around[-1].middle) / self._fastest()

    def scale(self, place: Place) -> tuple[float, float] | None:
        """Return between which values the anchor's median lay at a place; None if it was not measured there."""
        if place not in self._scales:
            around = self._around(place)
            scale = (min(anchor.low for anchor in around), max(anchor.high for anchor in around)) if around else None
            self._scales[place] = scale
        return self._scales[place]

    @property
    def factors(self) -> dict[str, float]:
        """How many times slower than the fastest each anchored device is, by its latest anchor."""
        return {device: self.factor(self.place(device)) for device in self._anchors}

    @property
    def drift(self) -> dict[str, float]:
        """By which part each anchored device has become slower, from its first anchor to its latest."""
        return {device: anchors[-1].middle / anchors[0].middle - 1 for device, anchors in self._anchors.items()}

    def _around(self, place: Place) -> list[_Anchor]:
        return self._anchors.get(place.device, [])[max(place.epoch - 1, 0) : place.epoch + 1]

    def _fastest(self) -> float:
        return min(anchors[-1].middle for anchors in self._anchors.values())
