"""The choices that users name by a word."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["OnError", "ReductionName", "Runs"]

Runs: TypeAlias = Literal["pipelined", "serial", "concurrent", "once"]
"""How the runs of a program relate."""

OnError: TypeAlias = Literal["stop", "continue"]
"""What a failure does to the rest of a run."""

ReductionName: TypeAlias = Literal["+", "*", "min", "max"]
"""How values are combined."""
