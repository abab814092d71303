"""What a graph can record a call of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ostinato.graph.body import Body
from ostinato.graph.operand import Operand
from ostinato.graph.recorder import Recorder

__all__ = ["Recordable"]


class Recordable:
    """A task of any kind."""

    __slots__ = ()

    name: str

    def bind(
        self, recorder: Recorder, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Body, tuple[Operand, ...]]:
        """Turn the arguments of a call into what an op records."""
        raise NotImplementedError
