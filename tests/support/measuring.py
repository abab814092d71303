"""What tests of measured costs have in common: modules of tasks, graphs of them, and reading what was found."""

from __future__ import annotations

import numpy as np

import ostinato as ost

# What every module of tasks begins with. `note` says which process ran what; the slow ones are slower by far.
PRELUDE = """
import ctypes, os, signal, time
import numpy as np
import ostinato as ost

def note(what):
    with open(LOG, "a") as file:
        file.write(f"{what} {os.getpid()}\\n")

def slow(seconds=0.002):
    time.sleep(seconds)

@ost.task
def relax(src: ost.Read, dst: ost.Write):
    slow()
    dst[...] = src * 2
"""

RIGHT = """
@relax.variant()
def quick(src: ost.Read, dst: ost.Write):
    np.multiply(src, 2, out=dst)
"""


IN_BETWEEN = """
@relax.variant()
def slower(src: ost.Read, dst: ost.Write):
    slow(0.02)
    np.multiply(src, 2, out=dst)
"""


WATCHED = """
@relax.variant()
def quick(src: ost.Read, dst: ost.Write):
    note("quick")
    np.multiply(src, 2, out=dst)
"""


SCALED = """
@ost.task
def scale(src: ost.Read, dst: ost.Write, factor):
    slow()
    dst[...] = src * factor

@scale.variant()
def fixed(src: ost.Read, dst: ost.Write, factor):
    np.multiply(src, 2, out=dst)
"""


USER = """
import importlib, sys
import numpy as np
import ostinato as ost

module = importlib.import_module(sys.argv[1])
store = sys.argv[2]
a, b = np.ones(8), np.zeros(8)
with ost.capture() as graph:
    module.relax(a, b)
with ost.Machine(cpus=1, gpus=0) as machine:
    if "compile" not in sys.argv:
        report = graph.tune(machine, store=store, progress=False)["relax"]
        for r in report.results:
            print(r.candidate.config["variant"], r.status, r.cached, r.miss)
        print("best", report.best.candidate.config["variant"])
    with graph.compile(machine, costs=store) as program:
        print(*program.explain().splitlines(), sep="\\n")
        program.replay()
    assert b.tolist() == [2.0] * 8, b
"""


def wrong(body):
    return f"""
@relax.variant()
def broken(src: ost.Read, dst: ost.Write):
    {body}
"""


def graph_of(task, shape=(8,), dtype=np.float64, times=1):
    """Return a graph of calls of a task on arrays of its own, and the last pair of arrays."""
    with ost.capture() as graph:
        for _ in range(times):
            src, dst = np.ones(shape, dtype), np.full(shape, 7, dtype)
            task(src, dst)
    return graph, src, dst


def tune(graph, machine=None, **arguments):
    return graph.tune(machine, **({"progress": False} | arguments))


def variant(result):
    return result.candidate.config["variant"]


def by_variant(report):
    return {variant(result): result for result in report.results}


def the_only(reports):
    assert len(reports) == 1
    return next(iter(reports.values()))


def output(process):
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return out.splitlines()
