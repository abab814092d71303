"""Rings: arrays that take turns, sliced like arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import basic_indices

import ostinato as ost

SHAPE = (4, 3, 5)


def make(length, shape=SHAPE):
    return [np.arange(np.prod(shape, dtype=int)).reshape(shape) + 1000 * place for place in range(length)]


@given(length=st.integers(1, 4), offset=st.integers(-20, 20), step=st.integers(0, 20), data=st.data())
def test_an_element_is_the_array_whose_turn_it_is_sliced(length, offset, step, data):
    arrays = make(length)
    index = data.draw(basic_indices(SHAPE, allow_newaxis=True))
    element = ost.ring(*arrays)[offset]
    expected = arrays[(step + offset) % length]
    turn = (step + element.offset) % length
    assert np.array_equal(element.views[turn], expected)
    sliced = element[index]
    assert np.array_equal(sliced.views[turn], expected[index])
    assert np.shares_memory(sliced.views[turn], expected) or sliced.size == 0
    assert sliced.shape == np.shape(expected[index])
    assert sliced.views[turn].flags.writeable


@given(data=st.data())
def test_slices_of_slices(data):
    arrays = make(2)
    element, expected = ost.ring(*arrays)[1], arrays[1]
    for _ in range(2):
        index = data.draw(basic_indices(expected.shape, allow_ellipsis=False))
        if not isinstance(expected[index], np.ndarray):
            break
        element, expected = element[index], expected[index]
        assert np.array_equal(element.views[1], expected)


def test_numbers_of_steps_wrap_around():
    r = ost.ring(*make(3))
    assert r[-1] is r[2] is r[5]
    assert len(r) == 3
    assert list(r) == [r[0], r[1], r[2]]
    assert r[np.int64(1)] is r[1]


def test_a_ring_of_one_and_of_the_same():
    a = np.zeros(2)
    assert ost.ring(a)[7].views[0].base is a
    assert ost.ring(a).disjoint
    assert not ost.ring(a, a).disjoint


def test_disjoint_is_exact_for_interleaved_arrays():
    a = np.zeros((4, 2))
    assert ost.ring(a[:, 0], a[:, 1]).disjoint
    assert not ost.ring(a[:3], a[1:]).disjoint


def test_buffers_take_turns():
    memory = bytearray(8)
    element = ost.ring(memory, bytearray(8))[0][2:4]
    element.views[0][...] = 9
    assert memory[2:4] == b"\x09\x09"


@pytest.mark.parametrize(
    ("arrays", "error"),
    [
        ((), ValueError),
        ((np.zeros(3), np.zeros(4)), ValueError),
        ((np.zeros(3), np.zeros(3, "f4")), ValueError),
        ((np.zeros(3), [0.0] * 3), TypeError),
    ],
)
def test_unequal_arrays_are_refused(arrays, error):
    with pytest.raises(error):
        ost.ring(*arrays)
    with pytest.raises(error):
        ost.Graph().ring(*arrays)


@pytest.mark.parametrize("index", [[0, 1], np.array([0]), np.zeros(4, bool), True, 1.5, (0, [1])], ids=repr)
def test_advanced_indices_are_refused(index):
    with pytest.raises(TypeError, match="must be an integer, a slice"):
        ost.ring(*make(2))[0][index]


def test_indices_out_of_range_are_index_errors():
    with pytest.raises(IndexError):
        ost.ring(*make(2))[0][7]
    with pytest.raises(TypeError, match="slice the element"):
        ost.ring(*make(2))[0:1]


def test_an_element_is_no_array_now():
    element = ost.ring(*make(2))[0]
    for use in (np.asarray, bool, lambda x: x + 1, lambda x: np.ones(3) * x):
        with pytest.raises(TypeError, match="stands for another array in each step"):
            use(element)
    with pytest.raises(TypeError, match="stands for"):
        element[0] = 1
    assert (element.shape, element.ndim, element.size, element.dtype, len(element)) == (SHAPE, 3, 60, int, 4)
    assert element.T.shape == SHAPE[::-1]
