"""Settings and fixtures of all tests of the tuner."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato.tune.workers.reaper import Reaper
from profilers import MASKS, children, descriptors, threads, until


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


@pytest.fixture
def unmasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No device is masked."""
    for name in MASKS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def nothing_stays() -> Iterator[None]:
    """The test leaves no thread, process or open file behind."""
    before, processes, files = threads(), children(), descriptors()
    yield
    until(lambda: threads() <= before, "the threads ended")
    assert children() <= processes
    assert descriptors() <= files
