"""Variants with and without the stream of a device: accesses are compared without it, and each gets what it takes."""

import numpy as np
import pytest

import ostinato as ost
from ostinato.compiler.variants import replace_variants, restore_recorded
from ostinato.graph.access import STREAM
from ostinato.graph.variant import default_variant, variants_of

A, B = np.zeros(3), np.ones(3)


def values(body):
    return [getattr(arg, "value", arg) for arg in body.args]


def chosen(op, variant):
    return replace_variants((op,), {0: variant})[0].body


@pytest.fixture
def scale():
    @ost.task
    def scale(src: ost.Read, dst: ost.Write, factor=2.0):
        np.multiply(src, factor, out=dst)

    return scale


@pytest.fixture
def launch():
    @ost.task(launch_only=True)
    def launch(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor=2.0):
        pass

    return launch


def test_a_variant_may_take_a_stream_where_the_task_takes_none(scale):
    @scale.variant(on="opencl")
    def first(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor):
        pass

    @scale.variant(on="cuda")
    def last(src: ost.Read, dst: ost.Write, factor, *, stream: ost.Stream):
        pass

    graph = ost.Graph()
    op = graph.task(scale, A, B)
    one, two = scale.variants
    body = chosen(op, one)
    assert body.args[0] is STREAM
    assert values(body)[1] is A
    assert values(body)[2:] == [pytest.approx(B), 2.0]
    assert body.takes_stream
    assert not op.body.takes_stream
    body = chosen(op, two)
    assert body.args[-1] is STREAM
    assert body.keywords == ("stream",)
    back = restore_recorded(replace_variants((op,), {0: one})[0])
    assert back.body is op.body


def test_a_variant_may_take_none_where_the_task_takes_one(launch):
    @launch.variant(on="cpu")
    def on_the_cpu(src: ost.Read, dst: ost.Write, factor):
        np.multiply(src, factor, out=dst)

    @launch.variant(on="opencl", config={"block": 64})
    def other(src: ost.Read, dst: ost.Write, factor, block, stream: ost.Stream):
        pass

    graph = ost.Graph()
    op = graph.task(launch, A, B, 3.0)
    body = chosen(op, launch.variants[0])
    assert not body.takes_stream
    assert not body.launch_only
    assert values(body)[0] is A
    assert values(body)[2] == 3.0
    assert op.body.launch_only


def test_configurations_stand_where_the_stream_is_not(scale):
    @scale.variant(on="opencl", config={"block": 64})
    def blocks(src: ost.Read, dst: ost.Write, factor, block, stream: ost.Stream):
        return block, stream

    @scale.variant(on="opencl", config={"block": 64})
    def by_name(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor, *, block):
        return block, stream

    graph = ost.Graph()
    op = graph.task(scale, A, B)
    for variant in scale.variants:
        body = chosen(op, variant)
        positional = len(body.args) - len(body.keywords)
        args, named = body.args[:positional], dict(zip(body.keywords, body.args[positional:], strict=True))
        assert body.function(*args, **named) == (64, STREAM)


def test_native_variants_take_streams(scale, launch):
    native = ost.native(0x1000, (ost.Stream, ost.Read, ost.Write, float), name="native_scale")
    scale.variant(on="cuda")(native)
    launch.variant(on="cuda")(native)
    graph = ost.Graph()
    for task in (scale, launch):
        body = chosen(graph.task(task, A, B), task.variants[0])
        assert body.args[0] is STREAM
        assert body.args[3] == 2.0
        assert body.takes_stream


def test_the_default_of_a_native_task_with_a_stream():
    native = ost.native(0x1000, (ost.Read, ost.Stream, ost.Write), name="start")

    @native.variant(on="cpu")
    def plain(src: ost.Read, dst: ost.Write):
        pass

    @native.variant(on="opencl")
    def streamed(src: ost.Read, dst: ost.Write, stream: ost.Stream):
        pass

    graph = ost.Graph()
    op = graph.task(native, A, B)
    assert values(chosen(op, native.variants[0])) == [pytest.approx(A), pytest.approx(B)]
    assert chosen(op, native.variants[1]).args[2] is STREAM


def test_for_which_processors_they_are(scale, launch):
    @scale.variant
    def anywhere(src: ost.Read, dst: ost.Write, factor):
        pass

    @scale.variant
    def with_streams(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor):
        pass

    graph = ost.Graph()
    _, plain, streamed = variants_of(graph.task(scale, A, B).body)
    assert [plain.is_for(kind) for kind in ("cpu", "cuda", "opencl")] == [True, True, True]
    assert [streamed.is_for(kind) for kind in ("cpu", "cuda", "opencl")] == [False, True, True]
    default = default_variant(graph.task(launch, A, B).body)
    assert (default.takes_stream, default.is_for("cpu")) == (True, False)
    with pytest.raises(TypeError, match="processors of kind 'cpu' lack"):

        @scale.variant(on="cpu")
        def wrong(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor):
            pass


def test_accesses_are_compared_without_it(scale):
    with pytest.raises(TypeError, match="a variant has the accesses of its task"):

        @scale.variant(on="opencl")
        def wrong(stream: ost.Stream, src: ost.Read, dst: ost.ReadWrite, factor):
            pass

    with pytest.raises(TypeError, match="cannot be called as"):

        @scale.variant(on="opencl")
        def more(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor, another):
            pass


def test_functions_are_what_the_task_is(launch):
    @launch.variant(on="opencl")
    def other(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor):
        pass

    graph = ost.Graph()
    assert chosen(graph.task(launch, A, B), launch.variants[0]).launch_only
