"""What the contract and the design promise of whole processes: signals, forks, exits, imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import ostinato as ost

PRELUDE = """
import sys, threading, time, os, signal, gc
import numpy as np, ostinato as ost
@ost.task
def add(x: ost.ReadWrite, k=1):
    x += k
def program_of(x, machine=None, **more):
    g = ost.Graph()
    for k in range(len(x)):
        g.task(add, x[k:k+1])
    return g.compile(machine or ost.Machine(cpus=2), **more)
"""

NATIVE = """
import ctypes
lib = ctypes.CDLL(sys.argv[1])
add_native = ost.native(lib.add, (ost.ReadWrite, int))
def native_program_of(x, machine=None):
    g = ost.Graph()
    for k in range(len(x)):
        g.task(add_native, x[k:k+1], 1)
    return g.compile(machine or ost.Machine(cpus=2))
"""


def start(code, *args, env=None, **options):
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code), *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        **options,
    )


def run(code, *args, env=None, status=0):
    process = start(code, *args, env=env)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == status, (process.returncode, out, err)
    return out, err


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("native") / "tasks.so"
    source = Path(__file__).parents[1] / "tasks.c"
    compiler = os.environ.get("CC", "cc")
    try:
        subprocess.run([compiler, "-shared", "-fPIC", f"-I{ost.get_include()}", source, "-o", path], check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    return path


def interrupt(process, times=1):
    assert process.stdout.readline() == "ready\n"
    for _ in range(times):
        time.sleep(0.15)
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, (process.returncode, out, err)
    return out


# Ctrl-C


@pytest.mark.parametrize("kind", ["native", "python"])
def test_ctrl_c_in_a_long_replay_stops_at_a_step_boundary_with_whole_steps(kind, library):
    prefix = "native_" if kind == "native" else ""
    code = f"""
    x = np.zeros(8)
    program = {prefix}program_of(x)
    program.replay(3)
    try:
        print("ready", flush=True)
        program.replay(10**12)
    except KeyboardInterrupt:
        assert len(set(x.tolist())) == 1 and x[0] >= 3, x
        program.replay(2)
        assert len(set(x.tolist())) == 1, x
        print("whole")
    """
    assert "whole" in interrupt(start(NATIVE + textwrap.dedent(code), library))


def test_second_ctrl_c_stops_at_the_next_op_boundary():
    code = """
    x = np.zeros(1)
    g = ost.Graph()
    @ost.task(releases_gil=True)
    def slow(x: ost.ReadWrite):
        print("ready", flush=True) if x[0] == 0 else None
        x += 1
        time.sleep(0.4)
    for _ in range(100):
        g.task(slow, x)
    program = g.compile(ost.Machine(cpus=2))
    try:
        program.replay(5)
    except KeyboardInterrupt:
        assert x[0] < 50, x
        print("stopped")
    """
    process = start(code)
    assert "stopped" in interrupt(process, 2)


def test_ctrl_c_while_waiting_for_a_result():
    code = """
    x = np.zeros(4)
    program = program_of(x)
    run = program.submit(10**12)
    try:
        print("ready", flush=True)
        run.result()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    run.cancel()
    program.close()
    """
    assert "interrupted" in interrupt(start(code))


def test_ctrl_c_with_progress():
    code = """
    program = program_of(np.zeros(4))
    try:
        print("ready", flush=True)
        program.replay(10**12, progress=True)
    except KeyboardInterrupt:
        print("interrupted")
    """
    assert "interrupted" in interrupt(start(code))


def test_users_signal_handlers_run_during_a_replay():
    code = """
    seen = []
    def handler(*_):
        seen.append(1)
    signal.signal(signal.SIGUSR1, handler)
    x = np.zeros(1)
    @ost.task
    def ask(x: ost.ReadWrite, flag: ost.Write):
        x += 1
        if x[0] == 10:
            os.kill(os.getpid(), signal.SIGUSR1)
        flag[0] = len(seen)
    flag = np.zeros(1)
    with ost.capture() as g:
        ask(x, flag)
        ost.until(flag)
    n = g.compile(ost.Machine(cpus=2)).replay(10**9)
    assert n < 10**9
    print("seen")
    """
    assert "seen" in run(code)[0]


def test_signal_handler_that_raises_stops_the_replay():
    code = """
    class Stop(Exception): pass
    def handler(*_):
        raise Stop
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    x = np.zeros(8)
    try:
        program_of(x).replay(10**12)
    except Stop:
        print("stopped")
    except ost.TaskError as error:  # Python ran the handler within a task
        assert isinstance(error.__cause__, Stop)
        print("stopped")
    """
    assert "stopped" in run(code)[0]


# fork


@pytest.mark.forks
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork_every_handle_raises_and_a_new_machine_works():
    code = """
    import warnings; warnings.simplefilter("ignore")
    x = np.zeros(4)
    machine = ost.Machine(cpus=2)
    program = program_of(x, machine)
    run = program.submit(5); run.result()
    pid = os.fork()
    if pid == 0:
        bad = 0
        for use in (program.replay, program.submit, program.trace, program.verify, lambda: program_of(x, machine)):
            try:
                use()
                bad += 1
                print("no error", use, flush=True)
            except RuntimeError as e:
                pass
        program.close(); machine.close(); machine.close()
        del program, run, machine; gc.collect()
        y = np.zeros(4)
        with ost.Machine(cpus=2) as m, program_of(y, m) as p:
            p.replay(3)
        with program_of(y) as p:
            p.replay(3)
        bad += not (y == 6).all()
        os._exit(bad)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    program.replay(2)
    assert (x == 7).all()
    print("fine")
    """
    assert "fine" in run(code)[0]


@pytest.mark.forks
def test_fork_of_the_default_machine_gets_a_new_one_in_the_child():
    code = """
    import warnings; warnings.simplefilter("ignore")
    x = np.zeros(4)
    g = ost.Graph()
    g.task(add, x)
    g.compile().replay()
    pid = os.fork()
    if pid == 0:
        try:
            g.compile().replay(2)
            os._exit(0 if x[0] == 3 else 1)
        except BaseException as e:
            print(repr(e), flush=True)
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    """
    run(code)


@pytest.mark.forks
def test_fork_while_a_run_is_in_flight():
    code = """
    import warnings; warnings.simplefilter("ignore")
    x = np.zeros(4)
    program = program_of(x)
    run = program.submit(10**12)
    pid = os.fork()
    if pid == 0:
        sys.exit(0)  # finalizers and exit handlers of the child must not wait for threads it does not have
    assert os.waitpid(pid, 0)[1] == 0
    run.cancel()
    program.close()
    """
    run(code)


@pytest.mark.forks
@pytest.mark.parametrize("submit", ["program.submit(10**12)", "program.machine.spawn(wait)"])
def test_a_child_drops_runs_of_its_parent_without_a_word(submit):
    code = f"""
    import warnings; warnings.simplefilter("ignore")
    over = threading.Event()
    @ost.task(blocking=True)
    def wait(): over.wait()
    program = program_of(np.zeros(4))
    run = {submit}
    pid = os.fork()
    if pid == 0:
        del run
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    run.cancel()
    over.set()
    program.close()
    """
    assert run(code)[1] == ""


# exits


@pytest.mark.parametrize(
    "code",
    [
        "program = program_of(np.zeros(4)); run = program.submit(10**12)",
        "program_of(np.zeros(4)).submit(10**12)",
        "g = ost.Graph(); g.task(add, np.zeros(1)); p = g.compile(); r = p.submit(10**12)",
        "m = ost.Machine(cpus=5)",
        "program = program_of(np.zeros(4)); program.submit(100).add_done_callback(print)",
        "c = ost.capture(); g = c.__enter__(); add(np.zeros(1))",
        "import builtins; builtins.p = program_of(np.zeros(4)); builtins.r = p.submit(10**12)",
        "p = program_of(np.zeros(4)); threading.Thread(target=p.replay, args=(2000,)).start()",
        "p = program_of(np.zeros(4)); threading.Thread(target=p.replay, args=(10**12,), daemon=True).start()",
        "import atexit; p = program_of(np.zeros(4)); atexit.register(lambda: p.replay(3))",
        "p = program_of(np.zeros(4)); p.self = p if hasattr(p, '__dict__') else None; r = p.submit(5)",
        "t = program_of(np.zeros(4)).trace(3)",
    ],
)
def test_interpreter_exit_in_odd_states(code):
    _, err = run(code)
    assert "Fatal" not in err
    assert "leak" not in err.lower()


def test_exit_by_an_exception_tells_it_once():
    code = """
    g = ost.Graph()
    g.task(lambda: 1 / 0, access=())
    g.compile(ost.Machine(cpus=2)).replay()
    """
    _, err = run(code, status=1)
    assert err.count("\nZeroDivisionError: division by zero") == 1
    assert err.count("\nostinato.errors.TaskError") == 1


def test_system_exit_out_of_a_task_ends_the_process_with_its_code():
    code = """
    g = ost.Graph()
    g.task(lambda: sys.exit(5), access=())
    g.compile(ost.Machine(cpus=2)).replay()
    """
    run(code, status=5)


def test_kill_leaves_nothing_behind(tmp_path):
    code = """
    program = program_of(np.zeros(4), ost.Machine(cpus=3))
    run = program.submit(10**12)
    print("ready", flush=True)
    time.sleep(60)
    """
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    process = start(code, cwd=tmp_path, env={"TMPDIR": str(tmp_path)}, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    assert not children.exists() or children.read_text() == ""
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []
    if before:
        assert not {name for name in set(os.listdir("/dev/shm")) - before if "ostinato" in name}


def test_two_processes_at_once():
    code = """
    x = np.zeros(8)
    with program_of(x) as program:
        for _ in range(20):
            program.replay(50)
    assert (x == 1000).all()
    """
    processes = [start(code) for _ in range(2)]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err


# imports, environment


def test_import_is_light():
    code = """
    import json
    heavy = {"numba", "matplotlib", "click", "rich", "asyncio.events", "scipy", "PIL", "torch", "pytest", "cffi"}
    print(json.dumps(sorted(heavy & set(sys.modules))))
    """
    out = run(code)[0]
    assert not {"numba", "matplotlib", "click", "rich", "scipy", "PIL", "torch", "cffi"} & set(json.loads(out))


def test_import_starts_no_threads_and_writes_nothing():
    out, err = run("print(len(os.listdir('/proc/self/task')))", env={"OPENBLAS_NUM_THREADS": "1"})
    assert out == "1\n"
    assert err == ""


def test_ostinato_trace_traces_a_whole_process(tmp_path):
    path = tmp_path / "trace.json"
    code = """
    x = np.zeros(4)
    program = program_of(x)
    program.replay(3)
    program.submit(2).result()
    """
    run(code, env={"OSTINATO_TRACE": str(path)})
    data = json.loads(path.read_text())
    events = data["traceEvents"] if isinstance(data, dict) else data
    assert len([e for e in events if e.get("ph") == "X"]) >= 20


def test_ostinato_trace_of_a_process_that_fails(tmp_path):
    path = tmp_path / "trace.json"
    code = """
    g = ost.Graph()
    g.task(add, np.zeros(1))
    g.task(lambda: 1 / 0, access=())
    g.compile(ost.Machine(cpus=2)).replay()
    """
    run(code, env={"OSTINATO_TRACE": str(path)}, status=1)
    json.loads(path.read_text())


def test_ostinato_trace_to_a_place_that_is_not_there_does_not_harm_the_program():
    for path in ("/nowhere/at/all.json", "/dev/full"):
        out, err = run("program_of(np.zeros(2)).replay(3); print('done')", env={"OSTINATO_TRACE": path})
        assert out == "done\n"
        assert path in err  # and it is told


def test_trace_save_on_a_full_disk_raises_and_a_later_one_works(tmp_path):
    code = """
    import resource
    trace = program_of(np.zeros(4)).trace(500)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    try:
        trace.save("a.json")
        sys.exit("no error")
    except OSError:
        pass
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    trace.save("a.json")
    import json
    json.load(open("a.json"))
    """
    run("import os; os.chdir(sys.argv[1])\n" + textwrap.dedent(code), tmp_path)


def test_python_m_ostinato_is_the_command_line():
    result = subprocess.run([sys.executable, "-m", "ostinato", "--help"], capture_output=True, text=True, check=True)
    assert "demo" in result.stdout


def test_lost_stdout_does_not_break_progress():
    run("os.close(1); os.close(2); program_of(np.zeros(2)).replay(30, progress=True)")


def test_threads_of_the_machine_end_with_it():
    code = """
    def threads(): return len(os.listdir("/proc/self/task"))
    for _ in range(5):
        with ost.Machine(cpus=4) as m, program_of(np.zeros(4), m) as p:
            p.submit(10).result()
            assert threads() > 1
    gc.collect()
    base = threads()
    for _ in range(20):
        with ost.Machine(cpus=4) as m, program_of(np.zeros(4), m) as p:
            p.submit(10).result()
    gc.collect()
    assert threads() <= base, (threads(), base)
    """
    run(code, env={"OPENBLAS_NUM_THREADS": "1"})


def test_children_of_a_process_inherit_the_whole_affinity():
    code = """
    import subprocess
    program = program_of(np.zeros(4)); program.replay(5)
    out = subprocess.check_output([sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))"])
    assert int(out) == len(os.sched_getaffinity(0))
    seen = []
    g = ost.Graph()
    g.task(lambda: seen.append(len(os.sched_getaffinity(0))), access=())
    g.compile().replay()
    """
    run(code)
