"""The tuner: measures every candidate, remembers, and says which one wins."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, Self

from ostinato.tune.candidate import Candidate, importable_name, plain
from ostinato.tune.fleet.engines import join
from ostinato.tune.fleet.host import Fleet, RemoteTasks
from ostinato.tune.fleet.messages import Begin, read
from ostinato.tune.fleet.mpi import Follower
from ostinato.tune.leases.device import Device
from ostinato.tune.leases.devices import devices as devices_named
from ostinato.tune.policy import Budget, Policy, allowed_names, positive
from ostinato.tune.progress import Progress, listener
from ostinato.tune.racing.race import Race
from ostinato.tune.report.report import Report
from ostinato.tune.searching.queue import Queue, Strategy, offers
from ostinato.tune.searching.results import Known, Results
from ostinato.tune.searching.search import ReferenceCandidate, Search, confirm
from ostinato.tune.store.database import StoreError
from ostinato.tune.store.key import Sources, environment
from ostinato.tune.store.store import Store
from ostinato.tune.workers.loop import Loop
from ostinato.tune.workers.slot import LeasedWorker, Slot
from ostinato.tune.workers.tasks import Tasks


class Tuner:
    """Measures candidates on devices that it has to itself, each in a process that may do what it wants.

    Nothing that a candidate does (crash, hang, take all memory, leave processes behind) costs more than that candidate.
    What was measured is remembered in a store: a search that was killed goes on where it was, and one that has nothing
    new costs nothing. Use it as a context manager, or call `close`.

    Parameters
    ----------
    devices
        Names: ``"cpu:0"`` is the first usable core and ``"cpu:0-3"`` the first four, ``"cuda:1"`` the second GPU of
        this process's mask, ``"sim:a?latency=0.01"`` a simulated device. ``"all"``: the GPUs, or every core if there
        are none.
    store
        Path of the store, made with its folder if it does not exist; None: in the user's cache directory, or where
        ``OSTINATO_CACHE_DIR`` says, and if that cannot be written, nothing is remembered; False: nothing is.
    timeout
        Seconds that a candidate may take: to be built, and again to be measured.
    memory
        Bytes that a candidate may take while it is measured, with all processes that it starts; None: no limit.
    policy
        How candidates are measured.
    progress
        Who is told what happens: a `ostinato.tune.progress.Progress`, False for nobody, None for a display if stderr is
        a terminal.
    fleet
        Measure on the devices of many hosts: ``"ray"`` (the Ray cluster of this process, or that ``RAY_ADDRESS``
        names), ``"ray://host:port"``, or ``"mpi"`` (the hosts of ``COMM_WORLD``). Then `devices` are those of every
        host, and ``"node7/cuda:0"`` is one of a single host; all must be of one model. The store stays here.
    env_allow
        Names of the environment variables that candidates, their builds and their checks inherit, or patterns such as
        ``"MKL_*"``. None: all of them, secrets included. Always inherited are ``PATH``, ``HOME``, ``USER``,
        ``LOGNAME``, ``SHELL``, ``LANG``, ``LANGUAGE``, ``LC_*``, ``TZ``, ``TMPDIR``, ``LD_LIBRARY_PATH``, ``PYTHON*``,
        ``VIRTUAL_ENV``, ``CONDA_PREFIX``, ``OSTINATO_*``, and the variables that select GPUs.

    Raises
    ------
    TypeError, ValueError
        If a device is named twice, or a name, a limit, the policy or `env_allow` is wrong.
    DeviceError
        If a device is not there.
    ImportError
        If what `fleet` needs is not installed.
    TuningError
        If the store that `store` names cannot be used, or the fleet cannot be reached.

    Examples
    --------
    >>> import tempfile
    >>> import ostinato as ost
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with ost.Tuner(["sim:example"], store=f"{directory}/tune.db") as tuner:
    ...         candidates = [
    ...             ost.Candidate.command(["echo", "OP:sum,TIME:{ms},WS:0"], {"ms": ms}) for ms in (2.5, 0.5)
    ...         ]
    ...         report = tuner.tune("sum", candidates)
    >>> report.best.candidate.config, report.best.time_ns
    ({'ms': 0.5}, 500000.0)
    """

    def __init__(
        self,
        devices: str | Sequence[str] = "all",
        *,
        store: str | os.PathLike[str] | Literal[False] | None = None,
        timeout: float = 30.0,
        memory: int | None = None,
        policy: Policy | None = None,
        progress: Progress | bool | None = None,
        fleet: str | None = None,
        env_allow: Sequence[str] | None = None,
    ) -> None:
        self._searcher = Searcher(
            devices,
            store=store,
            timeout=timeout,
            memory=memory,
            policy=policy,
            progress=progress,
            fleet=fleet,
            env_allow=env_allow,
        )

    def tune(
        self,
        op: str,
        candidates: Iterable[Candidate] | Strategy,
        *,
        key: Mapping[str, Any] | None = None,
        default: Candidate | None = None,
        verify: str | Callable[..., object] | None = None,
        budget: float | Budget | None = None,
        anew: bool = False,
        data: str | os.PathLike[str] | None = None,
    ) -> Report:
        """Measure candidates and return what was found.

        Parameters
        ----------
        op
            The name of what is tuned. It is part of the key of every stored result, and names the results of callables.
        candidates
            The candidates, or a strategy of `ostinato.tune.strategies` that offers them. They are taken one by one,
            so there may be more than memory holds.
        key
            The problem that they are measured on, such as its sizes: part of the key of every stored result.
        default
            One of the candidates: it is measured first, and wins unless another is faster beyond the noise.
        verify
            ``"package.module:check"``, called in the worker as ``check(outputs, key)``, where `outputs` is what the
            timed callable returned, or for a command an `ostinato.tune.checking.CommandOutputs`. If it returns false
            or raises, the candidate is a ``wrong_result``.
        budget
            Seconds, or a `Budget`. What it leaves no time for is ``cancelled``.
        anew
            Whether to measure all candidates. If it is false, results that the store has are not measured again.
        data
            A path, such as that of a file with the problem. A candidate's `setup` gets it as its second argument, after
            the key. It is not part of the key of stored results.

        Raises
        ------
        TypeError, ValueError
            If an argument is wrong; `default` is not among the candidates.
        TuningError
            If no worker can be started.
        RuntimeError
            After `close`, and in a forked child.
        """
        return self._searcher.tune(
            op, candidates, key=key, default=default, verify=verify, budget=budget, anew=anew, data=data
        )

    def close(self) -> None:
        """End the workers and close the store; once more does nothing."""
        self._searcher.close()

    def __enter__(self) -> Self:
        self._searcher.check()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Tuner {getattr(self, '_searcher', 'on no device')}>"  # also where `__init__` failed


class Searcher:
    """What a `Tuner` has: devices or a fleet, workers, the store, and one search after the other.

    Arguments are those of `Tuner` and `Tuner.tune`.
    """

    _closed = False

    def __init__(
        self,
        devices: str | Sequence[str] = "all",
        *,
        store: str | os.PathLike[str] | Literal[False] | None = None,
        timeout: float = 30.0,
        memory: int | None = None,
        policy: Policy | None = None,
        progress: Progress | bool | None = None,
        fleet: str | None = None,
        env_allow: Sequence[str] | None = None,
    ) -> None:
        self._timeout = positive("timeout", timeout)
        if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int)):
            raise TypeError(f"memory must be a number of bytes, got {memory!r}")
        if memory is not None and memory < 1:
            raise ValueError(f"memory must be positive, got {memory}")
        if policy is not None and not isinstance(policy, Policy):
            raise TypeError(f"policy must be a Policy, got {policy!r}")
        allow = allowed_names(env_allow)
        self._memory = memory
        self._policy = policy or Policy()
        self._progress = listener(progress)
        joined = None if fleet is None else join(fleet, devices, memory, allow)
        self._follower = joined if isinstance(joined, Follower) else None  # of rank 0, which has the search
        self._fleet = joined if isinstance(joined, Fleet) else None
        self._devices = devices_named(devices) if joined is None else joined.devices
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._thread = 0  # that runs a search
        self._store = None if store is False or self._follower is not None else _store(store)
        self._loop = Loop()
        self._workers: Sequence[LeasedWorker] = (
            [LeasedWorker(self._loop, device, memory=memory, allow=allow) for device in self._devices]
            if joined is None
            else []
            if self._fleet is None
            else self._fleet.workers
        )
        builds = len(os.sched_getaffinity(0)) if joined is None else 0  # hosts of a fleet build what they measure
        self._builders = [
            Slot(self._loop, f"build:{number}", environment={}, memory=None, allow=allow) for number in range(builds)
        ]
        self._clean = True  # nothing of an earlier search is left to be ended

    def tune(
        self,
        op: str,
        candidates: Iterable[Candidate] | Strategy,
        *,
        key: Mapping[str, Any] | None = None,
        default: Candidate | None = None,
        verify: str | Callable[..., object] | None = None,
        budget: float | Budget | None = None,
        anew: bool = False,
        data: str | os.PathLike[str] | None = None,
        known: Known | None = None,
    ) -> Report:
        """Measure candidates, as `Tuner.tune` does.

        If `known` is given, it is used instead of this searcher's store: results come from it and go to it.
        """
        self.check()
        if not isinstance(op, str):
            raise TypeError(f"op must be a str, got {op!r}")
        if not op:
            raise ValueError("op must not be empty")
        problem = plain({} if key is None else key, "key")
        if not isinstance(problem, dict):
            raise TypeError(f"key must be a mapping of names to values, got {key!r}")
        if isinstance(budget, int | float) and not isinstance(budget, bool):
            budget = Budget(seconds=budget)
        if budget is not None and not isinstance(budget, Budget):
            raise TypeError(f"budget must be a number of seconds or a Budget, got {budget!r}")
        if default is not None and not isinstance(default, Candidate):
            raise TypeError(f"default must be a Candidate, got {default!r}")
        check = None if verify is None else importable_name("verify", verify)
        strategy = offers(candidates, default)
        path = None if data is None else os.fspath(data)
        with self._alone():
            self.check()
            if self._follower is not None:
                return self._follower.report()
            try:
                report = self._search(op, problem, strategy, default, check, budget or Budget(), anew, path, known)
            except BaseException as error:
                if self._fleet is not None:
                    self._fleet.ended(error)
                raise
            if self._fleet is not None:
                self._fleet.ended(report)
            return report

    @property
    def limits(self) -> tuple[float, int | None]:
        """The seconds and the bytes that a candidate may take."""
        return self._timeout, self._memory

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that it measures on."""
        return tuple(self._devices)

    @property
    def hosts(self) -> int:
        """How many other hosts measure; 0 without a fleet."""
        return len({device.host for device in self._devices if device.host})

    @property
    def follows(self) -> bool:
        """Whether this is another rank than 0 of a fleet of MPI: rank 0 has the searches, and the store."""
        return self._follower is not None

    def publish(self, value: object) -> None:
        """Give a value to those that call `receive`, if anybody follows."""
        if self._fleet is not None:
            self._fleet.publish(value)

    def receive(self) -> Any:
        """Serve the searches of rank 0 until it publishes a value, and return that; raise what a search raised."""
        assert self._follower is not None
        with self._alone():
            return self._follower.receive()

    def close(self) -> None:
        """End the workers and close the store; once more does nothing."""
        if self._process != os.getpid():
            return
        with self._alone():
            self._closed = True
            self._clear()
            for fleet in (self._fleet, self._follower):
                if fleet is not None:
                    fleet.close()
            self._loop.close()
            if self._store is not None:
                self._store.close()

    def _search(
        self,
        op: str,
        key: dict[str, Any],
        strategy: Strategy,
        default: Candidate | None,
        verify: str | None,
        budget: Budget,
        anew: bool,
        data: str | None,
        known: Known | None,
    ) -> Report:
        if not self._clean:  # an interrupt came while the last search was being ended
            self._clear()
        if known is None:
            stored = None
            if self._store is not None:
                there = environment(self._devices)
                stored = self._store.search(op, key, there, dataclasses.asdict(self._policy), with_earlier=not anew)
            known = Known(
                op,
                stored,
                Sources(verify),
                answers=not anew,
                seconds=self._timeout,
                memory=self._memory,
                note=self._progress.note,
            )
        race = Race(default=None, policy=self._policy)
        about = op, key, verify, self._policy, race.turn
        self._clean = False
        if self._fleet is None:
            tasks = Tasks(*about, seconds=self._timeout, memory=self._memory, data=data)
        else:
            tasks = RemoteTasks(*about, seconds=self._timeout, memory=self._memory, data=data, source=known.source)
            self._fleet.begin(self._loop, Begin(*about, self._timeout, None if data is None else read(data)))
            self._workers = self._fleet.workers
        report = run_search(
            op,
            key,
            Queue(strategy, default, budget.candidates),
            race=race,
            loop=self._loop,
            workers=self._workers,
            builders=self._builders,
            tasks=tasks,
            known=known,
            checked=verify is not None and self._fleet is None,
            seconds=budget.seconds,
            progress=self._progress,
            clear=self._clear,
            fleet=self._fleet,
        )
        if self._fleet is not None:
            self._fleet.end()
            self._workers, self._devices = self._fleet.workers, self._fleet.devices
        self._clean = True
        return report

    def _clear(self) -> None:
        """End whatever runs, and wait for nothing any more."""
        for slot in (*self._workers, *self._builders):
            slot.close()
        if self._fleet is not None:
            self._fleet.end()
        self._loop.clear()
        self._clean = True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other threads out; a search that calls its own tuner is refused."""
        if self._thread == threading.get_ident():
            raise RuntimeError("a search of this tuner is running in this thread: it cannot wait for itself")
        with self._lock:
            self._thread = threading.get_ident()
            try:
                yield
            finally:
                self._thread = 0

    def check(self) -> None:
        """Raise `RuntimeError` if it cannot be used: it is closed, or of a parent process."""
        if self._process != os.getpid():
            raise RuntimeError("this tuner was made before a fork; make another in the child")
        if self._closed:
            raise RuntimeError("this tuner is closed")

    def __enter__(self) -> Self:
        self.check()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __str__(self) -> str:
        names = ", ".join(device.name for device in self._devices)
        return f"on {names or 'no device'}{', closed' if self._closed else ''}"


def run_search(
    op: str,
    key: dict[str, Any],
    queue: Queue,
    *,
    race: Race,
    loop: Loop,
    workers: Sequence[LeasedWorker],
    builders: Sequence[Slot],
    tasks: Tasks,
    known: Known,
    checked: bool,
    seconds: float | None,
    progress: Progress,
    clear: Callable[[], None],
    fleet: Fleet | None = None,
) -> Report:
    """Measure the candidates of a queue on `workers`, those of `fleet` if there is one.

    `clear` ends whatever runs if that raises.
    """
    default, devices = queue.default, [worker.device for worker in workers]
    alike = len({(device.model, device.driver, device.simulation, device.host) for device in devices}) == 1
    alike &= fleet is None or not fleet.grows
    results = Results(op, default, alike, race, progress)
    search = Search(
        loop=loop,
        workers=workers,
        builders=builders,
        queue=queue,
        tasks=tasks,
        known=known,
        results=results,
        race=race,
        checked=checked,
        reference=ReferenceCandidate(default, [device.name for device in devices], alike, race),
        seconds=seconds,
        progress=progress,
        patience=0.0 if fleet is None else fleet.patience,
    )
    report = None
    progress.begin(op, queue.total)
    try:
        if fleet is not None:
            fleet.watch(search.join, progress.note)
        search.run()
        best, ties = confirm(search, race, results, known)
        report = Report(
            op=op,
            key=key,
            policy=race.policy,
            best=best,
            ties=ties,
            results=results.in_order(queue.order),
            default=results.default(),
            seconds=search.seconds,
            spans=tuple(search.spans),
            environment=environment([worker.device for worker in search.workers]),
        )
        for worker in search.workers:
            worker.release()
        return report
    except BaseException:
        clear()
        raise
    finally:
        with ExitStack() as last:  # each of them, whatever becomes of those before it
            last.callback(progress.end, report)
            last.callback(search.close)
            last.callback(known.commit, last=True)


def _store(path: str | os.PathLike[str] | None) -> Store | None:
    """Open the store; where nobody asked for one and there is no room for it, go on without."""
    try:
        return Store(path)
    except StoreError as error:
        if path is not None:
            raise
        logging.getLogger("ostinato").warning("%s; until then nothing is remembered", error)
        return None
