"""What this host, the ways to its devices and ops take: measured, remembered in the store, read by compile.

The key is the identity of the host or device: the processor or device, the cores that this process may use, the kernel,
and the versions of Ostinato and Python or of the driver. What is not right counts as absent.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

import ostinato
from ostinato import _core
from ostinato.compiler.target import DeviceModel, MachineModel
from ostinato.devices.array import empty
from ostinato.devices.transfers import move, plan
from ostinato.environment import default_store, usable_cores
from ostinato.graph.arrays import Operand
from ostinato.graph.body import NativeCall, PythonCall
from ostinato.graph.graph import Graph
from ostinato.graph.native import native
from ostinato.graph.task import task
from ostinato.graph.variant import variants_of
from ostinato.view.activity import unobserved

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostinato.compiler.costs import Costs
    from ostinato.compiler.summary import Summary
    from ostinato.devices.device import Device
    from ostinato.graph.arrays import Array
    from ostinato.graph.op import Op
    from ostinato.runtime.machine import Machine

HOST_FORMAT, DEVICE_FORMAT, OPS_FORMAT = 4, 1, 1
"""Of what is remembered; another one for another meaning of a number."""

LONGEST = 0.1
"""Seconds; a longer time is no measurement of a host."""

OPS, SAMPLES, SAMPLE = 64, 9, 200e-6
"""Of the programs that tell what a call costs: ops, samples, and seconds of a sample."""

ADDED = 2000
"""Numbers that a task adds which gives the GIL away meanwhile, for about a microsecond."""

SMALL, LARGE, COPIES = 64, 4 << 20, 25
"""Bytes of the copies that tell what one takes by itself, and what its bytes take; how many of each."""

MOST_LEARNED, MOST_LABEL = 200, 250
"""Of so many kinds of ops it is remembered what they take; characters that tell a kind."""

LEARNED = "learned in replays"

NOISE = 0.25
"""Calls of one kind whose times differ from the median by at most this share do not differ for any reason."""

_TOGETHER = ("transfer", "poll", "switch", "wake", "notify")
_CALLS = ("native_call", "python_call", "hand_over")


class CalibrationStore(Protocol):
    """What keeps texts between processes, by the identity of what they are about."""

    def read(self, identity: str) -> str | None: ...
    def write(self, identity: str, content: str) -> None: ...


class _Entry(NamedTuple):
    path: str  # of the store
    identity: str  # it must be the same for a measurement to hold

    @classmethod
    def of(cls, **identity: object) -> Self:
        return cls(default_store(), repr(identity))

    def read(self) -> dict[str, Any]:
        """Return what is remembered, or raise one of `_NOT_RIGHT`; import nothing if there is no store."""
        if not os.path.isfile(self.path):
            return {}
        import json

        return dict(json.loads(self._store().read(self.identity) or "{}"))

    def write(self, content: dict[str, Any]) -> None:
        """Remember; where that is not possible, this process alone does."""
        import json

        self._store().write(self.identity, json.dumps(content))

    def _store(self) -> CalibrationStore:
        if _open_store is None:
            raise RuntimeError("import ostinato first")
        return _open_store(self.path)


_open_store: Callable[[str], CalibrationStore] | None = None


def bind_store(open_store: Callable[[str], CalibrationStore]) -> None:
    """Have calibrations kept in what `open_store` returns for a path; `ostinato.api` does."""
    global _open_store
    _open_store = open_store


_NOT_RIGHT = (ValueError, TypeError, KeyError, RecursionError)


_hosts: dict[tuple[str, tuple[int, ...]], _Entry] = {}
_known: dict[_Entry, MachineModel | None] = {}  # with any number of cores
_known_devices: dict[_Entry, DeviceModel] = {}
_lock = threading.Lock()


def recall_host(cores: int) -> MachineModel:
    """Return the model of a machine of this host with so many cores, as remembered; nothing is measured."""
    host = _host()
    if host not in _known:
        _known[host] = _read_host(host)
    return replace(_known[host] or MachineModel(cores=cores), cores=cores)


def measure_host(cores: int) -> MachineModel:
    """Return the model of a machine of this host with so many cores; measure what is not remembered.

    What could be measured in part only, other processes measure again.
    """
    host = _host()
    with _lock:
        known = _known.get(host) or _read_host(host)
        if known is None:
            seconds, source = _measure_host(usable_cores())
            if len(usable_cores()) == 1 or seconds.keys() >= {*_TOGETHER}:
                host.write({"seconds": seconds, "source": source})
            known = MachineModel(cores=1, source=source, **seconds)
        _known[host] = known
    return replace(known, cores=cores)


def _host() -> _Entry:
    key = default_store(), tuple(sorted(os.sched_getaffinity(0)))
    if key not in _hosts:
        _hosts[key] = _Entry.of(
            format=HOST_FORMAT,
            processor=_processor(),
            cores=usable_cores(),
            kernel=os.uname().release,
            ostinato=ostinato.__version__,
            python=sys.version,
            gil=bool(getattr(sys, "_is_gil_enabled", lambda: True)()),
        )
    return _hosts[key]


def _processor() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "CPU part"):
                return value.strip()
    return os.uname().machine


def _read_host(host: _Entry) -> MachineModel | None:
    """Return what is remembered; None if there is nothing, or nothing that is right."""
    try:
        content = host.read()
        seconds, source = dict(content["seconds"]), content["source"]
        right = (
            isinstance(source, str)
            and {*_CALLS} <= seconds.keys() <= {*_TOGETHER, *_CALLS}
            and all(type(value) is float and 0 <= value <= LONGEST for value in seconds.values())
        )
    except _NOT_RIGHT:
        return None
    return MachineModel(cores=1, source=source, **seconds) if right else None


@unobserved()
def _measure_host(cores: list[int]) -> tuple[dict[str, Any], str]:
    """Return what could be measured, by field of the model, and what is said of it."""
    from ostinato.runtime.machine import Machine

    seconds: dict[str, Any] = {}
    with Machine(cpus=1) as machine:
        seconds["native_call"] = float(np.median(_call_seconds(machine, native(_core.nothing_address(), ()))))
        seconds["python_call"] = float(np.median(_call_seconds(machine, task(_nothing))))
        alone = min(_call_seconds(machine, task(_add, releases_gil=True)))
        together = {}
        if len(cores) > 1:
            together = dict(zip(_TOGETHER, _core.measure_machine(machine.workers.core, *cores[:2]), strict=True))
    seconds["hand_over"] = 0.0
    if len(cores) > 1:
        with Machine(cpus=2) as machine:  # the least: other processes make threads wait for longer
            together_seconds = min(_call_seconds(machine, task(_add, releases_gil=True), 2))
        seconds["hand_over"] = min(max(0.0, 2 * together_seconds - alone), LONGEST)
    seconds |= {name: value for name, value in together.items() if 0 <= value <= LONGEST}
    source = f"measured {time.strftime('%Y-%m-%d')}"
    if missing := [name for name in _TOGETHER if name not in seconds]:
        reason = "its threads never ran at once" if together else "it has one core"
        source += f"; {', '.join(missing)} assumed, since {reason}"
    return seconds, source


def _nothing() -> None: ...


_added = threading.local()


def _add() -> None:
    """Give the GIL away for a while, as NumPy does."""
    if not hasattr(_added, "numbers"):
        _added.numbers = np.zeros(ADDED)
    np.add(_added.numbers, 1.0, out=_added.numbers)


def _call_seconds(machine: Machine, called: Callable[..., object], lanes: int = 1) -> list[float]:
    """Return samples of what a step takes of ops which call a task, in so many lanes, by the number of ops."""
    graph = Graph(infer=False)
    ops = [graph.task(called) for _ in range(OPS)]
    costs = dict.fromkeys(ops, LONGEST) if lanes > 1 else {}
    samples: list[float] = []
    with graph.compile(machine, lanes=lanes, costs=costs, adapt=False) as program:
        steps = 1
        while len(samples) < SAMPLES:
            begin = time.perf_counter()
            program.replay(steps)
            taken = time.perf_counter() - begin
            if taken < SAMPLE / 2 and steps < 2**16:
                steps *= 2
            else:
                samples.append(taken / (steps * OPS))
    return samples


def recall_device(device: Device) -> DeviceModel:
    """Return the model of the way to a device, as remembered; nothing is measured."""
    entry = _device_entry(device)
    if entry not in _known_devices and (model := _read_device(entry)) is not None:
        _known_devices[entry] = model
    return _known_devices.get(entry) or DeviceModel()


def measure_device(device: Device) -> DeviceModel:
    """Return the model of the way to a device; measure what is not remembered."""
    entry = _device_entry(device)
    if entry not in _known_devices:
        model = _read_device(entry)
        if model is None:
            model = _measure_device(device)
            said = {"latency": model.latency, "into": model.into, "out": model.out, "source": model.source}
            entry.write({"model": said})
        _known_devices[entry] = model
    return _known_devices[entry]


def _device_entry(device: Device) -> _Entry:
    return _Entry.of(
        format=DEVICE_FORMAT,
        device=device.identity,
        model=device.model,
        driver=device.driver,
        cores=sorted(os.sched_getaffinity(0)),
        kernel=os.uname().release,
        ostinato=ostinato.__version__,
    )


def _read_device(entry: _Entry) -> DeviceModel | None:
    """Return what is remembered; None if there is nothing, or nothing that is right."""
    try:
        model = entry.read()["model"]
        numbers = {name: model[name] for name in ("latency", "into", "out")}
        right = all(type(each) is float and each > 0 for each in numbers.values())
        return DeviceModel(**numbers, source=str(model["source"])) if right else None
    except _NOT_RIGHT:
        return None


def _measure_device(device: Device) -> DeviceModel:
    small, large = (np.zeros(size, np.uint8) for size in (SMALL, LARGE))
    there = empty(device, LARGE, np.uint8)

    def copy(source: Array, target: Array) -> None:
        move(device, plan(source, target))

    pinned = [device.pin(array.ctypes.data, array.ctypes.data + array.nbytes) for array in (small, large)]
    latency = _least_seconds(lambda: copy(small, there[:SMALL].proxy))
    into = _least_seconds(lambda: copy(large, there.proxy))
    out = _least_seconds(lambda: copy(there.proxy, large))
    del pinned
    source = f"measured {time.strftime('%Y-%m-%d')}"
    return DeviceModel(latency=latency, into=LARGE / into, out=LARGE / out, source=source)


def _least_seconds(copy: Callable[[], object]) -> float:
    """Return the least that a copy takes: what comes in between only makes it longer."""
    copy()
    least = float("inf")
    for _ in range(COPIES):
        begin = time.perf_counter()
        copy()
        least = min(least, time.perf_counter() - begin)
    return least


_learned: dict[_Entry, dict[str, list[float]]] = {}  # seconds and spread, the latest last


def recall_ops(summary: Summary, costs: Costs) -> Costs:
    """Return costs with what replays have taught, in this process or others, in place of estimates."""
    known, ops = _learned_here()[1], summary.ops
    begins = tuple({f"{_task_label(ops[index])}("[:MOST_LABEL] for index in summary.first.tolist()})
    if not any(label.startswith(begins) for label in known):
        return costs
    numbers, labels = _kinds(ops)
    taken = np.array([known.get(label, (np.nan, np.nan)) for label in (*labels, "")])  # the last is of what is no call
    found = ~costs.measured & ~np.isnan(taken[numbers, 0])
    if not found.any():
        return costs
    seconds, spread = (np.where(found, column[numbers], old) for column, old in zip(taken.T, costs[:2], strict=True))
    source = np.where(found, np.int32(len(costs.sources)), costs.source)
    return costs._replace(seconds=seconds, spread=spread, source=source, sources=(*costs.sources, LEARNED))


def level_costs(ops: tuple[Op, ...], costs: Costs, noise: float = NOISE) -> Costs:
    """Return costs without the noise: calls of one kind that took nearly the same take the same."""
    seconds = costs.seconds.copy()
    for those in _alike(ops, costs).values():
        middle = np.median(seconds[those])
        near = np.abs(seconds[those] - middle) <= noise * middle
        seconds[those[near]] = middle
    return costs._replace(seconds=seconds)


def remember_ops(ops: tuple[Op, ...], costs: Costs) -> None:
    """Remember what ops take."""
    entry, known = _learned_here()
    for label, those in _alike(ops, costs).items():
        known.pop(label, None)
        known[label] = [float(np.median(each[those])) for each in (costs.seconds, costs.spread)]
    for label in list(known)[:-MOST_LEARNED]:
        del known[label]
    entry.write({"learned": known})


def _learned_here() -> tuple[_Entry, dict[str, list[float]]]:
    host = _host()
    entry = host._replace(identity=f"learned of {OPS_FORMAT}, {host.identity}")
    if entry not in _learned:
        try:
            found = dict(entry.read().get("learned", {}))
            right = all(
                len(pair) == 2 and 0 < pair[0] < math.inf and 0 <= pair[1] < math.inf for pair in found.values()
            )
        except _NOT_RIGHT:
            right = False
        _learned[entry] = found if right else {}
    return entry, _learned[entry]


def _alike(ops: tuple[Op, ...], costs: Costs) -> dict[str, npt.NDArray[np.intp]]:
    """Return which ops of measured costs are of one kind, by its label."""
    numbers, labels = _kinds(ops)
    different = list(dict.fromkeys(labels))
    place = {label: index for index, label in enumerate(different)}
    of_label = np.array([*map(place.__getitem__, labels), -1])[numbers]
    of_label[~costs.measured] = -1
    order = np.argsort(of_label, kind="stable")
    begin = np.searchsorted(of_label[order], np.arange(len(different) + 1))
    pairs = zip(different, itertools.pairwise(begin.tolist()), strict=True)
    return {label: order[first:end] for label, (first, end) in pairs if first < end}


def _kinds(ops: tuple[Op, ...]) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Return the number of each op's kind, -1 for what is no call of a task, and the labels of kinds by number.

    Ops of one kind take the same: they call one task on such arrays, with such numbers. Kinds may share a label.
    """
    numbers, first = _core.passes.different_calls(ops, (NativeCall, PythonCall), Operand)
    return numbers, [_label(ops[index]) for index in first.tolist()]


def _label(op: Op) -> str:
    body = op.body
    assert isinstance(body, PythonCall | NativeCall)
    return f"{_task_label(op)}({', '.join(map(_described, body.args))})"[:MOST_LABEL]


def _task_label(op: Op) -> str:
    from zlib import crc32

    body = op.body
    assert isinstance(body, PythonCall | NativeCall)
    task = variants_of(body)[0].task
    function: Any = getattr(task, "function", None)
    code = getattr(function, "__code__", None)
    return op.name if code is None else f"{function.__module__}:{function.__qualname__}:{crc32(code.co_code):x}"


def _described(arg: object) -> str:
    if isinstance(arg, Operand):
        return " ".join(f"{array.dtype}{list(array.shape)}" for array in arg.arrays[:1])
    return repr(arg) if type(arg) in (bool, int, float) else type(arg).__name__
