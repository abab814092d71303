"""How the demo writes times."""


def duration(seconds: float) -> str:
    """Return a time with its unit.

    >>> duration(0.0123), duration(4.2e-6)
    ('12.30 ms', '4.20 µs')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds * 1e6:.2f} µs"
