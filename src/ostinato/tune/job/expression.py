"""Constraints written as expressions: ``tile * unroll <= 256``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from typing import Any

__all__ = ["constraint"]

_FUNCTIONS = {"abs": abs, "len": len, "max": max, "min": min}
_NODES = (
    *(ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.List, ast.Call),
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.IfExp),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
    *(ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn),
)


def constraint(text: str, names: Collection[str]) -> Callable[[Mapping[str, Any]], bool]:
    """Return a function of a configuration that says whether an expression is true of it.

    Parameters
    ----------
    text
        Python's arithmetic, comparisons, ``and``, ``or``, ``not``, ``in``, ``x if c else y``, and `abs`, `len`, `max`
        and `min`, of the parameters and of constants; nothing else.
    names
        The parameters.

    Raises
    ------
    ValueError
        If it is something else, or a name in it is no parameter; from the function, if the expression makes no sense
        for a configuration.

    Examples
    --------
    >>> fits = constraint("tile * unroll <= 256 and order in ['ij', 'ji']", ["tile", "unroll", "order"])
    >>> fits({"tile": 64, "unroll": 4, "order": "ij"}), fits({"tile": 64, "unroll": 8, "order": "ij"})
    (True, False)
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"{text!r} is no expression: {error}") from None
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise ValueError(f"{text!r}: {ast.unparse(node)!r} is not allowed in a constraint")
        if isinstance(node, ast.Call) and (
            not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords
        ):
            raise ValueError(f"{text!r}: functions in a constraint are {', '.join(_FUNCTIONS)}")
        if isinstance(node, ast.Name) and id(node) not in called and node.id not in names:
            raise ValueError(f"{text!r}: {node.id!r} is no parameter; there are {', '.join(names)}")
    code = compile(tree, "<constraint>", "eval")

    def allows(config: Mapping[str, Any]) -> bool:
        try:
            return bool(eval(code, {"__builtins__": {}, **_FUNCTIONS}, dict(config)))
        except (ArithmeticError, TypeError, ValueError) as error:
            raise ValueError(f"{text!r} makes no sense for {dict(config)}: {error}") from None

    return allows
