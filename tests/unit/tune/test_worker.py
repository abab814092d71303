"""The process in which callables are measured: what it answers, and what candidates cannot do to it."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from tune.warm import Worker, request


@pytest.fixture(scope="module")
def shared() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


@pytest.fixture
def worker(shared: Worker) -> Iterator[Worker]:
    """One for all tests that it survives, which is seen to be still well after each."""
    yield shared
    assert shared.ask(request("null"))["status"] == "ok"


def test_a_result(worker: Worker) -> None:
    result = worker.ask(request("spinning", {"ns": 200_000}, id=7, op='odd "op"', simulation=None))
    assert (result["op"], result["message"], result["workspace"]) == ('odd "op"', "", 0)
    assert result["status"] in ("ok", "contended")
    assert len(result["ns"]) >= 3
    assert min(result["ns"]) > 190_000
    assert 0 < result["overhead_ns"] < 100_000


def test_requests_that_wait_are_answered_in_order(worker: Worker) -> None:
    worker.send(*[request("needing", {"workspace": number}, id=number) for number in range(50)])
    messages = [worker.message() for _ in range(100)]
    assert [(message["type"], message["id"]) for message in messages] == [
        (kind, number) for number in range(50) for kind in ("start", "result")
    ]
    assert [message["workspace"] for message in messages[1::2]] == list(range(50))


def test_a_request_in_pieces(worker: Worker) -> None:
    line = json.dumps(request("null", id=3)).encode()
    for begin in range(0, len(line), 100):
        os.write(worker.requests, line[begin : begin + 100])
    os.write(worker.requests, b"\n")
    assert [worker.message()["type"] for _ in range(2)] == ["start", "result"]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (request("nothing_there"), "AttributeError: module 'candidates' has no attribute 'nothing_there'"),
        (request("null") | {"factory": "no_such_module:x"}, "ModuleNotFoundError: No module named 'no_such_module'"),
        (request("refusing", {"tile": 3}), "ValueError: tile 3 does not divide"),
        (request("refusing", {"tiles": 3}), "TypeError: refusing() got an unexpected keyword argument 'tiles'"),
        (request("uncallable"), "TypeError: candidates:uncallable must return a callable, got a int"),
        (request("null", setup="candidates:refusing"), "ValueError: tile {} does not divide"),
        (request("null", prepared="/nonexistent"), "FileNotFoundError: "),
        (request("needing", {"workspace": "much"}), "TypeError: workspace must be a number of bytes, got 'much'"),
        (request("needing", {"workspace": -1}), "TypeError: workspace must be a number of bytes, got -1"),
    ],
)
def test_what_cannot_be_made_is_invalid(worker: Worker, question: dict[str, object], said: str) -> None:
    result = worker.ask(question)
    assert result["status"] == "invalid"
    assert result["message"].startswith(said)


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        ("candidates:nothing_there", "AttributeError: module 'candidates' has no attribute 'nothing_there'"),
        ("candidates:os", "TypeError: candidates:os must be callable, got a module"),
        ("candidates:same", ""),
    ],
)
def test_whether_a_check_can_be_used_is_said_before_any_candidate(worker: Worker, check: str, problem: str) -> None:
    worker.send({"type": "verify", "verify": check})
    answer = worker.message()
    assert answer is not None
    assert (answer["type"], answer["message"].partition(" (")[0]) == ("verify", problem)
    if problem:
        assert worker.ask(request("null", verify=check))["status"] == "invalid"


@pytest.mark.parametrize("check", ["never_awaited", "leaves"])
def test_a_check_that_says_nothing_is_no_proof(worker: Worker, check: str) -> None:
    assert worker.ask(request("null", verify=f"candidates:{check}"))["status"] == "wrong_result"


def test_a_message_names_the_last_line_of_the_candidates_own(worker: Worker) -> None:
    message = worker.ask(request("refusing", {"tile": 3}))["message"]
    assert "candidates.py, line " in message
    assert message.endswith('in refusing: raise ValueError(f"tile {tile} does not divide"))')
    of_no_line = worker.ask(request("refusing", {"tiles": 3}))["message"]
    # Newer Pythons go on: "Did you mean 'tile'?"
    assert of_no_line.startswith("TypeError: refusing() got an unexpected keyword argument 'tiles'")


@pytest.mark.parametrize(
    ("what", "status", "said"),
    [
        ("zero", "crash", "ZeroDivisionError: by zero"),
        ("exit", "crash", "SystemExit: 3"),
        ("interrupt", "crash", "KeyboardInterrupt"),
        ("memory", "oom", "MemoryError"),
        ("rude", "crash", "Rude: (its __str__ raised RuntimeError)"),
        ("long", "crash", "ValueError: xxx"),
        ("surrogate", "crash", "ValueError: ?"),
    ],
)
def test_what_a_call_raises_costs_it_only(worker: Worker, what: str, status: str, said: str) -> None:
    result = worker.ask(request("raising", {"what": what}))
    assert (result["status"], result["ns"]) == (status, [])
    assert result["message"].startswith(said)
    assert len(result["message"]) < 5000


def test_what_is_raised_while_samples_are_taken_is_a_crash(worker: Worker) -> None:
    result = worker.ask(request("raising_late", policy={"min_samples": 100}))
    assert (result["status"], result["message"][:12]) == ("crash", "RuntimeError")


def test_setup_runs_once_for_each_key(worker: Worker) -> None:
    def setups(n: int) -> int:
        return worker.ask(request("with_inputs", setup="candidates:set_up", key={"n": n}))["workspace"]

    assert [setups(n) for n in (1, 1, 2, 2, 1)] == [1, 1, 2, 2, 3]


def test_setup_gets_the_key(worker: Worker) -> None:
    assert worker.ask(request("with_inputs", setup="candidates:set_up_for", key={"n": 9}))["workspace"] == 9


def test_setup_gets_data_besides_the_key(worker: Worker, tmp_path: Path) -> None:
    for text in ("one", "other"):
        (tmp_path / text).write_text(text)
        fields = {"setup": "candidates:set_up_with", "key": {"text": text}, "data": str(tmp_path / text)}
        answer = worker.ask(request("reading", **fields))
        assert (answer["status"], answer["message"]) == ("ok", "")


def test_what_is_to_be_called_before_samples_is_and_before_calls_that_are_checked(worker: Worker) -> None:
    for policy in ({}, {"cache": "cold"}):
        answer = worker.ask(request("several", {"calls_per_sample": 1}, verify="candidates:fresh", policy=policy))
        assert (answer["message"], answer["status"] in ("ok", "contended")) == ("", True)


def test_times_are_those_of_one_of_several_calls(worker: Worker) -> None:
    one, many = (worker.ask(request("several", {"calls_per_sample": count}, simulation=None)) for count in (1, 1000))
    assert min(one["ns"]) > 90_000 > 1000 * min(many["ns"]) / 10
    assert min(many["ns"]) > 90


@pytest.mark.parametrize("count", [0, -1, 1.5, "many", None])
def test_a_number_of_calls_that_makes_no_sense(worker: Worker, count: object) -> None:
    answer = worker.ask(request("several", {"calls_per_sample": count}))
    assert answer["status"] == "crash"
    assert answer["message"].startswith("TypeError: calls_per_sample must be a positive integer, got ")


def test_prepare_saves_what_the_factory_gets(worker: Worker, tmp_path: Path) -> None:
    path = str(tmp_path / "value")
    prepare = {
        "type": "prepare", "id": 5, "prepare": "candidates:prepared_from", "config": {"workspace": 8}, "save": path,
    }  # fmt: skip
    assert worker.ask(prepare)["status"] == "ok"
    assert pickle.loads(Path(path).read_bytes()) == {"workspace": 8}
    assert worker.ask(request("with_prepared", {"workspace": 8}, prepared=path))["workspace"] == 8


@pytest.mark.parametrize(("name", "config"), [("refusing", {"tile": 1}), ("unpicklable", {}), ("nothing_there", {})])
def test_prepare_that_fails_is_a_compile_error(worker: Worker, tmp_path: Path, name: str, config: object) -> None:
    save = str(tmp_path / "value")
    result = worker.ask({"type": "prepare", "id": 5, "prepare": f"candidates:{name}", "config": config, "save": save})
    assert result["status"] == "compile_error"
    assert result["message"]


VERIFIED = {"setup": "candidates:set_up_for", "key": {"n": 5}}


@pytest.mark.parametrize(
    ("factory", "verify", "status"),
    [
        ("computing", "doubled", "ok"),
        ("computing", "silent", "ok"),
        ("computing", "same", "wrong_result"),
        ("computing", "outraged", "wrong_result"),
        ("computing", "zero", "wrong_result"),
        ("computing", "no", "wrong_result"),
        ("cheating", "doubled", "wrong_result"),
        ("cheating", "silent", "wrong_result"),
        ("in_place", "same", "ok"),
    ],
)
def test_outputs_are_checked_and_must_be_computed_anew(worker: Worker, factory: str, verify: str, status: str) -> None:
    result = worker.ask(request(factory, verify=f"candidates:{verify}", **VERIFIED))
    assert result["status"] == status
    assert bool(result["ns"]) == (status == "ok")


def test_what_a_check_says_is_the_message(worker: Worker) -> None:
    said = [
        worker.ask(request("computing", verify=f"candidates:{verify}", **VERIFIED))["message"]
        for verify in ("same", "outraged")
    ]
    assert said[0].startswith("AssertionError: same returned ")
    assert said[1].startswith("AssertionError: all wrong (")


def test_outputs_are_checked_after_the_samples_too(worker: Worker) -> None:
    fields = {"verify": "candidates:doubled", "policy": {"min_samples": 50}, **VERIFIED}
    assert worker.ask(request("tiring", **fields))["status"] == "wrong_result"


def test_what_commands_left_is_checked(worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("scratch")
    check = {
        "type": "check", "id": 2, "verify": "candidates:printed_42", "key": {},
        "outputs": {"stdout": "42\n", "scratch": str(tmp_path)},
    }  # fmt: skip
    assert worker.ask(check)["status"] == "ok"
    check["outputs"] = {"stdout": "41\n", "scratch": str(tmp_path)}
    assert worker.ask(check)["status"] == "wrong_result"


def test_a_callable_is_kept_for_the_next_turn(worker: Worker) -> None:
    def number(again: bool, candidate: str = "kept") -> int:
        return worker.ask(request("counted", candidate=candidate, keep=True, again=again))["workspace"]

    first = number(again=False)
    assert [number(again=True) for _ in range(2)] == [first, first]
    assert number(again=True, candidate="another") == first + 1
    assert number(again=False) == first + 2
    worker.send({"type": "forget"})
    assert number(again=True) == first + 3


def test_a_slow_candidate_is_cut(worker: Worker) -> None:
    fields = {"bound": 10_000.0, "policy": {"rel_ci": 1e-9, "max_seconds": 60.0}}
    result = worker.ask(request("spinning", {"ns": 200_000}, **fields))
    assert (result["status"], len(result["ns"])) == ("raced", 2)


def test_one_sample_is_taken_however_long_it_takes(worker: Worker) -> None:
    fields = {"policy": {"max_seconds": 0.01, "min_samples": 100}, "simulation": None}
    result = worker.ask(request("sleeping", {"seconds": 0.05}, **fields))
    assert result["status"] in ("ok", "contended")  # contended where another process uses the core meanwhile
    assert len(result["ns"]) == 1
    assert result["ns"][0] > 50e6


def test_cold_samples_are_single_calls(worker: Worker) -> None:
    warm = worker.ask(request("null", simulation=None))
    cold = worker.ask(request("null", simulation=None, policy={"cache": "cold"}))
    assert cold["overhead_ns"] != warm["overhead_ns"]


def test_the_noise_of_a_simulated_device_is_other_noise_each_time(worker: Worker) -> None:
    """With the same in each turn of a final, one of two equally fast candidates would surely win."""
    noisy = {"device": "sim:a", "latency": 0.002, "noise": 0.2, "drift": 0.0, "crash": 0.0, "hang": 0.0}
    first, second = (worker.ask(request("null", simulation=noisy))["ns"][:3] for _ in range(2))
    assert max(abs(one / other - 1) for one, other in zip(first, second, strict=True)) > 0.02


# What candidates leave behind.


def test_what_it_prints_is_not_taken_for_a_report(worker: Worker) -> None:
    assert worker.ask(request("printing", id=2))["status"] == "ok"


def test_closed_descriptors(worker: Worker) -> None:
    assert worker.ask(request("closing"))["status"] == "ok"


@pytest.mark.parametrize(("leaves", "sees"), [("moving", "where"), ("wandering", "cores")])
def test_the_next_finds_the_directory_and_the_cores_as_they_were(worker: Worker, leaves: str, sees: str) -> None:
    before = worker.ask(request(sees))["workspace"]
    assert worker.ask(request(leaves))["status"] == "ok"
    assert worker.ask(request(sees))["workspace"] == before


def test_streams_and_timers_are_put_back(worker: Worker) -> None:
    assert worker.ask(request("silencing"))["status"] == "ok"
    assert worker.ask(request("talking"))["status"] == "ok"
    assert worker.ask(request("alarming"))["status"] == "ok"
    assert worker.ask(request("sleeping", {"seconds": 0.03}))["status"] == "ok"  # three times and once more


@pytest.mark.parametrize("simulation", [None, request("null")["simulation"]], ids=["core", "simulated"])
def test_a_callable_is_gone_before_the_next_is_made(worker: Worker, simulation: object) -> None:
    for _ in range(3):
        result = worker.ask(request("only_one", simulation=simulation))
        assert (result["message"], result["ns"] != []) == ("", True)


@pytest.mark.parametrize("factory", ["forking", "forking_in_c"])
def test_children_that_come_back_end(worker: Worker, factory: str) -> None:
    assert worker.ask(request(factory, id=4))["id"] == 4
    worker.wait_for_children()


@pytest.mark.parametrize("at", [1, 2], ids=["not timed", "timed"])
def test_a_child_is_not_called_again(worker: Worker, tmp_path: Path, at: int) -> None:
    assert worker.ask(request("forking_once", {"path": str(tmp_path / "called"), "at": at}))["status"] == "ok"
    worker.wait_for_children()
    assert list(tmp_path.glob("called")) == []


def test_a_child_does_not_answer(worker: Worker) -> None:
    assert worker.ask(request("raising_in_a_child", id=5))["status"] == "ok"
    worker.wait_for_children()


def test_a_pool_that_waits_may_stay(worker: Worker) -> None:
    assert worker.ask(request("leaving_a_pool"))["status"] == "ok"


def test_a_thread_that_runs_ends_the_worker_after_the_answer() -> None:
    with Worker() as worker:
        worker.send(request("leaving_a_thread", policy={"max_seconds": 0.01}), request("null", id=2))
        kinds = [worker.message()["type"] for _ in range(3)]
        assert kinds == ["start", "result", "bye"]
        assert worker.wait() == 0


def test_functions_replaced_by_a_candidate_are_not_the_workers() -> None:
    with Worker() as worker:
        assert worker.ask(request("patching"))["status"] == "ok"
        assert min(worker.ask(request("sleeping", {"seconds": 0.001}))["ns"]) > 1e6


@pytest.mark.parametrize(("factory", "status"), [("exiting", 3), ("dying", -9)])
def test_who_ends_the_worker_had_started_and_no_later_one(factory: str, status: int) -> None:
    with Worker() as worker:
        worker.send(request("null", id=1), request(factory, id=2), request("null", id=3))
        messages = [worker.message() for _ in range(3)]
        assert [(message["type"], message["id"]) for message in messages] == [("start", 1), ("result", 1), ("start", 2)]
        assert worker.wait() == status


def test_it_ends_when_the_tuner_goes_away() -> None:
    with Worker() as worker:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, worker.requests, inheritable=False)
        os.close(null)
        assert worker.wait() == 0


def test_what_a_candidate_starts_gets_none_of_its_descriptors(worker: Worker) -> None:
    assert worker.ask(request("inheriting"))["workspace"] == 0


def test_its_descriptors_are_out_of_the_way() -> None:
    with Worker() as worker:
        numbers = sorted(int(name) for name in os.listdir(f"/proc/{worker.pid}/fd"))
        assert not {3, 4} & set(numbers)
        assert os.readlink(f"/proc/{worker.pid}/fd/0") == "/dev/null"
