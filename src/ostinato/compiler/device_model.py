"""What it takes to copy between the host and a device: what decides whether work is worth taking there."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["DeviceModel"]


@dataclass(frozen=True, kw_only=True)
class DeviceModel:
    """The way to a device and back in numbers; all times are seconds.

    What is not measured is that of a common card.

    Parameters
    ----------
    latency
        What a copy takes beside its bytes.
    into
        Bytes per second to the device.
    out
        Bytes per second from it.
    source
        How the numbers are known, in words.

    Examples
    --------
    >>> model = DeviceModel(latency=10e-6, into=10e9, out=5e9)
    >>> f"{model.copy(1_000_000, into=False) * 1e6:.0f} us"
    '210 us'
    """

    latency: float = 20e-6
    into: float = 6e9
    out: float = 6e9
    source: str = field(default="assumed", compare=False)

    def copy(self, nbytes: int, into: bool) -> float:
        """Return the seconds that a copy of so many bytes takes, to the device or from it."""
        return self.latency + nbytes / (self.into if into else self.out)
