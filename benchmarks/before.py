"""This version beside another one: each in a process of its own, asked in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from benchmarks.context import Context
from benchmarks.measure import Contestant, Part, Row, measure
from benchmarks.peers import Absent

BEFORE, NOW = "before", "now"
_ROOT = Path(__file__).parent.parent
_PROCESSES = 4  # one after the other: where memory happens to lie makes up to 15% in one and the same version


class _Version:
    """A process that times one version."""

    def __init__(self, python: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(python), "-m", "benchmarks.before_worker"]
        self._process = subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._requests, self._answers = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        told = self._answer()
        self.revision: str = told["revision"] or "unknown"
        self.cases: dict[str, dict[str, int]] = told["cases"]

    def time(self, case: str, steps: int) -> float:
        """Nanoseconds that so many steps take."""
        self._requests.write(json.dumps([case, steps]) + "\n")
        self._requests.flush()
        return cast("float", self._answer())

    def _answer(self) -> Any:
        line = self._answers.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with status {self._process.wait()}")
        return json.loads(line)

    def __enter__(self) -> _Version:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.close()
        self._process.wait()


def _measure(context: Context, samples: dict[tuple[str, str], list[float]]) -> None:
    """Time every case in a process of each version."""
    with ExitStack() as stack:
        pythons = {BEFORE: cast("Path", context.before), NOW: Path(sys.executable)}
        versions = {name: stack.enter_context(_Version(python)) for name, python in pythons.items()}
        context.versions[BEFORE] = versions[BEFORE].revision
        for case, shape in versions[BEFORE].cases.items():
            contestants: list[Contestant] = [
                Part(name, partial(version.time, case), shape["tasks"], steps=shape["steps"])
                for name, version in versions.items()
            ]
            measure(contestants, rounds=-(-context.rounds // _PROCESSES), seconds=context.seconds)
            for contestant in contestants:
                samples.setdefault((case, contestant.name), []).extend(contestant.samples)


def run(context: Context) -> None:
    """Time the patterns of native tasks and the fixed costs."""
    if context.before is None:
        context.absent.append(Absent("the version before", "no --before PYTHON"))
        return
    samples: dict[tuple[str, str], list[float]] = {}
    for _ in range(_PROCESSES):
        _measure(context, samples)
    context.rows += [
        Row("before", case, name, "ns/task", tuple(taken), BEFORE) for (case, name), taken in samples.items()
    ]
