"""A task whose variants do what must cost nobody but them; other processes can import it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import ostinato as ost
from ostinato.tune.leases.devices import devices
from ostinato.tune.leases.lease import Lease


@ost.task
def double(src: ost.Read, dst: ost.Write) -> None:
    np.multiply(src, 2, out=dst)


@double.variant
def right(src: ost.Read, dst: ost.Write) -> None:
    np.add(src, src, out=dst)


@double.variant
def dies(src: ost.Read, dst: ost.Write) -> None:
    ctypes.string_at(0)


@double.variant
def exits(src: ost.Read, dst: ost.Write) -> None:
    os._exit(3)


@double.variant
def hangs(src: ost.Read, dst: ost.Write) -> None:
    while True:
        time.sleep(1)


@double.variant
def leaves(src: ost.Read, dst: ost.Write) -> None:
    sys.exit(0)


@double.variant
def raises(src: ost.Read, dst: ost.Write) -> None:
    raise ValueError("boom")


@double.variant
def interrupts(src: ost.Read, dst: ost.Write) -> None:
    raise KeyboardInterrupt


@double.variant
def kills(src: ost.Read, dst: ost.Write) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@double.variant
def forks(src: ost.Read, dst: ost.Write) -> None:
    os.fork()
    np.multiply(src, 2, out=dst)


@double.variant
def leases(src: ost.Read, dst: ost.Write) -> None:
    Lease(devices("cpu:0")[0]).acquire()


@double.variant
def starts_threads(src: ost.Read, dst: ost.Write) -> None:
    threading.Thread(target=_spin, daemon=True).start()
    np.multiply(src, 2, out=dst)


def _spin() -> None:
    while True:
        pass


@double.variant
def takes_memory(src: ost.Read, dst: ost.Write) -> None:
    np.ones(1 << 50)


@double.variant
def changes_its_input(src: ost.Read, dst: ost.Write) -> None:
    np.multiply(src, 2, out=dst)
    _writable(src)[0] = 7


@double.variant
def writes_nothing(src: ost.Read, dst: ost.Write) -> None:
    pass


@double.variant
def adds(src: ost.Read, dst: ost.Write) -> None:
    dst += src * 2


@double.variant
def writes_beside(src: ost.Read, dst: ost.Write) -> None:
    np.multiply(src, 2, out=dst)
    longer = np.lib.stride_tricks.as_strided(_writable(dst), (len(dst) + 1,), dst.strides)
    longer[-1] = 7


@double.variant
def writes_before(src: ost.Read, dst: ost.Write) -> None:
    np.multiply(src, 2, out=dst)
    ctypes.c_double.from_address(dst.ctypes.data - dst.itemsize).value = 7


@double.variant
def nearly(src: ost.Read, dst: ost.Write) -> None:
    np.multiply(src, 2.001, out=dst)


@double.variant
def only_once(src: ost.Read, dst: ost.Write) -> None:
    if not getattr(only_once, "done", False):
        np.multiply(src, 2, out=dst)
    only_once.done = True  # type: ignore[attr-defined]


@double.variant
def moves_away(src: ost.Read, dst: ost.Write) -> None:
    os.chdir("/")
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    np.multiply(src, 2, out=dst)


@ost.task
def fails(src: ost.Read, dst: ost.Write) -> None:
    os._exit(4)


@fails.variant
def does_not(src: ost.Read, dst: ost.Write) -> None:
    np.multiply(src, 2, out=dst)


@ost.task
def never_the_same(dst: ost.Write) -> None:
    dst[:] = time.perf_counter_ns()


@never_the_same.variant
def always_the_same(dst: ost.Write) -> None:
    dst[:] = 0


class Log:
    """An object that tasks change."""

    def __init__(self) -> None:
        self.values: list[int] = []


@ost.task
def note(log: ost.ReadWrite, value: int) -> None:
    log.values.append(value)


@note.variant
def note_twice(log: ost.ReadWrite, value: int) -> None:
    log.values += [value, value]


@note.variant
def note_otherwise(log: ost.ReadWrite, value: int) -> None:
    log.values = [*log.values, value]


@ost.task
def writes_a_file(path: ost.Write) -> None:
    Path(path).touch()


def _writable(array: np.ndarray) -> np.ndarray:
    return np.ctypeslib.as_array(ctypes.cast(array.ctypes.data, ctypes.POINTER(ctypes.c_double)), array.shape)
