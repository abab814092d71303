"""Devices by name: cores, simulated ones, lists of them, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpus import host
from ostinato.cli import devices as show_devices
from ostinato.errors import DeviceError
from ostinato.tune.leases import cpu, lock_file
from ostinato.tune.leases.device import Device, Simulation
from ostinato.tune.leases.devices import devices
from ostinato.tune.leases.lease import Lease


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A process that may use these cores of a larger host."""
    usable = [2, 3, 5, 8, 9]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(usable))
    monkeypatch.setattr(cpu, "usable_cores", lambda: usable[:3])  # a quota pays for three of them
    return usable


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cpu:0", {2}), ("cpu:4", {9}), ("cpu:1-3", {3, 5, 8}), ("cpu:0,2", {2, 5}), ("cpu:3,0-1", {2, 3, 8})],
)
def test_numbers_count_the_cores_of_the_mask(cores: list[int], name: str, expected: set[int]) -> None:
    (device,) = devices([name])
    assert device.name == name
    assert device.cores == expected
    assert device.identities == tuple(f"cpu-core-{core}" for core in sorted(expected))


@given(wanted=st.sets(st.integers(0, 4), min_size=1))
def test_a_set_of_cores_is_the_same_however_it_is_written(wanted: set[int]) -> None:
    usable = [2, 3, 5, 8, 9]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda pid: set(usable))
        found = [devices("cpu:" + ",".join(map(str, order)))[0] for order in (sorted(wanted), sorted(wanted)[::-1])]
    assert {device.cores for device in found} == {frozenset(usable[index] for index in wanted)}
    assert found[0].identities == found[1].identities


@pytest.mark.parametrize(
    "name", ["cpu:", "cpu:-1", "cpu:a", "cpu:3-1", "cpu:0,", "cpu:0--2", "cpu: 0", "cpu:0,0", "cpu:0-2,1", "cpu:٣"]
)
def test_core_sets_that_mean_nothing(cores: list[int], name: str) -> None:
    with pytest.raises(ValueError, match="cpu:"):
        devices([name])


@pytest.mark.parametrize("name", ["cpu:5", "cpu:0-5", "cpu:0-999999999"])
def test_a_core_that_is_not_there_names_those_that_are(cores: list[int], name: str) -> None:
    with pytest.raises(DeviceError, match="cpu:0 to cpu:4"):
        devices([name])


def test_all_is_one_device_per_core_that_the_quota_pays_for(
    cores: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host(monkeypatch, tmp_path)
    found = devices("all")
    assert [(device.name, device.cores) for device in found] == [
        ("cpu:0", {2}),
        ("cpu:1", {3}),
        ("cpu:2", {5}),
    ]


def test_all_is_the_gpus_where_there_are_any(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia={"GPU-aa": "H100", "GPU-bb": "H100"})
    assert [device.name for device in devices("all")] == ["cuda:0", "cuda:1"]


def test_a_mask_that_hides_every_gpu_leaves_the_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia={"GPU-aa": "H100"}, CUDA_VISIBLE_DEVICES="")
    assert {device.kind for device in devices("all")} == {"cpu"}


def test_a_text_names_several(cores: list[int]) -> None:
    names = ["cpu:0,2", "sim:a?latency=0.01&noise=.1", "cpu:1", "sim:b"]
    assert [device.name for device in devices(" , ".join(names))] == names
    assert devices(",".join(names)) == devices(names)


@pytest.mark.parametrize(
    "names",
    [
        ["cpu:0", "cpu:0"],
        ["cpu:0-1", "cpu:1-2"],
        ["all", "cpu:1"],
        ["sim:a", "sim:a?latency=1"],
        "sim:a,sim:a",
    ],
)
def test_devices_that_have_something_in_common(
    cores: list[int], names: str | list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host(monkeypatch, tmp_path)
    with pytest.raises(ValueError, match=r"twice|in common"):
        devices(names)


@pytest.mark.parametrize(
    "names", [[], "", "gpu:0", "cpu", "cuda", "sim", ["all", "tpu:1"], "cpu:0,,cpu:1", "sim:", ":"]
)
def test_names_that_are_none(names: str | list[str]) -> None:
    with pytest.raises(ValueError, match=r"device|cores"):
        devices(names)


@pytest.mark.parametrize("names", [0, None, [0], [None], [b"cpu:0"]])
def test_names_are_text(names: object) -> None:
    with pytest.raises(TypeError, match="str"):
        devices(names)


def test_every_parameter_of_a_simulated_device() -> None:
    (device,) = devices("sim:a-1?latency=1e-3&noise=0.5&drift=2&crash=1&hang=0")
    assert device.simulation == Simulation(latency=0.001, noise=0.5, drift=2.0, crash=1.0, hang=0.0)
    assert device.identities == ("sim:a-1",)
    assert device.cores is None


def test_results_hold_for_what_a_simulated_device_declares() -> None:
    names = ["sim:a", "sim:a?latency=0", "sim:b?noise=.1&latency=1e-2", "sim:c?latency=0.010&noise=0.1&hang=0"]
    plain, also, *declared = [devices(name)[0].model for name in names]
    assert plain == also == "simulated"
    assert declared == ["simulated latency=0.01 noise=0.1"] * 2


@pytest.mark.parametrize(
    "declared",
    [
        "speed=1",
        "latency=",
        "latency",
        "latency=x",
        "latency=nan",
        "latency=inf",
        "latency=-1",
        "noise=-0.1",
        "drift=-1",
        "crash=1.1",
        "hang=-0.1",
        "hang=nan",
        "latency=1&latency=1",
        "latency=1&",
        "",
    ],
)
def test_parameters_that_a_simulated_device_has_not(declared: str) -> None:
    with pytest.raises(ValueError, match="sim:a"):
        devices("sim:a?" + declared)


@pytest.mark.parametrize("name", ["sim:a/b", "sim:a b", "sim:../x", "sim:é", "sim:?latency=1"])
def test_names_that_a_simulated_device_cannot_have(name: str) -> None:
    with pytest.raises(ValueError, match="sim:NAME"):
        devices([name])


def test_devices_are_values() -> None:
    assert len({devices("sim:a")[0], devices("sim:a")[0], devices("sim:b")[0]}) == 2


CPUINFO = {
    "x86": (
        "processor\t: 0\nmodel name\t: Xeon A\nflags\t\t: fpu\n\nprocessor\t: 1\nmodel name\t: Xeon A\n",
        {(0,): "Xeon A", (0, 1): "Xeon A, 2 cores"},
    ),
    "arm": (
        "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\nprocessor\t: 1\nCPU implementer\t: 0x41\n"
        "CPU part\t: 0xd05\n",
        {(0,): "implementer 0x41 part 0xd0c", (1,): "implementer 0x41 part 0xd05"},
    ),
    "power": ("processor\t: 0\ncpu\t\t: POWER9\n\nprocessor\t: 1\ncpu\t\t: POWER9\n", {(1,): "POWER9"}),
    "unknown": ("nothing that we know\n", {(0,): os.uname().machine, (0, 1): f"{os.uname().machine}, 2 cores"}),
}


@pytest.mark.parametrize("architecture", CPUINFO)
def test_models_of_cores(architecture: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text, expected = CPUINFO[architecture]
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(cpu, "SYSTEM_DEVICES", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    for cores, model in expected.items():
        assert devices("cpu:" + ",".join(map(str, cores)))[0].model == model


def test_fast_and_economical_cores_are_different_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocks = [f"processor\t: {core}\nmodel name\t: Core Ultra\n" for core in range(6)]
    (tmp_path / "cpuinfo").write_text("\n".join(blocks))
    for kind, cores in (("cpu_core", "0-3\n"), ("cpu_atom", "4,5\n")):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "cpus").write_text(cores)
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(cpu, "SYSTEM_DEVICES", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    models = [device.model for device in devices("cpu:0,cpu:3,cpu:5,cpu:4")]
    assert models == ["Core Ultra (cpu_core)"] * 2 + ["Core Ultra (cpu_atom)"] * 2


def test_this_machine_has_a_model() -> None:
    assert devices("cpu:0")[0].model


def shown() -> str:
    return CliRunner(env={"COLUMNS": "300"}).invoke(show_devices).output


def row(text: str, word: str) -> str:
    (line,) = (line for line in text.splitlines() if word in line)
    return line


def test_the_table_tells_who_holds_what(cores: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia={"GPU-aa": "[bold]H100"})
    held = [Device(name=name, kind="sim", identities=(name,), model="") for name in ("cpu-core-3", "GPU-aa", "sim:x")]
    leases = [Lease(device) for device in held]
    for lease in leases:
        lease.acquire()
    text = shown()
    for lease in leases:
        lease.release()
    assert "this process" in row(text, "cpu-core-3")
    assert "this process" not in row(text, "cpu-core-2")
    assert "this process" in row(text, "sim:x")
    for cell in ("cuda:0", "[bold]H100", "535.104.05", "this process"):
        assert cell in row(text, "GPU-aa")
    assert os.environ[lock_file.VARIABLE] in text
    assert "this process" not in shown()


def test_the_table_shows_the_rest_when_a_mask_is_ambiguous(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia={"GPU-aa": "H100", "GPU-bb": "T4"}, CUDA_VISIBLE_DEVICES="1")
    text = shown()
    assert "CUDA_VISIBLE_DEVICES=1 is ambiguous" in text
    assert "cpu:0" in text
