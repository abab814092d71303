"""Programs and machines closed while others submit: every run that was taken ends, and nothing is lost or stuck."""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress

import numpy as np
import pytest

import ostinato as ost

SECONDS = float(os.environ.get("OSTINATO_STRESS_SECONDS", 6)) / 6
RUNS = ("pipelined", "serial", "concurrent")


@ost.task
def count(x: ost.ReadWrite):
    x += 1


@ost.task(blocking=True)
def linger(x: ost.ReadWrite):
    time.sleep(0.0005)
    x += 1


class Stop(Exception):
    pass


class Scene:
    """A machine with programs, threads that submit to them, and events that happen at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.machine = ost.Machine(cpus=self.random.randint(1, 3))
        self.reservation = ost.Reservation()
        self.arrays = [np.zeros(1) for _ in range(3)]
        self.programs = [self._program(x) for x in self.arrays]
        self.runs: list[list[ost.Run]] = [[] for _ in self.programs]
        self.events: list[ost.UserEvent] = []
        self.over = False
        self.wrong: list[BaseException] = []
        self.threads = [threading.Thread(target=self._submit, args=(seed + k,)) for k in range(2)]
        self.threads.append(threading.Thread(target=self._trigger, args=(seed + 9,)))
        for thread in self.threads:
            thread.start()

    def _program(self, x):
        graph, other = ost.Graph(), np.zeros(1)
        first = graph.task(count, x, after=graph.precondition("go"))
        graph.task(self.random.choice([count, linger]), other)
        held = graph.acquire(self.reservation, after=first)
        graph.postcondition("done", graph.release(self.reservation, after=graph.task(count, x, after=held)))
        return graph.compile(self.machine, runs=self.random.choice(RUNS))

    def _submit(self, seed):
        chance = random.Random(seed)
        try:
            while not self.over:
                which = chance.randrange(len(self.programs))
                event = ost.UserEvent()
                time.sleep(0.0003)  # else events come faster than they can be triggered
                try:
                    run = self.programs[which].submit(chance.randint(1, 3), after={"go": event})
                except RuntimeError:  # closed
                    continue
                self.events.append(event)
                self.runs[which].append(run)
                if chance.random() < 0.2:
                    run.cancel()
                if chance.random() < 0.2:
                    self.machine.spawn(count, self.arrays[which], after=run.posts["done"])
        except RuntimeError as error:  # the machine was closed before the spawn
            if "closed" not in str(error):
                self.wrong.append(error)
        except BaseException as error:
            self.wrong.append(error)

    def _trigger(self, seed):
        chance, begun = random.Random(seed), 0
        while not self.over or begun < len(self.events):
            for event in self.events[begun:]:
                begun += 1
                (event.poison if chance.random() < 0.1 else event.trigger)()
            time.sleep(0.0001)

    def end(self) -> int:
        """Look at what became of all runs; return how many there were."""
        self.over = True
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not self.wrong, self.wrong
        ended = 0
        for run in (run for runs in self.runs for run in runs):
            assert run.done(), run.stuck()
            assert run.event.done
            assert run.posts["done"].done
            with suppress(CancelledError, ost.PoisonError):
                assert run.result(0) in (1, 2, 3)
            ended += 1
        assert self.reservation.acquire().done  # whatever held it has given it back
        return ended


@pytest.mark.parametrize("how", ["programs", "machine", "exception", "in a race"])
def test_closing_while_others_submit(how):
    ended, seed, until = 0, 0, time.monotonic() + SECONDS
    while time.monotonic() < until or seed == 0:
        seed += 1
        scene = Scene(seed)
        time.sleep(scene.random.random() * 0.02)
        if how == "programs":
            for program in scene.programs:
                program.close()
            scene.machine.close()
        elif how == "machine":
            scene.machine.close()
        elif how == "exception":
            with pytest.raises(Stop), scene.machine:
                raise Stop
        else:
            closers = [threading.Thread(target=program.close) for program in scene.programs]
            closers.append(threading.Thread(target=scene.machine.close))
            for closer in closers:
                closer.start()
            for closer in closers:
                closer.join(60)
                assert not closer.is_alive()
        ended += scene.end()
    print(f"{how}: {ended} runs in {seed} scenes")
    assert ended
