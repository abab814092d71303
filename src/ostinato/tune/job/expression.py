"""Constraints written as expressions: ``tile * unroll <= 256``."""

from __future__ import annotations

import ast
import operator
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
_LONGEST = 4096  # bits of a whole number: constraints of sizes, strides and bytes need sixty-four


def _checked(sign: str, apply: Callable[[Any, Any], Any], bits: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    """Return an operation that could take all time and memory, for numbers that are not too large."""

    def checked(one: Any, other: Any) -> Any:
        if not isinstance(one, int | float | complex) or not isinstance(other, int | float | complex):
            kinds = f"{type(one).__name__} and {type(other).__name__}"
            raise TypeError(f"in a constraint, {sign} must have two numbers, got {kinds}")
        if isinstance(one, int) and isinstance(other, int) and bits(one, other) > _LONGEST:
            raise OverflowError(f"{_shown(one)} {sign} {_shown(other)} is a number of more than {_LONGEST} bits")
        return apply(one, other)

    return checked


def _shown(number: int) -> str:
    return str(number) if number.bit_length() <= 64 else f"(a number of {number.bit_length()} bits)"


# By what no name in an expression can be.
_CHECKED = {
    "*": _checked("*", operator.mul, lambda one, other: one.bit_length() + other.bit_length()),
    "**": _checked("**", operator.pow, lambda one, other: (one.bit_length() - 1) * other),
    "<<": _checked("<<", operator.lshift, lambda one, other: one.bit_length() + other),
    "%": _checked("%", operator.mod, lambda one, other: 0),  # of a text: "%99999999d"
}
_SIGNS: dict[type[ast.operator], str] = {ast.Mult: "*", ast.Pow: "**", ast.LShift: "<<", ast.Mod: "%"}


def _check(tree: ast.Expression) -> None:
    """Have the operations that could take all time and memory done by those of `_CHECKED`."""
    for node in reversed(list(ast.walk(tree))):  # operands before what they are operands of
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                value[:] = map(_checking, value)
            else:
                setattr(node, name, _checking(value))


def _checking(node: Any) -> Any:
    sign = _SIGNS.get(type(node.op)) if isinstance(node, ast.BinOp) else None
    if sign is None:
        return node
    function = ast.copy_location(ast.Name(sign, ast.Load()), node)
    return ast.copy_location(ast.Call(function, [node.left, node.right], []), node)


def constraint(text: str, names: Collection[str]) -> Callable[[Mapping[str, Any]], bool]:
    """Return a function of a configuration that says whether an expression is true of it.

    Parameters
    ----------
    text
        Python's arithmetic, comparisons, ``and``, ``or``, ``not``, ``in``, ``x if c else y``, and `abs`, `len`, `max`
        and `min`, of the parameters and of constants; nothing else. ``*``, ``**``, ``<<`` and ``%`` take numbers only,
        and whole numbers have 4096 bits at most.
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
        raise ValueError(f"a constraint must be an expression, got {text!r}: {error}") from None
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise ValueError(f"{text!r}: {ast.unparse(node)!r} is not allowed in a constraint")
        if isinstance(node, ast.Call) and (
            not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords
        ):
            raise ValueError(f"{text!r}: functions in a constraint are {', '.join(_FUNCTIONS)}")
        if isinstance(node, ast.Name) and id(node) not in called and node.id not in names:
            raise ValueError(
                f"{text!r}: names in a constraint must be parameters ({', '.join(names)}), got {node.id!r}"
            )
    try:
        _check(tree)
        code = compile(tree, "<constraint>", "eval")
    except (MemoryError, RecursionError) as error:
        raise ValueError(f"{text!r} is nested too deeply: {error}") from None
    used = [name for name in names if name in code.co_names and name.isidentifier()]
    known = {"__builtins__": {}, **_FUNCTIONS, **_CHECKED}

    def allows(config: Mapping[str, Any]) -> bool:
        try:
            return bool(eval(code, known, {name: config[name] for name in used}))
        except (ArithmeticError, TypeError, ValueError) as error:
            raise ValueError(f"{text!r} makes no sense for {dict(config)}: {error}") from None

    return allows
