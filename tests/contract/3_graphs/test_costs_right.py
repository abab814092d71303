"""The contract on `graph.tune`: the fastest variant that does what the task does is the best one, and no other."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from measuring import (
    IN_BETWEEN,
    RIGHT,
    SCALED,
    by_variant,
    graph_of,
    tune,
    variant,
    wrong,
)

pytestmark = pytest.mark.usefixtures("places")


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


# The fastest right one


def test_the_fastest_of_several(tasks, machine):
    graph, *_ = graph_of(tasks(IN_BETWEEN + RIGHT).relax)
    report = tune(graph, machine)["relax"]
    assert variant(report.best) == "quick"
    assert {result.status for result in report.results} <= {"ok", "raced"}


def test_the_default_where_nothing_is_faster(here, machine):
    report = tune(graph_of(here(IN_BETWEEN).relax)[0], machine)["relax"]
    assert variant(report.best) == "relax"


def test_a_task_without_variants_is_measured_if_everything_is(here, machine):
    report = tune(graph_of(here().relax)[0], machine, everything=True)["relax"]
    assert [variant(result) for result in report.results] == ["relax"]
    assert report.best.time_ns > 1.5e6


WRONG = {
    "other_values": "dst[...] = src * 3",
    "one_value": "np.multiply(src, 2, out=dst); dst[-1] += 1e-12",
    "unwritten_part": "dst[:-1] = src[:-1] * 2",
    "nothing_written": "pass",
    "rounded": "dst[...] = (src * 2).astype(np.float16) + 1e-3",
    "not_a_number": "dst[...] = np.nan",
    "adds": "dst += src * 2",
    "raises": "raise ValueError('no')",
    "changes_its_input": "np.multiply(src, 2, out=dst); src.setflags(write=True); src[0] = 5",
    "writes_outside": "np.multiply(src, 2, out=dst); ctypes.memset(dst.ctypes.data + dst.nbytes, 1, 8)",
    "writes_its_input": "np.multiply(src, 2, out=dst); ctypes.memset(src.ctypes.data, 1, 8)",
}
DYING = {
    "leaves": "raise SystemExit(3)",
    "interrupts": "raise KeyboardInterrupt",
    "raises_odd": "raise BaseException('odd')",
    "aborts": "os.abort()",
    "exits": "os._exit(0)",
    "faults": "ctypes.string_at(0)",
    "kills": "os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("where", ["here", "tasks"])
def test_wrong_ones_are_never_chosen(request, machine, where):
    source = "".join(wrong(body).replace("broken", name) for name, body in WRONG.items())
    relax = request.getfixturevalue(where)(source).relax
    graph, src, dst = graph_of(relax)
    report = tune(graph, machine)["relax"]
    assert variant(report.best) == "relax"
    assert {name: str(result.status) for name, result in by_variant(report).items()} == {
        "relax": "ok",
        **dict.fromkeys(WRONG, "wrong_result"),
        "raises": "crash",
    }
    with graph.compile(machine) as program:
        assert not any(name in program.explain() for name in WRONG)
        program.replay()
    assert dst.tolist() == (src * 2).tolist()


def test_ones_that_end_their_process_are_never_chosen(tasks, machine):
    source = "".join(wrong(body).replace("broken", name) for name, body in DYING.items())
    graph, src, dst = graph_of(tasks(source + RIGHT).relax)
    report = tune(graph, machine)["relax"]
    found = by_variant(report)
    assert variant(report.best) == "quick"
    for name in DYING:
        assert found[name].status in ("crash", "bad_output"), name
        assert found[name].message, name
    with graph.compile(machine) as program:
        assert not any(name in program.explain() for name in DYING)
        program.replay()
    assert dst.tolist() == (src * 2).tolist()


def test_one_that_hangs_is_never_chosen(tasks, machine):
    graph, _src, _dst = graph_of(tasks(RIGHT + wrong("time.sleep(1000)")).relax)
    report = tune(graph, machine, budget=3)["relax"]
    assert by_variant(report)["broken"].status in ("hang_killed", "cancelled")
    assert variant(report.best) == "quick"
    with graph.compile(machine) as program:
        assert "broken" not in program.explain()


def test_one_that_is_wrong_now_and_then(here, machine):
    """It is right when it is called first, and wrong later."""
    source = """
count = 0
@relax.variant()
def broken(src: ost.Read, dst: ost.Write):
    global count
    count += 1
    dst[...] = src * (2 if count < 3 else 3)
"""
    report = tune(graph_of(here(source).relax)[0], machine)["relax"]
    assert variant(report.best) == "relax"


def test_what_is_not_a_number_equals_itself(here, machine):
    source = """
@ost.task
def root(src: ost.Read, dst: ost.Write):
    slow()
    with np.errstate(all="ignore"):
        np.sqrt(src, out=dst)

@root.variant()
def quick(src: ost.Read, dst: ost.Write):
    with np.errstate(all="ignore"):
        dst[...] = np.sqrt(src)
"""
    module = here(source)
    src, dst = np.array([-1.0, 0.0, np.inf, np.nan]), np.zeros(4)
    with ost.capture() as graph:
        module.root(src, dst)
    assert variant(tune(graph, machine)["root"].best) == "quick"
    assert variant(tune(graph, machine, rtol=1e-6)["root"].best) == "quick"


def test_where_the_default_itself_fails_nothing_is_chosen(here, machine):
    source = (
        RIGHT
        + """
@ost.task
def failing(src: ost.Read, dst: ost.Write):
    raise ValueError("no")

@failing.variant()
def quick_failing(src: ost.Read, dst: ost.Write):
    np.multiply(src, 2, out=dst)
"""
    )
    module = here(source)
    a, b = np.ones(8), np.zeros(8)
    with ost.capture() as graph:
        module.failing(a, b)
        module.relax(a, b)
    reports = tune(graph, machine)
    assert reports["failing"].best is None
    assert all(result.status != "ok" for result in reports["failing"].results)
    assert variant(reports["relax"].best) == "quick"
    with graph.compile(machine) as program:
        assert "quick_failing" not in program.explain()


def test_of_a_readwrite_array_each_call_sees_what_was_there(here, machine):
    source = """
@ost.task
def advance(x: ost.ReadWrite):
    slow()
    x *= 1.5

@advance.variant()
def quick(x: ost.ReadWrite):
    np.multiply(x, 1.5, out=x)

@advance.variant()
def broken(x: ost.ReadWrite):
    np.multiply(x, 1.25, out=x)
"""
    module = here(source)
    x = np.ones(8)
    with ost.capture() as graph:
        module.advance(x)
    report = tune(graph, machine)["advance"]
    assert variant(report.best) == "quick"
    assert by_variant(report)["broken"].status == "wrong_result"
    assert x.tolist() == [1.0] * 8


def test_objects_are_part_of_what_comes_out(here, machine):
    source = """
@ost.task
def draw(generator: ost.ReadWrite, log: ost.ReadWrite, dst: ost.Write):
    slow()
    dst[...] = generator.random(len(dst))
    log.append(float(dst[0]))

@draw.variant()
def quick(generator: ost.ReadWrite, log: ost.ReadWrite, dst: ost.Write):
    generator.random(out=dst)
    log.append(float(dst[0]))

@draw.variant()
def forgetful(generator: ost.ReadWrite, log: ost.ReadWrite, dst: ost.Write):
    generator.random(out=dst)

@draw.variant()
def wasteful(generator: ost.ReadWrite, log: ost.ReadWrite, dst: ost.Write):
    generator.random(out=dst)
    generator.random()
    log.append(float(dst[0]))
"""
    module = here(source)
    generator, log, dst = np.random.default_rng(7), [1.5], np.zeros(8)
    with ost.capture() as graph:
        module.draw(generator, log, dst)
    found = by_variant(tune(graph, machine)["draw"])
    assert log == [1.5]
    assert found["forgetful"].status == "wrong_result"
    assert found["wasteful"].status == "wrong_result"
    with graph.compile(machine) as program:
        assert "forgetful" not in program.explain()
        assert "wasteful" not in program.explain()
        program.replay()
    expected = np.random.default_rng(7)
    assert dst.tolist() == expected.random(8).tolist()
    assert log == [1.5, dst[0]]
    assert generator.bit_generator.state == expected.bit_generator.state


# Ops that differ in what is not part of what is measured once


def test_one_that_is_wrong_for_strides(here, machine):
    source = """
@relax.variant()
def dense(src: ost.Read, dst: ost.Write):
    if dst.flags.c_contiguous:
        np.multiply(src, 2, out=dst)
"""
    module = here(source)
    a, b, c, d = np.ones(8), np.zeros(8), np.ones((8, 2)), np.zeros((8, 2))
    with ost.capture() as graph:
        module.relax(a, b)
        module.relax(c[:, 0], d[:, 0])
    tune(graph, machine)
    with graph.compile(machine) as program:
        program.replay()
    assert b.tolist() == [2.0] * 8
    assert d[:, 0].tolist() == [2.0] * 8


def test_one_that_is_wrong_for_other_strides_later(here, machine):
    source = """
@relax.variant()
def dense(src: ost.Read, dst: ost.Write):
    if dst.flags.c_contiguous:
        np.multiply(src, 2, out=dst)
"""
    module = here(source)
    tune(graph_of(module.relax)[0], machine)
    c, d = np.ones((8, 2)), np.zeros((8, 2))
    with ost.capture() as graph:
        module.relax(c[:, 0], d[:, 0])
    tune(graph, machine)
    with graph.compile(machine) as program:
        program.replay()
    assert d[:, 0].tolist() == [2.0] * 8


def test_one_that_is_wrong_for_another_scalar(here, machine):
    module = here(SCALED)
    a, b, c = np.ones(8), np.zeros(8), np.zeros(8)
    with ost.capture() as graph:
        module.scale(a, b, 2)
        module.scale(a, c, 3)
    tune(graph, machine)
    with graph.compile(machine) as program:
        program.replay()
    assert (b[0], c[0]) == (2, 3)


def test_one_that_is_wrong_for_another_scalar_later(here, machine):
    module = here(SCALED)
    a, b, c = np.ones(8), np.zeros(8), np.zeros(8)
    for target, factor in ((b, 2), (c, 3)):
        with ost.capture() as graph:
            module.scale(a, target, factor)
        tune(graph, machine)
        with graph.compile(machine) as program:
            program.replay()
    assert (b[0], c[0]) == (2, 3)


def test_one_that_is_wrong_for_another_object(here, machine):
    source = """
class Scaling:
    def __init__(self, factor):
        self.factor = factor
        self.calls = 0

    @ost.task
    def apply(self, src: ost.Read, dst: ost.Write):
        slow()
        self.calls += 1
        dst[...] = src * self.factor

    @apply.variant()
    def twice(self, src: ost.Read, dst: ost.Write):
        self.calls += 1
        np.multiply(src, 2, out=dst)

    @apply.variant()
    def quick(self, src: ost.Read, dst: ost.Write):
        self.calls += 1
        np.multiply(src, self.factor, out=dst)
"""
    module = here(source)
    scalings = [module.Scaling(2), module.Scaling(3)]
    a, b, c = np.ones(8), np.zeros(8), np.zeros(8)
    with ost.capture() as graph:
        scalings[0].apply(a, b)
    tune(graph, machine)
    with ost.capture() as graph:
        scalings[0].apply(a, b)
        scalings[1].apply(a, c)
    tune(graph, machine)
    assert [scaling.calls for scaling in scalings] == [0, 0]
    with graph.compile(machine) as program:
        program.replay()
    assert (b[0], c[0]) == (2, 3)
    assert [scaling.calls for scaling in scalings] == [1, 1]


FLIP = """
@ost.task
def flip(src: ost.Read, dst: ost.Write):
    slow()
    dst[...] = src[::-1].copy()

@flip.variant()
def one_by_one(src: ost.Read, dst: ost.Write):
    for i in range(len(src)):
        dst[i] = src[-1 - i]
"""


@pytest.mark.parametrize("first", [True, False], ids=["apart first", "itself first"])
def test_one_that_is_wrong_where_arrays_overlap(here, machine, first):
    module = here(FLIP)
    a, b, c = np.arange(8.0), np.zeros(8), np.arange(8.0)
    with ost.capture() as graph:
        if first:
            module.flip(a, b)
        module.flip(c, c)
        if not first:
            module.flip(a, b)
    tune(graph, machine)
    with graph.compile(machine) as program:
        program.replay()
    assert b.tolist() == a[::-1].tolist()
    assert c.tolist() == a[::-1].tolist()


def test_one_that_is_wrong_where_slices_overlap(here, machine):
    source = """
@ost.task
def shift(src: ost.Read, dst: ost.Write):
    slow()
    dst[...] = src.copy()

@shift.variant()
def one_by_one(src: ost.Read, dst: ost.Write):
    for i in range(len(src)):
        dst[i] = src[i]
"""
    module = here(source)
    a = np.arange(8.0)
    with ost.capture() as graph:
        module.shift(a[:-1], a[1:])
    report = tune(graph, machine)["shift"]
    assert variant(report.best) == "shift"
    with graph.compile(machine) as program:
        program.replay()
    assert a.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


# rtol

CLOSE = """
@relax.variant()
def close(src: ost.Read, dst: ost.Write):
    np.multiply(src, 2 * (1 + 1e-9), out=dst)
"""


def test_nearly_equal_is_not_equal(here, machine):
    graph, *_ = graph_of(here(CLOSE).relax)
    report = tune(graph, machine)["relax"]
    assert variant(report.best) == "relax"
    assert by_variant(report)["close"].status == "wrong_result"


def test_nearly_equal_is_enough_if_asked_for(here, machine):
    graph, *_ = graph_of(here(CLOSE).relax)
    assert variant(tune(graph, machine, rtol=1e-6)["relax"].best) == "close"
    with graph.compile(machine) as program:
        assert "close" in program.explain()


@pytest.mark.parametrize("first", [0.0, 1e-6])
def test_what_was_asked_for_last_counts(here, machine, first):
    graph, *_ = graph_of(here(CLOSE).relax)
    expected = {0.0: "relax", 1e-6: "close", 1e-12: "relax"}
    for rtol in (first, 1e-6 - first, 1e-12, first):
        report = tune(graph, machine, rtol=rtol)["relax"]
        assert variant(report.best) == expected[rtol]
        with graph.compile(machine) as program:
            assert ("close" in program.explain()) == (expected[rtol] == "close")


def test_far_off_is_wrong_with_rtol_too(here, machine):
    report = tune(graph_of(here(wrong("dst[...] = src * 3")).relax)[0], machine, rtol=1e-3)["relax"]
    assert variant(report.best) == "relax"


@pytest.mark.parametrize("rtol", [0.0, 1e-6])
def test_arrays_of_any_dtype(here, machine, rtol):
    source = """
@ost.task
def move(src: ost.Read, dst: ost.Write):
    slow()
    dst[...] = src

@move.variant()
def quick(src: ost.Read, dst: ost.Write):
    np.copyto(dst, src)

@move.variant()
def broken(src: ost.Read, dst: ost.Write):
    np.copyto(dst, src[::-1])
"""
    module = here(source)
    targets = []
    with ost.capture() as graph:
        for dtype in (np.int64, np.bool_, np.uint8, np.complex128, np.float32, ">f8", "M8[s]", "S3", "U2", "V5"):
            src = np.frombuffer(bytes(range(1, 1 + 4 * np.dtype(dtype).itemsize)), np.uint8).copy()
            if dtype in (np.bool_, "U2"):
                src = np.array([1, 0, 1, 1], dtype).view(np.uint8)
            targets.append(np.zeros_like(src.view(dtype)))
            module.move(src.view(dtype), targets[-1])
    for label, report in tune(graph, machine, rtol=rtol).items():
        assert variant(report.best) == "quick", label
        assert by_variant(report)["broken"].status == "wrong_result", label
    for target in targets:
        assert target.tobytes() == bytes(target.nbytes)


@pytest.mark.parametrize("rtol", [-1e-9, float("nan"), float("inf"), "x", None, 1j, [1]], ids=repr)
def test_wrong_tolerances(here, machine, rtol):
    with pytest.raises((TypeError, ValueError), match="rtol"):
        tune(graph_of(here(RIGHT).relax)[0], machine, rtol=rtol)
