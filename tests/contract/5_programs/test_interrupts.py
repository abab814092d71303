"""What the contract promises of Ctrl-C inside tasks, and of tasks that wait when everything ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import CancelledError

import pytest

import ostinato as ost

PRELUDE = """
import asyncio, atexit, sys, threading, time
import ostinato as ost
never = ost.UserEvent()
machine = ost.Machine(cpus=2)
@ost.task
def nothing(): pass
def program_of(task, **more):
    graph = ost.Graph()
    graph.task(task, **more)
    return graph.compile(machine)
"""

WAITS = {
    "an event": "never.wait()",
    "the exception of an event": "never.exception()",
    "a run": "program_of(nothing).submit(after=never).result()",
    "a spawned task": "machine.spawn(nothing, after=never).result()",
    "a replay": "program_of(nothing).replay(after=never)",
    "an await": "asyncio.run(awaits())",
}

WAITING = """
async def awaits(): await never
began = threading.Event()
@ost.task(blocking=True)
def task():
    began.set()
    WAIT
"""


def waiting(how):
    return WAITING.replace("WAIT", WAITS[how])


def start(code):
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def ended(process, timeout=60):
    try:
        return (*process.communicate(timeout=timeout), process.returncode)
    finally:
        process.kill()


@pytest.mark.parametrize("how", WAITS)
@pytest.mark.parametrize("spawned", [False, True])
def test_cancel_ends_the_waits_of_blocking_tasks(how, spawned):
    code = """
    from concurrent.futures import CancelledError
    run = SUBMIT
    assert began.wait(60) and run.cancel()
    try:
        run.result(60)
    except CancelledError:
        print("cancelled", run.cancelled())
    print(program_of(nothing).replay())
    """.replace("SUBMIT", "machine.spawn(task)" if spawned else "program_of(task).submit()")
    assert ended(start(waiting(how) + textwrap.dedent(code))) == ("cancelled True\n1\n", "", 0)


@pytest.mark.parametrize("how", WAITS)
@pytest.mark.parametrize("spawned", [False, True])
def test_the_interpreter_ends_while_a_blocking_task_waits(how, spawned):
    code = """
    run = SUBMIT
    assert began.wait(60)
    print("end")
    """.replace("SUBMIT", "machine.spawn(task)" if spawned else "program_of(task).submit()")
    assert ended(start(waiting(how) + textwrap.dedent(code))) == ("end\n", "", 0)


def test_a_wait_that_is_over_in_time_is_no_failure_of_a_cancelled_run():
    began, event, seen = ost.UserEvent(), ost.UserEvent(), []

    @ost.task(blocking=True)
    def waits():
        began.trigger()
        event.wait()
        seen.append("waited")

    graph = ost.Graph()
    graph.task(waits)
    with ost.Machine(cpus=1) as machine, graph.compile(machine) as program:
        run = program.submit()
        began.wait(60)
        assert run.cancel()
        event.trigger()  # before the run is cut short, or after: what was waited for has happened, or not
        with pytest.raises(CancelledError):
            run.result(60)
        assert seen in ([], ["waited"])


def test_a_task_that_goes_on_after_its_wait_was_ended_may_fail_for_a_reason_of_its_own():
    began = ost.UserEvent()

    @ost.task(blocking=True)
    def waits():
        began.trigger()
        try:
            ost.UserEvent().wait()
        except CancelledError:
            raise ValueError("cannot tidy up") from None

    graph = ost.Graph()
    graph.task(waits)
    with ost.Machine(cpus=1) as machine, graph.compile(machine) as program:
        run = program.submit()
        began.wait(60)
        assert run.cancel()
        with pytest.raises(ost.TaskError, match="cannot tidy up"):
            run.result(60)


def test_a_cancelled_error_of_the_task_itself_is_a_failure():
    @ost.task(blocking=True)
    def raises():
        raise CancelledError("of something else")

    graph = ost.Graph()
    graph.task(raises)
    with ost.Machine(cpus=1) as machine, graph.compile(machine) as program, pytest.raises(ost.TaskError):
        program.replay()


def interrupt_twice(process):
    """Send Ctrl-C twice when the process says that it is ready; return its output from then on, and how it ended."""
    assert process.stdout.readline() == "ready\n"
    for _ in range(2):
        interrupt(process)
    return ended(process)


def interrupt(process):
    time.sleep(0.3)  # one signal that comes while the one before is not yet handled would be the same
    process.send_signal(signal.SIGINT)


FOREVER = """
began = threading.Event()
@ost.task(releases_gil=True)
def forever():
    print("ready", flush=True)
    began.set()
    try:
        while True:
            time.sleep(0.001)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
"""


@pytest.mark.parametrize("where", ["cpu:0", "cpu:1"])
def test_the_second_ctrl_c_is_raised_inside_a_task(where):
    code = f"""
    program = program_of(forever, on="{where}")
    try:
        program.replay(3)
    except KeyboardInterrupt:
        print("raised", flush=True)
    print(program_of(nothing).replay(), flush=True)
    """
    out, err, status = interrupt_twice(start(FOREVER + textwrap.dedent(code)))
    assert (out, status, err) == ("interrupted\nraised\n1\n", 0, "")


@pytest.mark.parametrize("watch", ["timeout=1000.0", "progress=True"])
def test_the_second_ctrl_c_is_raised_inside_a_task_of_a_replay_that_is_watched(watch):
    code = f"""
    try:
        program_of(forever).replay(3, {watch})
    except KeyboardInterrupt:
        print("raised", flush=True)
    """
    out, err, status = interrupt_twice(start(FOREVER + textwrap.dedent(code)))
    assert (out, status, err) == ("interrupted\nraised\n", 0, "")


def test_the_second_ctrl_c_is_raised_inside_tasks_on_all_threads_of_the_run():
    code = """
    graph, begun, told = ost.Graph(), threading.Barrier(3), []
    @ost.task(blocking=True)
    def goes_on():
        begun.wait()
        while not told: time.sleep(0.001)
        print("goes on", flush=True)
    run = machine.spawn(goes_on)
    @ost.task(releases_gil=True)
    def forever(x: ost.Write):
        begun.wait()
        print("ready", flush=True) if threading.current_thread() is threading.main_thread() else None
        while True: time.sleep(0.001)
    for place in ("cpu:0", "cpu:1"):
        graph.task(forever, [place], on=place)
    try:
        graph.compile(machine).replay()
    except KeyboardInterrupt:
        told.append(1)
    run.result(60)
    """
    out, err, status = interrupt_twice(start(textwrap.dedent(code)))
    assert (out, status, err) == ("goes on\n", 0, "")


@pytest.mark.parametrize("spawned", [False, True])
def test_ctrl_c_ends_the_wait_for_a_task_when_a_block_is_left(spawned):
    submit = "machine.spawn(forever)" if spawned else "program_of(forever).submit()"
    code = f"""
    try:
        with machine:
            {submit}.result()
    except KeyboardInterrupt:
        print("left", flush=True)
    """
    out, err, status = interrupt_twice(start(FOREVER + textwrap.dedent(code)))
    # Two threads print, perhaps within one line.
    assert ("interrupted" in out, "left" in out, status, err) == (True, True, 0, "")


@pytest.mark.parametrize("spawned", [False, True])
def test_ctrl_c_while_the_interpreter_ends_is_raised_inside_tasks(spawned):
    code = """
    atexit.register(print, "ending", flush=True)  # called before what ends the runs
    run = SUBMIT
    began.wait()
    """.replace("SUBMIT", "machine.spawn(forever)" if spawned else "program_of(forever).submit()")
    process = start(FOREVER + textwrap.dedent(code))
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "ending\n"]
    interrupt(process)  # once: a second one may come when Python has put back the action of the system
    out, err, status = ended(process)
    assert status == 0, (out, err, status)
    assert out == "interrupted\n"
    assert "terminate" not in err


def test_ctrl_c_twice_ends_the_interpreter_though_a_task_waits_for_something_else():
    code = """
    all_began = threading.Barrier(4)
    @ost.task(blocking=True)
    def stuck():
        all_began.wait()
        threading.Event().wait()
    @ost.task(releases_gil=True)
    def asleep():
        all_began.wait()
        time.sleep(10**6)
    runs = [machine.spawn(stuck), program_of(stuck).submit(), program_of(asleep).submit()]
    all_began.wait()
    atexit.register(print, "ready", flush=True)  # called before what ends the runs
    """
    process = start(code)
    out, err, status = interrupt_twice(process)
    assert status == 0, (out, err, status)
    assert out == ""
    assert "terminate" not in err
    assert "Fatal" not in err
