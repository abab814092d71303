"""Failure: exact poison, errors that say what and where, stopping, and what stays usable."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import ostinato as ost


@ost.task
def count(x: ost.ReadWrite):
    x += 1


def fails_at(*steps):
    @ost.task
    def fragile(x: ost.ReadWrite, number):
        if number in steps:
            raise ValueError(f"no step {number}")
        x += 1

    return fragile


def test_a_failure_names_op_step_and_place(machine):
    x = np.zeros(1)
    with ost.capture() as graph:
        op = fails_at(2)(x, ost.step)
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError, match=r"'fragile' raised ValueError: no step 2.*test_failure.py") as caught:
            program.replay(10)
        assert caught.value.op is op
        assert caught.value.step == 2
        assert isinstance(caught.value.__cause__, ValueError)
        assert x[0] == 2


def test_a_native_failure_gives_its_code(machine):
    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
    def seven(_):
        return 7

    with ost.capture() as graph:
        ost.native(seven, (), name="seven")()
    with graph.compile(machine) as program, pytest.raises(ost.TaskError, match="'seven' returned 7, in step 0"):
        program.replay(3)


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_stop_lets_the_rest_of_the_begun_steps_run(machine, lanes):
    x, y = np.zeros(1), np.zeros(1)
    fragile = fails_at(5)
    with ost.capture() as graph:
        fragile(x, ost.step)
        count(y)
    with graph.compile(machine, lanes=lanes, costs={fragile: 1e-5, count: 1e-5}) as program:
        with pytest.raises(ost.TaskError):
            program.replay(1000)
        assert x[0] == 5
        assert 6 <= y[0] < 1000


def test_continue_runs_everything_that_is_not_downstream(machine):
    x, y, z = np.zeros(1), np.zeros(1), np.zeros(1)
    fragile = fails_at(3)

    @ost.task
    def follow(x: ost.Read, y: ost.Write):
        y[:] = x

    with ost.capture() as graph:
        fragile(x, ost.step)
        follow(x, y)
        count(z)
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError):
            program.replay(10, on_error="continue")
        assert (x[0], y[0], z[0]) == (3, 3, 10)


def test_a_run_ends_when_everything_is_poisoned(machine):
    x, y = np.zeros(1), np.zeros(1)

    @ost.task
    def follow(x: ost.Read, y: ost.Write):
        y[:] = x

    with ost.capture() as graph:
        fails_at(3)(x, ost.step)
        follow(x, y)
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError):
            program.replay(10**15, on_error="continue")
        assert (x[0], y[0]) == (3, 3)
        assert program.replay(2) == 2


def test_the_first_of_several_failures_is_raised_and_the_others_are_notes(machine):
    x, y = np.zeros(1), np.zeros(1)
    with ost.capture() as graph:
        late = fails_at(4)(x, ost.step)
        early = fails_at(2)(y, ost.step)
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError) as caught:
            program.replay(10, on_error="continue")
        assert caught.value.op is early
        assert caught.value.step == 2
        assert any("no step 4" in note for note in caught.value.__notes__)
        assert late is not early


def test_runs_submitted_before_the_failure_was_told_are_poisoned_and_later_ones_are_clean(machine):
    x = np.zeros(1)
    with ost.capture() as graph:
        fails_at(1)(x, ost.step)
    with graph.compile(machine) as program:
        first, second, third = program.submit(3), program.submit(2), program.submit(1)
        while not third.done():  # which tells nobody anything
            time.sleep(0.001)
        fourth = program.submit(1)
        with pytest.raises(ost.PoisonError) as caught:
            fourth.result(60)  # tells of the failure that is its cause, too
        assert isinstance(caught.value.__cause__, ost.TaskError)
        assert program.submit(1).result(60) == 1
        assert x[0] == 2
        with pytest.raises(ost.PoisonError):
            second.result(60)
        with pytest.raises(ost.TaskError):
            first.result(60)
        assert program.replay(4) == 4
        assert x[0] == 6


def test_a_clean_run_does_not_wait_for_idleness(machine):
    x, gate = np.zeros(1), threading.Event()

    @ost.task
    def wait_for_gate(x: ost.ReadWrite, number):
        if number == 1:
            gate.wait(60)
        if number == 0:
            raise ValueError
        x += 1

    with ost.capture() as graph:
        wait_for_gate(x, ost.step)
    with graph.compile(machine) as program:
        with pytest.raises(ost.TaskError):
            program.replay()
        blocked = program.submit(1)
        queued = program.submit(1)
        gate.set()
        assert blocked.result(60) == queued.result(60) == 1
        assert x[0] == 2


def test_cancel_ends_at_a_step_boundary(machine):
    x, y = np.zeros(1), np.zeros(1)
    with ost.capture() as graph:
        count(x)
        count(y)
    with graph.compile(machine) as program:
        run = program.submit(10**9)
        while run.steps_done < 100:
            time.sleep(0.001)
        assert run.running()
        assert run.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            run.result(60)
        assert run.cancelled()
        assert run.done()
        assert not run.cancel()
        assert x[0] == y[0] == run.steps_done
        assert program.replay(3) == 3


def test_cancelling_a_run_that_has_not_begun_runs_nothing_of_it(machine):
    x, gate = np.zeros(1), threading.Event()

    @ost.task
    def wait_for_gate(x: ost.ReadWrite):
        gate.wait(60)
        x += 1

    with ost.capture() as graph:
        wait_for_gate(x)
    with graph.compile(machine) as program:
        first, second, third = program.submit(1), program.submit(5), program.submit(1)
        assert second.cancel()
        gate.set()
        assert first.result(60) == third.result(60) == 1
        assert second.steps_done == 0
        assert x[0] == 2


def test_a_slow_step_is_cut_at_an_operation_boundary_when_cancelled(machine):
    done = []

    @ost.task
    def slow(log: ost.ReadWrite, step):
        if step == 0:
            time.sleep(0.02)
        log.append(step)

    with ost.capture() as graph:
        for _ in range(100):
            slow(done, ost.step)
    with graph.compile(machine) as program:
        run = program.submit(1)
        while not done:
            time.sleep(0.001)
        run.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            run.result(60)
        assert len(done) < 50
        assert run.steps_done == 0
        done.clear()
        program.replay()
        assert done == [1] * 100  # the number of the step that was cut is not given again


def test_result_times_out(machine):
    x, gate = np.zeros(1), threading.Event()

    @ost.task
    def wait_for_gate(x: ost.ReadWrite):
        gate.wait(60)

    with ost.capture() as graph:
        wait_for_gate(x)
    with graph.compile(machine) as program:
        run = program.submit()
        with pytest.raises(TimeoutError):
            run.result(0.01)
        assert "running" in run.stuck() or "ready" in run.stuck()
        gate.set()
        assert run.result(60) == 1


def test_callbacks_run_once_off_the_lanes(machine):
    x, told = np.zeros(1), concurrent.futures.Future()
    with ost.capture() as graph:
        count(x)
    with graph.compile(machine) as program:
        run = program.submit(2)
        run.add_done_callback(lambda run: told.set_result((run, threading.get_ident())))
        found, _ = told.result(60)
        assert found is run
        again = []
        run.add_done_callback(again.append)
        assert again == [run]


def test_runs_can_be_awaited(machine):
    x = np.zeros(1)
    with ost.capture() as graph:
        count(x)

    async def main(program):
        return await asyncio.gather(*(program.submit(3) for _ in range(5)))

    with graph.compile(machine) as program:
        assert asyncio.run(main(program)) == [3] * 5
    assert x[0] == 15


def test_an_exception_in_the_block_cancels_runs_in_flight(machine):
    x = np.zeros(1)
    with ost.capture() as graph:
        count(x)
    runs = []

    def leave():
        with graph.compile(machine) as program:
            runs.append(program.submit(10**9))
            raise KeyError

    with pytest.raises(KeyError):
        leave()
    assert runs[0].cancelled()


def test_system_exit_in_a_task_is_raised_as_itself(machine):
    @ost.task
    def leave():
        raise SystemExit(3)

    with ost.capture() as graph:
        leave()
    with graph.compile(machine) as program, pytest.raises(SystemExit):
        program.replay(5)


def script(text, **environment):
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def test_ctrl_c_stops_a_replay_at_a_whole_step():
    done = script(
        """
        import os, signal, threading, time, numpy as np, ostinato as ost
        x, y = np.zeros(1), np.zeros(1)
        @ost.task
        def count(x: ost.ReadWrite):
            x += 1
        with ost.capture() as graph:
            count(x); count(y)
        program = graph.compile(ost.Machine(cpus=2))
        def interrupt():
            while not (x[0] and y[0]):
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            program.replay(10**12)
        except KeyboardInterrupt:
            assert x[0] == y[0] > 0, (x, y)
            print(program.replay(2), "and on")
        """
    )
    assert done.stdout == "2 and on\n", done.stderr


@pytest.mark.parametrize("state", ["in flight", "idle", "queued"])
def test_the_interpreter_ends_with_runs(state):
    done = script(
        f"""
        import numpy as np, ostinato as ost
        x = np.zeros(1)
        @ost.task
        def count(x: ost.ReadWrite):
            x += 1
        with ost.capture() as graph:
            count(x)
        program = graph.compile()
        if {state!r} != "idle":
            run = program.submit(10**12)
        if {state!r} == "queued":
            runs = [program.submit(10) for _ in range(100)]
        print("end")
        """
    )
    assert (done.stdout, done.returncode, done.stderr) == ("end\n", 0, "")


@pytest.mark.forks
def test_handles_raise_in_a_forked_child():
    done = script(
        """
        import os, numpy as np, ostinato as ost
        x = np.zeros(1)
        @ost.task
        def count(x: ost.ReadWrite):
            x += 1
        with ost.capture() as graph:
            count(x)
        machine = ost.Machine(cpus=2)
        program = graph.compile(machine)
        program.replay(3)
        pid = os.fork()
        if pid == 0:
            for call in (program.replay, program.submit, lambda: graph.compile(machine)):
                try:
                    call()
                except RuntimeError as error:
                    assert "forked" in str(error), error
                else:
                    os._exit(1)
            with graph.compile() as other:
                other.replay(2)
            program.close()
            machine.close()
            raise SystemExit(0)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), program.replay(2))
        """
    )
    assert done.stdout == "0 2\n", done.stderr


def test_a_program_forgotten_with_a_run_in_flight_finishes_it(machine):
    x = np.zeros(1)
    with ost.capture() as graph:
        count(x)
    run = graph.compile(machine).submit(1000)
    assert run.result(60) == 1000
    assert x[0] == 1000


def test_signal_handlers_of_the_user_run_during_a_replay():
    x = np.zeros(1)
    heard = []

    @ost.task
    def listen(x: ost.ReadWrite, flag: ost.Write):
        x += 1
        flag[0] = bool(heard)

    flag = np.zeros(1, bool)
    with ost.capture() as graph:
        listen(x, flag)
        ost.until(flag)
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    try:
        with ost.Machine(cpus=1) as machine, graph.compile(machine) as program:
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
            program.replay(10**12)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [1]


@pytest.mark.parametrize("on_error", ["stop", "continue"])
@pytest.mark.parametrize("conditional", [False, True])
def test_a_later_run_ends_when_everything_is_poisoned(machine, on_error, conditional):
    x, start, given = np.zeros(1), ost.UserEvent(), ost.UserEvent()
    graph = ost.Graph()
    graph.task(fails_at(3), x, ost.step, after=graph.precondition("given") if conditional else ())
    after = {"given": given} if conditional else {}
    given.trigger()
    with graph.compile(machine) as program:
        first = program.submit(10, after={**after, None: start}, on_error=on_error)
        second = program.submit(10**12, after=after, on_error=on_error)
        third = program.submit(10**12, after=after, on_error=on_error)
        start.trigger()
        for run in (second, third):
            with pytest.raises(ost.PoisonError):
                run.result(60)
        assert isinstance(first.exception(), ost.TaskError)
    assert x[0] == 3


def test_runs_after_one_whose_start_is_poisoned_end(machine):
    x, start = np.zeros(1), ost.UserEvent()
    with ost.capture() as graph:
        count(x)
    with graph.compile(machine) as program:
        runs = [program.submit(after=start), program.submit(10**12)]
        start.poison()
        for run in runs[::-1]:
            with pytest.raises(ost.PoisonError):
                run.result(60)
    assert x[0] == 0


def test_what_is_not_poisoned_of_a_later_run_runs_to_the_end(machine):
    x, y, start = np.zeros(1), np.zeros(1), ost.UserEvent()
    with ost.capture() as graph:
        fails_at(0)(x, ost.step)
        count(y)
    with graph.compile(machine) as program:
        first = program.submit(after=start)
        second = program.submit(100)
        start.trigger()
        with pytest.raises(ost.PoisonError):
            second.result(60)
        assert isinstance(first.exception(), ost.TaskError)
    assert y[0] == 101


def test_asking_whether_a_run_was_cancelled_delivers_no_failure(machine):
    x = np.zeros(1)
    with ost.capture() as graph:
        fails_at(0)(x, ost.step)
    with graph.compile(machine) as program:
        failed = program.submit()
        while not failed.done():
            time.sleep(0.001)
        assert not failed.cancelled()
        with pytest.raises(ost.PoisonError):
            program.submit().result(60)
