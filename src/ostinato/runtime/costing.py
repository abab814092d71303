"""What a program is compiled with: costs from the store, from a mapping or from a trace."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from ostinato.compiler.costs import Costing, given
from ostinato.one_line import brief

if TYPE_CHECKING:
    from ostinato.view.trace import Trace

__all__ = ["CostsArgument", "costing_of"]

CostsArgument: TypeAlias = "str | os.PathLike[str] | Mapping[object, float] | Trace | None"
"""What ``costs=`` takes: None for what the default store knows, a store's path, seconds by op or task, or a trace."""


def costing_of(costs: CostsArgument) -> Costing:
    """Return the costing that ``costs=`` asks for.

    Raises
    ------
    TypeError
        It is nothing of the kind, or a cost is no number.
    ValueError
        A cost is negative or not finite.
    TuningError
        There is no store at the path.
    """
    if isinstance(costs, Mapping):
        reports = sys.modules.get("ostinato.tune.graphs.tune_graph")
        if reports is not None and isinstance(costs, reports.Reports):
            raise TypeError(
                "costs= is what graph.tune returned; that is in the store, which compile asks by default: leave costs= "
                "out, or name the file that tune was given as store="
            )
        return given(costs)
    if costs is None or isinstance(costs, str | os.PathLike):
        from ostinato.tune.graphs import costing

        return costing(costs)
    from ostinato.view.trace import Trace

    if isinstance(costs, Trace):
        from ostinato.tune.graphs.traced import costing_of_trace

        return costing_of_trace(costs)
    raise TypeError(
        "costs must be None, the path of a store, a mapping from ops or tasks to seconds, or a Trace, "
        f"got {brief(costs)}"
    )
