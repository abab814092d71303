"""Candidates that workers measure in the tests, good ones and bad ones."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import weakref

import numpy as np

calls = 0
setups = 0
made = 0


def null(**config):
    return lambda: None


def spinning(ns):
    def call():
        end = time.perf_counter_ns() + ns
        while time.perf_counter_ns() < end:
            pass

    return call


def sleeping(seconds):
    return lambda: time.sleep(seconds)


def counted():
    global made
    made += 1
    call = spinning(100_000)
    call.workspace = made
    return call


def needing(workspace):
    call = null()
    call.workspace = workspace
    return call


def set_up():
    global setups
    setups += 1
    return setups


def set_up_for(key):
    return {"n": key["n"], "array": np.arange(key["n"], dtype=float)}


def with_inputs(inputs):
    return needing(inputs if isinstance(inputs, int) else inputs["n"])


def prepared_from(workspace):
    return {"workspace": workspace}


def with_prepared(prepared, workspace):
    assert prepared["workspace"] == workspace
    return needing(workspace)


def unpicklable():
    return lambda: None


def refusing(tile):
    raise ValueError(f"tile {tile} does not divide")


def uncallable():
    return 3


class Rude(Exception):
    def __str__(self):
        raise RuntimeError


def raising(what):
    errors = {
        "zero": ZeroDivisionError("by zero"),
        "exit": SystemExit(3),
        "interrupt": KeyboardInterrupt(),
        "memory": MemoryError(),
        "rude": Rude(),
        "long": ValueError("x" * 100_000),
        "surrogate": ValueError("\ud800"),
    }

    def call():
        raise errors[what]

    return call


def raising_late():
    """Well when it is checked, and then no more."""
    count = 0

    def call():
        nonlocal count
        count += 1
        if count > 5:
            raise RuntimeError("worn out")

    return call


def exiting():
    return lambda: os._exit(3)


def dying():
    return lambda: os.kill(os.getpid(), signal.SIGKILL)


# What comes back from a candidate.


def computing(inputs):
    """Computes anew each time, in the same buffer."""
    out = np.empty_like(inputs["array"])
    return lambda: np.multiply(inputs["array"], 2, out=out)


def cheating(inputs):
    """Computes once."""
    out = inputs["array"] * 2
    return lambda: out


def in_place(inputs):
    """Returns its input: nothing may be written over that."""
    return lambda: inputs["array"]


def tiring(inputs):
    """Computes ten times."""
    out = np.zeros_like(inputs["array"])
    count = 0

    def call():
        nonlocal count
        count += 1
        if count <= 10:
            np.multiply(inputs["array"], 2, out=out)
        return out

    return call


def doubled(outputs, key):
    return np.array_equal(outputs, 2 * np.arange(key["n"]))


def same(outputs, key):
    return np.array_equal(outputs, np.arange(key["n"]))


def silent(outputs, key):
    np.testing.assert_array_equal(outputs, 2 * np.arange(key["n"]))


def zero(outputs, key):
    return 0


def no(outputs, key):
    return np.False_


def outraged(outputs, key):
    raise AssertionError("all wrong")


async def never_awaited(outputs, key):
    return False


def leaves(outputs, key):
    raise SystemExit


def printed_42(outputs, key):
    return outputs.stdout == "42\n" and (outputs.scratch / "out").read_text() == "scratch"


def inheriting():
    """Needs as many bytes as a program that it started would find descriptors, and names of such."""
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    found = [number for number in numbers if number > 2 and os.path.exists(f"/proc/self/fd/{number}")]
    return needing(sum(map(os.get_inheritable, found)) + ("OSTINATO_REPORT_FD" in os.environ))


# What leaves something behind.


def closing():
    os.closerange(0, 512)
    return null()


def printing():
    return lambda: os.write(1, b'{"v":1,"type":"result","id":1,"status":"ok"}\n')


def moving():
    os.chdir("/")
    return null()


def where():
    return needing(len(os.getcwd()))


def wandering():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    return null()


def cores():
    return needing(len(os.sched_getaffinity(0)))


def patching():
    """As a candidate would that wants to look fast."""
    ticks = iter(range(1 << 62))
    time.perf_counter_ns = lambda: next(ticks)
    time.perf_counter = lambda: 0.0
    os.write = os.getpid = None
    return null()


def silencing():
    sys.stdout = sys.stderr = None
    return null()


def talking():
    return lambda: sys.stdout.write("")


def alarming():
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    return null()


def forking():
    return lambda: os.fork()


def forking_once(path, at):
    """The child of the call `at`, should it be called again, leaves a file."""
    parent, count = os.getpid(), 0

    def call():
        nonlocal count
        count += 1
        if count == at:
            os.fork()
        elif os.getpid() != parent:
            open(path, "w").close()

    return call


def raising_in_a_child():
    def call():
        if os.fork() == 0:
            raise RuntimeError("in the child")

    return call


def forking_in_c():
    return lambda: ctypes.CDLL(None).fork()


def leaving_a_thread():
    def burn():
        while True:
            pass

    threading.Thread(target=burn, daemon=True).start()
    return null()


def leaving_a_pool():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return null()


# On the CUDA driver that pretends.


def launching(ns):
    launch = ctypes.CDLL("libcuda.so.1").fake_launch
    launch.argtypes = [ctypes.c_int64]
    return lambda: launch(ns)


def breaking(raises):
    def call():
        ctypes.CDLL("libcuda.so.1").fake_fail(700)
        if raises:
            raise RuntimeError("raised")

    return call


def only_one():
    """Refuses to be made while a callable that it made before is still there."""
    global last
    if last is not None and last() is not None:
        raise ValueError("the one before is still in memory")
    call = Null()
    last = weakref.ref(call)
    return call


last = None


class Null:
    def __call__(self):
        pass


def alone(path, number):
    def call():
        if os.path.exists(path):
            raise RuntimeError("something else runs on this device")

    return call


def dying_once(path):
    """Ends its process unless a file is there, and leaves it."""
    if not os.path.exists(path):
        open(path, "w").close()
        os._exit(1)
    return None


def forging(times):
    """Finds the descriptor of its process's reports, and writes to it."""

    def call():
        line = f'{{"type":"result","id":1,"status":"ok","ns":{times}}}\n'.encode()
        for fd in map(int, os.listdir("/proc/self/fd")):
            try:
                if fd > 2 and os.readlink(f"/proc/self/fd/{fd}").startswith("pipe"):
                    os.write(fd, line)
            except OSError:
                pass

    return call


class Several:
    """Stands for many calls, and counts what is done before samples."""

    def __init__(self, calls_per_sample=1):
        self.calls_per_sample = calls_per_sample
        self.before = 0
        self.calls = 0

    def before_sample(self):
        self.before += 1

    def __call__(self):
        self.calls += 1
        end = time.perf_counter_ns() + 100_000
        while time.perf_counter_ns() < end:
            pass
        return [self.before, self.calls]


def several(calls_per_sample):
    return Several(calls_per_sample)


def fresh(outputs, key):
    """Checks that what was to be called before each call was."""
    before, calls = outputs
    assert before == calls, outputs


def set_up_with(key, data):
    with open(data) as file:
        return key, file.read()


def reading(inputs):
    key, text = inputs
    assert text == key["text"], inputs
    return lambda: None


def selected_by_pyopencl():
    """A kernel on the device that pyopencl selects, and a wait for it."""
    import pyopencl as cl

    context = cl.create_some_context(interactive=False)
    queue = cl.CommandQueue(context)
    kernel = cl.Kernel(cl.Program(context, "__kernel void nothing() {}").build(), "nothing")

    def call():
        kernel(queue, (1,), None)
        queue.finish()

    return call


def napping(number):
    """Take some milliseconds, the longer the larger the number."""
    return lambda: time.sleep(0.002 + 0.0005 * min(number, 20))


def slowed(number):
    """Take as many times longer as the host says."""
    slower = float(os.environ.get("OSTINATO_TEST_SLOWER", "1"))
    return lambda: time.sleep(slower * (0.002 + 0.0005 * min(number, 20)))


def prepare_double(n):
    return 2 * n


def twice(prepared, n):
    assert prepared == 2 * n
    return napping(n)


def sometimes(what):
    def call():
        if what == "exit":
            os._exit(3)
        if what == "raise":
            raise RuntimeError("it raises")
        if what == "hang":
            time.sleep(1000)

    return call


def five_is_wrong(outputs, key):
    return "TIME:5" not in outputs.stdout
