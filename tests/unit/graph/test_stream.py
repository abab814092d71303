"""Tasks that take the stream of a device: calls leave it out, and what they record has its place."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import ostinato as ost
from ostinato.graph.access import STREAM


def recorded(task, *args, **kwargs):
    """What a call records, arrays as what was passed."""
    with ost.capture():
        body = task(*args, **kwargs).body
    return tuple(getattr(arg, "value", arg) for arg in body.args), body.keywords


def same(values, *wanted):
    return len(values) == len(wanted) and all(a is b or a == b for a, b in zip(values, wanted, strict=True))


A, B = np.zeros(3), np.ones(3)


@ost.task
def first(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor=2.0):
    return stream, src, dst, factor


@ost.task
def middle(src: ost.Read, stream: ost.Stream, dst: ost.Write, factor=2.0):
    return src, stream, dst, factor


@ost.task
def last(src: ost.Read, dst: ost.Write, factor, stream: ost.Stream):
    return src, dst, factor, stream


@ost.task
def named(src: ost.Read, dst: ost.Write, factor=2.0, *, stream: ost.Stream):
    return src, dst, factor, stream


@ost.task
def many(stream: ost.Stream, *srcs: ost.Read, scale=1.0, **more: ost.Write):
    return stream, srcs, scale, more


@ost.task
def text(src: "ost.Read", on: "ost.Stream"):
    return src, on


def test_calls_leave_it_out():
    assert same(recorded(first, A, B)[0], STREAM, A, B, 2.0)
    assert same(recorded(first, A, B, 3.0)[0], STREAM, A, B, 3.0)
    assert same(recorded(first, dst=B, src=A)[0], STREAM, A, B, 2.0)
    assert same(recorded(middle, A, B)[0], A, STREAM, B, 2.0)
    assert same(recorded(middle, A, factor=5, dst=B)[0], A, STREAM, B, 5)
    assert same(recorded(last, A, B, 7)[0], A, B, 7, STREAM)
    assert same(recorded(text, A)[0], A, STREAM)


def test_it_may_be_given_by_name_only():
    values, keywords = recorded(named, A, B)
    assert same(values, A, B, 2.0, STREAM)
    assert keywords == ("stream",)
    values, keywords = recorded(named, A, factor=1.0, dst=B)
    assert same(values, A, B, 1.0, STREAM)
    assert keywords == ("stream",)


def test_with_any_number_of_arguments():
    values, keywords = recorded(many, A, B, out=np.zeros(1))
    assert same(values[:3], STREAM, A, B)
    assert keywords == ("scale", "out")
    assert same(recorded(many)[0], STREAM)


def test_methods_take_it_too():
    class Filter:
        @ost.task
        def run(self, src: ost.Read, stream: ost.Stream, dst: ost.Write):
            pass

    one = Filter()
    assert same(recorded(one.run, A, B)[0], one, A, STREAM, B)
    graph = ost.Graph()
    assert same([getattr(arg, "value", arg) for arg in graph.task(one.run, A, B).body.args], one, A, STREAM, B)


def test_its_annotation_may_be_text_that_nobody_can_resolve():
    names = {"ost": ost, "np": np}
    source = "from __future__ import annotations\ndef f(a: ost.Read, s: {}): pass\n"
    for annotation in ("ostinato.Stream", "Stream"):
        here = dict(names)
        exec(source.format(annotation), here)
        assert same(recorded(ost.task(here["f"]), A)[0], A, STREAM)
    here = dict(names)
    exec(source.format("torch.cuda.Stream"), here)  # somebody else's
    assert same(recorded(ost.task(here["f"]), A, 1)[0], A, 1)


def test_signature_is_that_of_calls():
    assert list(inspect.signature(first).parameters) == ["src", "dst", "factor"]
    assert list(inspect.signature(named).parameters) == ["src", "dst", "factor"]


@pytest.mark.parametrize("task", [first, middle, named])
@pytest.mark.parametrize("inside", [True, False])
def test_giving_it_is_refused(task, inside):
    def call(*args, **kwargs):
        if inside:
            with ost.capture():
                task(*args, **kwargs)
        else:
            task(*args, **kwargs)

    with pytest.raises(TypeError, match=r"'stream' is the stream of the device .* gets by itself"):
        call(A, B, stream=ost.Stream(3))
    with pytest.raises(TypeError, match=r"'stream' is the stream of the device .* gets by itself"):
        call(A, B, 2.0, ost.Stream(3))
    with pytest.raises(TypeError, match="stream"):
        call(A, B, stream=None)


def test_wrong_calls_are_those_of_python():
    with pytest.raises(TypeError, match="'dst'"), ost.capture():
        first(A)
    with pytest.raises(TypeError, match="too many"), ost.capture():
        first(A, B, 1.0, 2.0)


def test_wrong_declarations():
    with pytest.raises(TypeError, match=r"one parameter annotated ost.Stream, got 'a' and 'b'"):

        @ost.task
        def two(a: ost.Stream, b: ost.Stream):
            pass

    with pytest.raises(TypeError, match="no default"):

        @ost.task
        def default(a: ost.Stream = None):
            pass

    with pytest.raises(TypeError, match=r"\*streams"):

        @ost.task
        def several(*streams: ost.Stream):
            pass

    with pytest.raises(TypeError, match=r"\*\*streams"):

        @ost.task
        def several_by_name(**streams: ost.Stream):
            pass

    with pytest.raises(TypeError, match="nothing else"):

        @ost.task
        def maybe(stream: ost.Stream | None):
            pass

    with pytest.raises(TypeError, match="blocking"):

        @ost.task(blocking=True)
        def waits(stream: ost.Stream):
            pass

    with pytest.raises(TypeError, match="kernels run on the CPU"):

        @ost.kernel
        def compiled(stream: ost.Stream, src: ost.Read):
            pass


def test_what_bodies_say():
    @ost.task(launch_only=True)
    def launch(stream: ost.Stream, dst: ost.Write):
        pass

    @ost.task(launch_only=True)
    def on_the_cpu(dst: ost.Write):
        pass

    with ost.capture():
        body, other = launch(A).body, on_the_cpu(A).body
        plain = first(A, B).body
    assert (body.takes_stream, body.launch_only) == (True, True)
    assert (other.takes_stream, other.launch_only) == (False, False)  # there it changes nothing
    assert (plain.takes_stream, plain.launch_only) == (True, False)
    positional, keywords = body.given()
    assert [arg.value for arg in positional] == [A]
    assert keywords == {}
    with ost.capture():
        positional, keywords = named(A, B, 1.0).body.given()
    assert same([getattr(arg, "value", arg) for arg in positional], A, B, 1.0)
    assert keywords == {}


def test_access_has_an_entry_for_it():
    def function(*args):
        pass

    graph = ost.Graph()
    op = graph.task(function, A, 1.0, B, access=(ost.Read, ost.Stream, float, ost.Write))
    assert same([getattr(arg, "value", arg) for arg in op.body.args], A, STREAM, 1.0, B)
    assert op.body.takes_stream
    with pytest.raises(TypeError, match="takes 1 arguments by its access="):
        graph.task(function, A, B, access=(ost.Read, ost.Stream))
    with pytest.raises(TypeError, match="argument 2 is the stream of the device"):
        graph.task(function, A, ost.Stream(1), access=(ost.Read, ost.Stream))
    with pytest.raises(TypeError, match="entries 1 and 3"):
        graph.task(function, A, access=(ost.Stream, ost.Read, ost.Stream))


def test_native_tasks_have_an_entry_for_it():
    task = ost.native(0x1000, (ost.Read, ost.Stream, float, ost.Write), name="start")
    graph = ost.Graph()
    body = graph.task(task, A, 2.0, B).body
    assert same([getattr(arg, "value", arg) for arg in body.args], A, STREAM, 2.0, B)
    assert body.takes_stream
    assert task.kinds == (1, int, float, 2)
    with pytest.raises(TypeError, match="takes 3 arguments"):
        graph.task(task, A, 2.0)
    with pytest.raises(TypeError, match="is the stream of the device"):
        graph.task(task, A, ost.Stream(1), 2.0, B)
    with pytest.raises(TypeError, match="entries 1 and 2"):
        ost.native(0x1000, (ost.Stream, ost.Stream))


def test_there_is_one_sentinel():
    assert copy.deepcopy(STREAM) is STREAM
    assert copy.copy(STREAM) is STREAM
    assert pickle.loads(pickle.dumps(STREAM)) is STREAM
    with pytest.raises(TypeError, match="no value"):
        bool(STREAM)


def test_streams_have_handles():
    stream = ost.Stream(0x10)
    assert isinstance(stream, ost.Stream)
    assert stream.handle == 16
    assert repr(stream) == "<Stream 0x10>"


USER = """
from collections.abc import Callable
from typing import Any

import numpy as np
import ostinato as ost

@ost.task(launch_only=True)
def launch(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor: float = 2.0) -> None:
    handle: int = stream.handle

@ost.task
def plain(src: ost.Read, dst: ost.Write, factor: float = 2.0) -> None: ...

@ost.task
def nothing() -> None: ...

@ost.task
def many(*arrays: ost.Read, by: int) -> None: ...

a, b = np.zeros(3), np.zeros(3)
launch(a, b, factor=0.5)
launch(src=a, dst=b)
plain(a, b, 0.5)
plain(src=a, dst=b)
nothing()
many(a, b, by=1)
many(by=2)
graph = ost.Graph()
graph.task(launch, a, b)
function: Callable[[Any, Any, float], Any] = plain
launch(a, b, factor="x")  # wrong
launch(a)  # wrong
plain(a, b, 0.5, 1)  # wrong
plain(a)  # wrong
plain()  # wrong
nothing(a)  # wrong
many(a)  # wrong
"""


def test_type_checkers_let_calls_leave_out_a_stream_that_comes_first(tmp_path, mypy):
    file = tmp_path / "user.py"
    file.write_text(USER)
    output = mypy(file)
    lines = [line for line in output.splitlines() if "error:" in line]
    wrong = [number for number, line in enumerate(USER.splitlines(), 1) if line.endswith("# wrong")]
    assert [int(line.split(":")[1]) for line in lines] == wrong, output
