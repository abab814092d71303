"""An exception keeps a rank from its part of a common call: the others raise, and none waits for ever."""

from __future__ import annotations

import re

import pytest

from support.mpi import Library, on_both, run_ranks

LEAVING = """
import os, signal, sys, threading, time
from contextlib import nullcontext
from unittest.mock import patch
import numpy as np
import ostinato as ost
from ostinato.ranks.ranks import Ranks
from ostinato.ranks.shared import SharedRuns
from ostinato.runtime.engine import Engine

case, transport = sys.argv[1:]
ranks = ost.Ranks(transport=transport)
here = ranks.rank == 1
a, b = np.zeros(2), np.zeros(2)
spread = ranks.array(4, tiles=4)
verifying = False

def tell(what):
    sys.stdout.write(f"rank {ranks.rank}: {what}\\n")
    sys.stdout.flush()

def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)

def raises(*_):
    raise OSError("only here")

def interrupt_soon(others_wait=True):
    if here:
        threading.Timer(0.3, interrupt).start()
    elif others_wait:
        time.sleep(1)

def instead(owner, name, function):
    return patch.object(owner, name, function) if here else nullcontext()

@ost.task
def work(x: ost.Write, step, value=0):
    x[:] = step
    if case in ("closing", "submitting"):
        time.sleep(1e-3)

def exchange(value=0):
    work(a, ost.step, value)
    ranks.send(a, to=1 - ranks.rank)
    ranks.recv(b, source=1 - ranks.rank)

def spreading():
    if here and verifying:
        raises()
    for tile in spread.tiles():
        work(spread[tile.inner], ost.step)

def compiled(*args):
    return ost.compile(exchange, *args, ranks=ranks)

def run():
    global verifying
    if case == "recording":
        ost.compile(raises if here else exchange, ranks=ranks)
    elif case == "waiting":  # for the other one to compile
        interrupt_soon()
        compiled()
    elif case == "opening":
        with instead(Ranks, "open_channels", interrupt):
            compiled()
    elif case == "made":  # the others have the program then
        with instead(Engine, "_find_plain", raises), compiled() as program:
            program.replay(3)
    elif case == "parameters":
        with compiled(ost.param("value")) as program:
            interrupt_soon()
            program.replay(3, value=1)
    elif case == "lacking":
        with compiled(ost.param("value")) as program:
            program.replay(3, **({} if here else {"value": 1}))
    elif case == "between":
        with compiled() as program:
            raises() if here else program.replay(3)
    elif case == "submitting":
        begin = SharedRuns.begin
        def begin_and_leave(shared, submit, steps, stops):
            def leave():
                submit()
                raise KeyboardInterrupt
            return begin(shared, leave, steps, stops)
        with compiled() as program, instead(SharedRuns, "begin", begin_and_leave):
            program.replay(10**9)
    elif case == "closing":
        program = compiled()
        submitted = program.submit(1000)
        interrupt_soon(False)
        try:
            program.close()
            tell("closed")
        finally:
            tell(submitted.result())
    elif case == "verifying":
        with ost.compile(spreading, ranks=ranks) as program:
            verifying = True
            program.verify(3)
    elif case == "mixed":
        with compiled() as one, compiled() as other:
            first, second = (other, one) if here else (one, other)
            try:
                first.replay(3)
            except ost.ContractError as error:
                tell(f"first {error}")
            second.replay(3)

begun = time.monotonic()
try:
    run()
except BaseException as error:
    tell(f"{type(error).__name__}: {error}")
assert time.monotonic() - begun < 10
if case not in ("lacking", "verifying"):
    with compiled() as program:  # and all go on
        tell(f"again {program.replay(3)}")
"""


@pytest.mark.parametrize("library", on_both)
@pytest.mark.parametrize(
    ("case", "here", "elsewhere"),
    [
        ("recording", "OSError: only here", "GraphError: rank 1: OSError: only here"),
        ("waiting", "KeyboardInterrupt: ", "GraphError: rank 1 left it: KeyboardInterrupt"),
        ("opening", "KeyboardInterrupt: ", "GraphError: rank 1: KeyboardInterrupt"),
        ("made", "OSError: only here", "ContractError: rank 1: OSError: only here"),
        ("parameters", "KeyboardInterrupt: ", "ContractError: .*rank 1 left it: KeyboardInterrupt"),
        ("lacking", r"\w+Error: .*'value'", r"ContractError: rank 1: \w+Error: .*'value'"),
        ("between", "OSError: only here", "ContractError: rank 0 runs 3 steps of .*, but rank 1 closes"),
        ("submitting", "KeyboardInterrupt: ", "CancelledError: "),
        ("closing", "KeyboardInterrupt: ", "closed"),
        ("verifying", "OSError: only here", "ContractError: rank 1: OSError: only here"),
        ("mixed", "ContractError: this program cannot run any more", "ContractError: this program cannot run any more"),
    ],
)
def test_a_rank_leaves(library: Library, case: str, here: str, elsewhere: str) -> None:
    transport = "mpi" if case in ("waiting", "made") else "shared"
    found = run_ranks(2, "-c", LEAVING, case, transport, timeout=60, library=library)
    assert found.returncode == 0, found.stdout + found.stderr
    for rank, words in enumerate((elsewhere, here)):
        assert re.search(rf"rank {rank}: {words}", found.stdout), found.stdout + found.stderr
        if case not in ("lacking", "verifying"):
            assert f"rank {rank}: again 3" in found.stdout, found.stdout
