"""Damaged rows of a store, or those of somebody else, cost what they are about, and nothing else."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from tune.graphs.faking import Fake, tune
from tune.graphs.tasks import relax
from tune.test_store_damage import MORE, damaged, write_one_of

TIMES = {"relax": (900.0, 1000.0, 1100.0), "at_once": (190.0, 200.0, 210.0)}


def graph() -> ost.Graph:
    made = ost.Graph()
    for size in (8, 9):
        made.task(relax, np.zeros(size), np.zeros(size))
    return made


def use(path: Path) -> None:
    """Tune and compile by a store."""
    fake = Fake(TIMES)
    for report in tune(graph(), fake, path).values():
        assert report.best is not None
    with ost.Machine(cpus=1, gpus=0) as machine, graph().compile(machine, costs=path) as program:
        program.explain()
        program.replay()


def test_whatever_a_row_holds_graphs_are_tuned_and_compiled(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    tune(graph(), Fake(TIMES), whole)
    rng = random.Random(os.urandom(8))
    for number in range(40 * MORE):
        path = tmp_path / f"{number}.db"
        path.write_bytes(whole.read_bytes())
        done = [write_one_of(path, rng) for _ in range(rng.choice([1, 1, 3]))]
        try:
            use(path)
        except BaseException:
            print(done)
            raise
        path.unlink()


CONFIG = '{"checked":[],"complete":true,"places":[0,%s],"rtol":%s,"ties":[],"winner":%s}'


@pytest.mark.parametrize(
    "config",
    [
        *("[[", "3", "{}", "null", "[" * 100_000),
        *(CONFIG % each for each in [(99, 0, 99), (-1, 0, -1), (1, "NaN", 1), (1, -1, 1), (1, 0, 7), (1, "1e999", 0)]),
        CONFIG % (1, 0, 1) + " ",
    ],
)
def test_a_record_that_makes_no_sense_is_none(tmp_path: Path, config: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tune.db"
    tune(graph(), Fake(TIMES), path)
    damaged(path, "UPDATE candidate SET config = ?", config)
    use(path)
