"""Ordinary mistakes that gave a wrong result without a word: each is an error now."""

import numpy as np
import pytest

import ostinato as ost


@ost.task
def put(value, y: ost.Write):
    y[...] = value


@ost.task
def double(x: ost.Read, y: ost.Write):
    y[...] = 2 * x


def compiled(step):
    return ost.compile(step, np.arange(3.0), np.zeros(3))


def test_an_element_passed_as_a_plain_argument():
    with pytest.raises(TypeError, match="parameter 'value' of put"):
        compiled(lambda x, y: put(x[0], y))


def test_an_expression_passed_to_a_task():
    with pytest.raises(ost.TracerError, match=r"\* needs the elements of x"):
        compiled(lambda x, y: double(x * 10, y))


def test_a_fancy_index():
    with pytest.raises(ost.TracerError, match=r"indices=\.\.\."):
        compiled(lambda x, y: double(x[[0, 2]], y[:2]))


def test_a_decision_taken_on_an_element():
    def step(x, y):
        if x[0] > 0:
            double(x, y)

    with pytest.raises(ost.TracerError, match=r"a comparison needs the elements of x\[0\]"):
        compiled(step)


def test_a_function_without_the_decorator():
    def undecorated(x, y):
        y[...] = 2 * x

    def unused(x, y):
        pass

    x, y = np.arange(3.0), np.zeros(3)
    with pytest.raises(ost.GraphError, match="recorded nothing"), ost.capture():
        undecorated(x, y)
    with pytest.raises(ost.TracerError, match=r"in test_a_function.*undecorated"):
        compiled(lambda x, y: undecorated(x, y))
    with pytest.raises(ost.GraphError, match="recorded nothing"):
        compiled(unused)


def test_a_write_before_the_array_is_first_recorded():
    x, y = np.arange(3.0), np.zeros(3)

    def captured():
        with ost.capture():
            np.add(x, 1, out=x)
            double(x, y)

    with pytest.raises(ost.GraphError, match="'x' is not what it was"):
        captured()

    def step(given, y):
        np.add(x, 1, out=x)
        double(given, y)

    with pytest.raises(ost.GraphError, match="read-only"):
        ost.compile(step, x, y)
