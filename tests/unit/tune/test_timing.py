"""Taking samples: what is timed, what is taken again, and when it ends."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ostinato.tune.stopping import Stopping
from ostinato.tune.worker import simulated
from ostinato.tune.worker.sampling import Samples, sampled
from ostinato.tune.worker.simulated import SimulatedTimer
from ostinato.tune.worker.timers import CpuTimer, Flusher, Preemption, last_level_bytes
from ostinato.tune.worker.worker import poisoned

AGES = 1e6  # seconds
US = 1000


class Scripted:
    """A timer, and how long was waited, as a script has it: pairs of a sample and a delay during it."""

    overhead = 1.0
    resolution = 0.0

    def __init__(self, *script: tuple[float, int]) -> None:
        self._script = list(script)
        self._waited = 0

    def begin(self, call: object, single: bool) -> None:
        raise NotImplementedError

    def take(self) -> tuple[float, int]:
        sample, delay = self._script.pop(0)
        self._waited += delay
        return sample, int(sample)

    def end(self) -> None:
        pass

    def waited(self) -> int:
        return self._waited

    def sampled(self, count: int, *, seconds: float = AGES, flush=None) -> Samples:
        stopping = Stopping(rel_ci=1e9, min_samples=count)
        return sampled(self, stopping, seconds, self.waited, flush)


def test_samples_in_their_order() -> None:
    found = Scripted((3e6, 0), (1e6, 0), (2e6, 0)).sampled(3)
    assert (found.ns, found.flagged, found.preempted, found.contended) == ([3e6, 1e6, 2e6], 0, 0.0, False)
    assert found.verdict == "enough"


def test_times_are_divided_by_the_calls_that_a_sample_stands_for() -> None:
    before: list[int] = []
    timer = Scripted((4e6, 0), (2e6, 0))
    found = sampled(timer, Stopping(1e9, 2), AGES, timer.waited, lambda: before.append(len(before)), calls=2)
    assert (found.ns, before) == ([2e6, 1e6], [0, 1])


def test_a_disturbed_sample_is_taken_again() -> None:
    found = Scripted((9e6, 90_001), (8e6, 1_000_000), (1e6, 0), (1e6, 9_999)).sampled(2)
    assert (found.ns, found.flagged) == ([1e6, 1e6], 0)


def test_a_sample_that_is_disturbed_four_times_is_kept_and_flagged() -> None:
    found = Scripted(*[(1e6, 20_000)] * 3, (4e6, 80_000), (1e6, 20_000), (2e6, 0)).sampled(2)
    assert (found.ns, found.flagged) == ([4e6, 2e6], 1)


def test_disturbed_is_what_lost_much_in_most_samples() -> None:
    a_little = Scripted(*[(1e6, 50_000)] * 8).sampled(2)
    assert (a_little.flagged, a_little.contended, a_little.preempted) == (2, False, 0.05)
    much = Scripted(*[(1e6, 500_000)] * 8).sampled(2)
    assert (much.flagged, much.contended, much.preempted) == (2, True, 0.5)
    once = Scripted(*[(9e6, 9_000_000)] * 4, (1e6, 0)).sampled(2)
    assert (once.flagged, once.contended) == (1, False)


def test_at_least_one_sample_and_none_that_would_end_late() -> None:
    found = Scripted((5e9, 0), (5e9, 0)).sampled(7, seconds=1.0)
    assert (found.ns, found.verdict) == ([5e9], "")
    disturbed = Scripted((5e9, 1_000_000_000), (5e9, 0)).sampled(7, seconds=1.0)
    assert (disturbed.ns, disturbed.flagged) == ([5e9], 1)


def test_the_cache_is_flushed_before_each_and_waiting_for_that_is_not_the_samples() -> None:
    script = Scripted((1e6, 0), (1e6, 500_000), (1e6, 0))

    def flush() -> None:
        flushes.append(len(script._script))
        script._waited += 10_000_000

    flushes: list[int] = []
    assert script.sampled(2, flush=flush).flagged == 0
    assert flushes == [3, 2, 1]


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_between_candidates_only(collects: bool) -> None:
    timer = Scripted((1.0, 0), (1.0, 0))
    seen = []
    take = timer.take
    timer.take = lambda: (seen.append(gc.isenabled()), take())[1]  # type: ignore[method-assign]
    if not collects:
        gc.disable()
    try:
        timer.sampled(2)
        assert gc.isenabled() is collects
        with pytest.raises(IndexError):
            timer.sampled(1)
        assert gc.isenabled() is collects
    finally:
        gc.enable()
    assert seen == [False] * 3


class Counted:
    """A call that takes so long, and counts."""

    def __init__(self, ns: int = 0) -> None:
        self.ns = ns
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        end = time.perf_counter_ns() + self.ns
        while time.perf_counter_ns() < end:
            pass


@pytest.fixture(scope="module")
def timer() -> CpuTimer:
    return CpuTimer()


def test_a_long_call_is_timed_by_itself(timer: CpuTimer) -> None:
    call = Counted(200 * US)
    timer.begin(call, False)
    assert call.count == 0
    for count in (1, 2, 3):
        ns, whole = timer.take()
        assert call.count == count
        assert 200 * US - 1000 <= ns < whole
        assert ns == pytest.approx(whole - timer.overhead)


def test_short_calls_are_timed_in_batches(timer: CpuTimer) -> None:
    calls = itertools.count()
    timer.begin(calls.__next__, False)
    timer.take()
    before = next(calls)
    ns, whole = timer.take()
    count = next(calls) - before - 1
    assert count > 1
    assert ns == pytest.approx(max(whole / count - timer.overhead, timer.resolution))
    batched = timer.overhead
    timer.begin(calls.__next__, True)
    timer.take()
    assert next(calls) == before + count + 3
    assert timer.overhead != batched


@pytest.mark.parametrize("single", [True, False])
def test_what_takes_no_time_takes_no_less_than_the_resolution(timer: CpuTimer, single: bool) -> None:
    timer.begin(lambda: None, single)
    times = [timer.take()[0] for _ in range(50)]
    assert min(times) >= timer.resolution > 0


def test_what_a_call_raises_comes_out(timer: CpuTimer) -> None:
    for single in (True, False):
        timer.begin(lambda: 1 // 0, single)
        with pytest.raises(ZeroDivisionError):
            timer.take()


# Preemption.


@pytest.fixture
def contended() -> Iterator[None]:
    """This thread shares its core with another process."""
    cores = os.sched_getaffinity(0)
    core = min(cores)
    burn = f"import os; os.sched_setaffinity(0, {{{core}}}); print(flush=True)\nwhile True: pass"
    other = subprocess.Popen([sys.executable, "-S", "-c", burn], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        other.stdout.readline()
        os.sched_setaffinity(0, {core})
        yield
    finally:
        os.sched_setaffinity(0, cores)
        other.kill()
        other.communicate()


def test_who_shares_a_core_waits(contended: None) -> None:
    preemption = Preemption()
    before = preemption.waited()
    end = time.monotonic() + 30
    while preemption.waited() < before + 1_000_000:
        assert time.monotonic() < end
    assert sampled_on_this_core().contended


def sampled_on_this_core() -> Samples:
    timer = CpuTimer()
    timer.begin(Counted(50_000 * US), True)
    return sampled(timer, Stopping(1e9, 3), 30, Preemption().waited)


def test_where_the_kernel_does_not_count_time_switches_are_counted(contended: None) -> None:
    preemption = Preemption()
    os.close(preemption._descriptor)
    before = preemption.waited()
    end = time.monotonic() + 30
    while preemption.waited() == before:
        assert time.monotonic() < end
    assert (preemption.waited() - before) % 1_000_000 == 0


# Caches.


def sysfs(root: Path, **sizes: str) -> str:
    core = min(os.sched_getaffinity(0))
    for index, size in sizes.items():
        folder = root / f"cpu{core}" / "cache" / index
        folder.mkdir(parents=True)
        (folder / "size").write_text(size + "\n")
    return str(root)


def test_the_largest_cache_is_the_last_level(tmp_path: Path) -> None:
    assert last_level_bytes(sysfs(tmp_path, index0="32K", index3="48M", index2="2048K", uevent="9G")) == 48 << 20


@pytest.mark.parametrize("size", ["", "huge", "12"])
def test_where_the_system_does_not_say_a_size_is_assumed(tmp_path: Path, size: str) -> None:
    assert last_level_bytes(sysfs(tmp_path, index0=size)) == last_level_bytes("/nonexistent") == 32 << 20


def test_flushing_writes_all_of_the_buffer() -> None:
    flusher = Flusher()
    size = len(flusher._buffer)
    assert min(last_level_bytes(), 64 << 20) <= size < (64 << 20) + (1 << 20)
    flusher._buffer[:] = b"\1" * size
    flusher()
    assert bytes(flusher._buffer) == bytes(size)


# Poison.


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c16", "i8", "u1", "?", "S3", "U3", "M8[s]", "f8,i4"])
def test_every_element_of_an_output_is_overwritten(dtype: str) -> None:
    array = np.zeros((3, 4), dtype)[:, ::2]
    poisoned(array, None)
    assert not np.any(array == np.zeros((), dtype))
    assert repr(array)
    assert array.dtype.kind not in "fc" or np.isnan(array).all()


def test_outputs_are_found_in_what_holds_them() -> None:
    class Held:
        def __init__(self) -> None:
            self.array = np.zeros(2)

    held = Held()
    arrays = [np.zeros(2) for _ in range(4)]
    poisoned((arrays[0], [arrays[1]], {"x": {"y": arrays[2]}}, held, np.float64(1), None, 3, "text"), arrays[3])
    assert [np.isnan(array).all() for array in (*arrays[:3], held.array)] == [True] * 4


def test_what_shares_memory_with_inputs_is_spared() -> None:
    inputs = {"a": np.zeros(10), "b": [np.zeros(10)]}
    outputs = [inputs["a"][3:], inputs["b"][0].reshape(2, 5), np.zeros(10)]
    poisoned(outputs, inputs)
    assert [bool(np.isnan(array).any()) for array in outputs] == [False, False, True]


def test_what_cannot_be_overwritten_is_left() -> None:
    frozen, objects = np.zeros(2), np.array([None, 1])
    frozen.flags.writeable = False
    loop: list[object] = [frozen]
    loop.append(loop)
    poisoned([frozen, objects, loop], None)
    assert frozen.tolist() == [0, 0]
    assert objects.tolist() == [None, 1]


def test_arrays_that_mind_what_is_assigned_are_overwritten_all_the_same() -> None:
    class Metres(np.ndarray):  # type: ignore[type-arg]
        def __setitem__(self, key: object, value: object) -> None:
            raise TypeError("no length")

    lengths = np.zeros(2).view(Metres)
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    poisoned([lengths, masked], None)
    assert np.isnan(lengths).all()
    assert np.isnan(masked.data).all()
    assert masked.mask.tolist() == [False, True]


# Simulated devices.


def declared(**parameters: float) -> dict[str, object]:
    return {"device": "sim:a", "latency": 0.0, "noise": 0.0, "drift": 0.0, "crash": 0.0, "hang": 0.0, **parameters}


def simulate(candidate: str = "candidate", device: str = "sim:a", count: int = 100, **parameters: float) -> list[float]:
    timer = SimulatedTimer(Scripted(*[(1000.0, 0)] * count), declared(**parameters) | {"device": device}, candidate)
    return [timer.take()[0] for _ in range(count)]


def test_a_latency_is_really_waited_for() -> None:
    timer = SimulatedTimer(Scripted((1000.0, 0)), declared(latency=0.002), "candidate")
    begin = time.perf_counter_ns()
    ns, whole = timer.take()
    assert time.perf_counter_ns() - begin >= 2_000_000
    assert (ns, whole) == (2_001_000.0, 2_001_000)


def test_noise_is_of_the_declared_size_and_other_noise_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    noises = []
    for _ in range(2):  # so does a search that is made again
        monkeypatch.setattr(simulated, "_numbers", itertools.count())
        noises.append([simulate(device=device, noise=0.1, count=2000) for device in ("sim:a", "sim:a", "sim:b")])
    assert noises[0] == noises[1]
    noisy, again, elsewhere = noises[0]
    assert noisy != again
    assert noisy != elsewhere
    assert np.mean(noisy) == pytest.approx(1000, rel=0.01)
    assert np.std(noisy) == pytest.approx(100, rel=0.1)
    assert min(simulate(noise=5.0)) == 0.0  # the resolution: no time is negative


def test_drift_grows_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(1)
    monkeypatch.setattr(simulated, "_begin", 0)
    monkeypatch.setattr(simulated, "_now", lambda: next(seconds) * 10**9)
    assert simulate(drift=0.5, count=3) == [1500.0, 2000.0, 2500.0]


def test_crashes_and_hangs_hit_their_share_of_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fate(Exception):
        pass

    def crash(pid: int, number: int) -> None:
        assert (pid, number) == (os.getpid(), signal.SIGSEGV)
        raise Fate("crash")

    def hang() -> None:
        raise Fate("hang")

    monkeypatch.setattr(simulated.os, "kill", crash)
    monkeypatch.setattr(simulated.signal, "pause", hang)

    def fate(number: int) -> str:
        try:
            simulate(f"candidate {number}", count=1, crash=0.1, hang=0.3)
        except Fate as met:
            return str(met)
        return ""

    fates = [fate(number) for number in range(1000)]
    assert fates == [fate(number) for number in range(1000)]
    assert fates.count("crash") == pytest.approx(100, abs=30)
    assert fates.count("hang") == pytest.approx(0.9 * 300, abs=45)
