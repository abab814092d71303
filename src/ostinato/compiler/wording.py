"""Times and sizes in words."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return a time with its unit.

    Examples
    --------
    >>> duration(0.0123), duration(4.5e-9)
    ('12.3 ms', '4.5 ns')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def size(nbytes: float) -> str:
    """Return a number of bytes with its unit.

    Examples
    --------
    >>> size(1), size(1200), size(3.25e9)
    ('1 byte', '1.2 kB', '3.25 GB')
    """
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return "1 byte" if nbytes == 1 else f"{nbytes:.3g} bytes"
