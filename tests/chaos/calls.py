"""Candidates of the chaos that are callables. They bear witness as `candidate.c` does."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import time
from contextlib import suppress

from chaos.plan import WAYS

_DIRECTORY = os.environ.get("CHAOS_DIR", "")
_LEASES = os.environ.get("OSTINATO_LEASE_DIR", "") + "/"
_FAILURES = {way for fault in ("crash", "hang") for way in WAYS[fault, "call"]}
_now = time.perf_counter_ns


def _note(kind: str, device: str, number: int) -> None:
    line = f"{kind} {os.environ['CHAOS_LIFE']} call {device} {number} {os.getpid()} {time.monotonic():.6f}\n"
    file = os.open(f"{_DIRECTORY}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    os.write(file, line.encode())
    os.close(file)


def _leased() -> list[str]:
    """Return the names of the lock files that this process's parent holds."""
    parent, found = os.getppid(), []
    for name in os.listdir(f"/proc/{parent}/fd"):
        try:
            target = os.readlink(f"/proc/{parent}/fd/{name}")
            if target.startswith(_LEASES):
                with open(f"/proc/{parent}/fdinfo/{name}") as file:
                    if "FLOCK" in file.read():
                        found.append(target.removeprefix(_LEASES))
        except FileNotFoundError:
            continue
    return found


class _Spinning:
    """Takes so many ns, and does what else it does; it bears witness meanwhile."""

    def __init__(self, number: int, way: str, ns: int) -> None:
        self._number = number
        self._way = way
        self._ns = ns
        # A request may reach the worker before its lease has reached the reaper: in between, the tuner's is on its way.
        end = time.monotonic() + 0.2
        while not (devices := _leased()) and time.monotonic() < end:
            time.sleep(0.001)
        self._witnesses = [os.open(f"{_DIRECTORY}/witnesses/{name}", os.O_RDWR | os.O_CREAT, 0o666) for name in devices]
        if not devices:
            _note("unleased", "-", number)
        for device in devices:
            _note("enter", device, number)

    def __call__(self) -> None:
        end = _now() + self._ns
        for witness in self._witnesses:
            try:
                fcntl.flock(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _note("overlap", os.path.basename(os.readlink(f"/proc/self/fd/{witness}")), self._number)
        try:
            while _now() < end:
                pass
            if self._way in _FAILURES:
                _fail(self._way)
        finally:
            for witness in self._witnesses:
                fcntl.flock(witness, fcntl.LOCK_UN)  # what was forked may live until the worker ends

    def __del__(self) -> None:
        for witness in self._witnesses:
            os.close(witness)


def candidate(number: int, way: str, ns: int) -> _Spinning:
    """The factory of all."""
    if way in ("child", "daemon", "many"):
        for child in range(5 if way == "many" else 1):
            _leave_behind(number, way == "daemon" or child % 2 == 1)
    elif way == "printed":
        os.write(1, b"\xff\x00OP:chaos,TIME:0.000001,WS:0\n" * 10_000)
    elif way == "reported":
        for file in range(3, 1024):  # the worker's, wherever it hides it
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{file}").startswith("pipe:"):
                    os.write(file, b'\xff\n[]\n{"type":"result"}\n{"type":"bye"\n"{\n17\n')
    return _Spinning(number, way, ns)


def _fail(way: str) -> None:
    if way == "raise":
        raise RuntimeError("a candidate fails")
    if way == "exit":
        os._exit(3)
    if way == "segv":
        ctypes.string_at(8)
    if way in ("abort", "kill", "stop"):
        os.kill(os.getpid(), {"abort": signal.SIGABRT, "kill": signal.SIGKILL, "stop": signal.SIGSTOP}[way])
    if way == "deaf":
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
    while True:
        if way != "spin":
            time.sleep(1000)


def _leave_behind(number: int, daemon: bool) -> None:
    if os.fork():
        return
    try:
        if daemon:
            os.setsid()
            if os.fork():
                return
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _note("left", "-", number)
        while True:
            time.sleep(1000)
    finally:
        os._exit(0)
