"""The tuner."""

from __future__ import annotations

__all__ = ["Tuner"]


class Tuner:
    """Measures candidates."""
