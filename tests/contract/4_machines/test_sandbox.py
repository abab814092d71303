"""Processes in which less is allowed: system calls that are refused, interpreters that are not the main one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import textwrap

import pytest

SYSTEM_CALLS = {"x86_64": (324, 317), "aarch64": (283, 277)}  # membarrier, seccomp

REFUSE = """
import ctypes, errno, struct
libc = ctypes.CDLL(None, use_errno=True)
MEMBARRIER, SECCOMP = {calls}
def refuse_membarrier():
    def op(code, yes, no, k):
        return struct.pack("HBBI", code, yes, no, k)
    # Load the number of the call; EPERM where it is membarrier's, on all threads.
    code = op(0x20, 0, 0, 0) + op(0x15, 0, 1, MEMBARRIER)
    code += op(0x06, 0, 0, 0x00050000 | errno.EPERM) + op(0x06, 0, 0, 0x7FFF0000)
    buffer = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    if libc.syscall(SECCOMP, 1, 1, program) != 0:  # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC
        print("no filters here")
        raise SystemExit
    assert libc.syscall(MEMBARRIER, 8, 0, 0) == -1 and ctypes.get_errno() == errno.EPERM
"""

PROGRAM = """
import time
from concurrent.futures import CancelledError
import numpy as np, ostinato as ost

x, y = np.zeros(1), np.zeros(1)

@ost.task(releases_gil=True)
def here(x: ost.ReadWrite, number):
    x += 1
    if number % 3 == 0:
        time.sleep(0.002)  # the other seat falls asleep

@ost.task(releases_gil=True)
def there(x: ost.Read, y: ost.Write, number, fails):
    y[:] = x
    if number % 5 == 0:
        time.sleep(0.002)
    if fails:
        raise ValueError

def program_on(machine):
    graph = ost.Graph()
    graph.task(here, x, ost.step, on="cpu:0")
    graph.task(there, x, y, ost.step, graph.param("fails", False), on="cpu:1")
    return graph.compile(machine)

def use(machine):
    with program_on(machine) as program:
        before = x[0]
        assert program.replay(60) == 60 and x[0] == y[0] == before + 60
        for _ in range(5):
            run = program.submit(10**12)
            while run.steps_done < 3:
                time.sleep(0.001)
            assert run.cancel()
            try:
                run.result(60)
            except CancelledError:
                pass
            assert x[0] == y[0]
        try:
            program.replay(fails=True)
        except ost.TaskError:
            pass
        runs = [program.submit(2) for _ in range(10)]
        assert [run.result(60) for run in runs] == [2] * 10 and x[0] == y[0]
"""


def run(code):
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, env=os.environ
    )
    if process.stdout.startswith("no filters"):
        pytest.skip("seccomp filters are not allowed here")
    return process.stdout, process.stderr, process.returncode


@pytest.mark.skipif(platform.machine() not in SYSTEM_CALLS, reason="numbers of system calls are not known")
@pytest.mark.parametrize("when", ["before the first machine", "while a machine is there"])
def test_programs_run_where_membarrier_is_refused(when):
    refuse = "refuse_membarrier()\n"
    make = "machine = ost.Machine(cpus=2)\nuse(machine)\n"
    first = refuse + make if when == "before the first machine" else make + refuse
    code = (
        REFUSE.format(calls=SYSTEM_CALLS[platform.machine()])
        + PROGRAM
        + first
        + "use(machine)\nmachine.close()\nprint('end')"
    )
    assert run(code) == ("end\n", "", 0)


def interpreters():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            __import__(name)
        except ImportError:
            continue
        return name
    return pytest.skip("this Python has no module for interpreters")


@pytest.mark.parametrize("used_before", [False, True])
def test_a_sub_interpreter_is_refused_at_import(used_before):
    code = f"""
    import {interpreters()} as interpreters
    if {used_before}:
        import numpy as np, ostinato as ost
        ost.Graph().compile(ost.Machine(cpus=2)).replay()
    tried = '''if True:
        try:
            import ostinato
        except ImportError as error:
            assert "main interpreter" in str(error), error
        else:
            raise AssertionError("it was imported")
    '''
    found = interpreters.run_string(interpreters.create(), tried)  # raises before Python 3.13, and returns from then on
    print("refused" if found is None else found)
    """
    assert run(textwrap.dedent(code)) == ("refused\n", "", 0)
