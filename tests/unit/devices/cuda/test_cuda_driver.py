"""Which devices a process finds, with which driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from devices.cuda.faked import library
from ostinato.devices.cuda import devices
from ostinato.errors import DeviceError

FIND = """
import warnings
from ostinato.devices import device as discovery
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    found = discovery.usable("cuda")
for device in found:
    print(device.name, device.identity, device.core.model, device.core.driver)
for warning in told:
    print(warning.category.__name__, warning.message)
"""


def found(folder: Path | str, **environment: str) -> list[str]:
    """What a process finds whose driver of CUDA lies in a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA", "FAKE"))}
    environment = kept | {"LD_LIBRARY_PATH": str(folder)} | environment
    command = [sys.executable, "-c", FIND]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()


def test_a_driver_that_is_installed_is_found_with_its_devices() -> None:
    assert found(Path(library()).parent) == [
        "cuda:0 GPU-00102030-4050-6070-8090-a0b0c0d0e0f0 Fake GPU 12080",
        "cuda:1 MIG-ff112131-4151-6171-8191-a1b1c1d1e1f1 Fake GPU 12080",
    ]


def test_the_mask_decides_and_names_count_from_zero() -> None:
    (line,) = found(Path(library()).parent, CUDA_VISIBLE_DEVICES="1")
    assert line.startswith("cuda:0 MIG-ff112131")


@pytest.mark.parametrize(
    "environment", [{"CUDA_VISIBLE_DEVICES": ""}, {"FAKE_CUDA_DEVICES": "0"}], ids=["masked", "none"]
)
def test_a_driver_without_devices_is_no_fault(environment: dict[str, str]) -> None:
    assert found(Path(library()).parent, **environment) == []


def test_a_driver_older_than_cuda_12_is_found_by_its_symbols() -> None:
    assert len(found(Path(library()).parent, FAKE_CUDA_OLD="1")) == 2


def test_without_a_driver_there_are_no_devices(tmp_path: Path) -> None:
    assert devices(str(tmp_path / "libcuda.so.1")) == ()


def test_a_driver_that_cannot_be_loaded_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    (line,) = found(tmp_path)
    assert line.startswith("RuntimeWarning cuda devices are left out: DeviceError:")
    assert "libcuda.so.1" in line
    with pytest.raises(DeviceError, match=r"libcuda\.so\.1"):
        devices(str(tmp_path / "libcuda.so.1"))


def test_a_driver_that_does_not_start_is_told_of() -> None:
    (line,) = found(Path(library()).parent, FAKE_CUDA_FAIL="cuInit=803")
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): system has unsupported display driver" in line


def test_a_library_that_lacks_functions_is_no_driver() -> None:
    with pytest.raises(DeviceError, match="has no cuInit"):
        devices("libc.so.6")


def test_no_context_is_made_before_a_device_is_used() -> None:
    ask = """
import ctypes, sys
from ostinato.devices.cuda import devices
first, second = devices(sys.argv[1])
calls = ctypes.CDLL(sys.argv[1]).fake_cuda_calls
print(calls(b"cuDevicePrimaryCtxRetain"))
first.allocate(1)
first.allocate(1)
print(calls(b"cuDevicePrimaryCtxRetain"))
"""
    command = [sys.executable, "-c", ask, library()]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() == ["0", "1"]


def test_a_forked_child_uses_no_device_of_its_parents() -> None:
    ask = """
import os, sys
from ostinato.devices.array import empty
from ostinato.devices.cuda import devices
device = devices(sys.argv[1])[0]
array = empty(device, 3)
stream = device.core.open()
child = os.fork()
if child == 0:
    try:
        device.core.open()
    except RuntimeError as error:
        print(error, flush=True)
    device.core.close(stream)
    del array, device
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
array.set(2.0)
print(array.get())
"""
    command = [sys.executable, "-c", ask, library()]
    assert subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines() == [
        "CUDA cannot be used in a process forked after its first use",
        "7",
        "[2. 2. 2.]",
    ]
