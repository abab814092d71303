"""OpenCL's devices by name, and what is leased with them."""

from __future__ import annotations

import importlib
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

import ostinato as ost
from ostinato.environment import usable_cores
from ostinato.errors import DeviceError
from ostinato.tune.leases import opencl
from ostinato.tune.leases.devices import devices
from ostinato.tune.leases.lease import Lease

CPU, GPU = 2, 4
UUID = uuid.UUID(int=7)


class Platform(SimpleNamespace):
    def get_devices(self) -> list[Any]:
        return [Listed(platform=self, **each) for each in self.devices]


class Listed(SimpleNamespace):
    def get_info(self, what: str) -> list[int]:
        assert what == "uuid"
        return list(UUID.bytes)


def device(name: str, kind: int = GPU, available: bool = True, extensions: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "available": available,
        "extensions": extensions,
        "max_compute_units": 8,
        "driver_version": "3.1",
    }


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> list[Platform]:
    """A host with the platforms that are put into this list."""
    platforms: list[Platform] = []
    module = SimpleNamespace(
        get_platforms=lambda: platforms,
        LogicError=RuntimeError,
        device_type=SimpleNamespace(CPU=CPU),
        device_info=SimpleNamespace(UUID_KHR="uuid"),
    )
    known = importlib.import_module
    monkeypatch.setattr(opencl, "import_module", lambda name: module if name == "pyopencl" else known(name))
    return platforms


def test_devices_are_counted_over_all_platforms(host: list[Platform]) -> None:
    host += [
        Platform(name="One ", devices=[device("A"), device("gone", available=False), device("A")]),
        Platform(name="Two", devices=[device("B")]),
    ]
    found = devices("opencl:0,opencl:1,opencl:2")
    assert [each.identities for each in found] == [("opencl:One/A",), ("opencl:One/A/1",), ("opencl:Two/B",)]
    assert [each.environment for each in found] == [{"PYOPENCL_CTX": place} for place in ("0:0", "0:2", "1:0")]
    assert {each.kind for each in found} == {"opencl"}
    assert (found[2].model, found[2].driver) == ("B, 8 compute units, Two", "3.1")


def test_one_that_is_the_processor_is_leased_with_all_cores(host: list[Platform]) -> None:
    host.append(Platform(name="One", devices=[device("A", CPU)]))
    (found,) = devices("opencl:0")
    assert found.identities == ("opencl:One/A", *(f"cpu-core-{core}" for core in usable_cores()))
    with pytest.raises(ValueError, match="have cpu-core-"):
        devices("opencl:0,cpu:0")
    with Lease(devices("cpu:0")[0]):
        assert Lease(found).try_acquire() is not None
    with Lease(found):
        assert Lease(devices("cpu:0")[0]).try_acquire() is not None


def test_a_gpu_of_nvidia_is_the_one_that_cuda_leases(host: list[Platform]) -> None:
    host.append(Platform(name="NVIDIA CUDA", devices=[device("H100", extensions="cl_khr_fp64 cl_khr_device_uuid")]))
    assert devices("opencl:0")[0].identities == (f"GPU-{UUID}",)


def test_all_does_not_name_them(host: list[Platform]) -> None:
    host.append(Platform(name="One", devices=[device("A")]))
    assert not any(each.kind == "opencl" for each in devices("all"))


def test_what_is_not_there_is_told(host: list[Platform], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="no 'opencl:0'; OpenCL lists none"):
        devices("opencl:0")
    host.append(Platform(name="One", devices=[device("A")]))
    with pytest.raises(DeviceError, match=r"no 'opencl:1'; there are opencl:0 \(A, 8 compute units, One\)"):
        devices("opencl:1")
    for name in ("opencl:", "opencl:x", "opencl:GPU-1"):
        with pytest.raises(ValueError, match="opencl:INDEX"):
            devices(name)

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(opencl, "import_module", missing)
    with pytest.raises(DeviceError, match=r"pip install 'ostinato\[opencl\]'"):
        devices("opencl:0")


def test_they_are_those_of_machines() -> None:
    """Numbers, names and what results hold for are the same for who runs programs and for who leases devices."""
    pytest.importorskip("pyopencl")
    known = importlib.import_module("ostinato.devices.opencl").devices()
    for each in known:
        (found,) = devices(each.name)
        assert (found.model, found.driver) == (each.model, each.driver)
        assert each.identity in found.identities or found.identities[0].startswith("GPU-")


def test_a_tuner_measures_on_one() -> None:
    pytest.importorskip("pyopencl")
    if not importlib.import_module("ostinato.devices.opencl").devices():
        pytest.skip("there is no OpenCL device")
    policy = ost.Policy(max_seconds=0.02, rel_ci=0.5, min_samples=2)
    with ost.Tuner(["opencl:0"], store=False, policy=policy, progress=False) as tuner:
        report = tuner.tune("selected", [ost.Candidate.call("tune.candidates:selected_by_pyopencl")])
    (result,) = report.results
    assert result.status in (ost.Status.OK, ost.Status.CONTENDED), result.message  # the machine may be busy
    assert result.samples
    assert result.device == "opencl:0"
