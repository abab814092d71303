"""Tasks called outside a capture: they run at once."""

import inspect

import numpy as np
import pytest

import ostinato as ost


@ost.task
def combine(a: ost.Read, b: ost.Write, factor=2.0, *rest: ost.Read, offset=0.0, extra: ost.Read = None):
    """Document me."""
    b[...] = a * factor + offset
    for other in rest:
        b += other
    return a, b, extra


def test_runs_at_once_and_returns_its_value():
    a, b = np.ones(3), np.zeros(3)
    seen, written, _ = combine(a, b, 3.0, a, a, offset=1.0)
    assert b.tolist() == [6, 6, 6]
    assert seen.base is a
    assert not seen.flags.writeable
    assert written is b


def test_what_is_read_is_read_only_however_it_is_passed():
    a, b = np.ones(3), np.zeros(3)
    for seen in (combine(b=b, a=a)[0], combine(a, b, extra=a)[2]):
        with pytest.raises(ValueError, match="read-only"):
            seen[0] = 1
    assert a.flags.writeable


def test_subclasses_arrive_as_plain_arrays():
    a, b = np.ones((1, 3)).view(np.matrix), np.zeros((1, 3)).view(np.matrix)
    seen, written, _ = combine(a, b)
    assert type(seen) is type(written) is np.ndarray
    assert b.tolist() == [[2, 2, 2]]


def test_looks_like_the_function():
    assert combine.__doc__ == "Document me."
    assert combine.name == combine.__name__ == "combine"
    assert list(inspect.signature(combine).parameters) == ["a", "b", "factor", "rest", "offset", "extra"]


def test_wrong_arguments_are_type_errors_as_for_a_function():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        combine(np.zeros(1))
    with pytest.raises(TypeError, match="unexpected keyword"):
        combine(np.zeros(1), np.zeros(1), nothing=1)


def test_placeholders_are_refused():
    a, b = np.zeros(3), np.zeros(3)
    graph = ost.Graph()
    for placeholder in (graph.param("p"), ost.step, ost.ring(a)[0], ost.ring(a), graph.fill(a, 0)):
        with pytest.raises(TypeError, match="outside a capture"):
            combine(a, b, placeholder)
        with pytest.raises(TypeError, match="outside a capture"):
            combine(placeholder, b)
        with pytest.raises(TypeError, match="outside a capture"):
            combine(a, b, offset=placeholder)


def test_what_is_no_function_is_refused():
    async def coroutine(): ...

    def generator():
        yield

    for wrong in (coroutine, generator):
        with pytest.raises(TypeError, match="plain function"):
            ost.task(wrong)
    with pytest.raises(TypeError, match="pass options by keyword"):
        ost.task("name")
    with pytest.raises(TypeError, match="access="):
        ost.task(max)


def test_exceptions_pass_through():
    @ost.task
    def fail():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()


def test_options_are_recorded():
    @ost.task(name="mine", releases_gil=True, blocking=True, launch_only=True)
    def busy(value):
        return value

    assert (busy.name, busy.releases_gil, busy.blocking, busy.launch_only) == ("mine", True, True, True)
    assert busy(3) == 3
    with ost.capture():
        body = busy(3).body
        plain = combine(np.zeros(3), np.zeros(3)).body
    assert (body.releases_gil, body.blocking) == (True, True)
    assert (plain.releases_gil, plain.blocking, combine.launch_only) == (False, False, False)
    with pytest.raises(TypeError):
        ost.task(waits=True)


def test_function_and_options_in_one_call():
    def wait(src: ost.Read):
        return len(src)

    made = ost.task(wait, name="pause", releases_gil=True, blocking=True)
    assert (made.name, made.releases_gil, made.blocking) == ("pause", True, True)
    assert made(np.zeros(3)) == 3
