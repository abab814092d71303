"""Objects that are passed as they are, and compared by identity."""

from __future__ import annotations

from typing import Any

__all__ = ["Token", "token"]


class Token:
    """An object that is a token, whatever it is; made by `token`.

    Attributes
    ----------
    value
        The object, which tasks receive.
    """

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"<token of a {type(self.value).__name__}>"


def token(obj: Any) -> Any:
    """Make a token of any object, to be passed to a parameter annotated `Read`, `Write` or `ReadWrite`.

    The task receives `obj`. Ops that name the same object are ordered as if it were an array. Ostinato does not look
    for arrays in it: declare those as arguments of their own.

    Most objects that are no arrays are tokens by themselves. Numbers, strings and lists of arrays are not, for
    example, and neither is an object that holds its data in memory of its own, such as a pandas Series.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> @ost.task
    ... def collect(x: ost.Read, found: ost.ReadWrite):
    ...     found.append(x.sum())
    >>> x, found = np.ones(3), [np.float64(0)]
    >>> with ost.capture() as graph:
    ...     op = collect(x, ost.token(found))
    >>> with graph.compile() as program:
    ...     steps = program.replay(2)
    >>> len(found)
    3
    """
    return obj if isinstance(obj, Token) else Token(obj)
