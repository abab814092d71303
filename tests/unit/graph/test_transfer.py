"""Copies and fills: what is recorded and what is refused."""

import numpy as np
import pytest

import ostinato as ost
from ostinato.errors import GraphError
from ostinato.graph.arrays import READ, READ_WRITE, WRITE
from ostinato.graph.body import Copy, Fill


@pytest.fixture
def graph():
    return ost.Graph()


def test_copy(graph):
    a, b = np.zeros((2, 3)), np.zeros((2, 3), "f4")
    op = graph.copy(a, b, name="mine", priority=1)
    assert isinstance(op.body, Copy)
    assert (op.body.source, op.body.target) == op.operands
    assert [o.mode for o in op.operands] == [READ, WRITE]
    assert (op.name, op.priority, graph.copy(a, a).name) == ("mine", 1, "copy")


def test_what_is_not_overwritten_whole_is_read_too(graph):
    a, b, index = np.zeros(3), np.zeros(5), np.zeros(3, int)
    assert graph.copy(a, a, reduce="+").operands[1].mode == READ_WRITE
    scattered = graph.copy(a, b, scatter=index)
    assert [o.mode for o in scattered.operands] == [READ, READ_WRITE, READ]
    assert scattered.body.scatter is scattered.operands[2]
    gathered = graph.copy(b, a, indices=index)
    assert [o.mode for o in gathered.operands] == [READ, WRITE, READ]
    assert gathered.body.indices is gathered.operands[2]
    both = graph.copy(b, b, indices=index, scatter=index, reduce="max")
    assert both.body.indices is both.body.scatter
    assert len(both.operands) == 4


@pytest.mark.parametrize(
    ("source", "target", "options", "error"),
    [
        (np.zeros(3), np.zeros(4), {}, GraphError),
        (np.zeros(1), np.zeros(4), {}, GraphError),
        (np.zeros(3), np.zeros(3, int), {}, TypeError),
        (np.zeros(3), np.zeros(3, bool), {}, TypeError),
        (np.zeros(3, object), np.zeros(3), {}, TypeError),
        (np.zeros(3), np.zeros(3), {"reduce": "-"}, ValueError),
        (np.zeros(3, "M8[s]"), np.zeros(3, "M8[s]"), {"reduce": "+"}, TypeError),
        (np.zeros(3, "i,f"), np.zeros(3, "i,f"), {"reduce": "max"}, TypeError),
        (np.zeros(3), np.zeros(4), {"indices": np.zeros(3, int)}, GraphError),
        (np.zeros((3, 2)), np.zeros((3, 3)), {"indices": np.zeros(3, int)}, GraphError),
        (np.zeros(3), np.zeros(3), {"indices": np.zeros(3)}, GraphError),
        (np.zeros(3), np.zeros(3), {"indices": np.zeros((3, 1), int)}, GraphError),
        (np.zeros(3), np.zeros(3), {"scatter": np.zeros(4, int)}, GraphError),
        (np.zeros(()), np.zeros(()), {"scatter": np.zeros(1, int)}, GraphError),
        (np.zeros(3), np.zeros(3), {"scatter": [0, 1, 2]}, TypeError),
        ([0.0] * 3, np.zeros(3), {}, TypeError),
        (np.zeros(3), [0.0] * 3, {}, TypeError),
        (np.zeros(3), np.broadcast_to(0.0, 3), {}, GraphError),
    ],
)
def test_wrong_copies(graph, source, target, options, error):
    with pytest.raises(error):
        graph.copy(source, target, **options)
    assert len(graph) == 0


@pytest.mark.parametrize("dtypes", [("i4", "f8"), ("f8", "f4"), ("i8", "i2"), (bool, int), ("f4", "c8"), (">f8", "f8")])
def test_dtypes_convert_as_in_copyto(graph, dtypes):
    source, target = (np.zeros(3, dtype) for dtype in dtypes)
    np.copyto(target, source)
    graph.copy(source, target)


@pytest.mark.parametrize(
    ("dtype", "shape", "value"),
    [
        (float, (2, 3), 1),
        (int, (2, 3), 2.7),
        (float, (2, 3), [1, 2, 3]),
        (float, (2, 3), [[1], [2]]),
        (float, (3,), "2.5"),
        (bool, (3,), 3),
        ("i4,f8", (3,), (1, 2.5)),
        ("U4", (3,), "abcdef"),
        ("M8[s]", (2,), "2020-01-01"),
        (float, (0, 3), 1),
        (float, (), 1),
        (complex, (3,), 1j),
        (float, (3,), np.float32(0.1)),
    ],
)
def test_fill_takes_what_assignment_takes(graph, dtype, shape, value):
    expected, array = np.zeros(shape, dtype), np.zeros(shape, dtype)
    expected[...] = value
    op = graph.fill(array, value)
    assert isinstance(op.body, Fill)
    assert op.body.value.dtype == array.dtype
    array[...] = op.body.value
    assert np.array_equal(array, expected)
    assert [o.mode for o in op.operands] == [WRITE]


@pytest.mark.parametrize(
    "value", [[1, 2], [[1, 2, 3]] * 3, "text", pytest.param(object(), id="object"), 1j, None, [[1, 2], [3]]], ids=repr
)
def test_fill_refuses_what_assignment_refuses(graph, value):
    array = np.zeros((2, 3))
    if value is not None:
        with pytest.raises((TypeError, ValueError)):
            array[...] = value
        with pytest.raises((TypeError, ValueError, GraphError)):
            graph.fill(array, value)
        assert len(graph) == 0


def test_an_array_is_read_in_every_step(graph):
    row, array = np.arange(3), np.zeros((2, 3))
    op = graph.fill(array, row)
    assert isinstance(op.body, Copy)
    assert op.operands[0].value is row
    row[0] = 9
    assert op.operands[0].array[1, 0] == 9
    assert np.shares_memory(op.operands[0].array, row)
    with pytest.raises(GraphError, match="cannot spread"):
        graph.fill(array, np.zeros(2))
    with pytest.raises(TypeError):
        graph.fill(np.zeros(3, int), np.zeros(3))
    u = ost.ring(np.zeros(3), np.ones(3))
    spread = graph.fill(array, u[1]).operands[0]
    assert [view.tolist() for view in spread.arrays] == [[[0] * 3] * 2, [[1] * 3] * 2]
    assert spread.ring.offset == 1


def test_fill_with_parameters(graph):
    value, array = graph.param("value", 0.0), np.zeros(3)
    assert graph.fill(array, value).body.value is value
    with pytest.raises(GraphError, match="another graph"):
        ost.Graph().fill(array, value)
    with pytest.raises(TypeError, match="step has no value"):
        graph.fill(array, ost.step)


def test_fill_needs_an_array(graph):
    with pytest.raises(TypeError, match="must be an array"):
        graph.fill([1, 2], 3)
