"""Measuring the variants of one signature: in worker processes where they can be had there, or else in this one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, Self

from ostinato import _core
from ostinato.environment import spare_memory
from ostinato.errors import ContractError
from ostinato.tune.candidate import Candidate
from ostinato.tune.graphs.cost_store import tuner_device
from ostinato.tune.graphs.in_process import measure_in_process
from ostinato.tune.graphs.in_worker import measure_in_worker
from ostinato.tune.graphs.payload import Unsendable
from ostinato.tune.leases.device import Device
from ostinato.tune.leases.devices import devices as devices_named
from ostinato.tune.leases.lease import Lease
from ostinato.tune.leases.opencl import opencl_device
from ostinato.tune.outcome import Status
from ostinato.tune.policy import Budget, Policy
from ostinato.tune.progress import Progress, listener
from ostinato.tune.searching.tuner import Searcher

if TYPE_CHECKING:
    from ostinato.devices.device import Device as UsableDevice
    from ostinato.tune.graphs.cost_store import Keeping
    from ostinato.tune.graphs.signature import Signature
    from ostinato.tune.report.report import Report
    from ostinato.tune.result import Result

_OF_SPARE_MEMORY = 0.75
"""That a variant may take: one that takes more ends in its worker, and not whatever the kernel would choose to end."""

FACTORY = "ostinato.tune.graphs.in_worker:benchmark"


@dataclass(frozen=True)
class Request:
    """A signature to be measured; `keeping` makes what keeps the variants as they are measured, if anything does."""

    signature: Signature
    rtol: float = 0.0
    budget: Budget = field(default_factory=Budget)
    keeping: Keeping | None = None

    @cached_property
    def candidates(self) -> list[Candidate]:
        """What stands for the variants in reports and in the store, in their order: the default first."""
        variants = self.signature.variants
        return [Candidate.call(FACTORY, {"variant": each.name, **each.config}) for each in variants] or [
            Candidate.call(FACTORY)
        ]


class Executor(Protocol):
    """What measures the variants of a signature: a `Session`, or a test's."""

    def measure(self, request: Request) -> Report: ...


class Session:
    """What measuring several signatures shares: a device, and the worker process on it, started when needed.

    One processor measures everything, the first of `devices` that nobody has leased: neighbors on the same memory would
    be measured too. With `fleet`, a searcher over many hosts, one of each host does. `init` is called once on the
    thread that measures, as a machine calls its own; it keeps all measuring in this process. `accelerators` measure
    variants for other kinds of processors than CPUs, by kind.
    """

    def __init__(
        self,
        devices: Sequence[str] = ("cpu:0",),
        *,
        policy: Policy | None = None,
        progress: Progress | bool | None = None,
        init: Callable[[], object] | None = None,
        accelerators: Mapping[str, UsableDevice] = MappingProxyType({}),
        fleet: Searcher | None = None,
    ) -> None:
        self._init = init
        self._accelerators = accelerators
        self._policy = policy or Policy()
        self._progress = listener(progress)
        self._devices = devices_named(devices)
        self._searcher: Searcher | None = None
        self._fleet = fleet

    @cached_property
    def device(self) -> Device:
        """The device; chosen when it is first asked for."""
        for device in self._devices:
            lease = Lease(device)
            holder = lease.try_acquire()
            lease.release()
            if holder is None:
                return device
        return self._devices[0]

    def measure(self, request: Request) -> Report:
        """Measure in a worker process if that is possible, or else in this one; each result says where.

        `best` is None if the default failed, since nothing can be compared with it then, and if it was disturbed,
        unless the winner is faster than it ever was. With a fleet, its hosts measure, or `Unsendable` is raised.
        """
        if _core.serving():
            raise ContractError("a task cannot measure others: it would be in their way")
        signature = request.signature
        try:
            self._check_sendable(signature)
            report, where = measure_in_worker(request, self._worker), "measured in a worker process"
        except Unsendable as why:
            if self._fleet is not None:
                raise
            on = self._accelerators.get(signature.kind)
            device = self.device if on is None else add_processor(on, self.device)
            report = measure_in_process(request, device, self._policy, self._progress, on)
            where = f"measured in this process: {why}"
        for result in report.results:
            if result.device is not None:
                result.message = f"{result.message} ({where})" if result.message else where
        if signature.has_default and not _is_better(report.best, report.default):
            report.best, report.ties = None, ()
        return report

    def _check_sendable(self, signature: Signature) -> None:
        """Call `init`, on the thread that measures; raise `Unsendable` if a worker process cannot measure."""
        if self._init is not None:
            self._init()
        if signature.kind in self._accelerators:
            raise Unsendable(f"streams and arrays of {self._accelerators[signature.kind].name} are of one process")
        if self._init is not None:
            raise Unsendable("the machine has an init function")
        if not signature.variants:
            raise Unsendable("it is no task")

    def _worker(self) -> Searcher:
        """Return the searcher whose worker measures; made when it is first asked for."""
        if self._fleet is not None:
            return self._fleet
        if self._searcher is None:
            spare = spare_memory()
            self._searcher = Searcher(
                [self.device.name],
                store=False,
                memory=None if spare is None else max(1, int(spare * _OF_SPARE_MEMORY)),
                policy=self._policy,
                progress=self._progress,
            )
        return self._searcher

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._searcher is not None:
            self._searcher.close()


def _is_better(best: Result | None, default: Result | None) -> bool:
    """Whether the winner may be taken: the default must have been measured, to be compared with."""
    if best is None or best.time_ns is None or default is None:
        return False
    # What disturbs only makes slower: the least of its samples is the best guess at what the default would take.
    disturbed = default.status is Status.CONTENDED and best.time_ns < min(default.samples, default=0.0)
    return default.status is Status.OK or disturbed


def add_processor(device: UsableDevice, processor: Device) -> Device:
    """Return what is leased while a device is measured: itself, and the processor whose thread gives it work.

    An OpenCL device that is the processor is leased with all the cores that it computes on.
    """
    found = opencl_device(device.name) if device.kind == "opencl" else tuner_device(device)
    identities = dict.fromkeys((*found.identities, *processor.identities))
    return dataclasses.replace(tuner_device(device), identities=tuple(identities))
