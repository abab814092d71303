"""Events and whole processes: Ctrl-C, forks, the end of the interpreter."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import ostinato as ost


def run(code, status=0):
    prelude = "import os, signal, sys, threading, time\nimport ostinato as ost\n"
    process = subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert process.returncode == status, (process.returncode, process.stdout, process.stderr)
    assert not process.stderr
    return process.stdout.split()


def in_child(body):
    """Run `body` in a forked child; whether it returned true."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if body() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("what", ["wait", "exception"])
def test_interrupting_a_wait(what):
    event = ost.UserEvent()

    def interrupted():
        threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
        getattr(event, what)()

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    event.trigger()
    event.wait()


def test_signals_go_on_being_handled_in_a_wait():
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(threading.current_thread()))
    try:
        event = ost.UserEvent()
        threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        threading.Timer(0.2, event.trigger).start()
        event.wait(60)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [threading.main_thread()]


def refuses(call):
    try:
        call()
    except RuntimeError as error:
        return "forked" in str(error)
    return False


@pytest.mark.forks
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_was_made_before_a_fork_stays_with_the_parent():
    event, barrier, reservation = ost.UserEvent(), ost.Barrier(1), ost.Reservation()
    event.add_done_callback(lambda _: None)
    calls = [
        event.wait,
        event.exception,
        event.trigger,
        event.poison,
        lambda: event.add_done_callback(print),
        lambda: ost.merge(event),
        barrier.arrive,
        lambda: barrier.arrive(value=None, after=event),
        lambda: barrier.event(0),
        reservation.acquire,
        reservation.release,
    ]
    assert in_child(lambda: all(refuses(call) for call in calls))
    event.trigger()


@pytest.mark.forks
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_done_is_done_in_a_child_too():
    event, failed = ost.UserEvent(), ost.UserEvent()
    event.trigger()
    failed.poison(ValueError("no ink"))

    def body():
        event.wait()
        seen = []
        event.add_done_callback(seen.append)
        return seen == [event] and "no ink" in str(failed.exception())

    assert in_child(body)


@pytest.mark.forks
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_has_callbacks_of_its_own():
    before, told = ost.UserEvent(), threading.Event()
    before.add_done_callback(lambda _: told.set())

    def body():
        event, seen = ost.UserEvent(), threading.Event()
        event.add_done_callback(lambda _: seen.set())
        event.trigger()
        return seen.wait(60)

    assert in_child(body)
    before.trigger()
    assert told.wait(60)


def test_callbacks_that_are_due_run_before_the_end():
    out = run("""
        events = [ost.UserEvent() for _ in range(100)]
        slow = ost.UserEvent()
        slow.add_done_callback(lambda _: time.sleep(0.2))
        for event in events:
            event.add_done_callback(lambda _: print("told", flush=True))
        for event in [slow, *events]:
            event.trigger()
    """)
    assert out == ["told"] * 100


def test_ending_with_events_that_never_happen():
    out = run("""
        events = [ost.UserEvent() for _ in range(100)]
        for event in events:
            event.add_done_callback(lambda _: print("told"))
        threading.Thread(target=events[0].wait, daemon=True).start()
        barrier, reservation = ost.Barrier(2, "+"), ost.Reservation()
        barrier.arrive(value=1, after=events[1])
        barrier.event(0).add_done_callback(print)
        reservation.acquire(), reservation.acquire().add_done_callback(print)
        print("end")
    """)
    assert out == ["end"]


def test_events_that_happen_while_the_interpreter_ends():
    out = run("""
        import atexit
        event, late = ost.UserEvent(), ost.UserEvent()
        def at_exit():
            event.trigger()
        atexit.register(at_exit)  # before the end of our threads
        event.add_done_callback(lambda _: print("told"))
        class Last:
            def __del__(self):
                late.trigger()
                try:
                    ost.UserEvent().add_done_callback(print)
                except RuntimeError as error:
                    print("refused" if "ending" in str(error) else error)
        late.add_done_callback(lambda _: print("never"))
        sys.last = Last()
    """)
    assert out in (["told", "refused"], ["told"])


def test_a_callback_that_exits_ends_nothing():
    code = """
        event, told = ost.UserEvent(), threading.Event()
        event.add_done_callback(lambda _: sys.exit(3))
        event.add_done_callback(lambda _: told.set())
        sys.unraisablehook = lambda raised: print(raised.exc_type.__name__)
        event.trigger()
        assert told.wait(60)
    """
    assert run(code) == ["SystemExit"]


def test_ending_while_callbacks_come_from_many_threads():
    out = run("""
        def work():
            while True:
                event = ost.UserEvent()
                try:
                    event.add_done_callback(lambda _: None)
                except RuntimeError:
                    return
                event.trigger()
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.1)
        print("end")
    """)
    assert out == ["end"]
