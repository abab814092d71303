"""Candidates that misbehave, each in its own way: what they do must cost them only."""

from __future__ import annotations

import builtins
import ctypes
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import time


def good(n):
    return lambda: None


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
