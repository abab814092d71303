"""A small chaos; `make chaos` runs the whole of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from chaos.fleet import Fleet, FleetChaos
from chaos.run import Chaos, Size


@pytest.mark.slow
@pytest.mark.skipif(not (os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")), reason="no C compiler")
def test_a_small_chaos(tmp_path: Path) -> None:
    chaos = Chaos(Size(candidates=100, simulated=6, kills=3, seed=1), tmp_path)
    chaos.run()
    assert chaos.faults == []


@pytest.mark.slow
@pytest.mark.skipif(not (os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")), reason="no C compiler")
def test_a_small_chaos_of_a_fleet(tmp_path: Path) -> None:
    size = Size(candidates=600, simulated=0, kills=1, seed=3)
    chaos = FleetChaos(size, Fleet(hosts=3, devices=4, kills=3), tmp_path)
    chaos.run()
    assert chaos.faults == []
