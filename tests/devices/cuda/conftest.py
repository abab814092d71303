"""Fixtures of the tests on the fake driver of CUDA."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devices.cuda.driver import Kernels, kernels
from devices.cuda.faked import Controls, fake_devices, library
from ostinato.devices.cuda import CudaDevice


@pytest.fixture
def device() -> CudaDevice:
    """The first of the fake devices."""
    return fake_devices()[0]


@pytest.fixture
def other() -> CudaDevice:
    """The second."""
    return fake_devices()[1]


@pytest.fixture
def cuda(device: CudaDevice) -> Kernels:
    """The kernels, on the first."""
    return kernels(library(), device)


@pytest.fixture
def controls() -> Iterator[Controls]:
    """What the fake driver is to do; afterwards its devices are whole."""
    made = Controls()
    yield made
    made.heal()


@pytest.fixture
def stream(device: CudaDevice) -> Iterator[int]:
    """A stream of the first device."""
    opened = device.core.open()
    yield opened
    device.core.close(opened)
