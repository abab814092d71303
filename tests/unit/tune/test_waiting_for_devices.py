"""Searches whose devices somebody else has for a while."""

from __future__ import annotations

import threading
from pathlib import Path

import ostinato as ost
from ostinato.tune.candidate import Command
from ostinato.tune.leases.device import Device
from ostinato.tune.leases.devices import devices
from ostinato.tune.leases.lease import Lease


class Held(threading.Thread):
    """Holds a device, from the beginning until a search has waited for it for a while."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._taken = threading.Event()
        self._lease = Lease(device)

    def run(self) -> None:
        with self._lease:
            self._taken.set()
            threading.Event().wait(0.3)

    def __enter__(self) -> None:
        self.start()
        assert self._taken.wait(60)

    def __exit__(self, *error: object) -> None:
        self.join()


def echo(ms: float) -> Command:
    return ost.Candidate.command(["echo", "OP:sum,TIME:{ms},WS:0"], {"ms": ms})


def test_a_search_waits_for_its_only_device(tmp_path: Path) -> None:
    (device,) = devices("sim:a")
    with ost.Tuner(["sim:a"], store=tmp_path / "db", progress=False) as tuner, Held(device):
        assert tuner.tune("sum", [echo(1.0)]).best is not None


def test_a_final_waits_for_a_device_too(tmp_path: Path) -> None:
    (device,) = devices("sim:a?noise=0.01")
    with ost.Tuner([device.name], store=tmp_path / "db", progress=False) as tuner:
        for ms in (1.0, 0.99):
            tuner.tune("sum", [echo(ms)])
        with Held(device):  # the store answers all, but has no verdict
            report = tuner.tune("sum", [echo(1.0), echo(0.99)])
    assert [result.cached for result in report.results] == [True, True]
    assert {span.what for span in report.spans} == {"final"}
