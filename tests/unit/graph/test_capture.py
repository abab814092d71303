"""Recording: what is recorded, whose calls, and that nothing is half-recorded."""

import asyncio
import gc
import threading
import weakref

import numpy as np
import pytest

import ostinato as ost
from ostinato.errors import GraphError
from ostinato.graph.arrays import READ, READ_WRITE, WRITE, Operand
from ostinato.graph.body import PythonCall


@ost.task
def relax(src: ost.Read, dst: ost.Write, omega=0.5, *rest: ost.Read, scale=1.0, scratch: ost.ReadWrite = None, **more):
    dst[...] = src


@ost.task
def simple(src: ost.Read, dst: ost.Write, omega=0.5): ...


def test_calls_are_recorded_in_program_order():
    a, b = np.zeros(3), np.zeros(3)
    with ost.capture() as graph:
        first = simple(a, b, 0.1)
        second = graph.fill(a, 1.0)
        third = simple(b, a)
    assert graph.ops == (first, second, third)
    assert [op.index for op in graph.ops] == [0, 1, 2]
    assert [op.name for op in graph.ops] == ["simple", "fill", "simple"]
    assert all(op.graph is graph for op in graph.ops)
    assert len(graph) == 3


def test_operands_and_arguments():
    a, b = np.zeros(3), np.zeros(3)
    with ost.capture():
        op = simple(a, b, 0.1)
    body = op.body
    assert isinstance(body, PythonCall)
    assert body.function is simple.function
    assert body.args == (*op.operands, 0.1)
    assert [(o.value, o.mode) for o in op.operands] == [(a, READ), (b, WRITE)]
    assert op.operands[1].array is b


def test_defaults_keywords_and_variable_arguments():
    a, b, c = (np.zeros(3) for _ in range(3))
    with ost.capture():
        plain = relax(a, b)
        named = relax(dst=b, src=a, scratch=c, other=5)
        many = relax(a, b, 0.1, c, c)
        short = simple(a, b)
    assert short.body.args[2:] == (0.5,)
    assert plain.body.keywords == ("scale", "scratch")
    assert plain.body.args[-1] is None  # a default that is no array
    assert named.body.keywords == ("scale", "scratch", "other")
    assert named.body.args == (*named.operands[:2], 0.5, 1.0, named.operands[2], 5)
    assert [o.mode for o in named.operands] == [READ, WRITE, READ_WRITE]
    assert [o.mode for o in many.operands] == [READ, WRITE, READ, READ]  # scratch is None


def test_wrong_calls_raise_and_leave_nothing():
    a, b = np.zeros(3), np.zeros(3)
    with ost.capture() as graph:
        with pytest.raises(TypeError, match=r"simple\(\): missing a required argument: 'dst'"):
            simple(a)
        with pytest.raises(TypeError, match="unexpected keyword"):
            simple(a, b, nothing=1)
        with pytest.raises(TypeError, match="too many positional"):
            simple(a, b, 1.0, 2.0)
        with pytest.raises(TypeError, match=r"parameter 'omega' of simple\(\) is an array"):
            simple(a, b, np.array(0.5))
        with pytest.raises(TypeError, match="parameter 'omega'"):
            simple(a, b, ost.ring(a)[0])
        with pytest.raises(GraphError, match=r"pass an element of it"):
            simple(ost.ring(a), b)
        assert len(graph) == 0
        simple(a, b)


def test_tokens_are_compared_by_identity_and_passed_as_they_are():
    token, b = [1, 2], np.zeros(3)
    with ost.capture():
        first, second = simple(token, b), simple([1, 2], b)
    assert first.operands[0].value is token
    assert first.operands[0].array is None
    assert first.operands[0].ring is None
    assert second.operands[0].value is not token


def test_buffers_and_their_memory():
    memory, b = bytearray(8), np.zeros(3)
    with ost.capture():
        read, written = simple(memory, b), simple(b, memory)
    assert read.operands[0].value is memory
    assert read.operands[0].array is written.operands[1].array
    read.operands[0].array[0] = 3
    assert memory[0] == 3


def test_ring_elements():
    u, b = ost.ring(np.zeros(4), np.zeros(4)), np.zeros(2)
    with ost.capture():
        op = simple(u[1][:2], b)
    assert op.operands[0].array is None
    assert op.operands[0].ring.offset == 1
    assert op.operands[0].arrays[0].shape == (2,)


def test_step_is_passed_on():
    a, b = np.zeros(3), np.zeros(3)
    with ost.capture():
        assert simple(a, b, ost.step).body.args[2] is ost.step


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
@pytest.mark.parametrize("dtype", [float, object, ">i4"])
def test_any_shape_and_dtype(shape, dtype):
    a, b = np.zeros(shape, dtype), np.zeros(shape, dtype)
    with ost.capture() as graph:
        simple(a, b)
    assert graph.ops[0].operands[1].array is b


def test_read_only_arrays_cannot_be_written():
    a, b = np.zeros(3), np.zeros(3)
    a.flags.writeable = False
    with ost.capture():
        simple(a, b)
        for frozen in (a, a[1:], np.broadcast_to(b, (2, 3)), bytes(8)):
            with pytest.raises(GraphError, match=r"parameter 'dst' of simple\(\) is written"):
                simple(b, frozen)
    assert not a.flags.writeable


def test_captures_do_not_nest():
    a, b = np.zeros(3), np.zeros(3)
    with ost.capture() as outer:
        simple(a, b)
        with pytest.raises(GraphError, match="do not nest"), ost.capture():
            pass
        simple(b, a)
    assert len(outer) == 2


def test_a_capture_is_for_one_block():
    capture = ost.capture()
    with capture:
        simple(np.zeros(3), np.zeros(3))
    with pytest.raises(GraphError, match="has been used"), capture:
        pass


def test_an_exception_leaves_nothing_recorded():
    a, b = np.zeros(3), np.zeros(3)
    with pytest.raises(KeyError), ost.capture() as graph:  # noqa: PT012
        first = simple(a, b)
        graph.task(simple, b, a, after=first)
        ost.until(a[:1])
        ost.param("p")
        raise KeyError
    assert graph.ops == ()
    assert graph.explicit_edges == []
    assert graph.stop is None
    assert not graph.params
    assert a.flags.writeable
    with pytest.raises(GraphError, match="another graph"):
        graph.edge(first, first, 1)
    with ost.capture() as again:
        simple(a, b)
    assert len(again) == 1


def test_a_running_capture_cannot_be_compiled():
    with pytest.raises(GraphError, match="after the block"), ost.capture() as graph:
        graph.compile()


def test_the_collector_is_as_it_was():
    assert gc.isenabled()
    with ost.capture():
        simple(np.zeros(3), np.zeros(3))
    assert gc.isenabled()
    gc.disable()
    try:
        with ost.capture():
            simple(np.zeros(3), np.zeros(3))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_other_threads_are_not_captured():
    a, ran = np.zeros(3), []

    @ost.task
    def note(x: ost.Read):
        ran.append(threading.get_ident())

    with ost.capture() as graph:
        thread = threading.Thread(target=note, args=(a,))
        thread.start()
        thread.join()
        note(a)
    assert ran == [thread.ident]
    assert len(graph) == 1


def test_threads_capture_side_by_side():
    shared, start = np.zeros(8), threading.Barrier(4)
    graphs = {}

    def record(place):
        with ost.capture() as graph:
            start.wait()
            for _ in range(50):
                simple(shared, shared[place : place + 2])
            start.wait()
        graphs[place] = graph

    threads = [threading.Thread(target=record, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(graphs[place]) for place in range(4)] == [50] * 4
    assert shared.flags.writeable
    assert all(op.operands[1].array.flags.writeable for graph in graphs.values() for op in graph.ops)


def test_asyncio_tasks_are_apart():
    a, b = np.zeros(3), np.zeros(3)

    async def record(times):
        with ost.capture() as graph:
            for _ in range(times):
                simple(a, b)
                await asyncio.sleep(0)
        return graph

    async def run_at_once():
        return simple(a, b)

    async def parent():
        with ost.capture() as graph:
            simple(a, b)
            assert await asyncio.create_task(run_at_once()) is None  # not an op: it ran
            assert await asyncio.to_thread(simple, b, np.zeros(3)) is None
            simple(b, a)
        return graph

    async def main():
        return await asyncio.gather(record(3), record(5), parent())

    @ost.task
    def simple(src: ost.Read, dst: ost.Write): ...

    assert [len(graph) for graph in asyncio.run(main())] == [3, 5, 2]
    assert a.flags.writeable
    assert b.flags.writeable


def test_left_in_another_context():
    def block():
        with ost.capture() as graph:
            yield graph

    import contextvars

    generator = block()
    contextvars.copy_context().run(next, generator)
    generator.close()
    with ost.capture():
        simple(np.zeros(3), np.zeros(3))


def test_other_graphs_inside_a_capture():
    a, b = np.zeros(3), np.zeros(3)
    other = ost.Graph()
    with ost.capture() as graph:
        simple(a, b)
        other.task(simple, b, a[1:])
        with pytest.raises(ValueError, match="read-only"):
            b[0] = 1
    assert len(graph) == len(other) == 1
    assert other.ops[0].operands[1].array.flags.writeable


def test_operands_are_shared_between_ops():
    a, b = np.zeros(3), np.zeros(3)
    with ost.capture():
        first, second = simple(a, b), simple(a, b)
    assert first.operands[0] is second.operands[0]


def test_calls_are_recorded_alike_in_every_context():
    base, token, adopted = np.zeros((2, 8)), object(), bytearray(8)

    def record():
        with ost.capture() as graph:
            for place in (0, 4, 0):
                for source, target in ((base[0, place : place + 4], base[1, :4]), (base[0], base[1])):
                    simple(source, target, 0.25)
                    simple(target, source)
                    simple(token, target, 2)
            simple(adopted, base[1, ::2], "text")
        described = []
        for op in graph.ops:
            args = [(arg.mode, arg.value, arg.array, arg.ring) if type(arg) is Operand else arg for arg in op.body.args]
            task = op.body.task, op.body.keywords, op.body.packing
            described.append((op.index, op.name, op.call_site.line, op.on, op.priority, op.graph is graph, task, args))
        assert all(op.operands == tuple(arg for arg in op.body.args if type(arg) is Operand) for op in graph.ops)
        edges = [(src.index, dst.index, distance) for src, dst, distance in graph.edges]
        return repr(described), edges, len({id(each) for op in graph.ops for each in op.operands})

    async def record_in_asyncio():  # there, Python looks at every call
        return record()

    assert record() == asyncio.run(record_in_asyncio())


def test_a_graph_goes_with_its_last_reference():
    class Owner: ...

    base, owner = np.zeros(8), Owner()
    with ost.capture() as graph:
        simple(base[:4], base[4:])
        simple(owner, base[4:])
    owner.graph = graph
    graph.task(simple, base, owner)
    gone = [weakref.ref(each) for each in (owner, *graph.ops)]
    del graph, owner
    gc.collect()
    assert [each() for each in gone] == [None] * 4
    assert base.flags.writeable


def test_a_capture_keeps_no_variable_of_its_block_alive():
    class Owned:
        pass

    thing = Owned()
    mine = locals()
    gone = weakref.ref(thing)
    with ost.capture():
        simple(np.zeros(3), np.zeros(3))
    assert "thing" in mine  # a dict that the function has got hold of is left alone
    del mine, thing
    with ost.capture():
        simple(np.zeros(3), np.zeros(3))
    gc.collect()
    assert gone() is None
