"""Searches over hosts: nothing is lost, nothing counts twice, whatever becomes of messages and hosts."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from ostinato.tune.fleet import agent as agents
from ostinato.tune.fleet import engines, joining
from ostinato.tune.fleet import host as hosts
from ostinato.tune.fleet.host import LocalEndpoint, _told_apart
from ostinato.tune.fleet.joining import HostLostError, UnreachableError
from ostinato.tune.fleet.messages import End, Ended, Inbox, Outbox
from ostinato.tune.leases.processes import children
from ostinato.tune.progress import Progress
from ostinato.tune.workers.scratch import NoRoomError, Scratch
from support.hosts import Host

DEADLINE = 60
TESTS = Path(__file__).parents[2]
HERE = "tune.candidates"


class Wire(LocalEndpoint):
    """The way to an agent, on which exchanges get lost, come late, or twice; it can be cut."""

    def __init__(self, node, seed=0, bad=0.0):
        super().__init__(node)
        self.random = random.Random(f"{node}{seed}")
        self.bad = bad
        self.cut = False
        self.dead = False

    def exchange(self, acknowledged, commands, seconds):
        if self.dead:
            raise HostLostError("the node has died")
        if self.cut or self.random.random() < self.bad:
            raise UnreachableError("the request was lost")
        if self.random.random() < self.bad:
            super().exchange(acknowledged, commands, 0.0)
        answer = super().exchange(acknowledged, commands, seconds)
        if self.cut or self.random.random() < self.bad:
            raise UnreachableError("the answer was lost")
        if self.dead:
            raise HostLostError("the node has died")
        return answer

    def tell(self, acknowledged, commands):
        if self.dead or self.cut or self.random.random() < self.bad:
            return
        if self.random.random() < self.bad:  # it comes late
            later = threading.Timer(self.random.random() / 20, super().tell, (acknowledged, commands))
            later.daemon = True
            later.start()
        else:
            super().tell(acknowledged, commands)

    def kill(self):
        """The host dies, with all that runs there."""
        self.dead = True
        super().close()


@pytest.fixture
def fleet(monkeypatch):
    """Make the hosts of fleet="wires"; none joins later."""
    monkeypatch.setattr(joining, "LOOK_SECONDS", 1e6)
    monkeypatch.setattr(hosts, "PATIENCE", 0.0)

    def make(*endpoints):
        monkeypatch.setattr(engines, "_engine", lambda name, fleet: lambda address: endpoints)
        return "wires"

    return make


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(hosts, "UNREACHABLE", 0.5)
    monkeypatch.setattr(hosts, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(agents, "ALONE", 3.0)


def tuner(fleet, devices="sim:a,sim:b", **more):
    return ost.Tuner(devices, store=False, progress=False, fleet=fleet, **more)


def naps(count, **more):
    return [ost.Candidate.call(f"{HERE}:napping", {"number": n}, **more) for n in range(count)]


def statuses(report):
    return Counter(str(result.status) for result in report.results)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 3)), max_size=60))
def test_messages_arrive_once_and_in_order(moves):
    outbox, inbox, count, read, wire = Outbox(), Inbox(), itertools.count(), [], []
    for put, take, back in moves:
        if put:
            outbox.put(next(count))
            wire.append(list(outbox.waiting))
        for _ in range(min(take, len(wire))):
            read += inbox.take(wire.pop(back % len(wire)))
        if back:
            outbox.acknowledge(inbox.last)
    read += inbox.take(outbox.waiting)
    assert read == list(range(next(count)))


def test_nodes_that_share_a_name_are_told_apart():
    assert _told_apart(["a", "b", "a", "a"]) == ["a", "b", "a#2", "a#3"]


def test_devices_of_all_hosts_measure(fleet):
    with tuner(fleet(Wire("one"), Wire("two"))) as tune:
        assert "one/sim:a" in repr(tune)
        report = tune.tune("nap", naps(24))
        again = tune.tune("nap", naps(8))
    assert statuses(report).keys() <= {"ok", "raced"}
    assert len(report.results) == 24
    assert {result.device.partition("/")[0] for result in report.results} == {"one", "two"}
    assert report.best.candidate.config["number"] == 0
    assert again.best.candidate.config["number"] == 0
    assert report.environment["devices"].keys() == {"one/sim:a", "one/sim:b", "two/sim:a", "two/sim:b"}


def test_a_host_reports_in_batches(fleet):
    """Each exchange costs the caller time: leases come together, and so do outcomes while devices have work."""
    answers = []

    class Told(Wire):
        def exchange(self, acknowledged, commands, seconds):
            answer = super().exchange(acknowledged, commands, seconds)
            if answer[1]:
                answers.append([type(event).__name__ for _, event in answer[1]])
            return answer

    with tuner(fleet(Told("one")), "sim:a,sim:b,sim:c") as tune:
        report = tune.tune("nap", naps(300))
    assert statuses(report).keys() <= {"ok", "raced"}
    assert answers[0] == ["Leased"] * 3
    assert max(map(len, answers)) > 10


def test_what_presses_is_told_after_an_exchange_whose_answer_nobody_reads(monkeypatch):
    monkeypatch.setattr(agents, "SHORT_GATHER_SECONDS", 1e3)
    monkeypatch.setattr(agents, "GATHER_SECONDS", 1e3)
    agent = agents.Agent(agents.Settings(("sim:a",), None, None, (), os.getcwd()))
    answers = []
    poll = threading.Thread(target=lambda: answers.append(agent.exchange(0, [], 1e3)), daemon=True)
    try:
        agent.exchange(0, [(1, End())], 0.0)
        end = time.monotonic() + DEADLINE
        while not agent._outbox.waiting and time.monotonic() < end:
            time.sleep(0.01)
        agent.exchange(0, [], 0.0)
        poll.start()
        poll.join(DEADLINE)
        assert answers == [(1, [(1, Ended())])]
    finally:
        agent.close()


def test_hosts_build_and_check(fleet, tmp_path):
    prepared = [ost.Candidate.call(f"{HERE}:twice", {"n": n}, prepare=f"{HERE}:prepare_double") for n in range(6)]
    command = ["sh", "-c", "cat {scratch}/built; test {ms} != 3 && echo OP:sum,TIME:{ms},WS:0"]
    commands = [
        ost.Candidate.command(command, {"ms": ms}, build=["sh", "-c", "test {ms} != 4 && echo x > {scratch}/built"])
        for ms in (1, 2, 3, 4, 5)
    ]
    with tuner(fleet(Wire("one"), Wire("two"))) as tune:
        report = tune.tune("double", prepared)
        built = tune.tune("sum", commands, verify=f"{HERE}:five_is_wrong")
    assert statuses(report).keys() <= {"ok", "raced"}
    found = {result.candidate.config["ms"]: str(result.status) for result in built.results}
    assert found == {1: "ok", 2: "ok", 3: "crash", 4: "compile_error", 5: "wrong_result"}
    assert built.best.candidate.config["ms"] == 1


@pytest.mark.parametrize("seed", range(3))
def test_bad_wires_lose_nothing(fleet, quick, seed):
    with tuner(fleet(Wire("one", seed, 0.15), Wire("two", seed, 0.15))) as tune:
        report = tune.tune("nap", naps(40))
    assert len(report.results) == 40
    assert statuses(report).keys() <= {"ok", "raced"}
    assert report.best.candidate.config["number"] == 0


def test_candidates_of_a_host_that_dies_are_measured_elsewhere(fleet, quick):
    one, two = Wire("one"), Wire("two")
    threading.Timer(0.4, one.kill).start()
    with tuner(fleet(one, two)) as tune:
        report = tune.tune("nap", naps(120))
        assert statuses(report).keys() <= {"ok", "raced"}
        assert len(report.results) == 120
        assert report.best.candidate.config["number"] == 0
        assert {result.device.partition("/")[0] for result in tune.tune("nap", naps(4)).results} == {"two"}


def test_a_partition_that_heals_costs_nothing(fleet, quick, monkeypatch):
    monkeypatch.setattr(hosts, "UNREACHABLE", 30.0)
    one, two = Wire("one"), Wire("two")
    threading.Timer(0.2, setattr, (one, "cut", True)).start()
    threading.Timer(0.9, setattr, (one, "cut", False)).start()
    with tuner(fleet(one, two)) as tune:
        report = tune.tune("nap", naps(100))
    assert statuses(report).keys() <= {"ok", "raced"}
    assert len({(result.candidate.id, result.op) for result in report.results}) == len(report.results) == 100


def test_all_hosts_lost_end_the_search(fleet, quick):
    one = Wire("one")
    threading.Timer(0.3, one.kill).start()
    with tuner(fleet(one)) as tune:
        report = tune.tune("nap", naps(1000))
    assert statuses(report)["device_lost"] > 0
    assert len(report.results) == 1000


def test_an_agent_that_hears_nothing_gives_its_devices_back(fleet, quick):
    one = Wire("one")
    with tuner(fleet(one), "sim:alone") as tune:
        threading.Timer(0.2, setattr, (one, "cut", True)).start()
        report = tune.tune("nap", naps(1000))
        assert statuses(report)["device_lost"] > 0
        end = time.monotonic() + DEADLINE
        while not one._agent.closed and time.monotonic() < end:
            time.sleep(0.05)
        assert one._agent.closed
        with ost.Tuner("sim:alone", store=False, progress=False) as other:
            assert other.tune("nap", naps(2)).best is not None


def test_a_budget_ends_a_search_everywhere(fleet):
    with tuner(fleet(Wire("one"), Wire("two"))) as tune:
        begin = time.monotonic()
        report = tune.tune("nap", naps(100_000), budget=0.5)
        assert time.monotonic() - begin < DEADLINE
    assert statuses(report)["cancelled"] > 0
    assert report.best is not None


def test_candidates_that_crash_or_hang_cost_only_themselves(fleet):
    bad = [ost.Candidate.call(f"{HERE}:sometimes", {"what": what}) for what in ("ok", "exit", "raise", "hang")]
    with tuner(fleet(Wire("one"), Wire("two")), timeout=1.0) as tune:
        report = tune.tune("bad", [*bad, *naps(10)])
    found = {r.candidate.config["what"]: str(r.status) for r in report.results if "what" in r.candidate.config}
    assert found == {"ok": "ok", "exit": "crash", "raise": "crash", "hang": "hang_killed"} or found["ok"] == "raced"


def test_other_code_on_a_host_is_invalid(fleet, monkeypatch):
    monkeypatch.setattr(agents.Sources, "of", lambda self, candidate: "another")
    with tuner(fleet(Wire("one"))) as tune:
        monkeypatch.setattr("ostinato.tune.searching.results.Known._code", lambda self, candidate: ("ours", {}))
        report = tune.tune("nap", naps(3))
    assert statuses(report) == {"invalid": 3}
    assert "differs from the caller's" in report.results[0].message


def test_one_device_model_a_search(fleet):
    with (
        tuner(fleet(Wire("one"), Wire("two")), ["one/sim:a", "two/sim:a?latency=0.1"]) as tune,
        pytest.raises(ost.TuningError, match=r"of one model.*one/sim:a.*two/sim:a\?latency"),
    ):
        tune.tune("nap", naps(2))


def test_names_of_hosts(fleet):
    with tuner(fleet(Wire("one"), Wire("two"), Wire("two")), ["two/sim:a", "two#2/sim:b"]) as tune:
        assert repr(tune) == "<Tuner on two/sim:a, two#2/sim:b>"
    with pytest.raises(ost.DeviceError, match="there is no host three; the hosts of the fleet are one, two"):
        tuner(fleet(Wire("one"), Wire("two")), "three/sim:a")
    with pytest.raises(ost.DeviceError, match=r"one: .*cpu:9999"):
        tuner(fleet(Wire("one")), "cpu:9999")


def test_wrong_fleets():
    with pytest.raises(ValueError, match=r"fleet must be one of 'ray'.*got 'slurm'"):
        ost.Tuner("sim:a", store=False, fleet="slurm")
    with pytest.raises(TypeError, match="fleet must be a str"):
        ost.Tuner("sim:a", store=False, fleet=3)


def test_what_cannot_be_checked_ends_the_search(fleet):
    with tuner(fleet(Wire("one"))) as tune:
        with pytest.raises(ost.TuningError, match="host one: what verify names cannot be used"):
            tune.tune("nap", naps(3), verify=f"{HERE}:no_such_check")
        assert tune.tune("nap", naps(3)).best is not None


def test_a_store_answers_a_fleet(fleet, tmp_path):
    for expected in (False, True):
        with ost.Tuner("sim:a", store=tmp_path / "db", progress=False, fleet=fleet(Wire("one"), Wire("two"))) as tune:
            report = tune.tune("nap", naps(6))
        assert {result.cached for result in report.results} == {expected}
    with ost.Tuner("sim:a", store=tmp_path / "db", progress=False) as tune:
        assert all(result.cached for result in tune.tune("nap", naps(6)).results)


@pytest.fixture
def growing(monkeypatch):
    """Make the hosts of fleet="wires" what a list holds whenever the fleet looks."""

    def make(there):
        monkeypatch.setattr(engines, "_engine", lambda name, fleet: lambda address: list(there))
        return "wires"

    monkeypatch.setattr(joining, "LOOK_SECONDS", 0.1)
    return make


def devices_of(report):
    return {result.device.partition("/")[0] for result in report.results if result.device}


class Notes(Progress):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_a_host_joins_a_search(growing):
    there, notes = [Wire("one")], Notes()
    threading.Timer(0.3, there.append, (Wire("two"),)).start()
    with ost.Tuner("sim:a,sim:b", store=False, progress=notes, fleet=growing(there)) as tune:
        report = tune.tune("nap", naps(200))
        assert devices_of(report) == {"one", "two"}
        assert notes.notes == ["host two has joined"]
        assert "two/sim:b" in repr(tune)
        assert "two/sim:b" in report.environment["devices"]
        assert devices_of(tune.tune("nap", naps(60))) == {"one", "two"}  # from the beginning
    assert statuses(report).keys() <= {"ok", "raced"}
    assert len(report.results) == 200


def test_what_a_host_that_joined_measured_is_stored(growing, tmp_path):
    there = [Wire("one")]
    threading.Timer(0.3, there.append, (Wire("two"),)).start()
    for expected in (False, True):
        with ost.Tuner("sim:a", store=tmp_path / "db", progress=False, fleet=growing(there)) as tune:
            report = tune.tune("nap", naps(200))
        assert {result.cached for result in report.results} == {expected}
        assert devices_of(report) == {"one", "two"}


@pytest.mark.parametrize("others", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_host_that_died_comes_back_under_its_name(growing, quick, others):
    """With no other host, the search waits for it."""
    one, again = Wire("one"), Wire("one")
    again.identity = "one, started again"
    there = [one, Wire("two")] if others else [one]

    def fail():
        one.kill()
        there.remove(one)
        there.append(again)

    threading.Timer(0.3, fail).start()
    with tuner(growing(there)) as tune:
        report = tune.tune("nap", naps(400))
        assert devices_of(report) == ({"one", "two"} if others else {"one"})
        assert repr(tune).count("one/sim:a") == 1
    assert again._agent is None  # closed
    assert statuses(report).keys() <= {"ok", "raced"}
    assert len(report.results) == 400
    assert report.best.candidate.config["number"] == 0


@pytest.mark.slow
def test_a_host_that_was_cut_off_for_long_comes_back(growing, quick):
    one, two = Wire("one"), Wire("two")
    threading.Timer(0.2, setattr, (one, "cut", True)).start()
    threading.Timer(1.5, setattr, (one, "cut", False)).start()
    with tuner(growing([one, two])) as tune:
        report = tune.tune("nap", naps(900))
    assert statuses(report).keys() <= {"ok", "raced"}
    assert len(report.results) == 900
    last = max((span for span in report.spans if span.where.startswith("one/")), key=lambda span: span.end)
    assert last.end > 1.5


def test_a_host_of_another_model_does_not_join(growing):
    there, notes = [Wire("one")], Notes()
    other = Wire("two")
    other.open = lambda settings, node: Wire.open(other, settings._replace(names=("sim:a?latency=0.5",)), node)
    threading.Timer(0.2, there.append, (other,)).start()
    with ost.Tuner("sim:a", store=False, progress=notes, fleet=growing(there)) as tune:
        report = tune.tune("nap", naps(150))
    assert devices_of(report) == {"one"}
    assert notes.notes[0] == "host two is left out: its devices are simulated latency=0.5, not simulated"


def test_a_host_without_room_is_left_out(fleet, quick, monkeypatch):
    """What it was to build is built elsewhere, and has not been tried."""
    made = Scratch.directory
    full = []

    def directory(self, name):
        if threading.current_thread() is full[0]._agent._thread:
            raise NoRoomError("the disk of TMPDIR has no room for candidates: [Errno 28] No space left on device")
        return made(self, name)

    monkeypatch.setattr(Scratch, "directory", directory)
    one, two = Wire("one"), Wire("two")
    full.append(one)
    prepared = [ost.Candidate.call(f"{HERE}:twice", {"n": n}, prepare=f"{HERE}:prepare_double") for n in range(12)]
    with tuner(fleet(one, two)) as tune:
        report = tune.tune("double", prepared)
        assert statuses(report).keys() <= {"ok", "raced"}
        assert devices_of(report) == {"two"}
    monkeypatch.setattr(hosts, "PATIENCE", 0.5)
    full[0] = one = Wire("one")
    with tuner(fleet(one)) as tune:
        report = tune.tune("double", prepared)
    assert statuses(report) == {"device_lost": 12}
    assert "host one: the disk of TMPDIR has no room for candidates" in report.results[0].message


def test_what_fails_on_a_full_disk_is_not_stored(fleet, tmp_path, monkeypatch):
    monkeypatch.setattr(agents.Scratch, "full", property(lambda self: True))
    failing = [ost.Candidate.command(["false"], {"n": n}) for n in range(2)]
    for _ in range(2):
        with ost.Tuner("sim:a", store=tmp_path / "db", progress=False, fleet=fleet(Wire("one"))) as tune:
            report = tune.tune("fails", failing)
        assert [(str(result.status), result.cached) for result in report.results] == [("crash", False)] * 2


def test_a_slow_network_costs_only_time(fleet):
    class Slow(Wire):
        def exchange(self, acknowledged, commands, seconds):
            time.sleep(0.2)
            return super().exchange(acknowledged, commands, seconds)

    with tuner(fleet(Slow("one"), Wire("two"))) as tune:
        report = tune.tune("nap", naps(100))
    assert statuses(report).keys() <= {"ok", "raced"}
    assert devices_of(report) == {"one", "two"}
    assert report.best.candidate.config["number"] == 0


def test_a_slow_host_does_not_decide_who_wins(fleet, monkeypatch):
    """Its devices take three times as long for everything, and the reference candidate says so."""
    slow = []

    class Slow(Wire):
        def open(self, settings, node):
            found = super().open(settings, node)
            report = self._agent._report

            def slowly(job, outcome, seconds):
                ops = tuple(replace(op, samples=tuple(3 * ns for ns in op.samples)) for op in outcome.ops)
                slow.append(len(ops))
                report(job, replace(outcome, ops=ops), seconds)

            self._agent._report = slowly
            return found

    with tuner(fleet(Slow("one"), Wire("two"))) as tune:
        report = tune.tune("nap", naps(60))
    assert slow
    assert devices_of(report) == {"one", "two"}
    assert report.best.candidate.config["number"] == 0


@pytest.mark.parametrize("what", ["module", "command"])
def test_another_source_tree_on_a_host_is_invalid(tmp_path, what):
    """The message names the file that the host has."""
    trees = []
    for number in (1, 2):
        tree = tmp_path / str(number)
        tree.mkdir()
        (tree / "other_kernels.py").write_text(f"def nothing(n):\n    return lambda: {number}\n")
        (tree / "program").write_text(f"#!/bin/sh\necho OP:sum,TIME:{number},WS:0\n")
        (tree / "program").chmod(0o755)
        trees.append(tree)
    here, there = ({"PATH": f"{tree}:{os.environ['PATH']}", "PYTHONPATH": f"{TESTS}:{tree}"} for tree in trees)
    script = f"""
import sys; sys.path.append({os.fspath(TESTS)!r})
import ostinato as ost
from support.hosts import offer
offer()
if {what == "module"}:
    candidate = ost.Candidate.call("other_kernels:nothing", {{"n": 1}})
else:
    candidate = ost.Candidate.command(["program"], {{"n": 1}})
with ost.Tuner("sim:a", store=False, progress=False, fleet="processes://{tmp_path}") as tuner:
    result = tuner.tune("other", [candidate]).results[0]
print(result.status, result.message)
"""
    with Host(tmp_path, "one", **there):
        ran = subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, **here}, capture_output=True, text=True, timeout=DEADLINE
        )
    assert ran.stdout.startswith("invalid the code of "), ran.stdout + ran.stderr
    assert "differs from the caller's: host " in ran.stdout
    assert (f"in {trees[1] / 'other_kernels.py'}" if what == "module" else "the program program") in ran.stdout


@pytest.mark.slow
def test_when_the_caller_is_killed_all_ends_on_the_hosts_and_a_rerun_resumes(tmp_path):
    script = f"""
import sys; sys.path[:0] = [{os.fspath(TESTS)!r}, {os.fspath(TESTS / "unit")!r}]
import ostinato as ost
from support.hosts import offer
offer()
naps = [ost.Candidate.call("tune.candidates:sleeping", {{"seconds": 0.01 + n / 1000}}) for n in range(80)]
policy = ost.Policy(min_samples=3, max_seconds=0.05)
fleet = "processes://{tmp_path}"
with ost.Tuner("sim:a,sim:b", store="tune.db", fleet=fleet, policy=policy, progress=False) as tuner:
    print("begin", flush=True)
    report = tuner.tune("nap", naps)
print(sum(result.cached for result in report.results), len(report.results), report.best is not None)
"""
    command = [sys.executable, "-c", script]
    with Host(tmp_path, "one") as one, Host(tmp_path, "two") as two:
        first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE)
        assert first.stdout.readline() == b"begin\n"
        time.sleep(1.5)
        first.kill()
        first.wait()
        first.stdout.close()
        died = time.monotonic()
        assert children(one.process.pid)
        while children(one.process.pid) or children(two.process.pid):
            time.sleep(0.05)
            assert time.monotonic() < died + DEADLINE
        assert time.monotonic() < died + 10.0 + 5.0 * (os.getloadavg()[0] > 2)
        again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE)
    cached, count, best = again.stdout.split()[1:]
    assert (count, best) == ("80", "True"), again.stderr
    assert 0 < int(cached) < 80
