"""The contract's section "Machines", sentence by sentence."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import ostinato as ost


@ost.task(releases_gil=True)
def add(x: ost.ReadWrite, k):
    x += k


def graph_of(x, n=8):
    g = ost.Graph()
    for k in range(n):
        g.task(add, x[k : k + 1], 1)
    return g


def test_machine_is_a_context_manager_that_returns_itself():
    with ost.Machine(cpus=1) as machine:
        assert isinstance(machine, ost.Machine)


def test_machine_of_none_is_all_usable():
    with ost.Machine() as machine:
        cpus = [p for p in machine.processors if p.kind == "cpu"]
        assert 1 <= len(cpus) <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize("bad", [0, -1, 1.5, "2", [0]])
def test_cpus_is_checked(bad):
    with pytest.raises((TypeError, ValueError)):
        ost.Machine(cpus=bad)


def test_gpus_zero_for_none():
    with ost.Machine(cpus=1, gpus=0) as machine:
        assert all(p.kind == "cpu" for p in machine.processors)


@pytest.mark.parametrize("bad", [-1, "1", 1.5])
def test_gpus_is_checked(bad):
    with pytest.raises((TypeError, ValueError)):
        ost.Machine(cpus=1, gpus=bad)


def test_more_than_there_are_cores_is_allowed():
    x = np.zeros(16)
    with ost.Machine(cpus=len(os.sched_getaffinity(0)) * 2 + 3) as machine:
        assert len(machine.processors) >= 5
        with graph_of(x, 16).compile(machine) as program:
            program.replay(50)
    assert (x == 50).all()


def test_at_most_cpus_threads_are_in_tasks_at_once_the_caller_counted():
    inside, most, lock = 0, 0, threading.Lock()

    @ost.task(releases_gil=True)
    def enter(t: ost.ReadWrite):
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        for _ in range(200):
            pass
        with lock:
            inside -= 1

    with ost.Machine(cpus=2) as machine:
        programs = []
        for _ in range(3):
            g = ost.Graph()
            for _ in range(4):
                g.task(enter, [])
            programs.append(g.compile(machine))
        threads = [threading.Thread(target=p.replay, args=(30,)) for p in programs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert most <= 2


def test_init_is_called_once_on_every_thread_that_runs_tasks():
    called, ran = [], set()

    @ost.task(releases_gil=True)
    def note(x: ost.ReadWrite):
        ran.add(threading.get_ident())

    with ost.Machine(cpus=3, init=lambda: called.append(threading.get_ident())) as machine:
        g = ost.Graph()
        for k in range(3):
            g.task(note, [], on=f"cpu:{k}")
        with g.compile(machine) as program:
            program.replay(3)
            program.submit(3).result()
            other = threading.Thread(target=lambda: program.replay(2))
            other.start()
            other.join()
    assert len(called) == len(set(called))
    assert ran <= set(called)


def test_init_that_raises_is_told():
    def init():
        raise KeyError("init")

    g = ost.Graph()
    g.task(add, np.zeros(1), 1)
    with (
        pytest.raises((KeyError, RuntimeError, ost.OstinatoError)),
        ost.Machine(cpus=2, init=init) as machine,
        g.compile(machine) as program,
    ):
        program.replay(2)


def test_init_must_be_callable():
    with pytest.raises((TypeError, ValueError)):
        ost.Machine(cpus=1, init=3)


def test_processors_and_processor_by_name():
    with ost.Machine(cpus=2) as machine:
        assert [p.name for p in machine.processors if p.kind == "cpu"] == ["cpu:0", "cpu:1"]
        p = machine.processor("cpu:1")
        assert (p.name, p.kind) == ("cpu:1", "cpu")
        assert p in machine.processors
        for bad in ("cpu:2", "x", 3):
            with pytest.raises((KeyError, ValueError, TypeError)):
                machine.processor(bad)


def test_memories_have_a_name_and_empty():
    with ost.Machine(cpus=2) as machine:
        assert len(machine.memories) >= 1
        for memory in machine.memories:
            assert isinstance(memory.name, str)
        memory = machine.processor("cpu:0").memory
        assert memory in machine.memories
        for shape, dtype in [((3, 4), "f4"), (5, np.int64), ((), float), ((0, 2), "u1"), ((1 << 18,), "f8")]:
            array = memory.empty(shape, dtype)
            assert array.shape == np.empty(shape, dtype).shape
            assert array.dtype == dtype
            array[...] = 1
        with pytest.raises((TypeError, ValueError)):
            memory.empty((-1,), float)


def test_arrays_of_a_memory_live_on_after_the_machine():
    with ost.Machine(cpus=1) as machine:
        array = machine.memories[0].empty((1000,), "f8")
    del machine
    gc.collect()
    array[:] = 3
    assert array.sum() == 3000


def test_arrays_of_a_memory_are_arrays_of_tasks():
    with ost.Machine(cpus=2) as machine:
        x = machine.memories[0].empty((8,), "f8")
        x[:] = 0
        with graph_of(x).compile(machine) as program:
            program.replay(5)
        assert (x == 5).all()


def test_close_closes_its_programs_and_closing_again_does_nothing():
    x = np.zeros(8)
    machine = ost.Machine(cpus=2)
    program = graph_of(x).compile(machine)
    run = program.submit(100)
    machine.close()
    assert run.done()
    assert run.result() == 100
    machine.close()
    program.close()
    with pytest.raises(RuntimeError):
        program.replay()
    assert (x == 100).all()


def test_use_after_close_raises_runtime_error():
    x = np.zeros(8)
    machine = ost.Machine(cpus=2)
    g = graph_of(x)
    program = g.compile(machine)
    program.replay()
    program.close()
    for use in (
        program.replay,
        program.submit,
        program.verify,
        program.trace,
        lambda: program.rebind([(x, np.zeros(8))]),
        program.__enter__,
    ):
        with pytest.raises(RuntimeError, match="close"):
            use()
    program.close()
    machine.close()
    for use in (lambda: g.compile(machine), machine.__enter__):
        with pytest.raises(RuntimeError, match="close"):
            use()


def test_run_is_readable_after_close():
    x = np.zeros(8)
    with ost.Machine(cpus=2) as machine, graph_of(x).compile(machine) as program:
        run = program.submit(7)
    assert run.result() == 7
    assert run.exception() is None
    assert run.steps_done == 7
    assert run.cancel() is False
    assert isinstance(program.explain(), str)


def test_several_machines_exist_at_once():
    x = np.zeros(24)
    with ost.Machine(cpus=2) as a, ost.Machine(cpus=2) as b, ost.Machine(cpus=3) as c:
        programs = [graph_of(x[8 * k : 8 * k + 8]).compile(m) for k, m in enumerate((a, b, c))]
        runs = [p.submit(50) for p in programs]
        assert [run.result() for run in runs] == [50] * 3
    assert (x == 50).all()


def test_on_takes_a_processor_of_another_machine_or_raises():
    with ost.Machine(cpus=2) as a, ost.Machine(cpus=1) as b:
        g = ost.Graph()
        g.task(add, np.zeros(1), 1, on=a.processor("cpu:1"))
        with pytest.raises((ost.GraphError, ost.DeviceError)):
            g.compile(b)


def test_machine_left_by_an_exception_cancels_first():
    x = np.zeros(8)
    with pytest.raises(KeyError), ost.Machine(cpus=2) as machine:  # noqa: PT012
        run = graph_of(x).compile(machine).submit(10**12)
        raise KeyError
    assert run.cancelled()


def test_garbage_collection_in_any_order():
    for order in range(6):
        machine = ost.Machine(cpus=2)
        x = np.zeros(8)
        program = graph_of(x).compile(machine)
        run = program.submit(200)
        things = {"machine": machine, "program": program, "run": run}
        del machine, program, run
        names = list(things)
        for k in range(3):
            del things[names[(order + k * (1 + order % 2)) % 3 if (order % 2 == 0) else (order - k) % 3]]
            gc.collect()


def test_a_run_in_flight_keeps_its_program_and_machine_alive():
    x = np.zeros(8)
    run = graph_of(x).compile(ost.Machine(cpus=2)).submit(2000)
    gc.collect()
    assert run.result(60) == 2000
    assert (x == 2000).all()


def test_finalizers_never_wait():
    program = graph_of(np.zeros(8)).compile(ost.Machine(cpus=2))
    run = program.submit(10**12)
    del program
    gc.collect()
    run.cancel()
    del run
    gc.collect()


def test_no_worker_is_pinned_to_the_core_of_the_thread_in_replay():
    def threads():
        return {int(tid) for tid in os.listdir("/proc/self/task")}

    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("there is one core")
    x = np.zeros(2)
    graph = graph_of(x, 2)
    before = threads()
    with ost.Machine(cpus=2) as machine, graph.compile(machine, lanes=2) as program:
        workers = threads() - before
        try:
            for core in [*cores, *cores]:
                os.sched_setaffinity(0, {core})
                program.replay(3)
                assert os.sched_getaffinity(0) == {core}
                pinned = [mask for mask in map(os.sched_getaffinity, workers) if len(mask) == 1]
                assert {core} not in pinned
                assert len(pinned) == 1
        finally:
            os.sched_setaffinity(0, cores)
    assert x.tolist() == [6 * len(cores)] * 2


OPENMP = """
int go(void) {
    int n = 0;
    #pragma omp parallel reduction(+ : n)
    n += 1;
    return n;
}
"""

BOUND = """
import ctypes, os, sys
import ostinato as ost
cores = os.sched_getaffinity(0)
ctypes.CDLL(sys.argv[1]).go()
assert os.sched_getaffinity(0) < cores, "OpenMP has not bound the thread"
before = set(os.listdir("/proc/self/task"))
for cpus in (None, 2 * len(cores)):
    with ost.Machine(cpus=cpus) as machine:
        workers = set(os.listdir("/proc/self/task")) - before
        assert set().union(*(os.sched_getaffinity(int(worker)) for worker in workers)) == cores
"""


def test_openmp_that_has_bound_the_thread_leaves_the_other_cores_to_workers(tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one core")
    source, library = tmp_path / "bound.c", tmp_path / "bound.so"
    source.write_text(OPENMP)
    try:
        subprocess.run(["cc", "-fopenmp", "-shared", "-fPIC", "-o", library, source], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("there is no C compiler with OpenMP")
    subprocess.run([sys.executable, "-c", BOUND, library], env=os.environ | {"OMP_PROC_BIND": "true"}, check=True)


def test_submitters_affinity_is_never_changed():
    before = os.sched_getaffinity(0)
    with ost.Machine(cpus=2) as machine, graph_of(np.zeros(8)).compile(machine) as program:
        program.replay(10)
        assert os.sched_getaffinity(0) == before
    assert os.sched_getaffinity(0) == before
