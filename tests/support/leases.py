"""Other processes that take leases, driven line by line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ostinato.tune.leases.device import Device
from ostinato.tune.leases.lease import Lease

SCRIPT = """
import json, os, random, sys
from leases import lease_of

leases = {}

def attempt(identities):
    lease = lease_of(identities)
    holder = lease.try_acquire()
    if holder is None:
        leases[tuple(identities)] = lease
    return holder and [holder.identity, holder.pid]

def release(identities):
    leases.pop(tuple(identities)).release()

def release_all():
    while leases:
        leases.popitem()[1].release()

def files():
    return [file for lease in leases.values() for file in lease.files]

def fork():
    child = os.fork()
    if child == 0:
        os.close(1)
        os.read(0, 1)  # until the parent and its standard input are gone
        os._exit(0)
    return child

def duplicate():
    # What a supervisor of the lease's commands does: it holds the files, too, and lives longer.
    import subprocess
    child = subprocess.Popen(["sleep", "600"], pass_fds=files(), stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return child.pid

def contend(witness, seed, rounds):
    from leases import contend
    return contend(witness, seed, rounds)

for line in sys.stdin:
    name, *arguments = json.loads(line)
    print(json.dumps(globals()[name](*arguments)), flush=True)
"""


def lease_of(identities: list[str] | tuple[str, ...]) -> Lease:
    return Lease(Device(name=" and ".join(identities), kind="cpu", identities=tuple(identities), model=""))


class Other:
    """Another process; its leases are its own."""

    def __init__(self) -> None:
        environment = dict(os.environ)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.pid = self.process.pid

    def begin(self, name: str, *arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self.process.stdin.flush()

    def end(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __call__(self, name: str, *arguments: Any) -> Any:
        self.begin(name, *arguments)
        return self.end()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.close()

    def close(self) -> None:
        for file in (self.process.stdin, self.process.stdout):
            assert file is not None
            file.close()
        self.process.wait()

    def __enter__(self) -> Other:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def contend(witness: str, seed: int, rounds: int) -> list[str]:
    """Take random sets of cores again and again; return which of them somebody else was in as well.

    The witness is a directory for each core: only one can make it.
    """
    import random

    rng = random.Random(seed)
    broken = []
    for _ in range(rounds):
        cores = [f"core-{core}" for core in rng.sample(range(5), rng.randint(1, 4))]
        lease = lease_of(cores)
        if rng.random() < 0.3:
            lease.acquire(timeout=60)
        else:
            while lease.try_acquire() is not None:
                os.sched_yield()
        made = []
        for core in cores:
            try:
                os.mkdir(os.path.join(witness, core))
            except FileExistsError:
                broken.append(core)
            else:
                made.append(core)
        os.sched_yield()
        for core in made:
            os.rmdir(os.path.join(witness, core))
        lease.release()
    return broken


def in_child(function: Callable[[], Any], user: int | None = None) -> Any:
    """Return what a function returns in a forked child, as `user` if this is root; an exception as type and text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            if user is not None and os.getuid() == 0:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            answer = [function()]
        except BaseException as error:
            answer = [type(error).__name__, str(error)]
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        answer = json.loads(file.read())
    os.waitpid(child, 0)
    return answer[0] if len(answer) == 1 else tuple(answer)
