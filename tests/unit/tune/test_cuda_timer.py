"""Timing by CUDA events, on a driver that pretends."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from ostinato.tune.stopping import Stopping
from ostinato.tune.worker import cuda
from ostinato.tune.worker.cuda import CudaError, CudaTimer
from ostinato.tune.worker.sampling import sampled
from tune.warm import Worker, request

MS = 1_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("cuda")
    source = Path(__file__).parent / "fake_cuda.c"
    options = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *options, source, "-o", folder / "libcuda.so.1"], check=True)
    return folder


@pytest.fixture
def driver(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    """A driver of the test's own: the library has state."""
    library = tmp_path / "libcuda.so.1"
    shutil.copy(folder / "libcuda.so.1", library)
    monkeypatch.setattr(cuda, "_LIBRARY", str(library))
    driver = ctypes.CDLL(str(library))
    for name in ("fake_launch", "fake_launch_beside"):
        getattr(driver, name).argtypes = [ctypes.c_int64]
    driver.fake_written.restype = ctypes.c_int64
    return driver


def test_the_time_of_the_device_is_taken_though_the_call_returns_at_once(driver: ctypes.CDLL) -> None:
    timer = CudaTimer()
    timer.begin(lambda: driver.fake_launch(5 * MS), True)
    ns, whole = timer.take()
    assert 5 * MS - timer.overhead <= ns <= whole
    assert whole >= 5 * MS


def test_work_on_other_streams_is_waited_for(driver: ctypes.CDLL) -> None:
    timer = CudaTimer()
    timer.begin(lambda: driver.fake_launch_beside(5 * MS), True)
    ns, whole = timer.take()
    assert 5 * MS - timer.overhead <= ns <= whole


def test_short_calls_are_timed_in_batches(driver: ctypes.CDLL) -> None:
    calls = []
    timer = CudaTimer()
    timer.begin(lambda: calls.append(driver.fake_launch(1)), False)
    del calls[:]
    timer.take()
    assert len(calls) > 1
    timer.begin(lambda: calls.append(driver.fake_launch(1)), True)
    del calls[:]
    timer.take()
    assert len(calls) == 1


def test_cold_samples_follow_a_write_of_twice_the_cache_which_is_not_timed(driver: ctypes.CDLL) -> None:
    timer = CudaTimer()
    timer.begin(lambda: driver.fake_launch(4 * MS), True)
    found = sampled(timer, Stopping(1e9, 3), 60, lambda: 0, timer.flush)
    assert driver.fake_written() == 3 * 2 * (4 << 20)
    assert len(found.ns) == 3


def test_another_context_that_a_candidate_made_current(driver: ctypes.CDLL) -> None:
    timer = CudaTimer()
    driver.fake_other_context()
    timer.begin(lambda: driver.fake_launch(1), True)
    driver.fake_other_context()
    assert timer.take()[0] > 0
    driver.fake_other_context()
    assert timer.damage() == ""


def test_an_error_that_stays_is_named(driver: ctypes.CDLL) -> None:
    timer = CudaTimer()
    timer.begin(lambda: driver.fake_launch(1), True)
    driver.fake_fail(700)
    with pytest.raises(CudaError, match="cuEventSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS"):
        timer.take()
    assert timer.damage() == "cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS"
    driver.fake_fail(999)
    assert timer.damage() == "cuCtxSynchronize: error 999"


def test_a_worker_times_by_events(folder: Path) -> None:
    with Worker(LD_LIBRARY_PATH=str(folder)) as worker:
        result = worker.ask(request("launching", {"ns": 3 * MS}, timer="cuda", policy={"cache": "cold"}))
        assert (result["status"], result["message"]) == ("ok", "")  # simulated only so that nothing is contention
        assert min(result["ns"]) > 2 * MS
        assert result["overhead_ns"] > 0


@pytest.mark.parametrize("raises", [False, True])
def test_a_context_that_is_broken_costs_its_candidate_and_the_worker(folder: Path, raises: bool) -> None:
    with Worker(LD_LIBRARY_PATH=str(folder)) as worker:
        result = worker.ask(request("breaking", {"raises": raises}, timer="cuda"))
        assert result["status"] == "crash"
        assert ("raised" if raises else "CUDA_ERROR_ILLEGAL_ADDRESS") in result["message"]
        bye = worker.message()
        assert bye is not None
        assert (bye["type"], bye["message"]) == ("bye", "cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS")
        assert worker.wait() == 0


@pytest.mark.parametrize("env", [{"FAKE_CUDA_FAILS": "1"}, {"LD_LIBRARY_PATH": ""}])
def test_without_a_device_the_candidate_is_not_to_blame(folder: Path, env: dict[str, str]) -> None:
    if not env.get("FAKE_CUDA_FAILS"):
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            pass
        else:
            pytest.skip("there is a driver")
    with Worker(**{"LD_LIBRARY_PATH": str(folder), **env}) as worker:
        result = worker.ask(request("null", timer="cuda"))
        assert result["status"] == "device_lost"
        assert ("cuInit: error 100" if env.get("FAKE_CUDA_FAILS") else "libcuda.so.1") in result["message"]
