"""The profiler runner's rule: explicit ids reach a child as they stand, and stay within this process's mask."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpus import AMD_CPU, amd_node, host
from ostinato.errors import DeviceError
from ostinato.tune.leases.devices import devices
from ostinato.tune.legacy.profile import mask

TWO = {"GPU-aaaa": "H100", "GPU-bbbb": "H100"}


def ids(ids: list | None = None, variable: str = "CUDA_VISIBLE_DEVICES") -> list[str]:
    return [device.environment[variable] for device in mask(ids)]


@pytest.mark.parametrize("given", [None, [], ()])
@pytest.mark.parametrize(("parent", "expected"), [({}, ["0"]), ({"CUDA_VISIBLE_DEVICES": "4,5"}, ["4", "5"])])
def test_no_ids_mean_the_mask_of_this_process_or_0(
    given: list | None, parent: dict[str, str], expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host(monkeypatch, tmp_path, **parent)
    assert ids(given) == expected


@pytest.mark.parametrize("given", [["5"], [5], ("4", 5), ["5", "4"]])
def test_explicit_ids_reach_the_child_as_they_stand(
    given: list, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host(monkeypatch, tmp_path, CUDA_VISIBLE_DEVICES="4, 5")
    assert ids(given) == [str(each) for each in given]
    host(monkeypatch, tmp_path)
    assert ids(given) == [str(each) for each in given]


@pytest.mark.parametrize("given", [["0"], [4, 0], ["GPU-aaaa"]])
def test_an_id_outside_the_mask_of_this_process(given: list, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, CUDA_VISIBLE_DEVICES="4,5")
    with pytest.raises(DeviceError, match="is not in CUDA_VISIBLE_DEVICES=4,5"):
        mask(given)


@pytest.mark.parametrize("parent", ["", "-1", " ", "-1,0"])
@pytest.mark.parametrize("given", [None, ["0"]])
def test_a_mask_that_hides_every_gpu(
    parent: str, given: list | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host(monkeypatch, tmp_path, CUDA_VISIBLE_DEVICES=parent)
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES"):
        mask(given)


@pytest.mark.parametrize("given", [["0", "0"], [0, "0"], ["1", 0, "1"]])
@pytest.mark.parametrize("nvidia", [{}, TWO])
def test_ids_that_are_there_twice(
    given: list, nvidia: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host(monkeypatch, tmp_path, nvidia=nvidia)
    with pytest.raises(ValueError, match="twice"):
        mask(given)


def test_an_index_and_a_uuid_of_one_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia=TWO)
    with pytest.raises(ValueError, match="twice, got 'GPU-bb' and '1'"):
        mask([1, "GPU-bb"])


@pytest.mark.parametrize("given", ["", "0,1", " 0", "0\n", "-1", -1])
def test_ids_that_cannot_be_one(given: str | int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path)
    with pytest.raises(ValueError, match="id"):
        mask([given])


@pytest.mark.parametrize("given", ["0", [None], [1.0], [True], [b"0"]])
def test_ids_of_a_wrong_type(given: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path)
    with pytest.raises(TypeError, match="id"):
        mask(given)


def test_a_gpu_is_leased_as_what_it_is_however_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia=TWO)
    by_index, by_uuid, by_name = mask(["1"])[0], mask(["GPU-b"])[0], devices("cuda:1")[0]
    assert by_index.identities == by_uuid.identities == by_name.identities == ("GPU-bbbb",)
    assert by_index.model == "H100"
    assert by_uuid.environment["CUDA_VISIBLE_DEVICES"] == "GPU-b"


def test_a_uuid_that_the_mask_of_this_process_has_as_an_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia=TWO, CUDA_VISIBLE_DEVICES="1")
    assert ids(["GPU-bbbb"]) == ["GPU-bbbb"]
    with pytest.raises(DeviceError, match="GPU-aaaa"):
        mask(["GPU-aaaa"])


def test_an_unknown_gpu_is_leased_by_its_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path)
    assert [device.identities for device in mask([0, 1])] == [("cuda:0",), ("cuda:1",)]
    host(monkeypatch, tmp_path, nvidia=TWO)
    assert mask([7])[0].identities == ("cuda:7",)


@pytest.mark.parametrize(("parent", "expected"), [(None, "PCI_BUS_ID"), ("FASTEST_FIRST", None), ("PCI_BUS_ID", None)])
def test_ids_count_along_the_bus_unless_this_process_says_otherwise(
    parent: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host(monkeypatch, tmp_path, **({} if parent is None else {"CUDA_DEVICE_ORDER": parent}))
    assert mask([0])[0].environment.get("CUDA_DEVICE_ORDER") == expected


AMD = [AMD_CPU, amd_node(0xABC, 0xC100), amd_node(0xDEF, 0xC900), amd_node(0x123, 0x2300)]


@pytest.mark.parametrize(
    ("parent", "given", "expected"),
    [
        ({}, None, ["0"]),
        ({}, [2, 1], ["2", "1"]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, None, ["2", "0"]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, ["0"], ["0"]),
        ({"ROCR_VISIBLE_DEVICES": "2,1"}, None, ["0", "1"]),
        ({"ROCR_VISIBLE_DEVICES": "2,1"}, [1], ["1"]),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "1"}, None, ["1"]),
    ],
)
def test_on_rocm_ids_go_into_its_mask(
    parent: dict[str, str],
    given: list | None,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    host(monkeypatch, tmp_path, amd=AMD, **parent)
    found = mask(given)
    assert [device.environment for device in found] == [{"HIP_VISIBLE_DEVICES": each} for each in expected]
    for device in found:  # and what is leased is what a child sees with that
        monkeypatch.setenv("HIP_VISIBLE_DEVICES", device.environment["HIP_VISIBLE_DEVICES"])
        assert devices("hip:0")[0].identities == device.identities


@pytest.mark.parametrize(
    ("parent", "given"),
    [
        ({"HIP_VISIBLE_DEVICES": "2,0"}, ["1"]),
        ({"ROCR_VISIBLE_DEVICES": "2,1"}, [2]),
        ({"ROCR_VISIBLE_DEVICES": ""}, [0]),
    ],
)
def test_on_rocm_ids_stay_within_the_masks(
    parent: dict[str, str], given: list, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host(monkeypatch, tmp_path, amd=AMD, **parent)
    with pytest.raises(DeviceError, match="VISIBLE_DEVICES"):
        mask(given)
