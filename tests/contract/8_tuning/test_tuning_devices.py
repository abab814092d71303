"""The contract on tuning: devices, simulated ones among them, and who has them."""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time

import pytest

import ostinato as ost

pytestmark = pytest.mark.usefixtures("places")

command = ost.Candidate.command
CORES = sorted(os.sched_getaffinity(0))


def only(report):
    assert len(report.results) == 1
    return report.results[0]


def endings(report):
    """How the candidates ended; who was cut, because a run disturbed by others looked slow, counts as ok."""
    return ["ok" if result.status == "raced" else str(result.status) for result in report.results]


def overlaps(lines):
    """Count the stretches, a line with begin and end each, that begin before the one before has ended."""
    stretches = sorted(tuple(map(float, line.split()[:2])) for line in lines)
    return sum(begin < end for (_, end), (begin, _) in itertools.pairwise(stretches))


@pytest.fixture
def witness(script, lines):
    """A program that notes when it began and ended."""
    return script(
        f"""
        begin=$(date +%s.%N)
        sleep 0.03
        echo "$begin $(date +%s.%N) $$" >> {lines.path}
        echo OP:op,TIME:${{TIME:-1}},WS:0
        """
    )


# Names


@pytest.mark.parametrize(
    "devices",
    [
        [],
        (),
        "",
        [""],
        ["cpu"],
        ["cpu:"],
        ["cpu:x"],
        ["cpu:-1"],
        ["cpu:0-"],
        ["cpu:1-0"],
        ["cpu:0,,1"],
        ["0"],
        ["tpu:0"],
        ["sim"],
        ["sim:"],
        ["sim:?latency=1"],
        ["all", "all"],
        ["cpu:0", "cpu:0"],
        ["cpu:0", "cpu:0,0"],
        ["sim:a", "sim:a"],
        ["sim:a", "sim:b", "sim:a?latency=0.1"],
        ["cpu:0?latency=1"],
        [0],
        [None],
        [b"cpu:0"],
        None,
        3,
    ],
    ids=str,
)
def test_wrong_devices(devices):
    with pytest.raises((TypeError, ValueError)):
        ost.Tuner(devices)


@pytest.mark.parametrize(
    "parameters",
    [
        "speed=1",
        "latency",
        "latency=",
        "latency=fast",
        "latency=-1",
        "latency=nan",
        "latency=inf",
        "noise=-0.1",
        "noise=nan",
        "drift=nan",
        "drift=x",
        "crash=1.5",
        "crash=-0.1",
        "hang=2",
        "latency=1&latency=2",
        "latency=1&&noise=0",
        "Latency=1",
        "=1",
    ],
)
def test_wrong_simulations(parameters):
    with pytest.raises(ValueError, match="sim"):
        ost.Tuner([f"sim:a?{parameters}"])


@pytest.mark.parametrize("name", [f"cpu:{len(CORES) + 1000}", "cuda:77", "cuda:GPU-nonsense", "hip:77"])
def test_devices_that_are_not_there(name):
    with pytest.raises(ost.DeviceError, match=name.partition(":")[0]):
        ost.Tuner([name])


def test_one_name_is_one_device(tuner):
    assert only(tuner("sim:a").tune("op", [command(["echo", "OP:op,TIME:1,WS:0"])])).device == "sim:a"


def test_all_devices(tuner):
    report = tuner("all").tune("op", [command(["echo", "OP:op,TIME:1,WS:0"])])
    assert only(report).status == "ok"
    assert only(report).device.partition(":")[0] in ("cpu", "cuda", "hip")


# Processors


def test_the_first_processor_is_the_first_usable_core(tuner, program):
    prog = program("print(f'OP:{sorted(os.sched_getaffinity(0))},TIME:1,WS:0')\n")
    result = only(tuner("cpu:0").tune("op", [command(prog)]))
    assert (result.op, result.device) == (str(CORES[:1]), "cpu:0")


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_sets_of_cores(tuner, program):
    prog = program("print(f'OP:{sorted(os.sched_getaffinity(0))},TIME:1,WS:0')\n")
    for name in ("cpu:0-1", "cpu:0,1"):
        result = only(tuner([name]).tune(name, [command(prog)]))
        assert (result.op, result.device) == (str(CORES[:2]), name)
    assert only(tuner("cpu:1").tune("op", [command(prog)])).op == str(CORES[1:2])
    with pytest.raises(ValueError, match="cpu:1"):
        ost.Tuner(["cpu:0-1", "cpu:1"])


def test_a_callable_runs_on_its_core(tuner, module):
    name = module(
        f"""
        import os, time

        def factory():
            assert os.sched_getaffinity(0) == {{{CORES[0]}}}
            return lambda: time.sleep(0.001)
        """
    )
    result = only(tuner("cpu:0").tune("op", [ost.Candidate.call(f"{name}:factory")]))
    assert result.status in ("ok", "contended"), result.message


# Simulated devices


def test_latency(tuner, module, lines):
    name = module(
        f"""
        def kernel():
            with open({lines.path!r}, "a") as file:
                print("ran", file=file)

        def factory():
            return kernel
        """
    )
    result = only(tuner("sim:a?latency=0.02").tune("op", [ost.Candidate.call(f"{name}:factory")]))
    assert result.device.startswith("sim:a")
    assert result.time_ns >= 0.02e9
    assert len(lines()) >= len(result.samples)  # the candidate really runs


def test_latency_takes_its_time(tuner):
    begin = time.monotonic()
    candidates = [command(["echo", "OP:op,TIME:1,WS:0"], {"n": n}) for n in range(4)]
    report = tuner("sim:a?latency=0.1").tune("op", candidates)
    assert [result.status in ("ok", "raced") for result in report.results] == [True] * 4
    assert time.monotonic() - begin >= 0.4


def spread(result):
    return statistics.stdev(result.samples) / statistics.median(result.samples)


def test_noise(tuner, module):
    name = module("def factory():\n    return int\n")
    policy = ost.Policy(rel_ci=1e-9, min_samples=40, max_seconds=0.5)
    quiet = only(tuner("sim:quiet?latency=0.003", policy=policy).tune("op", [ost.Candidate.call(f"{name}:factory")]))
    noisy = only(
        tuner("sim:noisy?latency=0.003&noise=0.5", policy=policy).tune("op", [ost.Candidate.call(f"{name}:factory")])
    )
    assert min(noisy.samples) > 0
    assert spread(noisy) > 0.25
    quiet = sorted(quiet.samples)
    assert quiet[3 * len(quiet) // 4] < 1.2 * quiet[0]


def test_drift(tuner, module):
    name = module("def factory():\n    return int\n")
    policy = ost.Policy(rel_ci=1e-9, min_samples=40, max_seconds=0.5)
    session = tuner("sim:a?latency=0.003&drift=4", policy=policy)
    samples = only(session.tune("op", [ost.Candidate.call(f"{name}:factory")])).samples
    fifth = len(samples) // 5
    assert statistics.median(samples[-fifth:]) > 1.2 * statistics.median(samples[:fifth])


@pytest.mark.parametrize("kind", ["call", "command"])
def test_crashes_and_hangs(tuner, module, kind):
    name = module("def factory(n):\n    return int\n")

    def make(n):
        if kind == "call":
            return ost.Candidate.call(f"{name}:factory", {"n": n})
        return command(["echo", "OP:op,TIME:1,WS:0"], {"n": n})

    session = tuner(["sim:always?crash=1"])
    report = session.tune("op", [make(n) for n in range(2)])
    assert endings(report) == ["crash", "crash"]
    assert report.best is None
    session = tuner(["sim:never?hang=1"], timeout=0.3)
    report = session.tune("op", [make(n) for n in range(2)])
    assert endings(report) == ["hang_killed", "hang_killed"]


def test_the_same_candidates_crash_every_time(tuner, tmp_path):
    candidates = [command(["echo", "OP:op,TIME:1,WS:0"], {"n": n}) for n in range(24)]
    statuses = []
    for again in range(2):
        report = tuner(["sim:a?crash=0.5"], store=tmp_path / f"{again}.db").tune("op", candidates)
        statuses.append([result.status == "crash" for result in report.results])
        assert {result.status for result in report.results} <= {"ok", "raced", "crash"}
        assert report.best is not None
    assert statuses[0] == statuses[1]
    assert 2 <= sum(statuses[0]) <= 22


# Several devices


def test_every_device_works(tuner, witness):
    names = [f"sim:{letter}" for letter in "abcd"]
    report = tuner(names).tune(
        "op", [command([witness, "{n}"], {"n": n}, env={"TIME": "{n}"}) for n in range(1, 1200, 100)]
    )
    assert {result.device for result in report.results} == set(names)


def test_one_candidate_at_a_time_on_a_device(tuner, witness, lines):
    tuner("sim:a").tune("op", [command([witness, "{n}"], {"n": n}) for n in range(1, 7)])
    assert len(lines()) >= 6
    assert overlaps(lines()) == 0


def test_devices_work_at_the_same_time(tuner, script, tmp_path):
    """Each of two candidates waits for the other to begin."""
    prog = script(
        f"""
        touch {tmp_path}/begun-$1
        while [ ! -e {tmp_path}/begun-$2 ]; do sleep 0.01; done
        echo OP:op,TIME:1,WS:0
        """
    )
    candidates = [command([prog, "1", "2"]), command([prog, "2", "1"])]
    report = tuner(["sim:a", "sim:b"]).tune("op", candidates)
    assert endings(report) == ["ok", "ok"], [r.message for r in report.results]


def test_tuners_in_threads_take_turns(tuner, witness, lines, in_threads):
    sessions = [tuner("sim:a") for _ in range(3)]

    def tune(session, which):
        report = session.tune("op", [command([witness, str(which), "{n}"], {"n": n}) for n in range(3)])
        assert all(result.status in ("ok", "raced") for result in report.results)

    in_threads(*(lambda s=session, k=k: tune(s, k) for k, session in enumerate(sessions)))
    assert len(lines()) >= 9
    assert overlaps(lines()) == 0


def test_tuners_that_share_some_devices(tuner, witness, lines, in_threads):
    """No order in which they take them may lock up."""
    sessions = [tuner(["sim:a", "sim:b"]), tuner(["sim:b", "sim:a"]), tuner(["sim:b", "sim:c"])]

    def tune(session, which):
        report = session.tune("op", [command([witness, str(which), "{n}"], {"n": n}) for n in range(4)])
        assert all(result.status in ("ok", "raced") for result in report.results)

    in_threads(*(lambda s=session, k=k: tune(s, k) for k, session in enumerate(sessions)))


def test_processes_take_turns(user, witness, lines):
    source = f"""
        import sys
        import ostinato as ost

        with ost.Tuner(["sim:a"], progress=False, store=sys.argv[1] + ".db") as tuner:
            candidates = [ost.Candidate.command([{witness!r}, sys.argv[1], "{{n}}"], {{"n": n}}) for n in range(4)]
            print(*(result.status for result in tuner.tune("op", candidates).results))
    """
    processes = [user(source, os.path.join(os.path.dirname(lines.path), f"store {k}")) for k in range(3)]
    for process in processes:
        output, errors = process.communicate(timeout=60)
        assert set(output.split()) <= {"ok", "raced"}, errors
        assert len(output.split()) == 4, errors
    assert len(lines()) >= 12
    assert overlaps(lines()) == 0


def test_a_device_is_free_once_its_holder_is_killed(tuner, user, lines, alive, eventually):
    holder = user(
        f"""
        import ostinato as ost

        with ost.Tuner(["sim:a"], progress=False, timeout=600) as tuner:
            tuner.tune("op", [ost.Candidate.command(["sh", "-c", "echo $$ >> {lines.path}; exec sleep 600"])])
        """
    )
    pid = int(eventually(lines)[0])
    assert alive(pid)
    holder.kill()
    holder.wait(60)
    gone = f"while kill -0 {pid} 2>/dev/null && ! grep -q 'State:.[ZX]' /proc/{pid}/status; do echo there; exit 1; done"
    report = tuner("sim:a").tune("op", [command(["sh", "-c", f"{gone}; echo OP:op,TIME:1,WS:0"])])
    assert only(report).status == "ok", only(report).message  # so the one before was gone by then
    assert not alive(pid)


def test_a_tuner_that_does_not_tune_does_not_keep_a_device(tuner):
    idle = tuner("sim:a")
    candidate = command(["echo", "OP:op,TIME:1,WS:0"])
    assert only(idle.tune("op", [candidate])).status == "ok"
    assert only(tuner("sim:a").tune("another op", [candidate])).status == "ok"


def test_a_graphics_processor_is_selected_by_the_environment(tuner, program):
    try:
        session = tuner("cuda:0")
    except ost.DeviceError as error:
        pytest.skip(str(error))
    prog = program("print('OP:' + os.environ['CUDA_VISIBLE_DEVICES'] + ',TIME:1,WS:0')\n")
    result = only(session.tune("op", [command(prog)]))
    assert result.status == "ok"
    assert result.op.startswith(("GPU-", "MIG-", "0"))


def test_a_budget_ends_waiting_for_a_device(tuner, user, lines, eventually, tmp_path):
    holder = user(
        f"""
        import ostinato as ost

        with ost.Tuner(["sim:a"], progress=False, store={str(tmp_path / "holder.db")!r}, timeout=600) as tuner:
            tuner.tune("op", [ost.Candidate.command(["sh", "-c", "echo $$ >> {lines.path}; exec sleep 600"])])
        """
    )
    eventually(lines)
    session = tuner("sim:a")
    candidates = [command(["echo", "OP:op,TIME:1,WS:0"], {"n": n}) for n in range(3)]
    report = session.tune("op", candidates, budget=0.5)
    assert endings(report) == ["cancelled"] * 3
    assert report.best is None
    both = tuner(["sim:a", "sim:b"])  # there is another one
    assert endings(both.tune("op", candidates)) == ["ok"] * 3
    holder.kill()
    holder.wait(60)
    assert endings(session.tune("op", candidates)) == ["ok"] * 3


def test_an_interrupt_ends_waiting_for_a_device(tuner, user, lines, eventually, script, tmp_path):
    wait = script(
        f"echo $$ >> {lines.path}; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo OP:op,TIME:1,WS:0\n"
    )
    waiting = user(
        f"""
        import os, signal, time
        import ostinato as ost

        while not os.path.exists({lines.path!r}):
            time.sleep(0.01)
        with ost.Tuner(["sim:a"], progress=False, store={str(tmp_path / "waiting.db")!r}) as tuner:
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            try:
                tuner.tune("op", [ost.Candidate.command(["echo", "OP:op,TIME:1,WS:0"])])
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        """
    )
    reports = []
    session = tuner("sim:a")
    thread = threading.Thread(target=lambda: reports.append(session.tune("op", [command([wait])])))
    thread.start()
    output, errors = waiting.communicate(timeout=60)
    (tmp_path / "go").touch()
    thread.join(60)
    assert output.split() == ["interrupted"], errors
    assert endings(reports[0]) == ["ok"]
