"""Candidates that misbehave, each in its own way: what they do must cost them only."""

from __future__ import annotations

import builtins
import ctypes
import gc
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time


def good(n):
    return lambda: None


def accepts(outputs, key):
    return True


_hoard = []


def hoards(n):
    _hoard.append(b"x" * (60 << 20))
    return lambda: time.sleep(0.002 * n)


def leaves_a_bomb(n):
    """It goes off when somebody else is measured."""
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGSEGV)).start()
    return lambda: time.sleep(0.3)


def sleeps(n):
    return lambda: time.sleep(0.1)


def refuses(text):
    raise ValueError(text)


def stops(n):
    return lambda: os.kill(os.getpid(), signal.SIGSTOP)


def closes_descriptors(n):
    return lambda: os.closerange(0, 256)


def writes_into_descriptors(n):
    """Claim times of its own, in everything that is open."""
    claim = b'{"type":"result","id":1,"op":"op","status":"ok","ns":[0.001]}\n' * 3

    def call():
        for fd in range(256):
            try:
                os.write(fd, claim)
            except OSError:
                continue

    return call


def kills_its_parent(n):
    return lambda: os.kill(os.getppid(), signal.SIGKILL)


def stops_its_parent(n):
    return lambda: os.kill(os.getppid(), signal.SIGSTOP)


def stops_its_parent_without_end(n):
    def call():
        while True:
            os.kill(os.getppid(), signal.SIGSTOP)

    return call


def terminates_its_group(n):
    return lambda: os.killpg(0, signal.SIGTERM)


def leaves_a_crowd(n):
    def call():
        for _ in range(10):
            if os.fork() == 0:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(600)

    return call


def forks_and_both_return(n):
    return lambda: os.fork() and None


def ruins_the_interpreter(n):
    def call():
        os.chdir("/")
        os.environ.clear()
        sys.path.clear()
        sys.stdout = sys.stderr = None
        time.perf_counter = time.perf_counter_ns = time.monotonic = lambda: 0
        json.dumps = json.loads = None
        builtins.print = builtins.len = None
        sys.settrace(lambda *_: None)
        gc.disable()
        gc.collect = None
        tempfile.tempdir = "/nowhere"
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    return call


def is_nice(n):
    return lambda: os.nice(1)


def as_important_as_ever(n):
    assert os.getpriority(os.PRIO_PROCESS, 0) == os.getpriority(os.PRIO_PROCESS, os.getppid())
    return lambda: None


def forgets_all_modules(n):
    return lambda: sys.modules.clear()


def recurses(n):
    def call():
        return call()

    return call


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("of its text")

    __repr__ = __str__


def raises_what_cannot_be_printed(n):
    def call():
        raise Unprintable

    return call


def raises_megabytes(n):
    def call():
        raise ValueError("x" * 10_000_000 + "\n\0\ud800")

    return call


def exits(n):
    return lambda: sys.exit("of its own")


def exits_in_a_thread(n):
    def call():
        threading.Thread(target=os._exit, args=(0,)).start()
        time.sleep(600)

    return call


def leaves_a_thread(n):
    return lambda: threading.Thread(target=time.sleep, args=(600,)).start()


def reads_address_zero(n):
    return lambda: ctypes.string_at(0)


def sets_an_alarm(n):
    return lambda: signal.setitimer(signal.ITIMER_REAL, 0.1)


def prints_without_end(n):
    def call():
        while True:
            os.write(1, b"y\n" * 32768)

    return call


def has_no_end_of_arguments(n, text):
    assert len(text) == 5_000_000
    return lambda: None


def _channels():
    """Descriptors that are open for writing, but for the standard ones."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            flags = int(open(f"/proc/self/fdinfo/{name}").read().split()[3], 8)  # noqa: SIM115
        except OSError:
            continue
        if int(name) > 2 and flags & os.O_ACCMODE != os.O_RDONLY:
            found.append(int(name))
    return found


def _write(text):
    for fd in _channels():
        try:
            os.write(fd, text)
        except OSError:
            continue


def opens_brackets(n):
    return lambda: _write(b"[" * 5000 + b"\n" + b'{"a":' * 5000 + b"\n")


def takes_leave_and_stays(n):
    def call():
        _write(b'{"v":1,"type":"bye","message":""}\n')
        time.sleep(600)

    return call


def greets_without_end(n):
    def call():
        while True:
            _write(b'{"v":1,"type":"hello","pid":1}\n')
            time.sleep(0.01)

    return call


def floods_its_channel(n):
    def call():
        while True:
            _write(b"{}\n" * 20_000)

    return call


def blames_the_check(n):
    def call():
        _write(b'{"v":1,"type":"verify","message":"there is none"}\n')
        _write(b'{"v":1,"type":"result","op":"op","id":%d,"status":"no_check","message":""}\n' % _request()["id"])

    return call


def _request():
    """What the worker was asked, found where nobody should look."""
    frame = sys._getframe()
    while "request" not in frame.f_locals or "id" not in frame.f_locals["request"]:
        frame = frame.f_back
    return frame.f_locals["request"]


_ODD = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, -0.0, 1e-300, 1e300, float("nan"), float("inf"), "", "ok", "x",
    "\ud800", "\0", "x" * 3000, [], [1.0], ["1"], [[]], [None], [10**400], {}, {"a": []}, "raced", "no_check", "crash",
    "cancelled", "contended", "device_lost", "hello", "bye", "start", "result", "verify", "sample",
]  # fmt: skip
_NAMES = ["v", "type", "id", "op", "status", "ns", "workspace", "message", "contended", "overhead_ns", "preempted"]


def writes_anything(n):
    """Write what is nearly a message, or nothing like one, wherever it can."""
    choose = random.Random(n)

    def message():
        right = {"v": 1, "type": "result", "id": _request()["id"], "op": "op", "status": "ok", "ns": [1e9]}
        right |= {choose.choice(_NAMES): choose.choice(_ODD) for _ in range(choose.randrange(4))}
        line = bytearray(json.dumps(right).encode())
        for _ in range(choose.choice([0, 0, 0, 1, 20])):
            line[choose.randrange(len(line))] = choose.randrange(256)
        return bytes(line)

    pieces = [
        lambda: message() + b"\n",
        lambda: message() + b"\n",
        lambda: message()[: choose.randrange(200)],
        lambda: choose.choice([b"[", b"{", b'{"a":[']) * choose.randrange(3000) + b"\n",
        lambda: choose.randbytes(choose.randrange(200)),
        lambda: b"\n" * choose.randrange(2000),
    ]

    def call():
        for _ in range(choose.randrange(1, 6)):
            _write(choose.choice(pieces)())

    return call


def _no_secret():
    if "API_TOKEN" in os.environ:
        raise ValueError("a secret")


def refuses_a_secret(n):
    _no_secret()
    return lambda: None


def prepares_without_a_secret(n):
    _no_secret()
    return n


def is_prepared(n, prepared):
    return lambda: None


def accepts_without_a_secret(outputs, key):
    _no_secret()
    return True


def naps(n):
    return lambda: time.sleep(n / 1000)


def sets_the_clock(n):
    """To another day at each look."""
    days = itertools.count()
    time.time = lambda: 86_400.0 * (10**4 - next(days))
    time.time_ns = lambda: int(time.time() * 1e9)
    return naps(n)


def prepares_much(n):
    return bytes(10_000_000)
