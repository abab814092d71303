"""Which devices a process can use is found once, and a broken driver does not stop anybody."""

from __future__ import annotations

import os
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from functools import partial

import pytest

from ostinato.devices import device as discovery
from ostinato.devices.array import empty
from ostinato.errors import DeviceError
from support.fake_device import FakeDevice


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> dict[str, types.ModuleType]:
    """Two kinds of our own, in modules that the test fills in."""
    modules = {name: types.ModuleType(f"ostinato_test_{name}") for name in ("first", "second")}
    for module in modules.values():
        module.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    table = {name: (module.__name__, "ostinato") for name, module in modules.items()}
    monkeypatch.setattr(discovery, "KINDS", table)
    monkeypatch.setattr(discovery, "_found", {})
    monkeypatch.setattr(discovery, "_why_not", {})
    return modules


def test_devices_are_found_once_and_in_order(kinds: dict[str, types.ModuleType]) -> None:
    looked: list[str] = []

    def finder(name: str, number: int) -> Callable[[], list[FakeDevice]]:
        def devices() -> list[FakeDevice]:
            looked.append(name)
            return [FakeDevice(number)]

        return devices

    kinds["first"].devices = finder("first", 0)
    kinds["second"].devices = finder("second", 1)
    assert [device.name for device in discovery.usable("second")] == ["fake:1"]
    assert looked == ["second"]
    assert [device.name for device in discovery.usable()] == ["fake:0", "fake:1"]
    assert discovery.usable() == discovery.usable()
    assert looked == ["second", "first"]


def test_a_broken_driver_is_told_of_once_and_left_out(kinds: dict[str, types.ModuleType]) -> None:
    def broken() -> list[FakeDevice]:
        raise OSError("no such symbol")

    kinds["first"].devices = broken
    kinds["second"].devices = lambda: [FakeDevice()]
    with pytest.warns(RuntimeWarning, match="first devices are left out: OSError: no such symbol"):
        assert len(discovery.usable()) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(discovery.usable()) == 1
    assert discovery.reasons() == {"first": "OSError: no such symbol"}


def test_an_extra_that_is_not_installed_is_told_to_who_misses_a_device(
    kinds: dict[str, types.ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "KINDS", {"third": ("ostinato_test_first", "a_package_that_is_not_there")})
    assert discovery.usable() == ()
    assert (
        discovery.format_reasons()
        == "; third: a_package_that_is_not_there is not installed (pip install 'ostinato[third]')"
    )


def test_who_misses_a_device_is_told_where_a_driver_comes_from(
    kinds: dict[str, types.ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_ADVICE", {"second": "buy one"})
    kinds["first"].devices = list
    kinds["second"].devices = list
    assert discovery.usable() == ()
    assert discovery.format_reasons() == "; second: buy one"


@pytest.mark.forks
def test_a_forked_child_has_none_of_the_parents(
    kinds: dict[str, types.ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds["first"].devices = lambda: [FakeDevice()]
    kinds["second"].devices = lambda: []
    monkeypatch.setattr(discovery, "_of_the_parent", [])
    array = empty(*discovery.usable(), 3)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert discovery.usable() == ()
            assert "forked" in discovery.reasons()["first"]
            for use in (array.get, partial(array.set, 1.0), partial(empty, array.device, 3)):
                with pytest.raises(DeviceError, match="fake:0 cannot be used here: this process was forked"):
                    use()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert len(discovery.usable()) == 1


def test_nothing_of_a_driver_is_imported_before_devices_are_asked_for() -> None:
    script = """
import sys
import numpy as np
import ostinato as ost

@ost.task
def add(x: ost.Read, y: ost.ReadWrite):
    y += x

x, y = np.ones(4), np.zeros(4)
with ost.capture() as graph:
    add(x, y)
with ost.Machine(cpus=1) as machine:
    graph.compile(machine).replay(3)
drivers = "pyopencl", "cuda", "ostinato.devices.opencl", "ostinato.devices.cuda"
print(*(name for name in drivers if name in sys.modules))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr, found.stdout.strip()) == (0, "", "")
