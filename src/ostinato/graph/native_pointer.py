"""Addresses of what other packages hold C functions and memory in."""

from __future__ import annotations

import _ctypes
import ctypes
import sys
from typing import Any, NamedTuple

from ostinato.graph.arrays import HOST, as_ndarray, memory_of
from ostinato.one_line import brief

__all__ = ["Pointer", "function_address", "user_address"]


class Pointer(NamedTuple):
    """A function's address, the name it goes by, its own user data, and what keeps it alive."""

    address: int
    name: str | None = None
    user: int = 0
    keep: object = None


def function_address(fn: object) -> Pointer:
    """Return where a C function is."""
    pointer = _function_pointer(fn)
    if pointer is None:
        raise TypeError(
            "fn must be a ctypes or cffi function pointer, a numba cfunc, "
            f"a scipy.LowLevelCallable, a capsule, or an address, got {fn!r}"
        )
    if not 0 < pointer.address < 2**64:
        raise ValueError(f"the address of a function must be positive and fit 64 bits, got {pointer.address}")
    return pointer


def user_address(user: object) -> tuple[int, object]:
    """Return the address of `user`, 0 for None, and what keeps it alive."""
    if user is None:
        return 0, None
    if isinstance(user, int) and not isinstance(user, bool):
        if not 0 <= user < 2**64:
            raise ValueError(f"user must be an address, got {user}")
        return user, None
    array = as_ndarray(user)
    if array is not None and memory_of(array) != HOST:
        raise TypeError("user must be an address or a buffer of the host, got an array of a device: pass its handle")
    if array is None:
        raise TypeError(f"user must be an address or a buffer, got {brief(user)}")
    if not array.flags.forc:
        raise ValueError("user must be a contiguous buffer, got a strided one")
    return array.__array_interface__["data"][0], (user, array)


def _function_pointer(fn: Any) -> Pointer | None:
    if isinstance(fn, int) and not isinstance(fn, bool):
        return Pointer(fn)
    if isinstance(fn, _ctypes.CFuncPtr):
        return Pointer(ctypes.cast(fn, ctypes.c_void_p).value or 0, getattr(fn, "__name__", None))
    if type(fn).__name__ == "PyCapsule":
        return _capsule_pointer(fn)
    if _is_instance(fn, "scipy._lib._ccallback", "LowLevelCallable"):
        inner = _function_pointer(fn.function)
        capsule = tuple.__getitem__(fn, 0)  # its own indexing is closed
        return _capsule_pointer(capsule)._replace(name=None if inner is None else inner.name, keep=fn)
    if _is_instance(fn, "numba.core.ccallback", "CFunc"):
        return Pointer(fn.address, fn._pyfunc.__name__, keep=fn)
    if _is_instance(fn, "_cffi_backend", "_CDataBase"):
        return _cffi_pointer(fn)
    return None


def _is_instance(fn: object, module: str, name: str) -> bool:
    """Whether `fn` is of a class of a package that may not be installed; if it is, the module has been imported."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(fn, kind)


def _cffi_pointer(fn: Any) -> Pointer:
    ffi = sys.modules["_cffi_backend"].FFI()
    declared = ffi.typeof(fn)
    if declared.kind not in ("function", "pointer"):
        raise TypeError(f"fn must be a pointer to a function, got a cffi {declared.cname}")
    return Pointer(int(ffi.cast("uintptr_t", fn)))


def _capsule_pointer(capsule: object) -> Pointer:
    name = _capsule_name(capsule)
    return Pointer(_capsule_address(capsule, name) or 0, user=_capsule_context(capsule) or 0, keep=capsule)


_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.argtypes = (ctypes.py_object,)
_capsule_name.restype = ctypes.c_char_p
_capsule_address = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_address.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_address.restype = ctypes.c_void_p
_capsule_context = ctypes.pythonapi.PyCapsule_GetContext
_capsule_context.argtypes = (ctypes.py_object,)
_capsule_context.restype = ctypes.c_void_p
