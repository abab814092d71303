"""Which interpreter of the process this is: threads of ours serve the main one."""

from __future__ import annotations

from importlib import import_module

__all__ = ["refuse_others"]


def refuse_others() -> None:
    """Raise in every interpreter but the main one.

    Raises
    ------
    ImportError
        This is a sub-interpreter.
    """
    for name in ("_interpreters", "_xxsubinterpreters"):  # from Python 3.13 on, and before
        try:
            interpreters = import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError(
                "ostinato must be imported in the main interpreter, but this is a sub-interpreter: "
                "use threads of the main interpreter, or processes"
            )
        return
