"""The kinds of devices that a test runs on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devices.kinds import KINDS, Kind, has_driver_of_cuda


def _parameters(kinds: dict[str, object]) -> list[object]:
    """Where there is no driver of CUDA, one test says so, and the others are not listed as skipped one by one."""
    names = [name for name in kinds if name != "cuda"]
    return [*names, pytest.param("cuda", marks=pytest.mark.cuda)] if has_driver_of_cuda() else names


@pytest.fixture(params=_parameters(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    """A device of each kind."""
    return KINDS[request.param]()


@pytest.fixture
def streams(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """Two streams of that device."""
    core = request.getfixturevalue("kind").core
    opened = core.open(), core.open()
    yield opened
    for stream in opened:
        core.close(stream)
