"""Commands that behave like profilers, well or badly, and what watches them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from ostinato import profiler_runner

MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
MISSING = "/nonexistent/profiler"
DEADLINE = 30.0


def sh(script: str, *arguments: object) -> list[str]:
    """A command line that runs a shell script; its arguments are $1 and so on."""
    return ["/bin/sh", "-c", script, "sh", *map(str, arguments)]


def line(op: str, time_ms: object = 1.0, workspace: object = 0) -> str:
    return f"OP:{op},TIME:{time_ms},WS:{workspace}"


def says(op: str, time_ms: object = 1.0, workspace: object = 0) -> list[str]:
    """A good profiler of one op."""
    return ["/bin/echo", line(op, time_ms, workspace)]


def meets(mine: Path, other: Path, op: str) -> list[str]:
    """A profiler that ends well only if the one that it names runs at the same time."""
    wait = 'i=0; while [ ! -e "$2" ] && [ $i -lt 1000 ]; do i=$((i+1)); sleep 0.01; done; [ -e "$2" ] || exit 9'
    return sh(f'touch "$1"; {wait}; echo "$3"', mine, other, line(op))


class Delegate:
    """What callbacks put results in, as the ancestor's callers have it."""

    def __init__(self) -> None:
        self.results: list[object] = []
        self.postprocessed: list[list[object]] = []

    def add(self, result: object, delegate: Delegate) -> None:
        """A callback."""
        assert delegate is self
        self.results.append(result)

    def postprocess_results(self) -> None:
        self.postprocessed.append(list(self.results))

    @property
    def ops(self) -> list[str]:
        return [result.op_config for result in self.results]  # type: ignore[attr-defined]


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that other processes bring about."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE} s: {what}"
        time.sleep(0.002)


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def pid_in(path: Path) -> int:
    """The number that a process writes to a file, once it is there."""
    until(lambda: path.exists() and path.read_text().endswith("\n"), f"a line in {path}")
    return int(path.read_text())


def interrupt_when_there(*paths: Path) -> None:
    """Press Ctrl-C as soon as processes have written to all files, and the main thread is in a runner's join."""
    main = threading.main_thread().ident
    assert main is not None

    def press() -> None:
        for path in paths:
            pid_in(path)
        until(lambda: _is_joining(sys._current_frames()[main]), "the main thread is in join")
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=press).start()


def _is_joining(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "join" and frame.f_code.co_filename == profiler_runner.__file__:
            return True
        frame = frame.f_back
    return False


def children() -> set[int]:
    """Children of this process, zombies included."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found |= {int(pid) for pid in (task / "children").read_text().split()}
        except FileNotFoundError:
            continue
    return found


def threads() -> set[threading.Thread]:
    """Threads that Python started. A worker that runs some Python counts as a thread too, from then on for ever."""
    return {thread for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}


def descriptors() -> int:
    """Open files, without those that the driver of a GPU opens once for the process."""
    names = os.listdir("/proc/self/fd")
    found = len(names)
    for name in names:
        with suppress(FileNotFoundError):  # that of the directory
            found -= os.readlink(f"/proc/self/fd/{name}").startswith("/dev/nvidia")
    return found


def python(script: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    """Start a script in a Python process of its own, with this directory on its path."""
    environment = dict(os.environ)
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )
