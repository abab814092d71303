"""What this host's cores pay: measured once, remembered, and read again only where it still holds."""

from __future__ import annotations

import ast
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import ostinato as ost
from ostinato import _core
from ostinato.compiler.target import MachineModel
from ostinato.runtime import calibrate
from ostinato.runtime.calibrate import measure_host, recall_host

TOGETHER_NAMES = ("transfer", "poll", "switch", "wake", "notify")
TOGETHER = (50e-9, 5e-9, 20e-9, 25e-6, 9e-6)


class Measurements:
    """Stands for the microbenchmarks, and counts them."""

    def __init__(self) -> None:
        self.count = 0
        self.together = TOGETHER
        self.cores: list[int] = [0, 1]

    def __call__(self, machine: object, first: int, second: int) -> tuple[float, ...]:
        self.count += 1
        return self.together


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def measurements(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Measurements:
    """Two cores, whatever this host has, and microbenchmarks that take no time."""
    found = Measurements()
    monkeypatch.setattr(_core, "measure_machine", found)
    monkeypatch.setattr(calibrate, "usable_cores", lambda: found.cores)
    monkeypatch.setattr(calibrate, "_call_seconds", lambda machine, called, lanes=1: [lanes * 3e-9])
    _forget()
    return found


def _forget() -> None:
    """As in the next process."""
    calibrate._hosts.clear()
    calibrate._known.clear()


def _sql(directory: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(directory / "tune.db", isolation_level=None)) as connection:
        return connection.execute(statement, values).fetchall()


def _content(directory: Path) -> str:
    ((content,),) = _sql(directory, "SELECT content FROM calibration")
    return str(content)


def test_nothing_is_known_at_first_and_nothing_is_made(measurements: Measurements, directory: Path) -> None:
    assert recall_host(2) == MachineModel(cores=2)
    assert recall_host(2).source == "assumed"
    assert measurements.count == 0
    assert not directory.exists()


def test_measured_once_and_then_remembered(measurements: Measurements) -> None:
    model = measure_host(2)
    assert (model.transfer, model.poll, model.switch, model.wake, model.notify) == TOGETHER
    assert model.native_call == model.python_call == 3e-9
    assert model.hand_over == pytest.approx(9e-9)
    assert model.source.startswith("measured 20")
    assert recall_host(2) == measure_host(2) == model
    assert recall_host(64).cores == 64
    _forget()
    assert recall_host(2) == measure_host(2) == model
    assert recall_host(2).source == model.source
    assert measurements.count == 1


def test_other_cores_are_another_host(measurements: Measurements) -> None:
    measure_host(2)
    _forget()
    measurements.cores = [0, 1, 2]
    assert recall_host(3) == MachineModel(cores=3)
    measure_host(3)
    assert measurements.count == 2
    _forget()
    measurements.cores = [0, 1]
    assert recall_host(2) == measure_host(2)
    assert measurements.count == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text[:-20],
        lambda text: "null",
        lambda text: "[" * 100_000,
        lambda text: text * 1000,
        lambda text: b"\xff\xfe\x00",
        lambda text: text.replace("5e-08", "-5e-08"),
        lambda text: text.replace("5e-08", "NaN"),
        lambda text: text.replace("5e-08", "7.0"),
        lambda text: text.replace("5e-08", "null"),
        lambda text: text.replace("transfer", "cores"),
        lambda text: text.replace("native_call", "call"),
        lambda text: text.replace('"poll"', '"look"').replace('"switch"', '"take_up"').replace('"notify"', '"ring"'),
    ],
    ids=range(13),
)
def test_what_is_not_right_is_measured_again(change, measurements: Measurements, directory: Path) -> None:
    model = measure_host(2)
    before = _content(directory)
    after = change(before)
    assert after != before
    _sql(directory, "UPDATE calibration SET content = ?", after)
    _forget()
    assert recall_host(2) == MachineModel(cores=2)
    assert measure_host(2) == model
    assert measurements.count == 2
    assert _content(directory) == before
    _forget()
    assert recall_host(2) == model


@pytest.mark.parametrize("kind", ["another host", "a database of others", "no database", "a calibration of old"])
def test_what_is_not_about_this_host_is_left_alone(kind: str, measurements: Measurements, directory: Path) -> None:
    if kind == "another host":
        measure_host(2)
        _sql(directory, "UPDATE calibration SET identity = replace(identity, 'cores', 'wires')")
    else:
        directory.mkdir()
        if kind == "a database of others":
            _sql(directory, "CREATE TABLE calibration (identity TEXT, content TEXT)")
        else:
            name = "tune.db" if kind == "no database" else "machine-0123abcd.json"
            (directory / name).write_text('{"host": {}, "seconds": {}, "source": "measured"}')
    _forget()
    assert recall_host(2) == MachineModel(cores=2)
    model = measure_host(2)
    assert model.source.startswith("measured")
    _forget()
    kept = kind in ("another host", "a calibration of old")
    assert recall_host(2) == (model if kept else MachineModel(cores=2))


def test_without_a_directory_only_this_process_remembers(measurements: Measurements, directory: Path) -> None:
    directory.write_text("a file")
    assert measure_host(2) == measure_host(2)
    assert measurements.count == 1
    assert directory.read_text() == "a file"


def test_one_core_has_nobody_to_work_with(measurements: Measurements) -> None:
    measurements.cores = [3]
    model = measure_host(1)
    assert measurements.count == 0
    assert model.source.endswith("; transfer, poll, switch, wake, notify assumed, since it has one core")
    assert model.transfer == MachineModel(cores=1).transfer
    assert model.native_call == 3e-9


def test_threads_that_never_ran_at_once(measurements: Measurements) -> None:
    measurements.together = (50e-9, 5e-9, -1.0, 25e-6, 9e-6)
    model = measure_host(2)
    assert model.source.endswith("; switch assumed, since its threads never ran at once")
    assert model.switch == MachineModel(cores=2).switch
    assert model.wake == 25e-6
    assert measure_host(2) == recall_host(2) == model
    assert measurements.count == 1
    _forget()  # the host may have been busy: the next process tries again
    measurements.together = TOGETHER
    assert recall_host(2) == MachineModel(cores=2)
    assert measure_host(2).switch == TOGETHER[2]
    _forget()
    assert recall_host(2).switch == TOGETHER[2]


def test_what_is_in_the_store(measurements: Measurements, directory: Path) -> None:
    measure_host(2)
    ((identity,),) = _sql(directory, "SELECT identity FROM calibration")
    assert ast.literal_eval(identity)["cores"] == [0, 1]
    assert ast.literal_eval(identity)["ostinato"] == ost.__version__
    content = json.loads(_content(directory))
    assert content["seconds"].keys() == {*TOGETHER_NAMES, "native_call", "python_call", "hand_over"}


def test_this_host(directory: Path) -> None:
    with ost.Machine(cpus=2) as machine:
        model = MachineModel.of(machine)
    assert model.cores == 2
    assert min(model.native_call, model.python_call) > 0
    assert model.source.startswith("measured")
    assert recall_host(2) == model


def test_the_microbenchmarks_end_where_there_is_one_core() -> None:
    core = min(os.sched_getaffinity(0))
    with ost.Machine(cpus=1) as machine:
        assert len(_core.measure_machine(machine.workers.core, core, core)) == 5
