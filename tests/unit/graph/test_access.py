"""Access markers as annotations, also where annotations are text."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ostinato as ost
from ostinato.graph.access import Read, Write
from ostinato.graph.arrays import READ, READ_WRITE, WRITE

if TYPE_CHECKING:
    import ostinato.graph as only_for_checkers


def modes(function):
    return ost.task(function).modes


def test_text_annotations_resolve_in_module_and_in_local_scope():
    import ostinato.graph as local

    def by_module(a: ost.Read, b: Write, c: ost.ReadWrite, d, e: float): ...
    def by_local_name(a: local.Read, b: local.Write): ...
    def quoted_twice(a: "ost.Read"): ...  # noqa: UP037

    assert modes(by_module) == (READ, WRITE, READ_WRITE, 0, 0)
    assert modes(by_local_name) == (READ, WRITE)
    assert modes(quoted_twice) == (READ,)


def test_unresolvable_annotations_count_by_their_last_word():
    def f(a: only_for_checkers.Write, b: Missing, c: only_for_checkers.Other): ...  # noqa: F821

    assert modes(f) == (WRITE, 0, 0)


def test_options_keep_the_scope():
    from ostinato.graph.access import ReadWrite as Both

    @ost.task(name="other")
    def f(a: Both): ...

    assert f.modes == (READ_WRITE,)
    assert f.name == "other"


@pytest.mark.parametrize("marker", [ost.Read, ost.Write, ost.ReadWrite])
def test_markers_are_singletons(marker):
    assert pickle.loads(pickle.dumps(marker)) is marker
    assert copy.deepcopy(marker) is marker


def test_methods_are_tasks():
    class Solver:
        def __init__(self):
            self.factor = 3

        @ost.task
        def scale(self, a: Read, b: Write):
            b[...] = self.factor * a

    solver, a, b = Solver(), np.ones(2), np.zeros(2)
    solver.scale(a, b)
    assert b.tolist() == [3, 3]
    with ost.capture() as graph:
        op = solver.scale(a, b)
        explicit = graph.task(solver.scale, a, b)
    for each in (op, explicit):
        assert each.body.args[0] is solver
        assert [operand.value for operand in each.operands] == [a, b]
