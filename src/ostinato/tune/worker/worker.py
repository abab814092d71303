"""A worker: answers requests to measure, prepare and check candidates, one at a time."""

from __future__ import annotations

import gc
import os
import sys
import time
from _json import encode_basestring_ascii as quoted

from ostinato.tune.stopping import Stopping
from ostinato.tune.worker.channel import end_if_forked, moved
from ostinato.tune.worker.functions import described, found
from ostinato.tune.worker.sampling import sampled
from ostinato.tune.worker.timers import CpuTimer, Flusher, Preemption, before_sample, calls_per_sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ostinato.tune.worker.channel import Channel
    from ostinato.tune.worker.cuda import CudaTimer
    from ostinato.tune.worker.sampling import Samples, Timer


_DEEPEST = 4
_LONGEST = 1000  # a longer list holds numbers, not arrays


def poisoned(outputs: object, inputs: object) -> None:
    """Fill the NumPy arrays in `outputs` with NaN, or bytes 0xA5, except those that share memory with `inputs`."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:  # then there is no array either
        return
    kept = list(_arrays(numpy, inputs, _DEEPEST))
    for array in _arrays(numpy, outputs, _DEEPEST):
        if not array.flags.writeable or any(numpy.may_share_memory(array, other) for other in kept):
            continue
        memory = array.view(numpy.ndarray)  # units and masks have opinions on what is assigned to them
        if array.dtype.kind in "fc":
            memory[...] = numpy.nan
        elif array.dtype.kind == "U":
            memory[...] = "\ufffd" * (array.itemsize // 4)  # text that is none raises where it is looked at
        elif not array.dtype.hasobject:
            memory[...] = numpy.frombuffer(b"\xa5" * array.itemsize, array.dtype)[0]


def _arrays(numpy: Any, value: object, depth: int) -> Iterator[Any]:
    if isinstance(value, numpy.ndarray):
        yield value
    elif depth:
        inner: Any = ()
        if isinstance(value, dict):
            inner = value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            inner = value
        elif hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
            inner = vars(value).values()
        for item in inner if len(inner) <= _LONGEST else ():
            yield from _arrays(numpy, item, depth - 1)


_TASKS = "/proc/self/task"
_LOOKS = (0.001, 0.01, 0.1, 0.2)  # seconds: pools of threads may spin for 0.2 s before they sleep
_BUSY = 0.1  # cores

_clock, _used, _sleep = time.perf_counter, time.process_time, time.sleep
_dup2 = os.dup2


class Tidying:
    """Remembers how the worker was, and puts that back after a candidate.

    `path` has the directories that modules must be found in.
    """

    def __init__(self) -> None:
        self._cores = os.sched_getaffinity(0)
        self._directory = _directory()
        self._streams = sys.stdout, sys.stderr
        self._copies = [moved(os.dup(number)) for number in range(3)]
        self._threads = _threads()
        self._modules, self._variables = len(sys.modules), len(os.environ)
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)
        self.path = frozenset(sys.path)

    def tidy(self) -> str:
        """Put back directory, cores, streams and timers; return why this worker must end, or nothing.

        Threads that a candidate left may wait for work, as those of a pool do, but not run beside the next one.
        """
        # What candidates add here is theirs to add; what they take away others would be blamed for.
        modules, variables = len(sys.modules), len(os.environ)
        if modules < self._modules or variables < self._variables or not self.path.issubset(sys.path):
            return "a candidate took modules, variables or directories of modules away"
        self._modules, self._variables = modules, variables
        if os.getpriority(os.PRIO_PROCESS, 0) != self._priority:
            return "a candidate changed the priority of this process"
        try:
            if self._directory is not None and _directory() != self._directory:
                os.chdir(self._directory)
            for number, copy in enumerate(self._copies):
                _dup2(copy, number)
        except OSError as error:
            return f"a candidate left this process without its directory or descriptors: {error.strerror}"
        sys.stdout, sys.stderr = self._streams
        if os.sched_getaffinity(0) != self._cores:
            os.sched_setaffinity(0, self._cores)
        signal: Any = sys.modules.get("signal")  # without it nothing was set
        if signal is not None:
            for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
                signal.setitimer(timer, 0)
        gc.enable()
        threads = _threads()
        if threads > self._threads and all(_busy(look) for look in _LOOKS):
            return "a candidate left a thread that runs"
        self._threads = threads
        return ""


def _directory() -> str | None:
    """Return the current directory; None if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _threads() -> int:
    return os.stat(_TASKS).st_nlink


def _busy(seconds: float) -> bool:
    """Whether this process computes while this thread sleeps."""
    begin, used = _clock(), _used()
    _sleep(seconds)
    return _used() - used > _BUSY * (_clock() - begin)


class Worker:
    """What lasts from one candidate to the next."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._tidying = Tidying()
        self._preemption = Preemption()
        self._cpu: CpuTimer | None = None
        self._cuda: CudaTimer | None = None
        self._flush: Callable[[], None] | None = None
        self._kept: dict[str, _Made] = {}
        self._set_up_for: tuple[str, dict[str, Any], str | None] | None = None
        self._inputs: Any = None  # what that setup returned

    def serve(self) -> None:
        """Answer requests; the channel ends the process when the tuner is gone."""
        channel = self._channel
        work = {"measure": self._measure, "prepare": _prepare, "check": _check}
        while True:
            request = channel.request()
            kind = request["type"]
            if kind == "hello":
                sys.path[:] = request["path"]
                self._tidying.path = frozenset(sys.path)
                channel.answer(f'{{"v":1,"type":"hello","pid":{os.getpid()}}}\n')
            elif kind == "forget":
                self._kept.clear()
            elif kind == "verify":
                channel.answer(f'{{"v":1,"type":"verify","message":{quoted(_problem(request))}}}\n')
            if kind not in work:
                continue
            number, op = request["id"], quoted(request.get("op", ""))
            channel.start(f'{{"v":1,"type":"start","op":{op},"id":{number}}}\n')
            answer = _Answer()
            try:
                work[kind](request, answer)
            except Exception as error:
                answer.failed(answer.stage, error)
            except BaseException as error:  # SystemExit and its like: the worker is not the candidate's to end
                answer.failed("wrong_result" if answer.stage == "wrong_result" else "crash", error)
            channel.answer(answer.line(number, op))
            del answer, request
            damage = self._tidying.tidy() or (self._cuda.damage() if self._cuda else "")
            if damage:
                channel.answer(f'{{"v":1,"type":"bye","message":{quoted(damage)}}}\n')
                channel.leave()

    def _measure(self, request: dict[str, Any], answer: _Answer) -> None:
        candidate = request["candidate"]
        timer = self._timer(request, answer)
        made = self._kept.pop(candidate, None) if request["again"] else None
        if made is None:
            made = self._make(request)
        answer.workspace = _workspace(made.call)

        answer.stage = "crash"
        outputs = _called(made)  # not timed: it may compile, and takes pages and caches from cold
        end_if_forked()
        check = None
        if not request["verify"]:
            outputs = None  # their memory may be needed
        else:
            answer.stage = "invalid"
            check = _check_of(request)
            outputs = _checked(answer, check, request["key"], made, outputs)
            answer.stage = "crash"

        policy = request["policy"]
        flush = self._flusher(timer) if policy["cache"] == "cold" else None
        before = before_sample(made.call, flush)
        timer.begin(made.call, before is not None)
        calls = calls_per_sample(made.call)
        stopping = Stopping(policy["rel_ci"], policy["min_samples"], request["bound"], timer.resolution / calls)
        # A simulated device is nobody's core: it does not matter who else computes there.
        waited = (lambda: 0) if request.get("simulation") else self._preemption.waited
        samples = sampled(timer, stopping, policy["max_seconds"], waited, before, calls)
        status = "contended" if samples.contended else "raced" if samples.verdict == "raced" else "ok"
        if check is not None and status == "ok":
            _checked(answer, check, request["key"], made, outputs)
        if request["keep"]:
            self._kept[candidate] = made
        answer.overhead, answer.samples, answer.status = timer.overhead, samples, status

    def _timer(self, request: dict[str, Any], answer: _Answer) -> Timer:
        if request.get("timer") == "cuda":
            if self._cuda is None:
                from ostinato.tune.worker.cuda import CudaTimer

                answer.stage = "device_lost"
                self._cuda = CudaTimer()
                answer.stage = "invalid"
            return self._cuda
        self._cpu = self._cpu or CpuTimer()
        if request.get("simulation"):
            from ostinato.tune.worker.simulated import SimulatedTimer

            return SimulatedTimer(self._cpu, request["simulation"], request["candidate"])
        return self._cpu

    def _flusher(self, timer: Timer) -> Callable[[], None]:
        if timer is self._cuda:
            return self._cuda.flush
        self._flush = self._flush or Flusher()
        return self._flush

    def _make(self, request: dict[str, Any]) -> _Made:
        arguments = dict(request["config"])
        path = request["prepared"]
        if path is not None:
            import pickle

            with open(path, "rb") as file:
                arguments["prepared"] = pickle.load(file)
        inputs = None
        if request["setup"] is not None:
            inputs = arguments["inputs"] = self._set_up(request["setup"], request["key"], request.get("data"))
        call = found(request["factory"])(**arguments)
        if not callable(call):
            raise TypeError(f"{request['factory']} must return a callable, got a {type(call).__name__}")
        return _Made(call, (inputs, arguments.get("prepared")))

    def _set_up(self, name: str, key: dict[str, Any], data: str | None) -> Any:
        if self._set_up_for != (name, key, data):
            self._set_up_for = self._inputs = None  # before the next are made: both may not fit
            setup = found(name)
            if data is not None:
                self._inputs = setup(key, data)
            else:
                self._inputs = setup(key) if _takes_argument(setup) else setup()
            self._set_up_for = name, key, data
        return self._inputs


class _Made:
    """A candidate's callable, and what its factory was given, which is not poisoned."""

    __slots__ = ("call", "given")

    def __init__(self, call: Callable[[], Any], given: object) -> None:
        self.call = call
        self.given = given


class _Answer:
    """What is said of one request; `stage` is its status, should anything be raised from here on."""

    __slots__ = ("message", "overhead", "samples", "stage", "status", "workspace")

    def __init__(self) -> None:
        self.stage = "invalid"
        self.status = "ok"
        self.message = ""
        self.workspace = 0
        self.overhead = 0.0
        self.samples: Samples | None = None

    def failed(self, status: str, error: BaseException) -> None:
        # Lone surrogates have no place in what is stored.
        self.message = described(error).encode("utf-8", "replace").decode("utf-8")
        # The host's memory, or, as libraries for accelerators have it, the device's.
        full = (
            isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or "OUT_OF_MEMORY" in self.message
        )
        self.status = "oom" if full else status

    def line(self, number: int, op: str) -> str:
        found = self.samples
        ns, preempted, flagged = ([], 0.0, 0) if found is None else (found.ns, found.preempted, found.flagged)
        return (
            f'{{"v":1,"type":"result","id":{number},"op":{op},"status":"{self.status}","ns":{ns},'
            f'"workspace":{self.workspace},"message":{quoted(self.message)},"preempted":{preempted:.4g},'
            f'"contended":{flagged},"overhead_ns":{self.overhead:.4g}}}\n'
        )


def _prepare(request: dict[str, Any], answer: _Answer) -> None:
    import pickle

    answer.stage = "compile_error"
    prepare = found(request["prepare"])
    value = prepare() if _parameters(prepare) == [] else prepare(**request["config"])
    with open(request["save"], "wb") as file:
        pickle.dump(value, file, pickle.HIGHEST_PROTOCOL)


def _check(request: dict[str, Any], answer: _Answer) -> None:
    from pathlib import Path

    from ostinato.tune.checking import CommandOutputs

    check = _check_of(request)
    outputs = request["outputs"]
    answer.stage = "wrong_result"
    _judge(check, CommandOutputs(outputs["stdout"], Path(outputs["scratch"])), request["key"])


def _problem(request: dict[str, Any]) -> str:
    """Say why what is to check cannot be used; asked before the first candidate, which could be why."""
    try:
        _check_of(request)
    except BaseException as error:
        return described(error)
    return ""


def _check_of(request: dict[str, Any]) -> Callable[..., Any]:
    check = found(request["verify"])
    if not callable(check):
        raise TypeError(f"{request['verify']} must be callable, got a {type(check).__name__}")
    return check  # type: ignore[no-any-return]


def _checked(answer: _Answer, check: Callable[..., Any], key: dict[str, Any], made: _Made, before: object) -> Any:
    """Call the candidate anew, with what it returned before overwritten, and check what it returns."""
    poisoned(before, made.given)
    answer.stage = "crash"
    outputs = _called(made)
    answer.stage = "wrong_result"
    _judge(check, outputs, key)
    return outputs


def _called(made: _Made) -> Any:
    before = before_sample(made.call)
    if before is not None:
        before()
    return made.call()


def _judge(check: Callable[..., Any], outputs: object, key: dict[str, Any]) -> None:
    said = check(outputs, key)
    if hasattr(said, "__await__") or hasattr(said, "__next__"):  # it is true, whatever it would say
        raise TypeError(f"{check.__name__} must be a plain function, got one that returns a {type(said).__name__}")
    if said is not None and not said:
        raise AssertionError(f"{check.__name__} returned {said!r}")


def _takes_argument(function: Callable[..., Any]) -> bool:
    """Whether it may be called with one positional argument."""
    kinds = _parameters(function)
    return kinds is None or any(kind != "KEYWORD_ONLY" for kind in kinds)


def _parameters(function: Callable[..., Any]) -> list[str] | None:
    """Return the kinds of a function's parameters; None if nobody can tell."""
    from inspect import signature

    try:
        return [parameter.kind.name for parameter in signature(function).parameters.values()]
    except (TypeError, ValueError):
        return None


def _workspace(call: object) -> int:
    said = getattr(call, "workspace", 0)
    if said is None or callable(said):
        return 0
    if not hasattr(said, "__index__") or said < 0:
        raise TypeError(f"workspace must be a number of bytes, got {said!r}")
    return int(said)
