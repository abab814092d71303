"""Stages of compiles as files: those that the environment variable OSTINATO_DUMP asks for."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Stage = TypeVar("_Stage")
_compiles = itertools.count()


class Stages:
    """Runs the passes of one compile, and writes what each returns to a file in the directory OSTINATO_DUMP.

    The files are named ``<process>-<compile>-<stage>-<pass>.txt``. Without the variable nothing is written.
    """

    def __init__(self) -> None:
        directory = os.environ.get("OSTINATO_DUMP")
        self._stage = itertools.count()
        self._prefix = ""
        if directory:
            os.makedirs(directory, exist_ok=True)
            self._prefix = os.path.join(directory, f"{os.getpid()}-{next(_compiles):03}")

    def run(self, run_pass: Callable[_Given, _Stage], *given: _Given.args, **named: _Given.kwargs) -> _Stage:
        """Return what a pass returns, having written it."""
        found = run_pass(*given, **named)
        if self._prefix:
            name = f"{self._prefix}-{next(self._stage):02}-{run_pass.__name__}.txt"
            with open(name, "w", encoding="utf-8") as file:
                file.write(f"{found}\n")
        return found
