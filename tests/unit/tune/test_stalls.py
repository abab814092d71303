"""A process that is stopped with what it measures, as by a frozen machine, does not take its candidates for hung."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import ostinato as ost
from ostinato.tune.workers.loop import MOST_STALLS, Loop
from ostinato.tune.workers.reaper import Reaper, Started
from tune.reaping import ENVIRONMENT, end, wait_for

QUICK = ost.Policy(min_samples=1, max_seconds=0.05)
SLEEPING = ost.Candidate.call("tune.candidates:sleeping", {"seconds": 0.5})
COMMAND = ost.Candidate.command(["sh", "-c", "sleep 0.5; echo OP:op,TIME:1,WS:0"])


class Jumping:
    """A clock that goes on by 100 s while a candidate runs, as if this process had been stopped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, always: bool) -> None:
        self._ahead = 0.0
        self._always = always
        self.over = threading.Event()
        monkeypatch.setattr(Loop, "now", lambda loop: time.monotonic() + self._ahead)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self.over.wait(0.3):
            self._ahead += 100.0
            if not self._always:
                return

    def close(self) -> None:
        self.over.set()
        self._thread.join()


@pytest.mark.parametrize("candidate", [SLEEPING, COMMAND], ids=["call", "command"])
def test_a_stall_is_no_hang(monkeypatch: pytest.MonkeyPatch, candidate: ost.Candidate) -> None:
    with ost.Tuner("sim:stall", store=False, timeout=5.0, progress=False, policy=QUICK) as tuner:
        tuner.tune("op", [ost.Candidate.call("tune.candidates:sleeping", {"seconds": 0.001})])  # starts the worker
        clock = Jumping(monkeypatch, always=False)
        try:
            result = tuner.tune("op", [candidate]).results[0]
        finally:
            clock.close()
    assert str(result.status) == "ok", result.message


def test_what_hangs_ends_on_a_machine_that_always_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    with ost.Tuner("sim:stall", store=False, timeout=1.0, progress=False, policy=QUICK) as tuner:
        tuner.tune("op", [ost.Candidate.call("tune.candidates:sleeping", {"seconds": 0.001})])
        clock = Jumping(monkeypatch, always=True)
        try:
            result = tuner.tune("op", [ost.Candidate.call("tune.candidates:sleeping", {"seconds": 60.0})]).results[0]
        finally:
            clock.close()
    assert str(result.status) == "hang_killed"
    assert MOST_STALLS == 3


def test_a_reaper_that_was_stopped_grants_the_time_again() -> None:
    """The command stops itself, and both are stopped for longer than the limit; the reaper runs on first."""
    with Reaper() as reaper:
        reaper.spawn(["sh", "-c", "kill -STOP $$; exit 3"], env=ENVIRONMENT, seconds=1.0)
        (started,) = wait_for(reaper, Started)
        assert isinstance(started, Started)
        os.kill(reaper.pid, signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(reaper.pid, signal.SIGCONT)
        time.sleep(0.3)
        os.kill(started.pid, signal.SIGCONT)
        ended = end(reaper)
    assert (ended.status, ended.cause) == (3, "exit")
