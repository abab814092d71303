"""until: flags of all kinds of numbers mean what they mean to NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost

KINDS = ["?", "i1", "u2", "<i4", ">i4", "i8", "f2", "f4", "f8", ">f8", "g", "c8", "c16", ">c8", "G"]


def steps(flag):
    graph = ost.Graph()
    graph.until(flag)
    with graph.compile() as program:
        return program.replay(3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flag_is_set_when_it_is_not_zero(kind):
    flag = np.empty(3, kind)[1:2]
    flag.view(np.uint8)[:] = 0xFF  # padding as well
    values = {"c": (complex(0, 1), complex(-0.0, -0.0), complex(0, np.nan)), "f": (-0.0, np.nan, 1e-5)}
    for value in (0, 1, *values.get(flag.dtype.kind, ())):
        flag[0] = value
        assert steps(flag) == (1 if flag.any() else 3), value


def test_a_flag_may_lie_anywhere():
    memory = np.zeros(9, np.uint8)
    flag = memory[1:].view(np.float64)
    assert not flag.flags.aligned
    assert steps(flag) == 3
    flag[0] = 1e-300
    assert steps(flag) == 1
