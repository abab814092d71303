"""Fixtures of the tests of CUDA: on the fake driver, and on a GPU, too, where there is one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from devices.cuda.driver import Kernels, kernels
from devices.cuda.faked import Controls, fake_devices, library
from ostinato.devices import device as discovery
from ostinato.devices.cuda import DRIVER, CudaDevice


class Place(NamedTuple):
    """A driver and its devices."""

    library: str
    devices: tuple[CudaDevice, ...]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames:
        gpu = pytest.param("gpu", marks=pytest.mark.cuda)
        only = {"controls": ["fake"], "gpu_only": [gpu]}
        both = ["fake", gpu] if _installed() else ["fake"]
        places = next((only[name] for name in only if name in metafunc.fixturenames), both)
        metafunc.parametrize("place", places, indirect=True)


def _installed() -> bool:
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return False
    return True


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    """Where a test runs."""
    if request.param == "fake":
        return Place(library(), fake_devices())
    return real()


def real() -> Place:
    """The GPUs of this machine. A driver that does not work is no reason to skip."""
    found = discovery.usable("cuda")
    if not found:
        why = discovery.reasons().get("cuda")
        assert why is None, why
        pytest.skip("no driver of CUDA, or no GPU")
    return Place(DRIVER, found)  # type: ignore[arg-type]


@pytest.fixture
def gpu_only() -> None:
    """Tests that take this need a GPU."""


@pytest.fixture
def device(place: Place) -> CudaDevice:
    """The first device."""
    return place.devices[0]


@pytest.fixture
def other(place: Place) -> CudaDevice:
    """The second."""
    if len(place.devices) < 2:
        pytest.skip("one GPU only")
    return place.devices[1]


@pytest.fixture
def cuda(place: Place, device: CudaDevice) -> Kernels:
    """The kernels, on the first."""
    return kernels(place.library, device)


@pytest.fixture
def controls() -> Iterator[Controls]:
    """What the fake driver is to do; afterwards its devices are whole."""
    made = Controls()
    yield made
    made.heal()
    discovery._lost.clear()


@pytest.fixture
def stream(device: CudaDevice) -> Iterator[int]:
    """A stream of the first device."""
    opened = device.core.open()
    yield opened
    device.core.close(opened)
