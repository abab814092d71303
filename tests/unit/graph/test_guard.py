"""Arrays recorded are read-only until the block ends, and then as they were."""

import io
import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

import ostinato as ost
from ostinato.errors import GraphError


@ost.task
def update(x: ost.ReadWrite): ...


@ost.task
def look(x: ost.Read): ...


STATEMENTS = {
    "assignment": lambda a: a.__setitem__(0, 1),
    "in place": lambda a: np.add(a, 1, out=a),
    "copyto": lambda a: np.copyto(a, 1),
    "fill": lambda a: a.fill(1),
    "sort": lambda a: a.sort(),
    "through a new view": lambda a: a[1:].__setitem__(0, 1),
    "put": lambda a: np.put(a, [0], [1]),
    "random": lambda a: np.random.default_rng(0).random(out=a),
    "readinto": lambda a: io.BytesIO(bytes(40)).readinto(a),
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_statements_that_would_not_be_recorded_raise(statement):
    a = np.arange(5.0)[::-1].copy()
    before = a.copy()
    with pytest.raises(GraphError, match="Only task calls are recorded") as caught, ost.capture() as graph:  # noqa: PT012
        look(a)
        statement(a)
    assert caught.value.__cause__ is not None
    assert len(graph) == 0
    assert np.array_equal(a, before)
    statement(a)


def test_the_base_of_a_recorded_view_is_guarded_too():
    a = np.zeros((4, 4))
    view = a[1:3]
    with pytest.raises(GraphError), ost.capture():  # noqa: PT012
        update(view)
        a[0] = 1
    assert a.flags.writeable
    assert view.flags.writeable


def test_other_errors_pass_unchanged():
    a = np.zeros(3)
    with pytest.raises(ValueError, match="mine") as caught, ost.capture():  # noqa: PT012
        update(a)
        raise ValueError("mine")
    assert not isinstance(caught.value, GraphError)
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"), ost.capture():
        frozen[0] = 1  # nothing was recorded yet, so it is not our doing


def test_what_was_read_only_stays_so():
    a = np.zeros(4)
    frozen = a[1:]
    frozen.flags.writeable = False
    with ost.capture():
        look(frozen)
        with pytest.raises(GraphError, match="read-only"):
            update(frozen)
        update(a)
    assert a.flags.writeable
    assert not frozen.flags.writeable


@given(data=st.data())
def test_views_made_inside_are_recorded_as_written(data):
    base = np.arange(60.0).reshape(3, 4, 5).copy()
    start = base[data.draw(basic_indices(base.shape, allow_ellipsis=False))] if data.draw(st.booleans()) else base
    if not isinstance(start, np.ndarray):
        start = base
    made = []
    with ost.capture() as graph:
        update(start)
        for _ in range(data.draw(st.integers(1, 4))):
            source = data.draw(st.sampled_from([base, start, *made]))
            view = source[data.draw(basic_indices(source.shape, allow_newaxis=True))]
            if not isinstance(view, np.ndarray):
                continue
            if data.draw(st.booleans()):
                view = view.T
            assert not view.flags.writeable
            made.append(view)
            update(view)
    assert base.flags.writeable
    assert start.flags.writeable
    for op, view in zip(graph.ops[1:], made, strict=True):
        array = op.operands[0].array
        assert array.flags.writeable
        assert view.flags.writeable
        assert (array.shape, array.strides) == (view.shape, view.strides)
        array[...] = -1
        assert (view == -1).all()
        assert np.shares_memory(array, base) or array.size == 0


@given(order=st.permutations(range(5)), fails=st.booleans())
def test_flags_come_back_whatever_the_order(order, fails):
    base = np.zeros(10)
    views = [base, base[2:], base[::2], base.reshape(2, 5), base[2:][3:]]
    with_base = [np.frombuffer(bytearray(80), float), np.asarray(memoryview(bytearray(8)))]
    try:
        with ost.capture():
            for place in order:
                update(views[place])
            for array in with_base:
                update(array)
            assert not any(array.flags.writeable for array in (*views, *with_base))
            if fails:
                raise KeyError
    except KeyError:
        pass
    assert all(array.flags.writeable for array in (*views, *with_base))


def test_a_writable_view_of_a_read_only_base_is_left_alone():
    # NumPy would not let the flag be set again.
    base = np.zeros(4)
    view = base[1:]
    base.flags.writeable = False
    with ost.capture() as graph:
        update(view)
        update(view[1:])
    assert view.flags.writeable
    assert not base.flags.writeable
    assert graph.ops[1].operands[0].array.flags.writeable


class Foreign:
    """Memory that NumPy cannot check."""

    def __init__(self):
        self.memory = np.zeros(4)
        self.__array_interface__ = self.memory.__array_interface__


def test_memory_that_is_no_buffer_is_left_alone_but_its_views_are_guarded():
    a = np.asarray(Foreign())
    assert not isinstance(a.base, np.ndarray)
    view = a[1:]
    with ost.capture():
        update(a)
        update(view)
        assert a.flags.writeable
        assert not view.flags.writeable
    assert view.flags.writeable


def test_mapped_files(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(80))
    for array in (
        np.memmap(path, float, "r+"),
        np.frombuffer(mmap.mmap(-1, 80), float),
    ):
        with ost.capture() as graph:
            update(array)
            update(array[2:])
            assert not array.flags.writeable
        assert array.flags.writeable
        graph.ops[1].operands[0].array[...] = 3
        assert array[2] == 3
    with pytest.raises(GraphError, match="read-only"), ost.capture():
        update(np.memmap(path, float, "r"))


def test_rings_are_guarded_and_their_slices_stay_writable():
    a, b = np.zeros((4, 4)), np.zeros((4, 4))
    with ost.capture() as graph:
        update(a)
        u = ost.ring(a, b[:])  # made while `a` is read-only
        update(u[0][1:])
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 1
        update(u[1][:, 2])
    assert a.flags.writeable
    for op in graph.ops[1:]:
        assert all(view.flags.writeable for view in op.operands[0].arrays)


def test_a_ring_of_read_only_arrays_can_be_read():
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    u = ost.ring(frozen, np.zeros(4))
    with ost.capture():
        look(u[0])
        with pytest.raises(GraphError, match="read-only"):
            update(u[0])
