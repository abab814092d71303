"""A parameter as a native task gets it, for a Python function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ostinato.graph.param import REQUIRED, Param
from ostinato.graph.scalar import as_scalar

__all__ = ["Converted"]


class Converted(Param):
    """A parameter whose values are made floats or ints, as they are for a native task that declares it so.

    Attributes
    ----------
    of
        The parameter that runs give.
    kind
        ``float`` or ``int``.
    """

    __slots__ = ("kind", "of")

    def __init__(self, of: Param, kind: type) -> None:
        known = of.default is not REQUIRED and of.combine is None
        default = as_scalar(of.default, kind, f"parameter {of.name!r}") if known else of.default
        super().__init__(of.name, default, of.combine)
        self.of = of
        self.kind = kind

    def value_in(self, given: Mapping[str, Any]) -> Any:
        """Return what tasks get in a run that gives these values by name; `REQUIRED` where it lacks one."""
        value = self.of.value_in(given)
        return value if value is REQUIRED else as_scalar(value, self.kind, f"parameter {self.name!r}")
