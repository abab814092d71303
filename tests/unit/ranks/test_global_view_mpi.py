"""The global view on real ranks: the example gives one digest, and random programs what one rank gives."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from support.mpi import MPIEXEC, run_ranks

ROOT = Path(__file__).parents[3]

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
    pytest.mark.skipif(MPIEXEC is None, reason="there is no mpiexec"),
]


def on_ranks(count: int, *command: str | Path) -> str:
    ran = run_ranks(count, *map(str, command), timeout=300)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout


def test_the_example_gives_one_digest_on_any_number_of_ranks() -> None:
    told = {on_ranks(count, ROOT / "examples" / "heat_on_ranks.py", "--steps", "50") for count in (1, 2, 4)}
    assert len(told) == 1
    assert "digest" in told.pop()


@pytest.mark.parametrize("transport", ["shared", "mpi"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_two_hundred_programs(count: int, transport: str) -> None:
    told = on_ranks(count, ROOT / "tests" / "support" / "mpi_programs.py", "0", "200", transport)
    assert told.count("compared 200") == count
