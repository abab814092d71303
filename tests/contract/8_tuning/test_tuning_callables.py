"""The contract on tuning: candidates that are Python callables."""

from __future__ import annotations

import json
import os
import statistics

import pytest

import ostinato as ost

pytestmark = pytest.mark.usefixtures("places")


SLEEPING = """
    import time

    def factory(seconds):
        return lambda: time.sleep(seconds)
"""


def call(name, config=None, **arguments):
    return ost.Candidate.call(name, config, **arguments)


def only(report):
    """Return the one result there is."""
    assert len(report.results) == 1
    return report.results[0]


def endings(report):
    """How the candidates ended; who was cut, because a run disturbed by others looked slow, counts as ok."""
    return ["ok" if result.status == "raced" else str(result.status) for result in report.results]


def failed(report, status):
    """Check that the one candidate failed so; return its message."""
    result = only(report)
    assert result.status == status, (result.status, result.message)
    assert report.best is None
    assert list(report.ties) == []
    assert result.message
    return result.message


# Measured


def test_the_fastest_wins(tuner, module):
    name = module(SLEEPING)
    candidates = [call(f"{name}:factory", {"seconds": seconds}) for seconds in (0.02, 0.001, 0.04)]
    report = tuner().tune("sleep", candidates)
    assert report.best is report.results[1]
    assert report.best.candidate is candidates[1]
    assert report.best.candidate.config == {"seconds": 0.001}
    assert report.best in list(report.ties)
    assert all(any(tie is result for result in report.results) for tie in report.ties)
    assert [result.candidate for result in report.results] == candidates
    for result, seconds in zip(report.results, (0.02, 0.001, 0.04), strict=True):
        assert result.status in ("ok", "raced")
        assert isinstance(result.status, ost.Status)
        assert result.op == "sleep"
        assert result.device == "sim:a"
        assert not result.cached
        assert result.miss is None
        assert len(result.samples) >= 1
        assert all(seconds * 1e9 <= sample for sample in result.samples)
        assert result.time_ns >= seconds * 1e9
    assert report.best.status == "ok"


def test_the_time_is_the_median_of_the_samples(tuner, module):
    name = module(SLEEPING)
    policy = ost.Policy(cache="warm", rel_ci=1e-9, min_samples=9, max_seconds=0.2)
    result = only(tuner(policy=policy).tune("sleep", [call(f"{name}:factory", {"seconds": 0.001})]))
    assert len(result.samples) >= 9
    assert result.time_ns == pytest.approx(statistics.median(result.samples))
    low, high = result.interval_ns
    assert min(result.samples) <= low <= result.time_ns <= high <= max(result.samples)


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_both_caches(tuner, module, cache):
    name = module(SLEEPING)
    policy = ost.Policy(cache=cache, rel_ci=0.5, min_samples=2, max_seconds=0.1)
    assert only(tuner(policy=policy).tune("sleep", [call(f"{name}:factory", {"seconds": 0.001})])).status == "ok"


def test_a_call_of_next_to_nothing_is_measured(tuner, module):
    name = module("def factory():\n    return int\n")
    result = only(tuner().tune("nothing", [call(f"{name}:factory")]))
    assert result.status == "ok"
    assert 0 < result.time_ns < 1e6


def test_a_call_longer_than_what_may_be_spent_has_one_sample_at_least(tuner, module):
    name = module(SLEEPING)
    policy = ost.Policy(max_seconds=0.01, min_samples=50)
    result = only(tuner(policy=policy).tune("sleep", [call(f"{name}:factory", {"seconds": 0.2})]))
    assert result.status == "ok"
    assert 1 <= len(result.samples) < 10


def test_what_a_callable_returned_does_not_matter_without_a_check(tuner, module):
    name = module("def factory():\n    return lambda: (_ for _ in ())\n")
    assert only(tuner().tune("op", [call(f"{name}:factory")])).status == "ok"


# What the factory gets


def test_the_configuration_comes_as_keywords(tuner, module, lines):
    name = module(
        f"""
        import json

        def factory(**config):
            with open({lines.path!r}, "a") as file:
                print(json.dumps(config), file=file)
            return lambda: None
        """
    )
    config = {"tile": [16, 32], "flag": True, "none": None, "x": 0.1, "name": 'é\n"', "deep": {"a": [{}]}, "n": 2**70}
    assert only(tuner().tune("op", [call(f"{name}:factory", config)])).status == "ok"

    assert json.loads(lines()[0]) == config


def test_preparing_happens_elsewhere_and_reaches_the_factory(tuner, module, lines):
    name = module(
        f"""
        import os

        def prepare(n):
            with open({lines.path!r}, "a") as file:
                print(os.getpid(), n, file=file)
            return {{"n": n, "square": n * n, "self": Prepared(n)}}

        class Prepared:
            def __init__(self, n):
                self.n = n

        def factory(n, prepared):
            assert prepared["n"] == prepared["self"].n == n
            assert prepared["square"] == n * n
            assert isinstance(prepared["self"], Prepared)
            with open({lines.path!r}, "a") as file:
                print(os.getpid(), file=file)
            return lambda: None
        """
    )
    candidates = [call(f"{name}:factory", {"n": n}, prepare=f"{name}:prepare") for n in (2, 3)]
    report = tuner().tune("op", candidates)
    assert endings(report) == ["ok", "ok"], [r.message for r in report.results]
    prepared = {line.split()[0] for line in lines() if " " in line}
    measured = {line for line in lines() if " " not in line}
    assert not prepared & measured
    assert str(os.getpid()) not in prepared | measured


def test_a_setup_is_run_once_per_worker(tuner, module, lines):
    name = module(
        f"""
        import os

        def setup():
            with open({lines.path!r}, "a") as file:
                print("setup", os.getpid(), file=file)
            return ["the inputs"]

        def factory(n, inputs):
            assert inputs == ["the inputs"]
            with open({lines.path!r}, "a") as file:
                print("factory", os.getpid(), file=file)
            return lambda: None
        """
    )
    candidates = [call(f"{name}:factory", {"n": n}, setup=f"{name}:setup") for n in range(10)]
    report = tuner(["sim:a", "sim:b"]).tune("op", candidates)
    assert endings(report) == ["ok"] * 10, report.results[0].message
    ran = [line.split() for line in lines()]
    workers = [pid for what, pid in ran if what == "setup"]
    assert len(workers) == len(set(workers))
    assert set(workers) == {pid for what, pid in ran if what == "factory"}
    assert 1 <= len(workers) <= 2


def test_prepared_and_inputs_together(tuner, module):
    name = module(
        """
        def prepare(n):
            return n + 1

        def setup():
            return 5

        def factory(n, prepared, inputs):
            assert (n, prepared, inputs) == (3, 4, 5)
            return lambda: None
        """
    )
    candidate = call(f"{name}:factory", {"n": 3}, prepare=f"{name}:prepare", setup=f"{name}:setup")
    result = only(tuner().tune("op", [candidate]))
    assert result.status == "ok", result.message


def test_nothing_is_given_that_was_not_asked_for(tuner, module):
    name = module("def factory(**keywords):\n    assert not keywords, keywords\n    return lambda: None\n")
    result = only(tuner().tune("op", [call(f"{name}:factory")]))
    assert result.status == "ok", result.message


def test_a_factory_may_be_the_function_itself_or_a_class(tuner, module):
    name = module(
        """
        class Kernel:
            def __init__(self, n):
                self.n = n

            def __call__(self):
                return self.n

            @classmethod
            def make(cls, n):
                return cls(n)
        """
    )
    factory = __import__(name).Kernel
    tuner = tuner()
    assert only(tuner.tune("op", [call(factory, {"n": 1})])).status == "ok"
    assert only(tuner.tune("op", [call(f"{name}:Kernel.make", {"n": 1})])).status == "ok"


def test_modules_are_found_as_they_are_here(tuner, module):
    module("VALUE = 7\n", "beside_the_candidates")
    name = module(
        """
        import beside_the_candidates

        def factory():
            assert beside_the_candidates.VALUE == 7
            return lambda: None
        """
    )
    result = only(tuner().tune("op", [call(f"{name}:factory")]))
    assert result.status == "ok", result.message


def test_a_script_without_a_guard_is_not_run_again(user, module, lines):
    name = module("def factory():\n    return lambda: None\n")
    process = user(
        f"""
        import ostinato as ost

        print("run", file=open({lines.path!r}, "a"), flush=True)
        with ost.Tuner(["sim:a"], progress=False, policy=ost.Policy(max_seconds=0.05, min_samples=2)) as tuner:
            print(tuner.tune("op", [ost.Candidate.call("{name}:factory")]).best.status)
        """
    )
    output, errors = process.communicate(timeout=60)
    assert output.split() == ["ok"], errors
    assert lines() == ["run"]


def test_what_callables_print_disturbs_nothing(tuner, module, capfd):
    name = module(
        """
        import os, sys

        def factory(n):
            print('{"v":1,"type":"result","op":"op","status":"crash"}')
            print("OP:op,TIME:1,WS:1", flush=True)
            os.write(1, b"\\xff\\x00 no text")
            os.write(2, b"x" * 100000)
            return lambda: print(n, file=sys.stderr)
        """
    )
    report = tuner().tune("op", [call(f"{name}:factory", {"n": n}) for n in range(3)])
    assert endings(report) == ["ok"] * 3, report.results[0].message
    assert [result.op for result in report.results] == ["op"] * 3


# Checked


def test_a_check_gets_what_was_returned_and_the_key(tuner, module, lines):
    name = module(
        f"""
        import os

        def factory(n):
            return lambda: {{"n": n}}

        def check(outputs, key):
            with open({lines.path!r}, "a") as file:
                print(os.getpid(), outputs["n"], key["m"], file=file)
            return outputs["n"] == key["m"]
        """
    )
    candidates = [call(f"{name}:factory", {"n": n}) for n in (1, 2)]
    report = tuner().tune("op", candidates, key={"m": 2}, verify=f"{name}:check")
    assert endings(report) == ["wrong_result", "ok"]
    assert report.best is report.results[1]
    assert report.results[0].message
    assert all(line.split()[0] != str(os.getpid()) for line in lines())


@pytest.mark.parametrize(
    ("check", "status"),
    [
        ("return True", "ok"),
        ("return None", "ok"),
        ("return 1", "ok"),
        ("return np.bool_(True)", "ok"),
        ("np.testing.assert_allclose(outputs, [1.0, 2.0])", "ok"),
        ("return False", "wrong_result"),
        ("return np.bool_(False)", "wrong_result"),
        ("return 0", "wrong_result"),
        ("raise ValueError('seven is missing')", "wrong_result"),
        ("assert False, 'seven is missing'", "wrong_result"),
        ("np.testing.assert_allclose(outputs, [1.0, 3.0])", "wrong_result"),
        ("return np.array([True, False])", "wrong_result"),  # it has no truth value: an exception
    ],
)
def test_verdicts_of_a_check(tuner, module, check, status):
    name = module(
        f"""
        import numpy as np

        def factory():
            return lambda: np.array([1.0, 2.0])

        def check(outputs, key):
            {check}
        """
    )
    report = tuner().tune("op", [call(f"{name}:factory")], verify=f"{name}:check")
    assert only(report).status == status, only(report).message
    assert (report.best is None) == (status != "ok")
    if "seven" in check:
        assert "seven is missing" in only(report).message


def test_outputs_left_over_from_another_call_are_found_out(tuner, module):
    name = module(
        """
        import numpy as np

        out = np.zeros(100)

        def factory(honest):
            calls = 0

            def kernel():
                nonlocal calls
                calls += 1
                if honest or calls == 1:
                    out[:] = 1
                return out

            return kernel

        def check(outputs, key):
            return bool((outputs == 1).all())
        """
    )
    candidates = [call(f"{name}:factory", {"honest": honest}) for honest in (True, False)]
    report = tuner().tune("op", candidates, verify=f"{name}:check")
    assert endings(report) == ["ok", "wrong_result"]


# The default


def test_the_default_wins_what_cannot_be_told_apart(tuner, module):
    name = module("def factory(n):\n    return lambda: None\n")
    candidates = [call(f"{name}:factory", {"n": n}) for n in range(6)]
    for default in (candidates[0], candidates[4], call(f"{name}:factory", {"n": 5})):
        report = tuner(["sim:a?latency=0.002"]).tune("op", candidates, default=default)
        assert report.best.candidate == default
        assert report.best in list(report.ties)


def test_a_default_that_is_slower_loses(tuner, module):
    name = module(SLEEPING)
    candidates = [call(f"{name}:factory", {"seconds": seconds}) for seconds in (0.03, 0.001)]
    report = tuner().tune("sleep", candidates, default=candidates[0])
    assert report.best is report.results[1]


def test_a_default_that_fails_loses(tuner, module):
    name = module("def factory(n):\n    return {}[1] if n == 0 else lambda: None\n")
    candidates = [call(f"{name}:factory", {"n": n}) for n in range(2)]
    report = tuner().tune("op", candidates, default=candidates[0])
    assert report.best is report.results[1]
    assert report.results[0].status == "invalid"


def test_a_default_that_is_no_candidate_is_refused(tuner, module):
    name = module("def factory(n):\n    return lambda: None\n")
    with pytest.raises(ValueError, match="default"):
        tuner().tune("op", [call(f"{name}:factory", {"n": 1})], default=call(f"{name}:factory", {"n": 2}))


def test_the_choice_is_the_same_every_time(tuner, module):
    name = module("def factory(n):\n    return lambda: None\n")
    candidates = [call(f"{name}:factory", {"n": n}) for n in range(3)]
    tuner = tuner(["sim:a?latency=0.003"])
    bests = set()
    for again in range(3):
        report = tuner.tune(f"op {again}", candidates)
        if len(report.ties) == 3:  # then the rule decides, not the times
            bests.add(report.best.candidate.id)
    assert len(bests) <= 1


# Failures of callables


def test_a_factory_that_is_not_there(tuner, module):
    name = module("def factory(n):\n    return lambda: None\n")
    tuner = tuner()
    assert "no_such_module" in failed(tuner.tune("op", [call("no_such_module:factory")]), "invalid")
    assert "absent" in failed(tuner.tune("op", [call(f"{name}:absent")]), "invalid")


def test_a_module_that_cannot_be_imported(tuner, module):
    name = module("raise RuntimeError('nine is missing')\n")
    assert "nine is missing" in failed(tuner().tune("op", [call(f"{name}:factory")]), "invalid")


def test_a_factory_that_refuses_its_configuration(tuner, module):
    name = module(
        """
        def factory(n):
            if n > 2:
                raise ValueError(f"{n} is too many")
            return lambda: None
        """
    )
    report = tuner().tune("op", [call(f"{name}:factory", {"n": n}) for n in (1, 3)])
    assert endings(report) == ["ok", "invalid"]
    assert "3 is too many" in report.results[1].message
    assert "ValueError" in report.results[1].message


def test_a_factory_that_takes_other_arguments(tuner, module):
    name = module("def factory(n):\n    return lambda: None\n")
    assert "m" in failed(tuner().tune("op", [call(f"{name}:factory", {"m": 1})]), "invalid")


def test_a_factory_that_returns_nothing_callable(tuner, module):
    name = module("def factory():\n    return 3\n")
    assert failed(tuner().tune("op", [call(f"{name}:factory")]), "invalid")


@pytest.mark.parametrize(
    "raised", ["ValueError('of mine')", "KeyboardInterrupt('of mine')", "SystemExit('of mine')", "Mine('of mine')"]
)
def test_a_callable_that_raises(tuner, module, raised):
    name = module(
        f"""
        class Mine(BaseException):
            pass

        def kernel():
            raise {raised}

        def factory(good):
            return int if good else kernel
        """
    )
    report = tuner().tune("op", [call(f"{name}:factory", {"good": good}) for good in (True, False)])
    assert endings(report) == ["ok", "crash"]
    assert "of mine" in report.results[1].message


def test_a_callable_that_raises_later(tuner, module):
    name = module(
        """
        def factory():
            calls = iter([1, 2, 3])
            return lambda: next(calls)
        """
    )
    policy = ost.Policy(min_samples=20, max_seconds=1)
    assert "StopIteration" in failed(tuner(policy=policy).tune("op", [call(f"{name}:factory")]), "crash")


@pytest.mark.parametrize(
    ("death", "named"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("os.abort()", "SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("os._exit(3)", "3"),
        ("os._exit(0)", ""),
    ],
)
def test_a_callable_that_dies_takes_nobody_with_it(tuner, module, death, named):
    name = module(
        f"""
        import os, signal

        def kernel():
            {death}

        def factory(n):
            return kernel if n == 1 else int
        """
    )
    report = tuner().tune("op", [call(f"{name}:factory", {"n": n}) for n in range(4)])
    assert endings(report) == ["ok", "crash", "ok", "ok"]
    assert named in report.results[1].message
    assert report.results[1].message


@pytest.mark.parametrize("where", ["factory", "kernel", "check", "import"])
def test_a_callable_that_hangs_is_killed(tuner, module, where):
    hang = "time.sleep(600)"
    bad = module("import time\ntime.sleep(600)\n") if where == "import" else None
    name = module(
        f"""
        import time

        def kernel():
            {hang if where == "kernel" else "pass"}

        def factory(n):
            if n == 1:
                {hang if where == "factory" else "pass"}
            return kernel if n == 1 else int

        def check(outputs, key):
            if outputs is None:
                {hang if where == "check" else "pass"}
        """
    )
    candidates = [call(f"{bad if bad and n == 1 else name}:factory", {"n": n}) for n in range(3)]
    report = tuner(timeout=0.5).tune("op", candidates, verify=f"{name}:check")
    assert endings(report) == ["ok", "hang_killed", "ok"]
    assert "0.5" in report.results[1].message


def test_a_callable_that_takes_too_much_memory(tuner, module):
    name = module(
        """
        import time

        def kernel():
            held = bytearray(700 << 20)
            held[::4096] = b"x" * len(held[::4096])
            time.sleep(0.2)

        def factory(n):
            return kernel if n == 1 else int
        """
    )
    report = tuner(memory=300 << 20).tune("op", [call(f"{name}:factory", {"n": n}) for n in range(3)])
    assert endings(report) == ["ok", "oom", "ok"], report.results[1].message


def test_a_callable_that_finds_no_memory(tuner, module):
    name = module("def kernel():\n    raise MemoryError\n\ndef factory():\n    return kernel\n")
    failed(tuner().tune("op", [call(f"{name}:factory")]), "oom")


def test_preparing_that_fails(tuner, module):
    name = module(
        """
        import os, signal, time

        def prepare(n):
            if n == 1:
                raise RuntimeError("no such register")
            if n == 2:
                os.kill(os.getpid(), signal.SIGSEGV)
            if n == 3:
                return lambda: None
            if n == 4:
                time.sleep(600)

        def factory(n, prepared):
            return int
        """
    )
    candidates = [call(f"{name}:factory", {"n": n}, prepare=f"{name}:prepare") for n in range(6)]
    report = tuner(timeout=1).tune("op", candidates)
    assert endings(report) == [
        "ok",
        "compile_error",
        "compile_error",
        "compile_error",
        "compile_timeout",
        "ok",
    ], [result.message for result in report.results]
    assert "no such register" in report.results[1].message
    assert "SIGSEGV" in report.results[2].message
    assert report.results[3].message
    assert all(result.device is None for result in report.results[1:5])


def test_a_setup_that_fails_says_so(tuner, module):
    name = module(
        """
        def setup():
            raise OSError("the data are not there")

        def factory(inputs):
            return int
        """
    )
    assert "the data are not there" in failed(
        tuner().tune("op", [call(f"{name}:factory", setup=f"{name}:setup")]), "invalid"
    )


def test_a_workspace(tuner, module):
    name = module(
        """
        class Kernel:
            workspace = 4096

            def __call__(self):
                pass

        def factory():
            return Kernel()
        """
    )
    assert only(tuner().tune("op", [call(f"{name}:factory")])).workspace == 4096


# Cut early


def test_a_candidate_that_can_no_longer_win_is_cut(tuner, module):
    name = module(SLEEPING)
    candidates = [call(f"{name}:factory", {"seconds": seconds}) for seconds in (0.0005, 0.03)]
    policy = ost.Policy(rel_ci=1e-6, min_samples=60, max_seconds=1)
    report = tuner(policy=policy).tune("sleep", candidates)
    assert report.best is report.results[0]
    assert report.results[1].status == "raced"
    assert len(report.results[1].samples) < 30
    assert all(tie is not report.results[1] for tie in report.ties)


def test_preparing_may_take_no_arguments(tuner, module):
    name = module(
        "def prepare():\n    return 7\n\ndef factory(n, prepared):\n    assert prepared == 7\n    return int\n"
    )
    result = only(tuner().tune("op", [call(f"{name}:factory", {"n": 1}, prepare=f"{name}:prepare")]))
    assert result.status == "ok", result.message


def test_functions_that_changed_are_taken_anew(tuner, module):
    """Also by workers that have run them before, for one tuner and in one search after the other."""
    prepares = module("def prepare():\n    return 1\n")
    sets_up = module("def setup():\n    return 1\n")
    checks = module("def check(outputs, key):\n    return outputs == (1, 1, 1)\n")
    name = module("def factory(prepared, inputs):\n    return lambda: (1, prepared, inputs)\n")
    candidate = call(f"{name}:factory", prepare=f"{prepares}:prepare", setup=f"{sets_up}:setup")
    session = tuner()
    assert only(session.tune("op", [candidate], verify=f"{checks}:check")).status == "ok"
    module("def check(outputs, key):\n    return outputs == (20, 20, 20)\n", checks)
    assert only(session.tune("op", [candidate], verify=f"{checks}:check")).status == "wrong_result"
    module("def prepare():\n    return 20\n", prepares)
    assert only(session.tune("op", [candidate], verify=f"{checks}:check")).status == "wrong_result"
    module("def setup():\n    return 20\n", sets_up)
    assert only(session.tune("op", [candidate], verify=f"{checks}:check")).status == "wrong_result"
    module("def factory(prepared, inputs):\n    return lambda: (20, prepared, inputs)\n", name)
    result = only(session.tune("op", [candidate], verify=f"{checks}:check"))
    assert result.status == "ok", result.message
