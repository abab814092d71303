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


@ost.task
def add_to(x: ost.ReadWrite, value=1.0):
    x += value


@pytest.mark.parametrize("decide", [lambda: ost.step == 0, lambda: ost.step != 0, lambda: ost.step in (0, 1)])
def test_a_decision_by_the_number_of_the_step(decide):
    with pytest.raises(TypeError, match=r"ostinato\.step has no value while recording"):
        ost.compile(lambda x: add_to(x) if decide() else None, np.zeros(3))


def test_a_decision_by_a_parameter():
    with pytest.raises(TypeError, match="parameter 'mode' has no value while recording"):
        ost.compile(lambda x, mode: add_to(x) if mode == "fast" else None, np.zeros(3), ost.param("mode", "fast"))
    mode = ost.param("mode", "fast")
    assert mode == mode
    assert mode != ost.step
    assert len({mode, ost.step, mode}) == 2


def test_a_masked_array_in_a_plain_call():
    with pytest.raises(TypeError, match="a masked array is two arrays"):
        add_to(np.ma.masked_array([1.0, 2.0], [0, 1]))


def test_async_functions_and_generators():
    async def waits(x: ost.ReadWrite):
        x += 1

    def yields(x: ost.ReadWrite):
        yield

    async def waits_and_yields(x: ost.ReadWrite):
        yield

    class Waits:
        async def __call__(self, x: ost.ReadWrite):
            x += 1

    for function, what in ((waits, "async function"), (yields, "a generator"), (waits_and_yields, "async generator")):
        for make in (ost.task, ost.kernel, lambda function: ost.compile(function, np.zeros(3))):
            with pytest.raises(TypeError, match=f"must be a plain function, .*{what}"):
                make(function)
    with pytest.raises(TypeError, match="must be a plain function"):
        ost.task(Waits())


def test_the_real_part_of_a_tracer():
    with pytest.raises(ost.TracerError, match=r"\.real"):
        ost.compile(lambda x: add_to(x.real), np.zeros(3, complex))


def test_a_class_is_a_token():
    @ost.task
    def note(kind: ost.Read, x: ost.ReadWrite):
        x += kind is np.ndarray

    x = np.zeros(2)
    with ost.compile(note, np.ndarray, x) as program:
        program.replay(3)
    assert x.tolist() == [3.0, 3.0]


class Simulation:
    def __init__(self):
        self.old, self.new, self.count, self.cache = np.zeros(3), np.zeros(3), 0, None

    def swap(self):
        double(self.old, self.new)
        self.old, self.new = self.new, self.old
        self.cache = [self.old]

    def number(self):
        self.count += 1
        add_to(self.old, self.count)

    def keep(self):
        self.cache = self.new
        double(self.old, self.new)


def test_a_step_that_assigns(caplog):
    first, count = np.zeros(3), 0

    def outer():
        nonlocal first, count
        add_to(first, count)
        first, count = np.ones(3), count + 1

    for step, names in (
        (Simulation().swap, "self.old, self.new"),
        (Simulation().number, "self.count"),
        (outer, "count, first"),
        (Simulation().keep, None),
    ):
        caplog.clear()
        ost.compile(step).close()
        told = [record.getMessage() for record in caplog.records]
        assert [text.partition(" while")[0] for text in told] == (
            [f"{step.__name__}() assigned to {names}"] if names else []
        )


def test_timeouts_that_are_no_numbers():
    with ost.compile(add_to, np.zeros(3)) as program:
        for wrong in ("a", [1]):
            with pytest.raises(TypeError, match="timeout must be a number of seconds or None"):
                program.replay(timeout=wrong)


def test_a_name_that_is_bound_after_the_step_was_recorded(caplog):
    x, h = np.zeros(3), 0.5
    dt = 0.5 * h

    def step():
        nonlocal dt
        dt = 0.5 * h  # the same value: nothing is lost
        add_to(x, ost.step)
        assert callable(lambda: program.step)

    program = ost.compile(step)
    with program:
        program.replay(2)
    assert x.tolist() == [1.0] * 3
    assert not caplog.records
