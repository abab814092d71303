"""What tests of given costs have in common: small graphs, and what `explain` says of their costs."""

from __future__ import annotations

import numpy as np

import ostinato as ost


@ost.task
def scale(src: ost.Read, dst: ost.Write, factor=2.0):
    np.multiply(src, factor, out=dst)


@ost.task(releases_gil=True)
def apart(x: ost.ReadWrite):
    x += 1


def two_ops():
    a, b, c = np.ones(8), np.zeros(8), np.zeros(8)
    with ost.capture() as graph:
        scale(a, b)
        scale(b, c)
    graph.fill(np.zeros(3), 1.0, name="clear")
    return graph


def many(count, task=apart):
    arrays = [np.zeros(4) for _ in range(count)]
    with ost.capture() as graph:
        for array in arrays:
            task(array)
    return graph, arrays


def lines_with(text, word):
    return [line for line in text.splitlines() if word in line]


def costs_of(text):
    """The lines of explain that say what ops cost."""
    return text.split("Costs a step", 1)[1].split("\n\n", 1)[0].splitlines()[1:-1]


def explained(graph, machine, costs, **arguments):
    with graph.compile(machine, costs=costs, **arguments) as program:
        text = program.explain()
        program.replay(2)
        return text
