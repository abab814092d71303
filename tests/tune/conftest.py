"""Settings and fixtures of all tests of the tuner."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato.tune.process.reaper import Reaper


@pytest.fixture(autouse=True)
def private_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's store, or leases that others on this host respect."""
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OSTINATO_LEASE_DIR", str(tmp_path / "leases"))


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    """A reaper that must end well."""
    reaper = Reaper()
    yield reaper
    reaper.close()
    assert reaper._lost or reaper._status == 0


@pytest.fixture
def mark() -> str:
    """For `tune.reaping.marked`."""
    return uuid.uuid4().hex
