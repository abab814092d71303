"""GPUs by index and UUID, composed with the masks of this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpus import AMD_CPU, amd_node, fake_library, gpu, host
from ostinato.errors import DeviceError
from ostinato.tune.leases import cuda, hip
from ostinato.tune.leases.devices import devices
from ostinato.tune.leases.gpu import Gpu, masked

FOUR = {f"GPU-{letter * 8}-1": "H100" for letter in "abcd"}
UUIDS = list(FOUR)


def names(found: list[Gpu]) -> list[str]:
    return [each.uuid for each in found]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2", [2]),
        ("3,1", [3, 1]),
        (" 3 , 1 ", [3, 1]),
        ("1,-1,2", [1]),
        ("1,9,2", [1]),
        ("0,,2", [0]),
        ("GPU-c", [2]),
        ("GPU-bbbbbbbb-1,GPU-a", [1, 0]),
        ("GPU-", []),
        ("2,GPU-b", [2, 1]),
    ],
)
def test_a_mask_leaves_what_the_driver_would_show(
    mask: str | None, expected: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host(monkeypatch, tmp_path, nvidia=FOUR, **({} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}))
    found = cuda.cuda_devices()
    assert [device.identities for device in found] == [(UUIDS[index],) for index in expected]
    assert [device.name for device in found] == [f"cuda:{index}" for index in range(len(expected))]
    for device, index in zip(found, expected, strict=True):
        assert device.environment == {"CUDA_VISIBLE_DEVICES": UUIDS[index], "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        assert (device.model, device.driver) == ("H100", "535.104.05")


@given(order=st.permutations(range(4)), count=st.integers(1, 4), data=st.data())
def test_an_index_counts_within_the_mask(order: list[int], count: int, data: st.DataObject) -> None:
    gpus = [Gpu(number, uuid, uuid, "H100", "1") for number, uuid in enumerate(UUIDS)]
    chosen = order[:count]
    mask = ",".join(data.draw(st.sampled_from([str(index), UUIDS[index]])) for index in chosen)
    assert names(masked(mask, gpus, "MASK")) == [UUIDS[index] for index in chosen]
    # A child that gets the UUID of one of them sees that one alone.
    for index in chosen:
        assert names(masked(UUIDS[index], gpus, "MASK")) == [UUIDS[index]]


def test_a_mask_that_names_a_gpu_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia=FOUR, CUDA_VISIBLE_DEVICES="1,GPU-b")
    with pytest.raises(DeviceError, match="twice"):
        devices("cuda:0")


@pytest.mark.parametrize(
    ("name", "uuid"), [("cuda:0", UUIDS[3]), ("cuda:1", UUIDS[1]), ("cuda:GPU-b", UUIDS[1]), ("cuda:" + UUIDS[3],) * 2]
)
def test_a_gpu_by_name(name: str, uuid: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia=FOUR, CUDA_VISIBLE_DEVICES="3,1")
    (device,) = devices([name])
    assert (device.name, device.identities) == (name, (uuid.removeprefix("cuda:"),))


def test_an_index_and_a_uuid_of_the_same_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia=FOUR)
    with pytest.raises(ValueError, match="in common"):
        devices(["cuda:1", "cuda:GPU-b"])


@pytest.mark.parametrize("name", ["cuda:2", "cuda:99999999999", "cuda:GPU-a", "cuda:MIG-a"])
def test_a_gpu_that_is_not_in_the_mask(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia=FOUR, CUDA_VISIBLE_DEVICES="3,1")
    with pytest.raises(DeviceError, match=r"cuda:0 \(H100, GPU-dddddddd-1\), cuda:1 \(H100, GPU-bbbbbbbb-1\)"):
        devices([name])


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_a_host_without_gpus_says_where_it_looked(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path)
    with pytest.raises(DeviceError, match=f"there is no '{kind}:0'; this host has no .* GPU .*{tmp_path}"):
        devices(f"{kind}:0")


def test_a_mask_that_leaves_none_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia=FOUR, CUDA_VISIBLE_DEVICES="-1")
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES=-1 leaves none"):
        devices("cuda:0")


def test_the_beginning_of_several_uuids(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia=FOUR)
    with pytest.raises(DeviceError, match="several"):
        devices("cuda:GPU-")


@pytest.mark.parametrize("name", ["cuda:", "cuda:-1", "cuda:x", "cuda:gpu-a", "cuda:0-1", "hip:1,2", "cuda:GPU-a b"])
def test_names_that_mean_no_gpu(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia=FOUR)
    with pytest.raises(ValueError, match="INDEX"):
        devices([name])


def test_indices_among_different_models_need_an_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mixed = {"GPU-aa": "T4", "GPU-bb": "H100"}
    host(monkeypatch, tmp_path, nvidia=mixed, CUDA_VISIBLE_DEVICES="1")
    with pytest.raises(DeviceError, match="PCI_BUS_ID"):
        devices("cuda:0")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert devices("cuda:0")[0].identities == ("GPU-bb",)
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bb")
    assert devices("cuda:0")[0].identities == ("GPU-bb",)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert devices("cuda:0")[0].identities == ("GPU-aa",)


def test_a_gpu_whose_uuid_the_driver_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia={"GPU-????????-????": "H100", "GPU-bb": "H100"})
    with pytest.raises(DeviceError, match="nvidia-smi"):
        devices("cuda:0")
    assert devices("cuda:1")[0].identities == ("GPU-bb",)


INSTANCES = (gpu("MIG-1111", "H100 MIG 1g.10gb"), gpu("MIG-2222", "H100 MIG 2g.20gb"))
PARTED = [gpu("GPU-aaaa", instances=INSTANCES), gpu("GPU-bbbb")]


def test_the_library_lists_mig_instances_in_place_of_their_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, library=fake_library(PARTED))
    found = cuda.cuda_devices()
    assert [device.environment["CUDA_VISIBLE_DEVICES"] for device in found] == ["MIG-1111", "MIG-2222", "GPU-bbbb"]
    assert [device.model for device in found] == ["H100 MIG 1g.10gb", "H100 MIG 2g.20gb", "NVIDIA H100"]
    assert {device.driver for device in found} == {"550.54.15"}
    assert devices("cuda:MIG-2")[0].identities == ("MIG-2222",)


@pytest.mark.parametrize(
    ("mask", "expected"), [("0", ["MIG-1111"]), ("1", ["GPU-bbbb"]), ("MIG-2222,1", ["MIG-2222", "GPU-bbbb"])]
)
def test_masks_with_mig_instances(
    mask: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host(monkeypatch, tmp_path, library=fake_library(PARTED), CUDA_VISIBLE_DEVICES=mask, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert [device.identities[0] for device in cuda.cuda_devices()] == expected


def test_without_the_library_a_mask_tells_of_mig_instances(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia={"GPU-aa": "H100"}, CUDA_VISIBLE_DEVICES="MIG-7777,MIG-8888")
    found = devices("all")
    assert [device.identities for device in found] == [("MIG-7777",), ("MIG-8888",)]
    assert found[0].model != found[1].model  # how large they are is not known
    assert devices("cuda:MIG-8")[0].environment["CUDA_VISIBLE_DEVICES"] == "MIG-8888"
    with pytest.raises(DeviceError, match="MIG-9999"):
        devices("cuda:MIG-9999")


def test_a_library_without_a_driver_is_no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia={"GPU-aa": "H100"}, library=fake_library([], fails=True))
    assert [device.identities for device in cuda.cuda_devices()] == [("GPU-aa",)]


def test_a_gpu_that_fell_off_the_bus_keeps_its_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = fake_library([gpu("GPU-aa"), gpu("GPU-bb")])
    monkeypatch.setitem(vars(library), "nvmlDeviceGetUUID", _broken(library, "GPU-aa"))
    host(monkeypatch, tmp_path, library=library, CUDA_VISIBLE_DEVICES="1")
    assert [device.identities for device in cuda.cuda_devices()] == [("GPU-bb",)]


def _broken(library, uuid):
    def get(handle):
        if handle.uuid == uuid:
            raise library.NVMLError("GPU is lost")
        return handle.uuid

    return get


AMD = [AMD_CPU, amd_node(0xABC, 0xC100), amd_node(0xDEF, 0xC900), AMD_CPU, amd_node(0x123, 0x2300)]


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        ({}, {"hip:0": (0xABC, "0"), "hip:1": (0xDEF, "1"), "hip:2": (0x123, "2")}),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, {"hip:0": (0x123, "2"), "hip:1": (0xABC, "0")}),
        ({"ROCR_VISIBLE_DEVICES": "2,1"}, {"hip:0": (0x123, "0"), "hip:1": (0xDEF, "1")}),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0000000000000def,0", "HIP_VISIBLE_DEVICES": "1"}, {"hip:0": (0xABC, "1")}),
        ({"CUDA_VISIBLE_DEVICES": "1"}, {"hip:0": (0xDEF, "1")}),
        ({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, {"hip:0": (0xABC, "0")}),
        ({"ROCR_VISIBLE_DEVICES": ""}, {}),
    ],
)
def test_masks_of_amd_are_composed(
    masks: dict[str, str], expected: dict[str, tuple[int, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host(monkeypatch, tmp_path, amd=AMD, **masks)
    found = {device.name: device for device in hip.hip_devices()}
    assert {name: device.environment for name, device in found.items()} == {
        name: {"HIP_VISIBLE_DEVICES": index} for name, (_, index) in expected.items()
    }
    for name, (unique, _) in expected.items():
        assert f"{unique:016x}" in found[name].identities[0]
        assert devices([name]) == (found[name],)


def test_what_results_of_an_amd_gpu_hold_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, amd=AMD)
    (device,) = devices("hip:GPU-0000000000000abc")
    assert device.model == "aldebaran gfx90a, 440 SIMDs"
    assert device.driver.startswith("Linux ")
    (tmp_path / "amdgpu").mkdir()
    (tmp_path / "amdgpu" / "version").write_text("6.3.6\n")
    assert devices("hip:0")[0].driver == "6.3.6"


def test_partitions_of_an_amd_gpu_are_devices_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, amd=[amd_node(0xABC, 0xC100), amd_node(0xABC, 0xC101), amd_node(0, 0xC200)])
    assert len({device.identities for device in devices("all")}) == 3


def test_an_amd_gpu_that_a_container_may_not_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, amd=AMD)
    (tmp_path / "nodes" / "1" / "properties").unlink()
    assert [device.environment["HIP_VISIBLE_DEVICES"] for device in devices("all")] == ["0", "1"]
