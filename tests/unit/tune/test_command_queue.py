"""Commands in the background: devices that get lost, devices that are short, mistakes."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from ostinato import Status
from ostinato.errors import DeviceError, TuningError
from ostinato.tune.leases.device import Device
from ostinato.tune.leases.lease import Lease
from ostinato.tune.legacy import command_queue
from ostinato.tune.legacy.command_queue import CommandQueue, Job
from ostinato.tune.legacy.profile import Profile
from ostinato.tune.workers.reaper import Exited, Reaper, Stuck
from profilers import descriptors, line, pid_in, runs, says, sh, until

pytestmark = pytest.mark.usefixtures("nothing_stays")


def device(name: str) -> Device:
    return Device(name=name, kind="cuda", identities=(name,), model="unknown", environment={"WHERE": name})


def job(words: list[str], seconds: float = 30) -> Job:
    return Job(words, Profile(), env=dict(os.environ), cwd=None, seconds=seconds)


def until_free(free: Device) -> None:
    lease = Lease(free)
    until(lambda: lease.try_acquire() is None, f"{free.name} is free")
    lease.release()


def run(queue: CommandQueue, *jobs: Job) -> list[Status]:
    for pushed in jobs:
        queue.push(pushed)
    for pushed in jobs:
        assert pushed.wait(60) is not None
    return [pushed.outcome.status for pushed in jobs]


class Stubborn(Reaper):
    """A reaper of which the first command of all stays after it was killed, until the file `gone` is there."""

    left = 1
    gone: Path

    def read(self):
        events = super().read()
        for index, event in enumerate(events):
            if isinstance(event, Exited) and Stubborn.left:
                Stubborn.left -= 1
                events[index] = Stuck((4711,))
                self.spawn(sh('while [ ! -e "$1" ]; do sleep 0.01; done', Stubborn.gone), env=os.environ)
        return events


@pytest.fixture
def gone(monkeypatch, tmp_path):
    monkeypatch.setattr(command_queue, "Reaper", Stubborn)
    monkeypatch.setattr(Stubborn, "left", 1)
    monkeypatch.setattr(Stubborn, "gone", tmp_path / "gone", raising=False)
    return tmp_path / "gone"


def test_a_device_on_which_a_process_is_stuck_is_left_out_until_it_is_gone(gone):
    queue = CommandQueue([device("a")])
    first, second = job(says("first")), job(says("second"))
    assert run(queue, first, second) == [Status.DEVICE_LOST, Status.DEVICE_LOST]
    assert "4711" in first.outcome.message
    assert "no device is left" in second.outcome.message
    assert run(queue, job(says("third"))) == [Status.DEVICE_LOST]
    assert Lease(device("a")).try_acquire() is not None  # nobody else may have it either
    gone.touch()
    until_free(device("a"))
    assert run(queue, job(says("fourth"))) == [Status.OK]


def test_others_take_over_from_a_lost_device(gone):
    queue = CommandQueue([device("a"), device("b"), device("c")])
    assert run(queue, *(job(says("op")) for _ in range(10))).count(Status.DEVICE_LOST) == 1
    gone.touch()
    for name in "abc":
        until_free(device(name))


def test_a_reaper_that_is_killed_is_replaced(tmp_path):
    queue = CommandQueue([device("a")])
    killed = job(sh('echo $$ > "$1"; kill -KILL $PPID; exec sleep 600', tmp_path / "pid"))
    assert run(queue, killed, job(says("next"))) == [Status.DEVICE_LOST, Status.OK]
    assert "SIGKILL" in killed.outcome.message
    until(lambda: not runs(pid_in(tmp_path / "pid")), "the command is gone with its reaper")


def test_a_device_that_cannot_be_leased_is_told_and_tried_again_later(monkeypatch, tmp_path):
    def refused(self):
        raise DeviceError("a cannot be leased: no such directory")

    queue = CommandQueue([device("a")])
    with monkeypatch.context() as patch:
        patch.setattr(Lease, "try_acquire", refused)
        failed = job(says("op"))
        assert run(queue, failed) == [Status.DEVICE_LOST]
    assert "no such directory" in failed.outcome.message
    assert run(queue, job(says("op"))) == [Status.OK]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_reaper_for_which_resources_are_short_is_made_later(monkeypatch, wrapped):
    left = [3]

    class Short(Reaper):
        def __init__(self, **options):
            left[0] -= 1
            if left[0] >= 0:
                try:
                    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
                except OSError as error:
                    if wrapped:
                        raise TuningError("the reaper's program does not start") from error
                    raise
            super().__init__(**options)

    monkeypatch.setattr(command_queue, "Reaper", Short)
    monkeypatch.setattr(command_queue, "PAUSES", (0.01,) * 3)
    queue = CommandQueue([device("a")])
    assert run(queue, job(says("op"))) == [Status.OK]
    left[0] = 4
    assert run(queue, job(says("op"))) == [Status.DEVICE_LOST]
    until_free(device("a"))


def test_a_missing_reaper_fails_every_job_with_the_reason(monkeypatch):
    def missing(**options):
        raise TuningError("bin/ostinato-reaper is not installed")

    monkeypatch.setattr(command_queue, "Reaper", missing)
    jobs = [job(says("op")) for _ in range(3)]
    assert run(CommandQueue([device("a"), device("b")]), *jobs) == [Status.DEVICE_LOST] * 3
    assert all("not installed" in entry.outcome.message for entry in jobs)


def test_a_mistake_of_the_thread_makes_nobody_wait(monkeypatch, tmp_path):
    errors = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    files = descriptors()
    queue = CommandQueue([device("a"), device("b")])
    running = job(sh('echo $$ > "$1"; sleep 600; sleep 600', tmp_path / "pid"))
    queue.push(running)
    thread = queue._thread
    pid = pid_in(tmp_path / "pid")
    with monkeypatch.context() as patch:
        patch.setattr(command_queue, "CommandRun", lambda *arguments, **options: 1 / 0)
        assert run(queue, job(says("op")), job(says("op"))) == [Status.DEVICE_LOST] * 2
        assert running.wait(60).status is Status.DEVICE_LOST
        assert "ZeroDivisionError" in running.outcome.message
        thread.join(60)
    assert [error.exc_type for error in errors] == [ZeroDivisionError]
    assert descriptors() == files, "whoever keeps the error keeps no descriptor"
    until(lambda: not runs(pid), "what ran is killed")
    assert run(queue, job(says("op"))) == [Status.OK]


def test_the_reaper_holds_the_lease_too(monkeypatch):
    given = []

    class Noting(Reaper):
        def __init__(self, *, leases, **options):
            given.append([os.readlink(f"/proc/self/fd/{file}") for file in leases])
            super().__init__(leases=leases, **options)

    monkeypatch.setattr(command_queue, "Reaper", Noting)
    assert run(CommandQueue([device("a")]), job(says("op"))) == [Status.OK]
    ((file,),) = given
    assert file.endswith("/a.lock")


def test_a_cancellation_at_the_end_is_none_of_the_next_jobs():
    queue = CommandQueue([device("a")])
    for _ in range(50):
        ended = job(["/bin/true"])
        queue.push(ended)
        ended.wait(60)
        queue.cancel()  # while the thread ends
        while queue._thread is not None:
            pass
        assert run(queue, job(["/bin/echo", line("op")])) == [Status.OK]


def test_cancelling(tmp_path):
    queue = CommandQueue([device("a")])
    queue.cancel()  # nothing
    done, running, waiting = (
        job(says("done")),
        job(sh('echo $$ > "$1"; sleep 600; sleep 600', tmp_path / "pid")),
        job(says("op")),
    )
    for pushed in (done, running, waiting):
        queue.push(pushed)
    pid = pid_in(tmp_path / "pid")
    queue.cancel()
    assert [pushed.wait(60).status for pushed in (done, running, waiting)] == ["ok", "cancelled", "cancelled"]
    assert not runs(pid)
    assert run(queue, job(says("op"))) == [Status.OK]


def test_each_job_sees_its_device():
    queue = CommandQueue([device("a"), device("b")])
    jobs = [job(sh('echo "OP:$WHERE,TIME:1,WS:0"')) for _ in range(4)]
    run(queue, *jobs)
    assert {entry.outcome.ops[0].op for entry in jobs} <= {"a", "b"}


def test_devices_are_given_back_as_soon_as_there_is_nothing_to_do(tmp_path: Path):
    queue = CommandQueue([device("a"), device("b")])
    waits = 'echo $$ > "$1"; while [ ! -e "$2" ]; do sleep 0.01; done; echo "$3"'
    slow = job(sh(waits, tmp_path / "pid", tmp_path / "go", line("op")))
    queue.push(slow)
    pid_in(tmp_path / "pid")
    run(queue, job(says("op")))
    until_free(device("b"))
    assert Lease(device("a")).try_acquire() is not None
    (tmp_path / "go").touch()
    assert slow.wait(60).status is Status.OK
