"""Tracers of all kinds of arrays, passed to all kinds of tasks. Whoever reads or writes a proxy ends the process."""

import numpy as np
import pytest

import ostinato as ost
from ostinato.devices.array import empty
from ostinato.errors import GraphError, TracerError
from ostinato.graph.capture import record_function
from support import fake_device as fake


@pytest.fixture
def device():
    with fake.install() as found:
        yield found[0]


@ost.task
def scale(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor=2.0):
    fake.launch(stream, lambda a, b: np.multiply(a, factor, out=b), src, dst)


def test_an_array_of_a_device(device):
    src, dst = empty(device, (2, 6)), np.zeros((3, 4))
    src.set(np.arange(12.0).reshape(2, 6))

    def step(src, dst):
        assert (src.shape, src.strides, len(src), src.nbytes) == ((2, 6), (48, 8), 2, 96)
        scale(src.reshape(3, 4), dst)
        scale(src.T.swapaxes(0, 1)[0, 2:4].view("i8").view("f8"), dst[1:].squeeze()[0, :2], 5.0)

    with ost.compile(step, src, dst) as program:
        program.replay()
    expected = np.arange(12.0).reshape(3, 4) * 2
    expected[1, :2] = [10.0, 15.0]
    assert (dst == expected).all()


def test_an_array_of_a_device_has_no_elements(device):
    array = empty(device, (2, 6))
    for use in (
        lambda x: x.T.reshape(12),
        lambda x: x[[0]],
        lambda x: float(x[0, 0]),
        lambda x: x.get(),
        lambda x: x.set(1),
        lambda x: np.asarray(x),
        lambda x: x + 1,
    ):
        with pytest.raises((TracerError, AttributeError)) as found:
            ost.compile(use, array)
        assert "x" in str(found.value)
    with pytest.raises(ValueError, match="copy"):
        array.T.reshape(12)


def test_views_of_an_array_of_a_device(device):
    array = empty(device, (2, 1, 3))
    values = np.arange(6.0).reshape(2, 1, 3)
    array.set(values)
    for view in (
        lambda x: x.T,
        lambda x: x.transpose(1, 0, 2),
        lambda x: x.swapaxes(0, 2),
        lambda x: x.squeeze(),
        lambda x: x.squeeze(1),
        lambda x: x.view("i8"),
        lambda x: x.reshape(3, 2),
        lambda x: x.reshape(-1, order="F") if x.ndim == 1 else x.reshape((6, 1)),
        lambda x: list(x)[1],
    ):
        assert (view(array).get() == view(values)).all()
    with pytest.raises(ValueError, match="size 6"):
        array.reshape(4)


def test_native_tasks(library):
    task = ost.native(library.scale, (ost.Read, ost.Write, float, int))
    x, y = np.arange(6.0), np.zeros(3)
    given = ost.param("given", 2)

    def step(x, y, rate):
        task(x[:3], y, rate, given)
        with pytest.raises(TypeError):
            task(x[:3], y, x[0], given)

    recorded = record_function(step, (x, y, 0.5), {})
    assert recorded.args == (x, y, 0.5)
    (op,) = recorded.graph.ops
    assert op.operands[0].array.base is x
    assert op.operands[1].value is y
    assert op.body.args[3] is recorded.graph.params["given"]


def test_kernels():
    pytest.importorskip("numba")

    @ost.kernel
    def halve(x: ost.Read, y: ost.Write, factor):
        for i in range(x.shape[0]):
            y[i] = x[i] * factor

    x, y = np.arange(4.0), np.zeros(2)
    with ost.compile(lambda x, y, f: halve(x[::2], y, f), x, y, ost.param("f", 0.5)) as program:
        program.replay()
        assert y.tolist() == [0.0, 1.0]
        program.replay(f=3)
        assert y.tolist() == [0.0, 6.0]


def test_variants():
    @ost.task
    def double(x: ost.ReadWrite):
        x *= 2

    @double.variant(name="other")
    def other(x: ost.ReadWrite):
        x += x

    x = np.ones(2)
    with ost.compile(lambda x: double(x), x) as program:
        program.replay(3)
    assert x.tolist() == [8.0, 8.0]


def test_methods_that_are_tasks():
    class Model:
        @ost.task
        def advance(self, x: ost.ReadWrite):
            x += 1

        def step(self, x):
            self.advance(x[0])
            ost.current_graph().task(self.advance, x[1])

    x = np.zeros((2, 2))
    with ost.compile(Model().step, x) as program:
        program.replay(2)
    assert (x == 2).all()


def test_subclasses_of_ndarray_have_views_of_their_own():
    class Matrix(np.ndarray):
        def __getitem__(self, index):
            return super().__getitem__((slice(index, index + 1), 0) if isinstance(index, int) else index)

    m = np.zeros((3, 2)).view(Matrix)
    with ost.compile(lambda m: (ost.fill(m[1], 7.0), ost.fill(m[2:][..., 1], 8.0)), m) as program:
        program.replay()
    assert np.asarray(m).tolist() == [[0, 0], [7, 0], [0, 8]]
    with pytest.raises(TypeError, match="masked"):
        ost.compile(lambda x: ost.fill(x, 1.0), np.ma.zeros(3))


def test_what_contains_itself_is_refused_only_with_arrays():
    loop = [1]
    loop.append(loop)
    ost.compile(lambda given, x: ost.fill(x, given[1][0]), loop, np.zeros(2)).close()
    loop[0] = np.zeros(2)
    with pytest.raises(ValueError, match="contains itself"):
        ost.compile(lambda given: None, loop)


def test_generators_and_coroutines_are_refused():
    async def wrong(x):
        ost.fill(x, 1.0)

    def yields(x):
        yield ost.fill(x, 1.0)

    for fn in (wrong, yields):
        with pytest.raises(TypeError, match="plain function"):
            ost.compile(fn, np.zeros(2))


def test_an_error_of_a_library_that_meets_a_tracer_is_told():
    def step(x):
        raise RuntimeError("cannot determine the type of <class 'Tracer'>")

    with pytest.raises(TracerError, match=r"line \d+ of test_tracer\.py"):
        ost.compile(step, np.zeros(2))
    with pytest.raises(GraphError):
        ost.compile(step, np.zeros(2))


@pytest.mark.parametrize(
    "views",
    [
        lambda x: np.split(x, 2),
        lambda x: np.array_split(x, 3, axis=1),
        lambda x: np.hsplit(x, [1, 4]),
        lambda x: np.vsplit(x, 4),
        lambda x: [np.transpose(x), np.swapaxes(x, 0, 1), np.moveaxis(x, 0, 1), np.rollaxis(x, 1)],
        lambda x: [np.squeeze(x[:1]), np.flip(x), np.flip(x, 1)],
        lambda x: [x[: np.shape(x)[0] // 2], x[np.ndim(x) :], x[: np.size(x, 1) - 4]],
    ],
)
def test_functions_of_numpy_that_make_views(views):
    @ost.task
    def number(x: ost.ReadWrite, start: int):
        x += start + np.arange(x.size).reshape(x.shape)

    def step(x, u):
        for start, (one, two) in enumerate(zip(views(x), views(u[1]), strict=True)):
            number(one, start)
            number(two, start)

    def arrays():
        return np.zeros((4, 6)), np.zeros((4, 6)), np.zeros((4, 6))

    plain, (a, b, c) = arrays(), arrays()
    step(plain[0], plain[1:])
    with ost.compile(step, a, ost.ring(b, c)) as program:
        program.replay()
    for got, wanted in zip((a, b, c), plain, strict=True):
        assert (got == wanted).all()


@pytest.mark.parametrize("what", ["replay", "submit", "trace", "spawn"])
def test_what_would_run_once_in_place_of_every_step_is_refused(what):
    @ost.task
    def increment(x: ost.ReadWrite):
        x += 1

    values = np.zeros(3)
    with ost.Machine(cpus=1) as machine, ost.compile(increment, values, machine=machine) as inner:

        def step(x):
            increment(x)
            machine.spawn(increment, values) if what == "spawn" else getattr(inner, what)()

        with pytest.raises(GraphError, match=rf"{what}\(\) would run once, now, and not in every step, since step"):
            ost.compile(step, np.zeros(3), machine=machine)
        assert not values.any()
        inner.replay(2)  # nothing is recorded any more
        with ost.capture() as graph:  # a block may, as it runs once
            increment(np.zeros(3))
            inner.submit().result()
        assert len(graph) == 1
    assert values.tolist() == [3, 3, 3]
