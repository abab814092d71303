"""Processes that compute on a GPU without a lease."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpus import fake_library, gpu, host
from ostinato.tune.leases import lease as foreign
from ostinato.tune.leases.devices import devices
from ostinato.tune.leases.lease import ForeignProcesses


@pytest.fixture
def on_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "namespace").symlink_to("pid:[4026531836]")
    monkeypatch.setattr(foreign, "PID_NAMESPACE", tmp_path / "namespace")


BUSY = [gpu("GPU-aa", pids=(70, 7, 33)), gpu("GPU-bb", instances=(gpu("MIG-11", pids=(5,)), gpu("MIG-22")))]


@pytest.mark.usefixtures("on_the_host")
def test_whoever_is_not_ours_is_foreign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, library=fake_library(BUSY))
    seen = {device.identities[0]: ForeignProcesses(device).pids(lambda: {33, 99}, 1.0) for device in devices("all")}
    assert seen == {"GPU-aa": [7, 70], "MIG-11": [5], "MIG-22": []}


@pytest.mark.usefixtures("on_the_host")
def test_who_only_has_memory_there_disturbs_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for computing, seen in (({70: 0, 7: 3}, [7]), ({}, [])):
        host(monkeypatch, tmp_path, library=fake_library([gpu("GPU-aa", pids=(70, 7, 33), computing=computing)]))
        assert ForeignProcesses(devices("cuda:0")[0]).pids(lambda: {33}, 1.0) == seen


@pytest.mark.usefixtures("on_the_host")
def test_a_device_that_the_library_cannot_ask_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia={"GPU-ff": "H100"})
    (device,) = devices("all")
    host(monkeypatch, tmp_path / "other", library=fake_library(BUSY))
    assert ForeignProcesses(device).pids(set, 1.0) == []


@pytest.mark.usefixtures("on_the_host")
def test_without_the_library_none_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, nvidia={"GPU-aa": "H100"})
    assert ForeignProcesses(devices("cuda:0")[0]).pids(set, 1.0) == []


def test_in_a_container_numbers_of_the_host_are_not_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host(monkeypatch, tmp_path, library=fake_library(BUSY))
    (tmp_path / "namespace").symlink_to("pid:[4026532999]")
    monkeypatch.setattr(foreign, "PID_NAMESPACE", tmp_path / "namespace")
    assert ForeignProcesses(devices("cuda:0")[0]).pids(set, 1.0) == []
    monkeypatch.setattr(foreign, "PID_NAMESPACE", tmp_path / "nowhere")
    assert ForeignProcesses(devices("cuda:0")[0]).pids(set, 1.0) == []
