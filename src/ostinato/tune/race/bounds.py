"""The time to beat: the least upper bound of all that was measured, as it holds on each device now."""

from __future__ import annotations

import math

from ostinato.tune.race.speeds import UNEVEN, Place, Speeds

__all__ = ["Bounds"]


class Bounds:
    """The least upper bound of all measurements, carried to any place.

    Between places bounds are related by the anchor: its least time where the bound was measured, its greatest where it
    is to hold. That ratio is the same for all bounds of a place, and once the anchor was measured again, it stays; so
    one number is kept of all the places that a device has behind it, and asking costs the same however many there are.

    Parameters
    ----------
    speeds
        Relates places; it is told of anchors before `anchored`.

    Examples
    --------
    >>> speeds = Speeds()
    >>> bounds = Bounds(speeds)
    >>> here = speeds.place("cpu:0")
    >>> bounds.measured("a", here, 12.0)
    >>> bounds.measured("b", here, 10.0)
    >>> bounds.at(here), bounds.at(speeds.place("cpu:1"))
    (10.0, inf)
    >>> for device, samples in (("cpu:0", [128.0]), ("cpu:1", [256.0])):
    ...     speeds.anchored(device, samples)
    ...     bounds.anchored(device)
    >>> bounds.at(speeds.place("cpu:1"))
    21.0
    """

    def __init__(self, speeds: Speeds) -> None:
        self._speeds = speeds
        self._bounds: dict[Place, dict[object, float]] = {}  # of all that was measured there
        self._uppers: dict[Place, float] = {}  # the least of them
        self._behind: dict[str, float] = {}  # of each device, over the places behind it: the least bound / anchor
        self._least: tuple[float, str] | None = None  # the least of all devices, and whose it is
        self._found: dict[Place, float] = {}  # what `at` returned since something changed

    def measured(self, entry: object, place: Place, bound: float) -> None:
        """Note the upper bound of an entry that was measured just now."""
        self._bounds.setdefault(place, {})[entry] = bound
        if bound < self._uppers.get(place, math.inf):
            self._uppers[place] = bound
            self._changed()

    def forget(self, entry: object, place: Place) -> None:
        """Take back what was measured of an entry."""
        bounds = self._bounds[place]
        if bounds.pop(entry) > self._uppers.get(place, math.inf):
            return
        self._uppers[place] = min(bounds.values(), default=math.inf)
        last = self._speeds.place(place.device).epoch
        behind = (self._over_anchor(Place(place.device, epoch)) for epoch in range(last))
        self._behind[place.device] = min(behind, default=math.inf)
        self._changed()

    def anchored(self, device: str) -> None:
        """Note that the anchor was measured on a device: what was measured there before lies behind it."""
        passed = Place(device, self._speeds.place(device).epoch - 1)
        self._behind[device] = min(self._behind.get(device, math.inf), self._over_anchor(passed))
        self._changed()

    def at(self, place: Place) -> float:
        """Return the least bound at a place; infinity if there is none."""
        if place not in self._found:
            self._found[place] = self._at(place)
        return self._found[place]

    def _at(self, place: Place) -> float:
        own = self._uppers.get(place, math.inf)
        scale = self._speeds.scale(place)
        if scale is None:
            return own
        if self._least is None:
            self._least = min(((self._of(device), device) for device in self._behind), default=(math.inf, ""))
        least, device = self._least
        if place.device != device:
            least = min(self._of(place.device), least * UNEVEN)
        return min(own, scale[1] * least)

    def _changed(self) -> None:
        self._least = None
        self._found.clear()

    def _of(self, device: str) -> float:
        """Return the least of a device's bounds, each divided by the least time of the anchor where it is from."""
        return min(self._behind.get(device, math.inf), self._over_anchor(self._speeds.place(device)))

    def _over_anchor(self, place: Place) -> float:
        bound, scale = self._uppers.get(place, math.inf), self._speeds.scale(place)
        return math.inf if scale is None else bound / scale[0]
