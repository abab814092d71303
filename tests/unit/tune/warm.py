"""A worker process at the end of two pipes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import ostinato

ENTRY = Path(ostinato.__file__).parent / "tune" / "worker" / "__main__.py"
DEADLINE = 60.0


def request(factory: str, config: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A request to measure a function of the module `candidates`, where nothing counts as contention."""
    simulation = {"device": "sim:a", "latency": 0.0, "noise": 0.0, "drift": 0.0, "crash": 0.0, "hang": 0.0}
    policy = {"cache": "warm", "rel_ci": 1.0, "min_samples": 3, "max_seconds": 10.0} | fields.pop("policy", {})
    return {
        "type": "measure", "id": 1, "op": "op", "candidate": "id", "factory": f"candidates:{factory}",
        "config": config or {}, "key": {}, "setup": None, "prepared": None, "verify": None, "policy": policy,
        "bound": None, "simulation": simulation, "again": False, "keep": False, "memory": None, **fields,
    }  # fmt: skip


class Worker:
    """Started at once, and killed with what it forked at the end."""

    def __init__(self, **env: str) -> None:
        theirs_in, self.requests = os.pipe()
        self.reports, theirs_out = os.pipe()
        high_in, high_out = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in (theirs_in, theirs_out))
        actions = [(os.POSIX_SPAWN_DUP2, high_in, 3), (os.POSIX_SPAWN_DUP2, high_out, 4)]
        actions.append((os.POSIX_SPAWN_OPEN, 0, "/dev/zero", os.O_RDONLY, 0))
        self.pid = os.posix_spawn(
            sys.executable, [sys.executable, str(ENTRY)],
            {**os.environ, "OSTINATO_REPORT_FD": "4", **env}, file_actions=actions, setsid=True,
        )  # fmt: skip
        for fd in (theirs_in, theirs_out, high_in, high_out):
            os.close(fd)
        self.status: int | None = None
        self._partial = b""
        self.send({"type": "hello", "path": [str(Path(__file__).parent), *sys.path]})
        assert self.message() == {"v": 1, "type": "hello", "pid": self.pid}

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.status is None:
            os.waitpid(self.pid, 0)
        os.close(self.requests)
        os.close(self.reports)

    def send(self, *requests: dict[str, Any]) -> None:
        os.write(self.requests, b"".join(json.dumps(request).encode() + b"\n" for request in requests))

    def message(self) -> dict[str, Any] | None:
        """The next message; None when the worker has ended."""
        end = time.monotonic() + DEADLINE
        while b"\n" not in self._partial:
            ready, _, _ = select.select([self.reports], [], [], max(end - time.monotonic(), 0))
            assert ready, "the worker says nothing"
            data = os.read(self.reports, 1 << 16)
            if not data:
                return None
            self._partial += data
        line, _, self._partial = self._partial.partition(b"\n")
        return json.loads(line)

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return its result."""
        self.send(question)
        start = self.message()
        assert start == {"v": 1, "type": "start", "op": question.get("op", ""), "id": question["id"]}
        result = self.message()
        assert result is not None
        assert (result["v"], result["type"], result["id"]) == (1, "result", question["id"])
        return result

    def wait_for_children(self) -> None:
        """Wait until what its candidates forked has ended."""
        end = time.monotonic() + DEADLINE
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            while "State:\tZ" not in Path(f"/proc/{child}/status").read_text():
                assert time.monotonic() < end
                time.sleep(0.001)

    def wait(self) -> int:
        """Wait for its end; return its exit status, or minus the signal."""
        assert self.message() is None
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status
