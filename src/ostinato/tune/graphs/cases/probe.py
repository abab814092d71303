"""An op with other values of its parameters than their defaults, to find variants that take these for granted."""

from __future__ import annotations

import math

from ostinato.compiler.bound import with_values
from ostinato.compiler.flatten import FlatOp
from ostinato.errors import GraphError
from ostinato.graph.op import Op
from ostinato.graph.param import Param

__all__ = ["probe"]

_PART = 7 / 8
"""Of the default: another value of its sign and about its size, which is seldom one that a task cannot take."""


def probe(op: Op) -> Op | None:
    """Return an op whose floating-point parameters are not what they are by default; None if it has none.

    Nobody knows what values runs will give. But where outputs are compared for the defaults only, a variant that has
    them built in would pass.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> graph = ost.Graph()
    >>> op = graph.fill(np.zeros(3), 1.0)
    >>> probe(op) is None
    True
    >>> op = graph.task(np.multiply, np.ones(3), graph.param("by", 2.0), access=(ost.ReadWrite, None))
    >>> probe(op).body.args[1]
    1.75
    """
    params = [arg for arg in getattr(op.body, "args", ()) if isinstance(arg, Param)]
    values = {param.name: param.value_in({}) for param in params}
    floats = {name: value for name, value in values.items() if isinstance(value, float) and math.isfinite(value)}
    if not any(floats.values()):
        return None
    values |= {name: type(value)(_PART * value) for name, value in floats.items()}
    try:
        return FlatOp(op, op.index, with_values(op, values))
    except (TypeError, ValueError, OverflowError, GraphError):
        return None
