"""Containers of arrays: taken apart when a call is recorded, and made again for every call."""

from __future__ import annotations

import dataclasses
import enum
from collections import ChainMap, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_
from types import MappingProxyType, SimpleNamespace
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

__all__ = [
    "Container",
    "Path",
    "can_be_made",
    "is_container",
    "mapped",
    "opaque",
    "parts_of",
    "place_in",
    "taken_apart",
    "walk",
]

Path: TypeAlias = tuple[str, ...]
"""Where something is in a container: the steps, as Python would write them."""

Enter: TypeAlias = Callable[[object, Path], bool]
Leaf: TypeAlias = Callable[[object, Path], object]

_FACES = ("__dlpack__", "__cuda_array_interface__", "__buffer__")  # of arrays, whatever else they are
_DEEPEST = 200  # well below what Python's stack takes
_HEAP_TYPE = 1 << 9  # of `__flags__`: made by Python code, so that items and attributes are all its state
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_OPAQUE = (set, frozenset, deque, UserDict, UserList, ChainMap, MappingProxyType, SimpleNamespace, *_VIEWS)


class Container:
    """What a container is made of.

    Attributes
    ----------
    kind
        Its class.
    keys
        The keys of a dict, or None.
    names
        The names of its attributes; those of a dataclass are its fields.
    parts
        Its items or values, then its attributes. What is a container among them is a `Container`, too.
    extra
        What else a container of this kind is made with: the factory of a `defaultdict`.
    """

    __slots__ = ("extra", "keys", "kind", "names", "parts")

    def __init__(
        self,
        kind: type,
        keys: tuple[object, ...] | None,
        names: tuple[str, ...],
        parts: tuple[object, ...],
        extra: object = None,
    ) -> None:
        self.kind = kind
        self.keys = keys
        self.names = names
        self.parts = parts
        self.extra = extra

    def with_parts(self, parts: Iterable[object]) -> Container:
        """Return one of the same kind with other parts."""
        return Container(self.kind, self.keys, self.names, tuple(parts), self.extra)

    def make(self, parts: Sequence[Any]) -> Any:
        """Return a new container of the kind with these parts."""
        return _MAKERS[_base(self.kind)](self, parts)

    def is_unchanged(self, made: Any, parts: Sequence[Any]) -> bool:
        """Whether a container that was made with these parts still has them, and no others."""
        if self.kind is tuple:
            return True
        now = taken_apart(made)
        return (
            now is not None
            and len(now.parts) == len(parts)
            and all(map(is_, now.parts, parts))
            and now.names == self.names
            and (now.keys is self.keys or now.keys == self.keys)
        )

    def paths(self) -> Iterator[str]:
        """Say where each of the parts is, as Python would write it."""
        count = len(self.parts) - len(self.names)
        for place in range(count):
            yield f"[{place if self.keys is None else self.keys[place]!r}]"
        yield from (f".{name}" for name in self.names)

    @property
    def shape(self) -> tuple[object, ...]:
        """What is equal for containers that differ in nothing but what is no container in them."""
        keys = None if self.keys is None else tuple((type(key), key) for key in self.keys)
        inner = tuple(part.shape if isinstance(part, Container) else None for part in self.parts)
        return self.kind, keys, self.names, inner, id(self.extra)

    @property
    def text(self) -> str:
        """The shape as text, the same in every process."""
        name = f"{self.kind.__module__}.{self.kind.__qualname__}".removeprefix("builtins.")
        inner = (part.text if isinstance(part, Container) else "" for part in self.parts)
        return f"{name}({', '.join(path + each for path, each in zip(self.paths(), inner, strict=True))})"


def is_container(value: object) -> bool:
    """Whether an object is of a kind that is taken apart: a list, tuple, dict or dataclass."""
    return _base(type(value)) is not None and not isinstance(value, enum.Enum)


def taken_apart(value: Any) -> Container | None:
    """Return what a container is made of, its parts as they are; None for what is no container."""
    kind = type(value)
    if kind is list or kind is tuple:
        return Container(kind, None, (), tuple(value))
    if kind is dict:
        return Container(kind, tuple(value), (), tuple(value.values()))
    if not is_container(value):
        return None
    base = _base(kind)
    attributes = dict(getattr(value, "__dict__", ()))
    if base is object:
        for field in dataclasses.fields(value):
            if field.name not in attributes and hasattr(value, field.name):
                attributes[field.name] = getattr(value, field.name)
        return Container(kind, None, tuple(attributes), tuple(attributes.values()))
    keys: tuple[object, ...] | None = None
    extra: object = None
    if base in (list, tuple):
        items = tuple(base.__iter__(value))
    else:
        pairs = [*(base if base is OrderedDict else dict).items(value)]
        keys, items = tuple(key for key, _ in pairs), tuple(item for _, item in pairs)
        extra = value.default_factory if base is defaultdict else None
    return Container(kind, keys, tuple(attributes), (*items, *attributes.values()), extra)


def parts_of(value: Any) -> Sequence[object]:
    """Return what is in a container, or in one that is not taken apart but may hold arrays; nothing for the rest."""
    kind = type(value)
    if kind is list or kind is tuple:
        return value  # type: ignore[no-any-return]
    if kind is dict:
        return tuple(value.values())
    found = taken_apart(value)
    if found is not None:
        return found.parts
    return opaque(value)


def opaque(value: Any) -> Sequence[object]:
    """Return what is in a container of the standard library that is not taken apart; nothing for the rest."""
    if isinstance(value, SimpleNamespace):
        return tuple(vars(value).values())
    if isinstance(value, UserDict | ChainMap | MappingProxyType):
        return tuple(value.values())
    if isinstance(value, _OPAQUE):
        return tuple(cast("Iterable[object]", value))
    return ()


def mapped(value: object, label: str, enter: Enter, leaf: Leaf) -> object:
    """Return a container as a `Container` with something else in place of its parts.

    Parameters
    ----------
    value
        The container.
    label
        What it is, for messages.
    enter
        Says whether to take apart a container at a path, too.
    leaf
        Says what stands for anything else.

    Raises
    ------
    ValueError
        It contains itself, or is too deep.
    TypeError
        It is of a kind that cannot be made again.
    """

    def visit(value: object, path: Path, outside: tuple[int, ...]) -> object:
        if not (is_container(value) and enter(value, path)):
            return leaf(value, path)
        if id(value) in outside:
            raise ValueError(f"{label}{place_in(path)} is a container that contains itself; pass the arrays in it")
        if len(outside) == _DEEPEST:
            raise ValueError(f"{label} is nested more than {_DEEPEST} deep; pass the arrays in it as a list")
        found = taken_apart(value)
        assert found is not None
        if not can_be_made(found.kind):
            raise TypeError(
                f"{label}{place_in(path)} is a {found.kind.__name__}, of which Ostinato cannot make a new one for "
                "every call; pass a list, tuple, dict or dataclass of its arrays, or ost.token(...) of the object"
            )
        outside = (*outside, id(value))
        pairs = zip(found.parts, found.paths(), strict=True)
        return found.with_parts([visit(part, (*path, step), outside) for part, step in pairs])

    return visit(value, (), ())


def place_in(path: Path) -> str:
    """Say where something is in an argument, for messages."""
    return f", at {''.join(path)}," if path else ""


def walk(value: object) -> Iterator[object]:
    """Return what is no container in a `Container`, or the value itself."""
    if isinstance(value, Container):
        for part in value.parts:
            yield from walk(part)
    else:
        yield value


def _base(kind: type) -> Any:
    """Return by which class containers of a kind are made, `object` for dataclasses; None for no container."""
    try:
        return _bases[kind]
    except KeyError:
        found = _bases[kind] = next(
            (base for base in (list, tuple, OrderedDict, defaultdict, dict) if issubclass(kind, base)),
            object if dataclasses.is_dataclass(kind) and not any(hasattr(kind, face) for face in _FACES) else None,
        )
        return found


_bases: WeakKeyDictionary[type, Any] = WeakKeyDictionary()


def can_be_made(kind: type) -> bool:
    """Whether items and attributes are all that an object of this class is."""
    base = _base(kind)
    if kind is base:
        return True
    names = {field.name for field in dataclasses.fields(kind)} if base is object else set()
    for each in kind.__mro__:
        slots = each.__dict__.get("__slots__", ())
        hidden = {slots} if isinstance(slots, str) else set(slots)
        if each in (base, object, dict):
            continue
        if not each.__flags__ & _HEAP_TYPE or hidden - names - {"__dict__", "__weakref__"}:
            return False
    return base is not object or kind.__new__ is object.__new__  # type: ignore[comparison-overlap]


def _with_attributes(made: Any, like: Container, parts: Sequence[Any]) -> Any:
    if like.names:
        made.__dict__.update(zip(like.names, parts[len(parts) - len(like.names) :], strict=True))
    return made


def _make_list(like: Container, parts: Sequence[Any]) -> Any:
    if like.kind is list:
        return list(parts)
    made: Any = list.__new__(like.kind)
    list.extend(made, parts[: len(parts) - len(like.names)])
    return _with_attributes(made, like, parts)


def _make_tuple(like: Container, parts: Sequence[Any]) -> Any:
    made: Any = tuple.__new__(like.kind, parts[: len(parts) - len(like.names)])
    return _with_attributes(made, like, parts)


def _make_dict(like: Container, parts: Sequence[Any]) -> Any:
    assert like.keys is not None
    if like.kind is dict:
        return dict(zip(like.keys, parts, strict=True))
    base = _base(like.kind)
    made = base.__new__(like.kind)
    if base is defaultdict:
        defaultdict.__init__(made, like.extra)  # type: ignore[call-overload]
    for key, part in zip(like.keys, parts, strict=False):  # attributes come after the values
        base.__setitem__(made, key, part)
    return _with_attributes(made, like, parts)


def _make_dataclass(like: Container, parts: Sequence[Any]) -> Any:
    made: Any = object.__new__(like.kind)
    for name, part in zip(like.names, parts, strict=True):
        object.__setattr__(made, name, part)
    return made


_MAKERS: dict[Any, Callable[[Container, Sequence[Any]], Any]] = {
    list: _make_list,
    tuple: _make_tuple,
    dict: _make_dict,
    OrderedDict: _make_dict,
    defaultdict: _make_dict,
    object: _make_dataclass,
}
