"""The contract's section "Tasks", sentence by sentence."""

from __future__ import annotations

import array
import ctypes
import operator
import subprocess
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from native import load


def library() -> ctypes.CDLL:
    return load(str(Path(__file__).parents[1] / "tasks.c"))


@ost.task
def add(x: ost.ReadWrite, k):
    x += k


@ost.task
def copy(src: ost.Read, dst: ost.Write):
    dst[...] = src


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2) as machine:
        yield machine


def run(graph, machine, steps=1, **params):
    with graph.compile(machine) as program:
        return program.replay(steps, **params)


# @task


def test_task_takes_a_name(machine):
    @ost.task(name="polish")
    def f(x: ost.Write):
        x[...] = 1

    x = np.zeros(1)
    with ost.capture():
        op = f(x)
    assert op.name == "polish"


def test_task_name_defaults_to_the_functions():
    with ost.capture():
        op = add(np.zeros(1), 1)
    assert op.name == "add"


@pytest.mark.parametrize("options", [{}, {"releases_gil": True}, {"name": None}])
def test_task_options(options, machine):
    @ost.task(**options)
    def f(x: ost.ReadWrite):
        x += 1

    x = np.zeros(3)
    with ost.capture() as g:
        f(x)
    run(g, machine, 5)
    assert (x == 5).all()


@pytest.mark.parametrize("bad", [3, "f"])
def test_task_of_no_function_is_a_type_error(bad):
    with pytest.raises(TypeError):
        ost.task(bad)


def test_annotations_as_strings_work(machine):
    # this file has `from __future__ import annotations`
    x, y = np.ones(2), np.zeros(2)
    with ost.capture() as g:
        copy(x, y)
    run(g, machine)
    assert (y == 1).all()


def test_arrays_only_read_are_passed_read_only_eager():
    @ost.task
    def f(x: ost.Read):
        x[0] = 1

    x = np.zeros(1)
    with pytest.raises(ValueError, match="read-only"):
        f(x)
    assert x[0] == 0
    assert x.flags.writeable


def test_arrays_only_read_are_passed_read_only_replayed(machine):
    @ost.task
    def f(x: ost.Read):
        x[0] = 1

    x = np.zeros(1)
    with ost.capture() as g:
        f(x)
    with pytest.raises(ost.TaskError) as error:
        run(g, machine)
    assert isinstance(error.value.__cause__, ValueError)
    assert x[0] == 0


def test_keyword_and_default_arguments_work_as_in_python(machine):
    seen = []

    @ost.task
    def f(x: ost.ReadWrite, a=1, *, b=10, c):
        seen.append((a, b, c))

    x = np.zeros(1)
    f(x, c=5)
    f(c=5, a=2, x=x)
    with ost.capture() as g:
        f(x, c=5)
        f(c=5, a=2, x=x, b=11)
    run(g, machine)
    assert seen == [(1, 10, 5), (2, 10, 5), (1, 10, 5), (2, 11, 5)]


def test_var_arguments_work_as_in_python(machine):
    seen = []

    @ost.task
    def f(x: ost.ReadWrite, *args, **kwargs):
        seen.append((args, kwargs))

    x = np.zeros(1)
    with ost.capture() as g:
        f(x, 1, 2, k=3)
    run(g, machine)
    f(x, 1, 2, k=3)
    assert seen[0] == seen[1] == ((1, 2), {"k": 3})


def test_missing_and_unknown_arguments_raise_type_error_at_the_call():
    x = np.zeros(1)
    with pytest.raises(TypeError):
        add(x)
    with ost.capture() as g:
        with pytest.raises(TypeError):
            add(x)
        with pytest.raises(TypeError):
            add(x, 1, z=2)
        with pytest.raises(TypeError):
            add(x, 1, 2)
        assert len(g) == 0
        add(x, 1)


def test_default_array_argument_is_an_access(machine):
    x = np.zeros(1)

    @ost.task
    def f(k, out: ost.ReadWrite = x):
        out += k

    with ost.capture() as g:
        a = f(1)
        b = add(x, 10)
    assert (a, b, 0) in g.edges
    run(g, machine, 2)
    assert x[0] == 22


@pytest.mark.parametrize(
    "token", [[], {}, object(), lambda: 0, np.random.default_rng(0)], ids=lambda t: type(t).__name__
)
def test_token_gives_the_same_edges(token, machine):
    @ost.task
    def write(t: ost.ReadWrite):
        assert t is token

    @ost.task
    def read(t: ost.Read):
        assert t is token

    with ost.capture() as g:
        a, b, c, d = write(token), read(token), read(token), write(token)
    edges = {(s, t) for s, t, distance in g.edges if distance == 0}
    assert {(a, b), (a, c), (b, d), (c, d)} <= edges
    assert (b, c) not in edges
    assert any(s is d and t is a and distance == 1 for s, t, distance in g.edges)
    run(g, machine, 3)


def test_tokens_are_compared_by_identity():
    @ost.task
    def f(t: ost.ReadWrite): ...

    with ost.capture() as g:
        a = f([])
        b = f([])
    assert not any({s, t} == {a, b} for s, t, _ in g.edges)


def test_tasks_without_arrays_keep_program_order_within_and_from_step_to_step(machine):
    seen = []

    @ost.task
    def f(k):
        seen.append(k)

    @ost.task
    def g_(k):
        seen.append(k)

    with ost.capture() as g:
        for k in range(5):
            (f if k % 2 else g_)(k)
    run(g, machine, 4)
    assert seen == list(range(5)) * 4


def test_tasks_without_arrays_keep_order_even_when_they_release_the_gil(machine):
    seen = []

    @ost.task(releases_gil=True)
    def f(k):
        seen.append(k)

    with ost.capture() as g:
        for k in range(6):
            f(k)
    run(g, machine, 50)
    assert seen == list(range(6)) * 50


def test_called_outside_a_capture_runs_at_once_and_returns_its_value():
    @ost.task
    def f(x: ost.Read, k=2):
        return x.sum() * k

    assert f(np.ones(3)) == 6


def test_called_by_a_running_task_runs_at_once(machine):
    seen = []

    @ost.task
    def inner(x: ost.Read):
        return float(x.sum())

    @ost.task
    def outer(x: ost.Read):
        seen.append(inner(x))

    x = np.ones(3)
    with ost.capture() as g:
        outer(x)
    run(g, machine, 2)
    assert seen == [3.0, 3.0]


def test_eager_call_raises_what_the_function_raises():
    @ost.task
    def f(x: ost.Write):
        raise KeyError("me")

    with pytest.raises(KeyError, match="me"):
        f(np.zeros(1))


OPERATIONS = [
    lambda o: o + 1,
    lambda o: 1 + o,
    lambda o: o * o,
    lambda o: o @ o,
    lambda o: -o,
    lambda o: abs(o),
    lambda o: ~o,
    lambda o: o < 1,
    lambda o: o >= o,
    bool,
    int,
    float,
    complex,
    operator.index,
    len,
    iter,
    round,
    lambda o: o[0],
    lambda o: 1 if o else 2,
    lambda o: 3 in o,
    np.asarray,
    lambda o: np.ones(2) + o,
    lambda o: divmod(o, 2),
    lambda o: o**2,
    lambda o: o << 1,
]


@pytest.mark.parametrize("index", range(len(OPERATIONS)))
def test_op_has_no_value(index):
    with ost.capture():
        op = add(np.zeros(1), 1)
        with pytest.raises(TypeError):
            OPERATIONS[index](op)


def test_op_in_place_arithmetic_on_a_number_raises():
    with ost.capture():
        op = add(np.zeros(1), 1)
        total = 0
        with pytest.raises(TypeError, match="value"):
            total += op


def test_op_misuse_says_that_it_has_no_value():
    with ost.capture():
        op = add(np.zeros(1), 1)
        for misuse in (bool, float, lambda o: o + 1):
            with pytest.raises(TypeError, match="value"):
                misuse(op)


def test_op_is_hashable_and_equal_to_itself():
    with ost.capture():
        a, b = add(np.zeros(1), 1), add(np.zeros(1), 1)
    assert a == a
    assert a != b
    assert len({a, b, a}) == 2


def test_op_as_argument_of_a_task_raises():
    with ost.capture():
        op = add(np.zeros(1), 1)
        with pytest.raises(TypeError):
            add(np.zeros(1), op)


def test_task_keeps_metadata_of_the_function():
    @ost.task
    def documented(x: ost.Read):
        "Words."

    assert documented.__name__ == "documented"
    assert documented.__doc__ == "Words."


def test_read_of_a_read_only_array_is_fine_write_raises(machine):
    x = np.zeros(1)
    x.flags.writeable = False
    y = np.zeros(1)
    with ost.capture() as g:
        copy(x, y)
        with pytest.raises((TypeError, ValueError)):
            add(x, 1)
    assert len(g) == 1


def test_eager_write_to_read_only_array_raises():
    x = np.zeros(1)
    x.flags.writeable = False
    with pytest.raises((TypeError, ValueError)):
        add(x, 1)


def test_task_on_method_objects(machine):
    class Solver:
        def __init__(self):
            self.n = 0

        @ost.task
        def advance(self, x: ost.ReadWrite):
            self.n += 1
            x += self.n

    s, x = Solver(), np.zeros(1)
    s.advance(x)
    with ost.capture() as g:
        s.advance(x)
    run(g, machine, 2)
    assert s.n == 3
    assert x[0] == 6


@ost.task
def increment(x: ost.ReadWrite):
    for i in range(len(x)):
        x[i] += 1


@pytest.mark.parametrize(
    "new",
    [bytearray, lambda n: memoryview(bytearray(n)), lambda n: array.array("B", bytes(n)), ctypes.c_uint8 * 8],
    ids=["bytearray", "memoryview", "array", "ctypes"],
)
def test_anything_with_the_buffer_protocol_is_an_array(new, machine):
    raw = new(8) if not isinstance(new, type(ctypes.c_uint8 * 8)) else new()
    with ost.capture() as g:
        a = increment(raw)
        b = increment(raw)
        c = increment(np.frombuffer(raw, np.uint8)[:2])
    assert {(a, b, 0), (b, c, 0)} <= set(g.edges)
    run(g, machine)
    assert bytes(raw) == bytes([3] * 2 + [2] * 6)


# native


def pointer(name):
    lib = library()
    return getattr(lib, name), ctypes.cast(getattr(lib, name), ctypes.c_void_p).value


def as_int(name):
    return pointer(name)[1]


def as_ctypes(name):
    return pointer(name)[0]


def as_cfunctype(name):
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(as_int(name))


def as_cffi(name):
    cffi = pytest.importorskip("cffi")
    ffi = cffi.FFI()
    return ffi.cast("int32_t (*)(void *)", as_int(name))


def as_capsule(name):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(as_int(name), None, None)


def as_lowlevel(name):
    scipy = pytest.importorskip("scipy")
    return scipy.LowLevelCallable(as_cfunctype(name))


@pytest.mark.parametrize("kind", [as_int, as_ctypes, as_cfunctype, as_cffi, as_capsule, as_lowlevel])
def test_native_from(kind, machine):
    f = ost.native(kind("write_step"), (ost.Write,))
    x = np.full(1, -1.0)
    with ost.capture() as g:
        f(x)
    with g.compile(machine) as program:
        program.replay(3)
        assert x[0] == 2
        program.replay(2)
        assert x[0] == 4


def test_native_from_numba_cfunc(machine):
    numba = pytest.importorskip("numba")

    @numba.cfunc("int32(voidptr)")
    def f(call):
        return 7

    task = ost.native(f, (ost.ReadWrite,))
    x = np.zeros(1)
    with ost.capture() as g:
        task(x)
    with pytest.raises(ost.TaskError, match="7"):
        run(g, machine)


@pytest.mark.parametrize("bad", ["x", 1.5, None, object(), 0, -1, True, [1]])
def test_native_of_no_function_raises(bad):
    with pytest.raises((TypeError, ValueError)):
        ost.native(bad, (ost.Read,))


@pytest.mark.parametrize("bad", [(str,), (1,), 3, ("Read",), None])
def test_native_access_is_checked(bad):
    with pytest.raises((TypeError, ValueError)):
        ost.native(as_int("add"), bad)


def test_native_arrays_and_scalars_each_in_the_order_of_access(machine):
    user = np.array([2.5])
    f = ost.native(as_int("describe"), (int, ost.Read, float, ost.Write), user=user)
    x = np.zeros((6, 2))[::2]
    out = np.zeros(8)
    f(-7, x, 0.25, out)
    expected = [2, 2, 2, 3, 32, -7, 0.25, 2.5]
    assert out.tolist() == expected
    out[:] = 0
    with ost.capture() as g:
        f(-7, x, 0.25, out)
    run(g, machine)
    assert out.tolist() == expected


def test_native_user_is_kept_alive(machine):
    f = ost.native(as_int("describe"), (ost.Read, ost.Write, int, float), user=np.full(1 << 16, 9.0))
    out = np.zeros(8)
    with ost.capture() as g:
        f(np.zeros(2), out, 1, 2.0)
    del f
    np.full(1 << 16, 1.0)
    run(g, machine)
    assert out[7] == 9.0


def test_native_user_as_address(machine):
    user = np.array([4.5])
    f = ost.native(as_int("describe"), (ost.Read, ost.Write, int, float), user=user.ctypes.data)
    out = np.zeros(8)
    f(np.zeros(2), out, 1, 2.0)
    assert out[7] == 4.5


def test_native_user_of_a_wrong_type_raises():
    with pytest.raises(TypeError):
        ost.native(as_int("add"), (ost.Read,), user="x".join)


@pytest.mark.parametrize("bad", ["a", None, 1.5, [1], 2**63])
def test_native_int_scalars_are_checked(bad):
    f = ost.native(as_int("add"), (ost.ReadWrite, int))
    x = np.zeros(1)
    with pytest.raises((TypeError, ValueError, OverflowError)):
        f(x, bad)
    with pytest.raises((TypeError, ValueError, OverflowError)), ost.capture() as g:
        f(x, bad)
    assert len(g) == 0


def test_native_argument_count_is_checked():
    f = ost.native(as_int("add"), (ost.ReadWrite, int))
    for args in [(), (np.zeros(1),), (np.zeros(1), 1, 2)]:
        with pytest.raises(TypeError):
            f(*args)
        with pytest.raises(TypeError), ost.capture():
            f(*args)


def test_native_numpy_scalars_are_scalars(machine):
    f = ost.native(as_int("add"), (ost.ReadWrite, int))
    x = np.zeros(1)
    with ost.capture() as g:
        f(x, np.int64(4))
    run(g, machine)
    assert x[0] == 4


def test_native_failure_is_nonzero(machine):
    f = ost.native(as_int("fail_at_three"), (ost.ReadWrite,), name="third")
    x = np.zeros(1)
    with ost.capture() as g:
        op = f(x)
    with pytest.raises(ost.TaskError, match="42") as error:
        run(g, machine, 10)
    assert (error.value.op, error.value.step, x[0]) == (op, 3, 4)
    assert "third" in str(error.value)


def test_native_task_that_fails_when_called_at_once_raises():
    f = ost.native(as_int("fail_at_three"), (ost.ReadWrite,))
    assert f(np.zeros(1)) is None


def test_native_name_defaults_to_something():
    with ost.capture():
        assert ost.native(as_int("add"), (ost.ReadWrite, int))(np.zeros(1), 1).name


def test_native_int_param(machine):
    f = ost.native(as_int("add"), (ost.ReadWrite, int))
    x = np.zeros(1)
    with ost.capture() as g:
        f(x, ost.param("k", 5))
    with g.compile(machine) as program:
        program.replay(2)
        program.replay(2, k=100)
        assert x[0] == 210
        for bad in ("a", None, 1.5):
            with pytest.raises((TypeError, ValueError)):
                program.replay(2, k=bad)
        assert x[0] == 210


def test_header_alone_compiles_as_c11_and_cpp17(tmp_path):
    import shutil

    for compiler, suffix, standard in (("cc", "c", "c11"), ("c++", "cpp", "c++17")):
        if shutil.which(compiler) is None:
            pytest.skip(f"no {compiler}")
        source = tmp_path / f"a.{suffix}"
        source.write_text(
            "#include <ostinato.h>\nint32_t f(const ost_call *);\nint32_t f(const ost_call *c) { return c != 0; }\n"
        )
        command = [compiler, f"-std={standard}", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-c", str(source)]
        subprocess.run([*command, f"-I{ost.get_include()}", "-o", str(tmp_path / "a.o")], check=True)
    assert isinstance(ost.get_include(), str)


# kernel


def test_kernel_is_the_same_as_calling_the_function(machine):
    pytest.importorskip("numba")

    def smooth(src: ost.Read, dst: ost.Write, omega):
        for i in range(1, src.shape[0] - 1):
            dst[i] = src[i] + omega * (src[i - 1] - 2 * src[i] + src[i + 1])

    kernel = ost.kernel(smooth)
    a = np.random.default_rng(0).random(50)
    expected, eager, replayed = np.zeros(50), np.zeros(50), np.zeros(50)
    smooth(a, expected, 0.3)
    kernel(a, eager, 0.3)
    with ost.capture() as g:
        kernel(a, replayed, 0.3)
    run(g, machine)
    assert expected.tobytes() == eager.tobytes() == replayed.tobytes()


def test_kernel_accepts_keywords_and_defaults(machine):
    pytest.importorskip("numba")

    @ost.kernel
    def scale(x: ost.ReadWrite, k=3.0):
        for i in range(x.shape[0]):
            x[i] *= k

    x = np.ones(4)
    with ost.capture() as g:
        scale(x)
        scale(x=x, k=2.0)
    run(g, machine)
    assert (x == 6).all()


# step


def test_step_is_an_int_for_a_python_task_and_counts_over_the_programs_life(machine):
    seen = []

    @ost.task
    def f(x: ost.ReadWrite, s):
        seen.append(s)

    x = np.zeros(1)
    with ost.capture() as g:
        f(x, ost.step)
    with g.compile(machine) as program:
        program.replay(2)
        program.submit(2).result()
        program.replay(1)
    assert seen == [0, 1, 2, 3, 4]
    assert all(type(s) is int for s in seen)


def test_step_is_i64_for_a_native_task(machine):
    f = ost.native(as_int("add"), (ost.ReadWrite, int))
    x = np.zeros(1)
    with ost.capture() as g:
        f(x, ost.step)
    with g.compile(machine) as program:
        program.replay(3)
        program.replay(2)
    assert x[0] == sum(range(5))


def test_step_as_a_keyword_argument(machine):
    seen = []

    @ost.task
    def f(x: ost.ReadWrite, *, s):
        seen.append(s)

    with ost.capture() as g:
        f(np.zeros(1), s=ost.step)
    run(g, machine, 3)
    assert seen == [0, 1, 2]


def test_step_outside_a_capture_raises():
    with pytest.raises((TypeError, ValueError, RuntimeError, ost.GraphError)):
        add(np.zeros(1), ost.step)


def test_read_write_are_any_for_type_checkers(tmp_path, mypy):
    file = tmp_path / "user.py"
    file.write_text(
        """
import numpy as np
import ostinato as ost

@ost.task
def relax(src: ost.Read, dst: ost.Write, omega: float = 0.5) -> None:
    dst[1:-1] = src[1:-1] * omega + src.mean()

@ost.task(name="norm")
def norm(src: ost.Read, r: ost.ReadWrite) -> float:
    r[0] = float(np.abs(src).max())
    return float(r[0])

a, b = np.zeros(3), np.zeros(3)
r = np.zeros(1)
relax(a, b, omega=0.1)
u = ost.ring(a, b)
with ost.capture() as graph:
    relax(u[0], u[1], ost.param("omega", 0.5))
    norm(u[0][0:2], r)
    ost.until(r)
op = graph.task(relax, a, b, 0.5, after=())
graph.copy(a, b, after=[op], reduce="+")
graph.fill(a, 0.0, after=ost.previous(op))
with ost.Machine(cpus=2) as machine, graph.compile(machine, lanes=2) as program:
    n: int = program.replay(10, omega=0.25)
    run = program.submit(2)
    k: int = run.result()
    e: BaseException | None = run.exception()

    async def wait() -> int:
        return await run

    program.trace(1).save("x.json")
    s: str = program.explain()
    program.rebind([(a, np.zeros(3))])
"""
    )
    assert "Success: no issues found" in mypy(file)
