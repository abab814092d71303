"""Searches among candidates, users and disks that misbehave: each costs what it must, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import ostinato as ost
from ostinato.tune.progress import Progress

PATIENCE = 60  # seconds
QUICK = ost.Policy(rel_ci=0.5, min_samples=2, max_seconds=0.05)


def tuner(devices="sim:a", **arguments):
    return ost.Tuner(devices, **({"progress": False, "timeout": 20, "policy": QUICK} | arguments))


def call(what, n=0):
    return ost.Candidate.call(f"tune.mean:{what}", {"n": n})


def shell(code, config=None, **arguments):
    return ost.Candidate.command(["sh", "-c", code], config, **arguments)


def echo(n):
    return shell("echo OP:op,TIME:{n},WS:0", {"n": n})


def endings(report):
    """How candidates ended; on a busy host some look slow and are cut, which is as good as ok."""
    return ["ok" if result.status == "raced" else str(result.status) for result in report.results]


def there(pid):
    """Whether a process is there, zombies not counted."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def children():
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended meanwhile
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    return {pid for pid in found if there(pid)}


@pytest.fixture(autouse=True)
def _nothing_stays():
    """No process and no descriptor is left of a test."""
    processes, descriptors = children(), len(os.listdir("/proc/self/fd"))
    yield
    deadline = time.monotonic() + PATIENCE
    while children() != processes:
        assert time.monotonic() < deadline, children() - processes
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def user(source, *arguments):
    """Run a script in a session of its own; return it, started."""
    prelude = (
        "import os, resource, signal, sys, threading, time\n"
        "import ostinato as ost\n"
        "QUICK = ost.Policy(rel_ci=0.5, min_samples=2, max_seconds=0.05)\n"
        "def tuner(devices='sim:a', **arguments):\n"
        "    return ost.Tuner(devices, **({'progress': False, 'timeout': 20, 'policy': QUICK} | arguments))\n"
        "def call(what, n=0):\n"
        "    return ost.Candidate.call(f'tune.mean:{what}', {'n': n})\n"
        "def echo(n):\n"
        "    return ost.Candidate.command(['sh', '-c', 'echo OP:op,TIME:{n},WS:0'], {'n': n})\n"
        "def endings(report):\n"
        "    return ' '.join('ok' if r.status == 'raced' else str(r.status) for r in report.results)\n"
        "standard_output = os.dup(1)\n"
        "def say(text):\n"
        "    os.write(standard_output, f'{text}\\n'.encode())\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", prelude + textwrap.dedent(source), *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def said(process):
    """Wait for a script; return the lines it said."""
    try:
        output, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return output.splitlines()


# Callables


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "ending"),
    [
        ("stops", "hang_killed"),
        ("closes_descriptors", None),
        ("writes_into_descriptors", None),
        ("terminates_its_group", "crash"),
        ("leaves_a_crowd", None),
        ("forks_and_both_return", None),
        ("ruins_the_interpreter", None),
        ("forgets_all_modules", None),
        ("recurses", "crash"),
        ("raises_what_cannot_be_printed", "crash"),
        ("raises_megabytes", "crash"),
        ("exits", "crash"),
        ("exits_in_a_thread", "crash"),
        ("leaves_a_thread", "ok"),
        ("reads_address_zero", "crash"),
        ("sets_an_alarm", "ok"),
        ("opens_brackets", None),
        ("takes_leave_and_stays", "crash"),
        ("greets_without_end", "hang_killed"),
        ("floods_its_channel", "bad_output"),
    ],
)
def test_what_a_callable_does_costs_nobody_else(what, ending):
    candidates = [call("good"), call(what, 1), call("good", 1), call(what, 2), call("good", 2)]
    with tuner(timeout=1) as session:
        report = session.tune("op", candidates)
    endings_ = endings(report)
    assert endings_[::2] == ["ok", "ok", "ok"]
    assert ending is None or endings_[1::2] == [ending, ending]
    assert all(len(result.message) < 10_000 for result in report.results)
    assert all(sample > 0.01 for result in report.results for sample in result.samples)  # not what was claimed


def test_who_blames_the_check_costs_nobody_else():
    candidates = [call("good"), call("blames_the_check", 1), call("good", 1), call("blames_the_check", 2)]
    with tuner() as session:
        report = session.tune("op", candidates, verify="tune.mean:accepts")
    assert endings(report)[::2] == ["ok", "ok"]
    assert "bad_output" in endings(report)[1::2]
    assert all("no_check" in result.message for result in report.results if result.status == "bad_output")


def test_whatever_a_callable_writes_costs_nobody_else():
    """It finds every descriptor, and knows the messages that are expected there."""
    seeds = range(int(os.environ.get("OSTINATO_MORE_EXAMPLES", "1")) * 60)
    candidates = [call(what, n) for n in seeds for what in ("writes_anything", "good")]
    with tuner(["sim:a", "sim:b"], store=None, timeout=5) as session:
        report = session.tune("op", candidates, verify="tune.mean:accepts")
        again = session.tune("op", candidates, verify="tune.mean:accepts")  # as the store has it
    for each in (report, again):
        assert [
            str(result) for result, e in zip(each.results[1::2], endings(each)[1::2], strict=True) if e != "ok"
        ] == []
    for result in report.results[1::2]:
        assert max(result.samples) < 1e9, "another's claim"
    assert report.table()


def test_priorities_are_not_handed_down():
    candidates = [call("as_important_as_ever", 1), call("is_nice"), call("as_important_as_ever", 2)]
    with tuner() as session:
        assert endings(session.tune("op", candidates)) == ["ok", "ok", "ok"]


def test_memory_that_others_left_is_nobodys_fault():
    with tuner(memory=300 << 20) as session:
        assert endings(session.tune("op", [call("hoards", n) for n in range(1, 11)])) == ["ok"] * 10


@pytest.mark.slow
def test_damage_that_others_left_is_nobodys_fault():
    with tuner() as session:
        candidates = [call("leaves_a_bomb"), *(call("sleeps", n) for n in range(8))]
        assert endings(session.tune("op", candidates)) == ["ok"] * 9


@pytest.mark.parametrize("devices", [["sim:a"], ["sim:a", "sim:b"]], ids=len)
def test_who_kills_the_reaper_costs_nobody_else(devices):
    candidates = [call("good"), call("kills_its_parent", 1), call("good", 1), call("kills_its_parent", 2), echo(9)]
    with tuner(devices) as session:
        report = session.tune("op", candidates)
        found = endings(report)
        # It may have ended before its device was missed, and others may have waited behind it.
        assert all(ending in ("ok", "device_lost") for ending in found)
        assert found[0] == "ok"
        assert endings(session.tune("another op", [call("good", 3)])) == ["ok"]  # the device is as good as before
        again = session.tune("op", candidates[::2])
        assert endings(again) == ["ok", "ok", "ok"]


LOOP = "while :; do kill -STOP {pid}; done"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "ending"),
    [
        (shell("kill -STOP $PPID; echo OP:op,TIME:1,WS:0"), "ok"),
        (shell("kill -STOP $PPID; sleep 600"), "hang_killed"),
        (shell(LOOP.replace("{pid}", "$PPID")), "hang_killed"),
        (shell(f"setsid sh -c '{LOOP.replace('{pid}', '$1')}' - $PPID & sleep 600"), "hang_killed"),
        (call("stops_its_parent"), "ok"),
        (call("stops_its_parent_without_end"), "hang_killed"),
    ],
    ids=["once", "and sleeps", "again and again", "in another session", "callable", "callable again and again"],
)
@pytest.mark.parametrize("budget", [None, 2])
def test_who_stops_the_reaper_costs_nobody_else(what, ending, budget, monkeypatch):
    monkeypatch.setattr("ostinato.tune.workers.loop._GRACE", 0.5)
    with tuner(timeout=1, store=False) as session:
        report = session.tune("op", [echo(1), what, call("good"), echo(2)], budget=budget)
    assert budget or endings(report) == ["ok", ending, "ok", "ok"]
    with tuner() as session:  # the lease is free
        assert endings(session.tune("op", [echo(3)])) == ["ok"]


def test_large_configurations():
    large = ost.Candidate.call("tune.mean:has_no_end_of_arguments", {"n": 1, "text": "y" * 5_000_000})
    many = ost.Candidate.call("tune.mean:good", {f"n{k}": k for k in range(50_000)})
    with tuner() as session:
        assert endings(session.tune("op", [large, many, call("good")])) == ["ok", "invalid", "ok"]


def test_more_than_a_command_line_holds():
    candidates = [
        ost.Candidate.command(["echo", "x" * 200_000]),
        ost.Candidate.command(["echo", *["x" * 1000] * 3000]),
        shell("echo OP:op,TIME:1,WS:0", env={"LARGE": "x" * 200_000}),
        echo(1),
    ]
    with tuner() as session:
        report = session.tune("op", candidates)
    assert endings(report) == ["invalid", "invalid", "invalid", "ok"]
    assert all("too long" in result.message for result in report.results[:3])
    assert all(len(result.message) < 10_000 for result in report.results)


def test_a_callable_that_prints_without_end():
    with tuner(timeout=60) as session:
        report = session.tune("op", [call("good"), call("prints_without_end"), call("good", 1)])
    assert endings(report) == ["ok", "bad_output", "ok"]
    assert "64 MiB" in report.results[1].message


# Commands


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "yes",
        "yes >&2",
        "cat /dev/zero",
        "cat /dev/urandom",
        "cat /dev/urandom >&$OSTINATO_REPORT_FD",
        "cat /dev/zero >&$OSTINATO_REPORT_FD",
        "yes garbage >&$OSTINATO_REPORT_FD",
    ],
)
def test_floods(code):
    with tuner(timeout=10) as session:
        report = session.tune("op", [echo(1), shell(code), echo(2)])
    assert endings(report) in (["ok", "bad_output", "ok"], ["ok", "hang_killed", "ok"])  # as fast as it is read
    assert len(report.results[1].message) < 10_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("kill -STOP $$", "hang_killed"),
        ("trap '' TERM INT HUP QUIT; while :; do sleep 1; done", "hang_killed"),
        ("sleep 600 & sleep 600 & wait", "hang_killed"),
        ("for k in $(seq 40); do (trap '' TERM; sleep 600) & done; echo OP:op,TIME:1,WS:0", "ok"),
        ("setsid setsid sleep 600 & echo OP:op,TIME:1,WS:0", "ok"),
        ("echo OP:op,TIME:1,WS:0; exec >&- 2>&-; sleep 0.1", "ok"),
        ("kill -KILL 0", "crash"),
        ("f() { f | f & }; ulimit -u 1; kill -SEGV $$", "crash"),
        ("ulimit -v 1; sleep 0; echo OP:op,TIME:1,WS:0", None),
        ('cd /; rm -rf "$OSTINATO_SCRATCH"; echo OP:op,TIME:1,WS:0', "ok"),
    ],
)
def test_what_a_command_does_costs_nobody_else(code, ending):
    with tuner(timeout=1) as session:
        report = session.tune("op", [echo(1), shell(code), echo(2)])
    assert endings(report)[::2] == ["ok", "ok"]
    assert ending is None or endings(report)[1] == ending


@pytest.mark.parametrize(
    ("env", "ending"),
    [
        ({"LD_PRELOAD": "/nonexistent.so"}, "ok"),
        ({"PATH": ""}, "invalid"),
        ({"OSTINATO_REPORT_FD": "99"}, "ok"),
        ({"LC_ALL": "zz", "IFS": "O", "ENV": "/nonexistent"}, "ok"),
    ],
    ids=str,
)
def test_environments(env, ending):
    with tuner() as session:
        assert endings(session.tune("op", [shell("echo OP:op,TIME:1,WS:0", env=env), echo(1)])) == [ending, "ok"]


def test_names_that_nobody_expects(tmp_path):
    names = ["\x1b[31m", "<script>alert(1)</script>", "a,b", "'; drop table attempt; --", "\u202e", "%s{}", "=1+1", "~"]
    code = "import json, os, sys\nfor name in json.loads(sys.argv[1]):\n"
    code += "    os.write(3, json.dumps({'type': 'result', 'op': name, 'status': 'ok', 'ns': 5}).encode() + b'\\n')"
    candidate = ost.Candidate.command([sys.executable, "-S", "-E", "-c", code, json.dumps(names)], {"text": names})
    with tuner() as session:
        report = session.tune(names[1], [candidate], key={"text": names})
        assert [result.op for result in report.results] == names
        for suffix in ("html", "json", "csv"):
            report.save(tmp_path / f"report.{suffix}")
        assert "<script>alert" not in (tmp_path / "report.html").read_text()
        assert "\x1b[31m" not in report.table()
        again = session.tune(names[1], [candidate], key={"text": names})
    assert [result.op for result in again.results] == names
    assert all(result.cached for result in again.results)


def test_many_ops_of_one_command():
    with tuner() as session:
        report = session.tune("op", [shell("seq 3000 | sed 's/.*/OP:&,TIME:&,WS:0/'")])
    assert [result.op for result in report.results] == [str(k) for k in range(1, 3001)]
    assert report.best is report.results[0]


# Users


@pytest.mark.parametrize(
    "before",
    [
        "os.closerange(0, 3)",
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)",
        "signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); resource.setrlimit(resource.RLIMIT_STACK, (1 << 20,) * 2)",
        "os.chdir('/proc/self/fd')",
        # Python 3.13.0 cannot import `socket` where the directory is gone.
        "import socket; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
        "os.umask(0o777)",
        "os.nice(10)",
        "os.environ.update(LD_PRELOAD='/nonexistent.so', PYTHONWARNINGS='error', PYTHONVERBOSE='1', PYTHONINSPECT='1')",
        "os.environ.update(TMPDIR='/nonexistent')",
        "sys.setrecursionlimit(250)",
        "sys.stdin.close(); sys.stdout.close(); sys.stderr.close()",
        "sys.path[:] = [p for p in sys.path if p] + ['/nonexistent', '\\udc80']",
        "threading.Thread(target=lambda: [os._exit(0) for _ in range(20) if os.fork() == 0]).start()",
    ],
)
def test_whatever_the_users_process_is_like(before, tmp_path):
    process = user(
        f"""
        os.chdir({str(tmp_path)!r})
        {before}
        with tuner() as session:
            say(endings(session.tune("op", [call("good"), echo(1), call("exits"), call("good", 2), echo(2)])))
        signal.setitimer(signal.ITIMER_REAL, 0)
        """
    )
    assert said(process) == ["ok ok crash ok ok"]


def test_few_descriptors():
    process = user(
        """
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        try:
            with tuner([f"sim:{k}" for k in range(30)]) as session:
                session.tune("op", [call("good", n) for n in range(60)])
        except OSError as error:
            say(error.strerror)
        with tuner(["sim:1", "sim:2"]) as session:
            say(endings(session.tune("op", [call("good", n) for n in range(2)])))
        """
    )
    assert said(process)[-1] == "ok ok"


def test_forks_of_the_users_process():
    """A child has the tuner's descriptors, and none of its devices: the parent goes on, and the child makes its own."""
    process = user(
        """
        session = tuner()
        say(endings(session.tune("op", [call("good"), echo(1)])))
        pid = os.fork()
        if pid == 0:
            try:
                session.tune("op", [call("good", 2)])
            except RuntimeError as error:
                say(type(error).__name__)
            session.close()
            with tuner("sim:b") as other:
                say(endings(other.tune("other", [call("good", 3)])))
            os._exit(0)
        os.waitpid(pid, 0)
        say(endings(session.tune("third", [call("good", 4), echo(4)])))
        session.close()
        """
    )
    assert said(process) == ["ok ok", "RuntimeError", "ok", "ok ok"]


def test_a_forked_child_keeps_nothing_alive(tmp_path):
    """A child that outlives a killed tuner holds its descriptors, but not its devices."""
    path = tmp_path / "pids"
    process = user(
        f"""
        def fork():
            while not os.path.exists({str(path)!r}):
                time.sleep(0.01)
            if os.fork() == 0:
                say(os.getpid())
                time.sleep(600)
        threading.Thread(target=fork).start()
        with tuner(timeout=600) as session:
            session.tune("op", [ost.Candidate.command(["sh", "-c", "echo $$ > {path}; sleep 600"])])
        """
    )
    child = int(process.stdout.readline())
    try:
        process.kill()
        process.wait(PATIENCE)
        with tuner() as session:
            assert endings(session.tune("op", [echo(1)])) == ["ok"]  # as soon as the device is idle
        assert not there(int(path.read_text()))
        assert there(child)
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
def test_a_search_that_is_stopped_for_a_while_blames_nobody():
    """Its time limits end while it is stopped, but what runs does so in time."""
    process = user(
        """
        with tuner(timeout=1.5) as session:
            say(os.getpid())
            argv = ["sh", "-c", "sleep 0.1; echo OP:op,TIME:{n},WS:0"]
            candidates = [ost.Candidate.command(argv, {"n": n}) for n in range(1, 5)]
            candidates += [call("sleeps", n) for n in range(8)]
            say(endings(session.tune("op", candidates)))
        """
    )
    process.stdout.readline()
    time.sleep(0.3)
    process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    process.send_signal(signal.SIGCONT)
    assert said(process) == [" ".join(["ok"] * 12)]


@pytest.mark.parametrize("what", ["tune", "close"])
def test_a_search_within_itself(what):
    def candidates(session):
        yield echo(1)
        session.tune("inner", [echo(2)]) if what == "tune" else session.close()

    with tuner() as session:
        with pytest.raises(RuntimeError, match="this thread"):
            session.tune("op", candidates(session))
        assert endings(session.tune("op", [echo(3)])) == ["ok"]


def test_progress_that_raises():
    class Raising(Progress):
        def ended(self, result, best):
            raise LookupError("of mine")

    with tuner(progress=Raising()) as session:
        for _ in range(2):
            with pytest.raises(LookupError, match="of mine"):
                session.tune("op", [echo(1), call("good")])


def test_closing_while_another_thread_searches():
    session = tuner()
    begun = threading.Event()
    reports = []

    def candidates():
        begun.set()
        yield shell("sleep 0.2; echo OP:op,TIME:1,WS:0")

    thread = threading.Thread(target=lambda: reports.append(session.tune("op", candidates())))
    thread.start()
    assert begun.wait(PATIENCE)
    session.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="clos"):
        session.tune("op", [echo(1)])


def test_interrupts_at_any_moment():
    process = user(
        """
        import random
        random.seed(5)
        def interrupt():
            for _ in range(15):
                time.sleep(0.1 * random.random())
                os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        thread.start()
        n = 0
        while thread.is_alive():
            try:
                n += 1
                with tuner() as session:
                    session.tune("op", [call("good", n * 100 + k) for k in range(20)] + [echo(n * 100 + 1)])
                thread.join(0.01)
            except KeyboardInterrupt:
                continue
        while True:
            try:
                with tuner() as session:
                    found = endings(session.tune("op", [call("good", -1), echo(1000000)]))
                break
            except KeyboardInterrupt:  # the last one may come late
                continue
        say(found)
        """
    )
    assert said(process) == ["ok ok"]


# Stores


def test_a_store_that_somebody_else_locks(tmp_path):
    import sqlite3

    path = tmp_path / "store.db"
    with tuner(store=path) as session:
        session.tune("op", [echo(1)])
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("begin immediate")
        timer = threading.Timer(0.5, other.execute, ["rollback"])
        timer.start()
        session.tune("op", [echo(n) for n in range(1, 20)])
        timer.join()
        other.close()
    with tuner(store=path) as session:
        assert all(result.cached for result in session.tune("op", [echo(n) for n in range(1, 20)]).results)


def test_a_full_disk():
    """What is measured is returned all the same; that it is not kept is said."""
    process = user(
        """
        import logging
        logging.basicConfig(stream=os.fdopen(standard_output, "w"), format="%(message)s")
        with tuner() as session:
            session.tune("op", [echo(1)])
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
            long = [ost.Candidate.call("tune.mean:refuses", {"text": f"{n} {'x' * 3000}"}) for n in range(300)]
            report = session.tune("op", [call("good", n) for n in range(5)] + long)
            say(endings(report).split() == ["ok"] * 5 + ["invalid"] * 300)
            say(report.best.status)
        """
    )
    lines = said(process)
    assert len([line for line in lines if "store" in line]) == 1
    assert lines[-2:] == ["True", "ok"]


def test_searches_that_are_killed_at_any_moment_lose_nothing_that_was_kept(tmp_path):
    """Two processes on two devices and one store, killed again and again: what one has found is known to the next."""
    source = f"""
        with tuner(sys.argv[1], store={str(tmp_path / "store.db")!r}) as session:
            candidates = [call("good", n) for n in range(40)]
            candidates += [call("exits", n) for n in range(4)] + [echo(n) for n in range(1000, 1040)]
            report = session.tune("op", candidates, key={{"device": sys.argv[1]}})
            say(endings(report))
            say(sum(result.cached for result in report.results))
    """
    chance = random.Random(7)
    known = {"sim:a": 0, "sim:b": 0}
    for _ in range(4):
        processes = {device: user(source, device) for device in known}
        time.sleep(0.15 + 0.3 * chance.random())
        for process in processes.values():
            process.kill()
            process.communicate(timeout=PATIENCE)
    for device in known:
        for _ in range(2):
            ends, cached = said(user(source, device))
            assert ends.split() == ["ok"] * 40 + ["crash"] * 4 + ["ok"] * 40
            assert int(cached) >= known[device]
            known[device] = int(cached)
        assert known[device] == 84
