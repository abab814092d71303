"""A soak: random worlds against a sequential oracle, for `OSTINATO_STRESS_SECONDS`, or up to `OSTINATO_STRESS_OPS`.

Each round has a seed, which is printed when it fails, with what repeats it. A million operations::

    OSTINATO_STRESS_OPS=1000000 python -m pytest tests/stress/test_soak.py -o faulthandler_timeout=3600

and with ThreadSanitizer::

    OSTINATO_STRESS_OPS=1000000 make tsan SANITIZED_TESTS="tests/stress/test_soak.py -o faulthandler_timeout=7200"
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from random import Random

import pytest

import ostinato as ost
from stress.soak import World

SECONDS = float(os.environ.get("OSTINATO_STRESS_SECONDS", "4.5"))
OPS = int(os.environ.get("OSTINATO_STRESS_OPS", "0"))
FIRST_SEED = int(os.environ.get("OSTINATO_STRESS_SEED", "0"))
ROUNDS = int(os.environ.get("OSTINATO_STRESS_ROUNDS", "0"))
HOW = ("exact", "stop", "mayhem")


@pytest.fixture(scope="module")
def machines():
    found = [ost.Machine(cpus=cpus) for cpus in (1, 2, 3, 4)]
    yield found
    for machine in found:
        machine.close()


@pytest.mark.parametrize("how", HOW)
def test_soak(machines, how, capsys):
    """The world of each seed comes to what the oracle says."""
    end, seed, ops = time.monotonic() + SECONDS / len(HOW), FIRST_SEED, 0
    while goes_on(seed - FIRST_SEED, ops, end):
        random = Random(f"{how} {seed}")
        try:
            ops += one_round(random, random.choice(machines), how)
        except BaseException as error:
            traceback.print_exception(error, file=sys.__stderr__)  # at once: what hangs may hang the end, too
            repeat = f"OSTINATO_STRESS_SEED={seed} OSTINATO_STRESS_ROUNDS=1"
            print(f"{repeat} python -m pytest tests/stress/test_soak.py -k {how}", file=sys.__stderr__)
            raise
        seed += 1
    with capsys.disabled():
        print(f"\n{how}: {ops} operations in {seed - FIRST_SEED} rounds")
    assert ops > 0


def goes_on(rounds, ops, end):
    if ROUNDS:
        return rounds < ROUNDS
    if OPS:
        return ops < OPS / len(HOW)
    return time.monotonic() < end


def one_round(random, machine, how):
    """Make a world, play in it, and return how many operations were done."""
    if random.random() < 0.1:
        with ost.Machine(cpus=random.randint(1, 4)) as own:
            return played(World(random, own, how))
    return played(World(random, machine, how))


def played(world):
    for _ in range(world.random.choice([1, 1, 3])):
        if not world.over:
            try:
                world.play()
            except BaseException:
                world.abandon()
                raise
    world.close()
    return world.ops
