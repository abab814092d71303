"""How times, configurations and the words of candidates are written for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ostinato.one_line import one_line

__all__ = ["duration", "setting", "settings"]

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))


def duration(ns: float) -> str:
    """Return a time with four digits and its unit.

    >>> duration(1234567.0), duration(0.5)
    ('1.235 ms', '0.5 ns')
    """
    size, unit = next((entry for entry in _UNITS if ns >= entry[0]), _UNITS[-1])
    digits = ns / size
    return f"{digits:.0f} {unit}" if digits >= 1000 else f"{digits:.4g} {unit}"


def settings(config: Mapping[str, Any]) -> str:
    """Return a configuration in one line.

    >>> settings({"tile": 16, "order": "ij", "flags": ["-O2", "-g"]})
    'tile=16 order=ij flags=["-O2","-g"]'
    """
    return " ".join(f"{one_line(name)}={setting(value)}" for name, value in config.items()) or "(no parameters)"


def setting(value: object) -> str:
    """Return one value of a configuration: a str as it is, anything else as JSON.

    >>> setting(None), setting("a\\n"), setting("")
    ('null', 'a\\\\n', '""')
    """
    if isinstance(value, str) and value:
        return one_line(value)
    return one_line(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
