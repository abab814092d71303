"""The elements of an array combined to one, in row-major order."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, cast

import numpy as np

from ostinato.errors import GraphError
from ostinato.graph.access import Read, Write
from ostinato.graph.arrays import Array, as_ndarray
from ostinato.graph.graph import Graph
from ostinato.graph.op import Op
from ostinato.graph.ring import AbstractArray
from ostinato.text import brief

_UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def record_fold(graph: Graph, parts: Any, out: Any, op: Any) -> Op:
    """Record a fold, which one rank does for all."""
    if isinstance(op, str):
        if op not in _UFUNCS:
            raise ValueError(f"op of fold() must be one of {', '.join(map(repr, _UFUNCS))} or a function, got {op!r}")
    elif not callable(op):
        raise TypeError(f"op of fold() must be one of {', '.join(map(repr, _UFUNCS))} or a function, got {brief(op)}")
    source, target = _array("parts", parts), _array("out", out)
    if hasattr(type(out), "is_ostinato_distributed_array"):
        raise TypeError("out of fold() must be a NumPy array, which every rank has, got a distributed array")
    if target.size != 1:
        raise GraphError(f"out of fold() must have one element, got shape {target.shape}")
    if source.size == 0:
        raise GraphError(f"fold() needs at least one element to begin with, got shape {source.shape}")
    if not np.can_cast(source.dtype, target.dtype, "same_kind"):
        raise TypeError(f"fold() cannot combine elements of {source.dtype} into {target.dtype}")
    combine = cast("Callable[[Any, Any], Any]", _UFUNCS[op] if isinstance(op, str) else op)

    def fold(parts: Array, out: Array) -> None:
        out[...] = fold_left(parts, combine, out.dtype)

    return graph.task(fold, parts, out, access=(Read, Write), on="rank:0", name="fold")


def _array(name: str, value: Any) -> Any:
    """Return what has the shape and the dtype of an array."""
    found = value if isinstance(value, AbstractArray) else as_ndarray(value)
    if found is None:
        raise TypeError(f"{name} of fold() must be an array, got {brief(value)}")
    return found


def fold_left(parts: Array, combine: Callable[[Any, Any], Any], dtype: np.dtype[Any]) -> Any:
    """Combine elements in row-major order, as numbers of the result's type.

    Examples
    --------
    >>> import numpy as np, operator
    >>> int(fold_left(np.arange(1, 5).reshape(2, 2), operator.sub, np.dtype(int)))
    -8
    """
    elements = parts.reshape(-1).astype(dtype, casting="same_kind", copy=False)
    if isinstance(combine, np.ufunc):
        return combine.accumulate(elements, dtype=dtype)[-1]  # in order, unlike reduce, which adds in pairs
    return reduce(combine, elements)
