"""CUDA: what a replay adds to a launch of the same graph; steps with work of the host between; the smallest kernels."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ostinato as ost
from benchmarks.context import Context
from benchmarks.measure import Contestant, Row, Run
from benchmarks.peers import Absent, library

BENCHMARK = "cuda"
GRAPH, CHAINED, REPLAY = "cuGraphLaunch", "cuGraphLaunch, one stream", "ostinato, launch_only"
LAUNCHES, NATIVE = "cuLaunchKernel", "ostinato, native"
TORCH = "PyTorch, CUDA graph"
MIXED = "with work of the host"

THREADS = 256
PTX = Path(__file__).parent / "peers" / "cuda_kernels.ptx"


class Node(NamedTuple):
    """A kernel of a step: the numbers of the arrays that it reads, and of the one that it writes."""

    reads: tuple[int, int, int]
    writes: int


class _Launch(ctypes.Structure):
    _fields_ = (
        *(("function", ctypes.c_void_p), ("threads", ctypes.c_int64)),
        *((name, ctypes.c_uint64) for name in ("out", "a", "b", "c")),
        *(("count", ctypes.c_int64), ("rounds", ctypes.c_int64)),
    )


def chain(length: int) -> list[Node]:
    """Each kernel needs the one before; two arrays in turn."""
    return [Node((i % 2,) * 3, 1 - i % 2) for i in range(length)]


def stencil(width: int, rows: int) -> list[Node]:
    """Each kernel of a row needs three of the row before; two rows of arrays in turn."""
    return [
        Node(
            (*(row % 2 * width + (at + d) % width for d in (-1, 0, 1)),),  # type: ignore[arg-type]
            (1 - row % 2) * width + at,
        )
        for row in range(rows)
        for at in range(width)
    ]


def dependences(nodes: Sequence[Node]) -> list[tuple[int, ...]]:
    """Which kernels of the step each one comes after: who wrote what it reads, and who used what it writes."""
    found: list[tuple[int, ...]] = []
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        after = {writer[array] for array in (*node.reads, node.writes) if array in writer}
        after |= set(readers.pop(node.writes, ()))
        found.append(tuple(sorted(after - {number})))
        for array in node.reads:
            readers.setdefault(array, []).append(number)
        writer[node.writes] = number
    return found


def in_turn(length: int) -> list[tuple[int, ...]]:
    """One kernel after the other, as on one stream."""
    return [(number - 1,) if number else () for number in range(length)]


class Driver:
    """Those who call CUDA by hand, in C."""

    def __init__(self, ordinal: int) -> None:
        self.library = library("cuda")
        self.check(self.library.cuda_load(ordinal))
        function = ctypes.c_void_p()
        self.check(self.library.cuda_function(PTX.read_bytes(), b"point", ctypes.byref(function)))
        self.function = function

    def check(self, code: int) -> None:
        """Raise what CUDA returned."""
        if code:
            raise RuntimeError(f"CUDA error {code}")

    def launch_of(self, out: Any, a: Any, b: Any, c: Any, rounds: int) -> _Launch:
        """A launch over arrays of the device."""
        return _Launch(self.function, THREADS, out.handle, a.handle, b.handle, c.handle, out.size, rounds)

    def executable(self, launches: ctypes.Array[_Launch], after: Sequence[tuple[int, ...]]) -> ctypes.c_void_p:
        """An executable graph of kernels, each of which comes after others."""
        sources = np.array([source for each in after for source in each], np.int32)
        ends = np.cumsum([len(each) for each in after], dtype=np.int32)
        pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (sources, ends))
        exec_ = ctypes.c_void_p()
        self.check(self.library.cuda_graph(launches, ctypes.c_int64(len(launches)), *pointers, ctypes.byref(exec_)))
        return exec_


class Bench:
    """A step of kernels, and everybody who can run it."""

    def __init__(self, machine: ost.Machine, driver: Driver, nodes: Sequence[Node], stack: ExitStack) -> None:
        self._machine, self._driver, self._nodes, self._stack = machine, driver, nodes, stack
        processor: Any = machine.processor("cuda:0")
        memory = processor.memory
        core = processor.device.core
        self._stream = ctypes.c_void_p(core.open())
        stack.callback(core.close, self._stream.value)
        n_arrays = 1 + max(node.writes for node in nodes)
        self.arrays = [memory.empty(THREADS, np.float32) for _ in range(n_arrays)]
        self._launches = (_Launch * len(nodes))()
        self.work(0)

    def work(self, rounds: int) -> None:
        """Set how much the kernels work: before the runs are made."""
        for number, node in enumerate(self._nodes):
            a, b, c = (self.arrays[at] for at in node.reads)
            self._launches[number] = self._driver.launch_of(self.arrays[node.writes], a, b, c, rounds)

    def reset(self) -> None:
        """Give the arrays the values that they begin with."""
        for number, array in enumerate(self.arrays):
            array.set(np.linspace(0, number + 1, THREADS, dtype=np.float32))

    def graph(self, after: Sequence[tuple[int, ...]]) -> Run:
        """A launch of the graph for each step, from C."""
        driver, exec_ = self._driver, self._driver.executable(self._launches, after)

        def run(steps: int) -> None:
            driver.check(driver.library.cuda_graph_loop(exec_, self._stream, ctypes.c_int64(steps)))

        return run

    def launches(self) -> Run:
        """A launch of each kernel, from C."""
        driver, count = self._driver, ctypes.c_int64(len(self._launches))

        def run(steps: int) -> None:
            driver.check(driver.library.cuda_launch_loop(self._launches, count, self._stream, ctypes.c_int64(steps)))

        return run

    def replay(self) -> Run:
        """Tasks whose bodies launch, captured."""
        driver = self._driver

        @ost.task(launch_only=True)
        def point(stream: ost.Stream, out: ost.Write, a: ost.Read, b: ost.Read, c: ost.Read, number: int) -> None:
            launch = ctypes.byref(self._launches[number])
            driver.check(driver.library.cuda_launch(ctypes.c_void_p(stream.handle), launch))

        return self._program(lambda number, operands: point(*operands, number))

    def native(self) -> Run:
        """Tasks from C that launch."""
        address = ctypes.cast(self._driver.library.cuda_task, ctypes.c_void_p).value
        access = (ost.Stream, ost.Write, ost.Read, ost.Read, ost.Read)

        def call(number: int, operands: list[Any]) -> None:
            user = ctypes.addressof(self._launches) + number * ctypes.sizeof(_Launch)
            ost.native(address, access, name="point", user=user)(*operands)

        return self._program(call)

    def _program(self, call: Callable[[int, list[Any]], object]) -> Run:
        with ost.capture() as graph:
            for number, node in enumerate(self._nodes):
                call(number, [self.arrays[at] for at in (node.writes, *node.reads)])
        return self._stack.enter_context(graph.compile(self._machine)).replay

    def verify(self, runs: dict[str, Run], steps: int = 5) -> None:
        """Check that all compute the same, as NumPy does."""
        self.reset()
        expected = [array.get() for array in self.arrays]
        for node in list(self._nodes) * steps:
            a, b, c = (expected[at] for at in node.reads)
            expected[node.writes] = np.float32(0.25) * a + np.float32(0.5) * b + np.float32(0.25) * c
        for name, run in runs.items():
            self.reset()
            run(steps - 2)
            run(2)
            for array, values in zip(self.arrays, expected, strict=True):
                if not np.allclose(array.get(), values, rtol=1e-4):
                    raise AssertionError(f"{name} computes something else")


def run(context: Context) -> None:
    """Time every case, on the first device."""
    with ost.Machine(cpus=1) as machine:
        if not any(processor.kind == "cuda" for processor in machine.processors):
            context.absent.append(Absent(BENCHMARK, "no driver of CUDA, or no GPU"))
            return
        device: Any = machine.processor("cuda:0").device
        context.versions["cuda"] = f"{device.model}, driver {device.driver}"
        driver = Driver(device.core.ordinal)
        for length in (64,) if context.quick else (64, 1024):
            _graphs(context, machine, driver, f"chain of {length}", chain(length))
        _graphs(context, machine, driver, "stencil of 8 x 8", stencil(8, 8))
        _metg(context, machine, driver)
    _mixed(context, driver)


def _graphs(context: Context, machine: ost.Machine, driver: Driver, name: str, nodes: Sequence[Node]) -> None:
    """Kernels that do next to nothing; graphs have the edges that the kernels need, replayed ones too."""
    with ExitStack() as stack:
        bench = Bench(machine, driver, nodes, stack)
        runs = {
            GRAPH: bench.graph(dependences(nodes)),
            CHAINED: bench.graph(in_turn(len(nodes))),
            REPLAY: bench.replay(),
            LAUNCHES: bench.launches(),
            NATIVE: bench.native(),
        }
        bench.verify(runs)
        contestants = [Contestant(who, each) for who, each in runs.items()]
        context.compare(BENCHMARK, name, contestants, GRAPH, "ns/step")


def _metg(context: Context, machine: ost.Machine, driver: Driver) -> None:
    """The smallest kernel of a stencil at which half of what the device can do is done."""
    nodes = stencil(8, 8)
    after, chained = dependences(nodes), in_turn(len(nodes))
    grains = [1 << k for k in range(0, 16 if not context.quick else 8, 1 if not context.quick else 3)]
    times: dict[str, list[list[float]]] = {}
    for rounds in grains:
        with ExitStack() as stack:
            bench = Bench(machine, driver, nodes, stack)
            if rounds == grains[0]:
                bench.verify({GRAPH: bench.graph(after), CHAINED: bench.graph(chained), REPLAY: bench.replay()})
            bench.work(rounds)
            runs = {
                GRAPH: bench.graph(after),
                CHAINED: bench.graph(chained),
                REPLAY: bench.replay(),
                LAUNCHES: bench.launches(),
            }
            contestants = [Contestant(name, each, len(nodes)) for name, each in runs.items()]
            context.measure(contestants)
            for contestant in contestants:
                times.setdefault(contestant.name, []).append(contestant.samples)
    # At the longest grain nothing weighs but the kernels, as many at once as the best one has.
    best = min(float(np.median(samples[-1])) for samples in times.values()) / grains[-1]
    for name, samples in times.items():
        efficiency = best * np.array(grains)[:, None] / np.array(samples)  # by grain and round
        for grain, at_grain in zip(grains, efficiency, strict=True):
            context.rows.append(Row(BENCHMARK, f"stencil, {grain} rounds", name, "efficiency", tuple(at_grain), GRAPH))
        crossings = tuple(_crossing(np.array(grains) * best, column) for column in efficiency.T)
        context.rows.append(Row(BENCHMARK, "stencil, METG(50)", name, "ns", crossings, GRAPH))


def _crossing(grain: np.ndarray, efficiency: np.ndarray) -> float:
    below = np.flatnonzero(efficiency < 0.5)
    if len(below) == 0:
        return float(grain[0])
    last = int(below[-1])
    if last + 1 == len(grain):
        return float("inf")
    part = (0.5 - efficiency[last]) / (efficiency[last + 1] - efficiency[last])
    return float(grain[last] * (grain[last + 1] / grain[last]) ** part)


class Mixed:
    """A step in which the host makes what the device works on, and works on what comes back."""

    COUNT = 1 << 14
    KERNELS = 16

    def __init__(self, machine: ost.Machine, driver: Driver, stack: ExitStack, host_rounds: int, rounds: int) -> None:
        self._machine, self._driver, self._stack = machine, driver, stack
        self.host_rounds = ctypes.c_int64(host_rounds)
        self._rounds = rounds
        processor: Any = machine.processor("cuda:0")
        self._device = processor.device
        self._memory = processor.memory
        self.state = np.linspace(0, 1, self.COUNT, dtype=np.float32)
        self.outputs: dict[str, list[np.ndarray]] = {}
        self._pins: list[object] = []

    def _host_array(self) -> np.ndarray:
        """Return zeros in page-locked memory, alone in its pages: drivers refuse copies of what is locked in part."""
        array = np.frombuffer(mmap.mmap(-1, self.COUNT * 4), np.float32)
        low = array.__array_interface__["data"][0]
        pinned = self._device.pin(low, low + array.nbytes)
        if pinned is None:
            raise RuntimeError("CUDA cannot lock pages of the host")
        self._pins.append((pinned, array))  # in this order they go
        return array

    def _launches(self, x: Any, y: Any) -> ctypes.Array[_Launch]:
        made = (_Launch * self.KERNELS)()
        for number in range(self.KERNELS):
            source, target = (x, y) if number % 2 == 0 else (y, x)
            made[number] = self._driver.launch_of(target, source, source, source, self._rounds)
            made[number].count = THREADS
        return made

    def by_hand(self) -> Run:
        """One graph, and the host waits for it in each step."""
        driver, core = self._driver, self._device.core
        x, y = (self._memory.empty(self.COUNT, np.float32) for _ in range(2))
        y.set(0.0)
        x.set(0.0)
        exec_ = driver.executable(self._launches(x, y), [(n - 1,) if n else () for n in range(self.KERNELS)])
        inner, outer = self._host_array(), self._host_array()
        self.outputs[GRAPH] = [outer]
        stream = ctypes.c_void_p(core.open())
        self._stack.callback(core.close, stream.value)
        self._stack.callback(lambda kept: None, (x, y))
        hosts = [array.ctypes.data_as(ctypes.c_void_p) for array in (self.state, inner, outer)]
        on_device = [ctypes.c_uint64(array.handle) for array in (x, x)]
        count = ctypes.c_int64(self.COUNT)

        def run(steps: int) -> None:
            loop = driver.library.cuda_mixed_loop
            driver.check(loop(exec_, stream, *hosts, *on_device, count, self.host_rounds, ctypes.c_int64(steps)))

        return run

    def pytorch(self) -> Run:
        """The same with PyTorch's CUDA graph."""
        import torch

        driver = self._driver
        x, y = (torch.zeros(self.COUNT, device="cuda:0") for _ in range(2))
        inner, outer = (torch.zeros(self.COUNT).pin_memory() for _ in range(2))
        self.outputs[TORCH] = [outer.numpy()]
        launches = (_Launch * self.KERNELS)()
        for number in range(self.KERNELS):
            source, target = (x.data_ptr(), y.data_ptr()) if number % 2 == 0 else (y.data_ptr(), x.data_ptr())
            launches[number] = _Launch(driver.function, THREADS, target, source, source, source, THREADS, self._rounds)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch in launches:
                stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
                driver.check(driver.library.cuda_launch(stream, ctypes.byref(launch)))
        work, count = driver.library.cuda_host_work, ctypes.c_int64(self.COUNT)
        state, to, back = (ctypes.c_void_p(at) for at in (self.state.ctypes.data, inner.data_ptr(), outer.data_ptr()))

        def run(steps: int) -> None:
            for _ in range(steps):
                work(to, state, count, self.host_rounds)
                x.copy_(inner, non_blocking=True)
                graph.replay()
                outer.copy_(x, non_blocking=True)
                torch.cuda.current_stream().synchronize()
                work(back, back, count, self.host_rounds)

        return run

    def replay(self) -> Run:
        """The same as tasks; the host's work on one step goes on beside the device's on another."""
        driver = self._driver
        address = ctypes.cast(driver.library.cuda_host_task, ctypes.c_void_p).value
        host = ost.native(address, (ost.Read, ost.Write), name="host", user=ctypes.addressof(self.host_rounds))

        @ost.task(launch_only=True)
        def kernels(stream: ost.Stream, x: ost.ReadWrite, y: ost.ReadWrite) -> None:
            for launch in self._launches(x, y):
                driver.check(driver.library.cuda_launch(ctypes.c_void_p(stream.handle), ctypes.byref(launch)))

        values = [np.zeros(self.COUNT, np.float32) for _ in range(2)]
        results = [np.zeros(self.COUNT, np.float32) for _ in range(2)]
        y = self._memory.empty(self.COUNT, np.float32)
        y.set(0.0)
        self.outputs[REPLAY] = results
        x, result = ost.ring(*values), ost.ring(*results)
        with ost.capture() as graph:
            host(self.state, x[0])
            kernels(x[0], y)
            host(x[0], result[0])
        return self._stack.enter_context(graph.compile(self._machine)).replay


def _mixed(context: Context, driver: Driver) -> None:
    """Host and device each have about as much to do."""
    with ost.Machine(cpus=1) as machine, ExitStack() as stack:
        mixed = Mixed(
            machine, driver, stack, host_rounds=1 if context.quick else 8, rounds=16 if context.quick else 1000
        )
        runs = {GRAPH: mixed.by_hand(), REPLAY: mixed.replay()}
        if find_spec("torch") is None:
            context.absent.append(Absent(TORCH, "PyTorch is not installed"))
        else:
            runs[TORCH] = mixed.pytorch()
        for each in runs.values():
            each(4)
        expected = mixed.outputs[GRAPH][0]
        for name, outputs in mixed.outputs.items():
            if not all(np.allclose(output, expected, rtol=1e-4) for output in outputs):
                raise AssertionError(f"{name} computes something else")
        contestants = [Contestant(name, each) for name, each in runs.items()]
        context.compare(BENCHMARK, MIXED, contestants, GRAPH, "ns/step")
