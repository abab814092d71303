"""Native tasks: where they come from, what they are given, what they refuse."""

import array
import ctypes

import numpy as np
import pytest

import ostinato as ost
from ostinato.errors import GraphError, TaskError
from ostinato.graph.body import NativeCall

SCALE = (ost.Read, ost.Write, float, int)


def address_of(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def from_ctypes(library):
    return library.scale


def from_address(library):
    return address_of(library.scale)


def from_cffi(library):
    ffi = pytest.importorskip("cffi").FFI()
    ffi.cdef("int scale(const void *);")
    opened = ffi.dlopen(str(library._name))
    return opened.scale


def from_cffi_cast(library):
    ffi = pytest.importorskip("cffi").FFI()
    return ffi.cast("int (*)(void *)", address_of(library.scale))


def from_capsule(library, name=b"any name"):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(address_of(library.scale), name, None)


def from_nameless_capsule(library):
    return from_capsule(library, None)


def from_scipy(library):
    scipy = pytest.importorskip("scipy")
    function = library.scale
    function.restype, function.argtypes = ctypes.c_int, [ctypes.c_void_p]
    return scipy.LowLevelCallable(function)


SOURCES = [from_ctypes, from_address, from_cffi, from_cffi_cast, from_capsule, from_nameless_capsule, from_scipy]


@pytest.mark.parametrize("source", SOURCES)
def test_sources_of_functions(library, source):
    task = ost.native(source(library), SCALE)
    assert task.address == address_of(library.scale)
    a, b = np.arange(3.0), np.zeros(3)
    assert task(a, b, 2.0, 1) is None
    assert b.tolist() == [1, 3, 5]


def test_numba_functions():
    numba = pytest.importorskip("numba")

    @numba.cfunc(numba.int32(numba.types.voidptr))
    def seven(call):
        return 7

    task = ost.native(seven, ())
    assert (task.address, task.name) == (seven.address, "seven")
    with pytest.raises(TaskError, match="'seven' failed: it returned 7"):
        task()


def test_python_callbacks_and_who_keeps_them():
    seen = []

    def make():
        @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
        def callback(call):
            seen.append(call)
            return 0

        return ost.native(callback, (), name="callback")

    task = make()
    task()
    assert len(seen) == 1


def test_arrays_of_any_strides(library):
    task = ost.native(library.scale, SCALE)
    a, b = np.arange(12.0).reshape(3, 4), np.zeros(6)
    task(a[::-1, 2], b[::2], 1.0, 0)
    assert b.tolist() == [10, 0, 6, 0, 2, 0]
    memory = array.array("d", [1, 2, 3])
    task(memory, memory, 3, True)
    assert memory.tolist() == [4, 7, 10]


@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (1, 0, 4), (2,) * 9])
def test_what_a_function_sees(library, shape):
    user = bytearray(4)
    task = ost.native(library.inspect, (ost.Read, ost.ReadWrite), user=user)
    out = np.zeros(4, np.int64)
    task(np.zeros(shape), out)
    assert out.tolist() == [0, task.user_address, np.prod(shape, dtype=int), len(shape)]
    assert task.user_address == ctypes.addressof((ctypes.c_char * 4).from_buffer(user))


def test_user_data(library):
    assert ost.native(library.scale, SCALE).user_address == 0
    assert ost.native(library.scale, SCALE, user=1234).user_address == 1234
    values = np.arange(4)
    assert ost.native(library.scale, SCALE, user=values).user_address == values.ctypes.data
    for wrong, error in ((object(), TypeError), (True, TypeError), (-1, ValueError), (values[::2], ValueError)):
        with pytest.raises(error, match="user must be"):
            ost.native(library.scale, SCALE, user=wrong)


def test_a_code_other_than_zero_is_a_task_error(library):
    fail = ost.native(library.fail, (int,), name="mine")
    fail(0)
    with pytest.raises(TaskError, match="native task 'mine' failed: it returned -5") as caught:
        fail(-5)
    assert caught.value.op is None


@pytest.mark.parametrize(
    ("access", "message"),
    [
        ((ost.Read, complex), "entry 2 of access"),
        (("Read",), "entry 1 of access"),
        ((None,), "entry 1"),
        (ost.Read, "access must be a tuple"),
        ("Read", "access must be a tuple"),
        (3, "access must be a tuple"),
    ],
)
def test_wrong_access(library, access, message):
    with pytest.raises(TypeError, match=message):
        ost.native(library.scale, access)


@pytest.mark.parametrize("fn", [print, "scale", 1.5, None, True], ids=repr)
def test_what_is_no_function(fn):
    with pytest.raises(TypeError, match="fn must be a ctypes"):
        ost.native(fn, ())


def test_null_pointers():
    for null in (0, -1, ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)()):
        with pytest.raises(ValueError, match="address of a function"):
            ost.native(null, ())


A, B, FROZEN = np.zeros(3), np.zeros(3), np.zeros(3)
FROZEN.flags.writeable = False
WRONG = [
    ((A, B, 1.0), TypeError, "takes 4 arguments"),
    ((A, B, 1.0, 1.0), TypeError, "argument 4 of scale.. must be an int"),
    ((A, B, 1j, 1), TypeError, "must be a float"),
    ((A, B, "1", 1), TypeError, "must be a float"),
    ((A, B, 1.0, 2**63), OverflowError, "64 bits"),
    ((A, B, A, 1), TypeError, "must be a float"),
    (([1.0], B, 1.0, 1), TypeError, "compiled code takes arrays only"),
    ((1.0, B, 1.0, 1), TypeError, "argument 1 of scale.. must be an array"),
    ((A.astype(object), B, 1.0, 1), (TypeError, GraphError), "Python objects"),
    ((A.astype(">f8"), B, 1.0, 1), (TypeError, GraphError), "byte order"),
    ((A, FROZEN, 1.0, 1), (ValueError, GraphError), "argument 2 of scale.. is written"),
]


@pytest.mark.parametrize(("args", "error", "message"), WRONG)
def test_wrong_arguments(library, args, error, message):
    task = ost.native(library.scale, SCALE)
    with pytest.raises(error, match=message):
        task(*args)
    with pytest.raises(error, match=message), ost.capture() as graph:
        task(*args)
    assert len(graph) == 0


def test_arguments_are_given_by_position(library):
    task = ost.native(library.scale, SCALE)
    with pytest.raises(TypeError, match=r"scale\(\) takes no keyword arguments"):
        task(A, B, factor=1.0)
    with pytest.raises(TypeError, match=r"scale\(\) takes no keyword arguments"), ost.capture():
        task(A, B, factor=1.0)


def test_scalars_of_fitting_kinds(library):
    task = ost.native(library.scale, SCALE)
    with ost.capture():
        values = [
            task(A, B, *pair).body.args[2:]
            for pair in ((1, True), (np.float32(0.5), np.int8(3)), (False, np.uint64(7)), (np.bool_(1), np.bool_(0)))
        ]
    assert values == [(1.0, 1), (0.5, 3), (0.0, 7), (1.0, 0)]
    assert {(type(f), type(i)) for f, i in values} == {(float, int)}


def test_recording(library):
    task = ost.native(library.scale, SCALE)
    with ost.capture() as graph:
        factor = ost.param("factor", 2)
        op = task(A, B, factor, ost.step)
        explicit = graph.task(task, B, A, 1.0, 2)
        for wrong in ((A, B, ost.step, 1), (A, B, 1.0, ost.param("other", 0.5))):
            with pytest.raises(TypeError, match=r"must be a(n int| float)"):
                task(*wrong)
    assert isinstance(op.body, NativeCall)
    assert op.body.task is task
    assert op.body.args == (*op.operands, factor, ost.step)
    assert [operand.mode for operand in op.operands] == [1, 2]
    assert (op.name, explicit.name) == ("scale", "scale")


def test_placeholders_outside_a_capture(library):
    task = ost.native(library.scale, SCALE)
    for placeholder in (ost.step, ost.Graph().param("p")):
        with pytest.raises(TypeError, match="outside a capture"):
            task(A, B, 1.0, placeholder)
    with pytest.raises(TypeError, match="outside a capture"):
        task(ost.ring(A)[0], B, 1.0, 1)
