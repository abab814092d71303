"""Containers among the arguments of tasks: taken apart, made again, refused."""

from __future__ import annotations

import dataclasses
import enum
from collections import ChainMap, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from numbers import Number
from operator import is_
from types import BuiltinFunctionType, EllipsisType, FunctionType, MappingProxyType, ModuleType, SimpleNamespace
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

import numpy as np

from ostinato.errors import ContractError
from ostinato.graph.arrays import as_ndarray, is_array
from ostinato.graph.param import NoValue
from ostinato.graph.ring import Ring, RingElement

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
    """The structure of a container: the `keys` of a dict; the `names` of attributes, or of the fields of a dataclass.

    `parts` are its items or values, then its attributes; what is a container among them is a `Container`, too.
    `extra` is what else one of this `kind` is made with: the factory of a `defaultdict`.
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
        kind, count = self.kind, len(parts) - len(self.names)
        if kind is list or kind is tuple:
            return kind(parts)
        if kind is dict:
            return dict(zip(self.keys or (), parts, strict=True))
        base = _base(kind)
        made: Any = tuple.__new__(kind, parts[:count]) if base is tuple else base.__new__(kind)
        if base is object:  # a dataclass, which may be frozen
            for name, part in zip(self.names, parts, strict=True):
                object.__setattr__(made, name, part)
            return made
        if base is list:
            list.extend(made, parts[:count])
        elif base is defaultdict:
            defaultdict.__init__(made, self.extra)  # type: ignore[call-overload]
        for key, part in zip(self.keys or (), parts, strict=False):  # attributes come after the values
            base.__setitem__(made, key, part)
        if self.names:
            made.__dict__.update(zip(self.names, parts[count:], strict=True))
        return made

    def is_unchanged(self, made: Any, parts: Sequence[Any]) -> bool:
        """Whether a container that was made with these parts still has them, and no others."""
        if self.kind is tuple:
            return True
        now = take_apart(made)
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
        for index in range(count):
            yield f"[{index if self.keys is None else self.keys[index]!r}]"
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


def take_apart(value: Any) -> Container | None:
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
    found = take_apart(value)
    return opaque(value) if found is None else found.parts


def opaque(value: Any) -> Sequence[object]:
    """Return what is in a container of the standard library that is not taken apart; nothing for the rest."""
    if isinstance(value, SimpleNamespace):
        return tuple(vars(value).values())
    if isinstance(value, UserDict | ChainMap | MappingProxyType):
        return tuple(value.values())
    if isinstance(value, _OPAQUE):
        return tuple(cast("Iterable[object]", value))
    return ()


def map_leaves(value: object, label: str, enter: Enter, leaf: Leaf) -> object:
    """Return a container as a `Container` with something else in place of its parts.

    `label` is what messages call it; `enter` says whether to take apart a container at a path, too; `leaf` says what
    stands for anything else. Raises `ValueError` for one that contains itself or is too deep, and `TypeError` for one
    that cannot be made again.
    """

    def visit(value: object, path: Path, outside: tuple[int, ...]) -> object:
        if not (is_container(value) and enter(value, path)):
            return leaf(value, path)
        if id(value) in outside:
            raise ValueError(f"{label}{format_path(path)} is a container that contains itself; pass the arrays in it")
        if len(outside) == _DEEPEST:
            raise ValueError(f"{label} is nested more than {_DEEPEST} deep; pass the arrays in it as a list")
        found = take_apart(value)
        assert found is not None
        if not can_be_made(found.kind):
            raise TypeError(
                f"{label}{format_path(path)} is a {found.kind.__name__}, of which Ostinato cannot make a new one for "
                "every call; pass a list, tuple, dict or dataclass of its arrays, or ost.token(...) of the object"
            )
        outside = (*outside, id(value))
        pairs = zip(found.parts, found.paths(), strict=True)
        return found.with_parts([visit(part, (*path, step), outside) for part, step in pairs])

    return visit(value, (), ())


def format_path(path: Path) -> str:
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


Values: TypeAlias = tuple[object, ...]


class Packing:
    """How the arguments of a call are made of a flat list of values, the *leaves*; `keywords` names the last arguments.

    By argument, `forms` has a `Container` that has None where leaves go, or None for an argument that is a leaf itself.
    """

    __slots__ = ("forms", "keywords")

    def __init__(self, forms: Values, keywords: tuple[str, ...]) -> None:
        self.forms = forms
        self.keywords = keywords

    def arguments(self, leaves: Sequence[object]) -> Values:
        """Return the positional, then the keyword values, with a `Container` for each container."""
        rest = iter(leaves)
        return tuple(_filled(form, rest) for form in self.forms)

    def called(self, task: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of the leaves that calls a function with the arguments made of them."""
        return _Packed(self, task, function)

    def where(self, index: int) -> tuple[int, str]:
        """Return which argument the leaf at an index is in, and where in that, as Python would write it."""
        rest = index
        for argument, form in enumerate(self.forms):
            paths = [*_paths(form)]
            if rest < len(paths):
                return argument, paths[rest]
            rest -= len(paths)
        raise IndexError(index)

    @property
    def shape(self) -> Values:
        """What is equal for calls that differ in their leaves only."""
        return (self.keywords, *(form.shape if isinstance(form, Container) else None for form in self.forms))

    @property
    def text(self) -> list[str]:
        """The same as text, equal in every process."""
        return [form.text if isinstance(form, Container) else "" for form in self.forms]


def pack(values: Values, keywords: tuple[str, ...]) -> tuple[Values, Packing]:
    """Return the leaves of positional, then keyword values, and how these are made of them."""
    leaves = tuple(leaf for value in values for leaf in walk(value))
    return leaves, Packing(tuple(map(_form, values)), keywords)


def _form(value: object) -> object:
    return value.with_parts(map(_form, value.parts)) if isinstance(value, Container) else None


def _filled(form: object, leaves: Iterator[object]) -> object:
    if isinstance(form, Container):
        return form.with_parts([_filled(part, leaves) for part in form.parts])
    return next(leaves)


def _paths(form: object) -> Iterator[str]:
    if not isinstance(form, Container):
        yield ""
        return
    for step, part in zip(form.paths(), form.parts, strict=True):
        yield from (step + rest for rest in _paths(part))


class _Packed:
    """A function of leaves. Each call makes new containers, so what one call does to them is seen by no other."""

    __slots__ = ("_arguments", "_function", "_keywords", "_task")

    def __init__(self, packing: Packing, task: str, function: Callable[..., Any]) -> None:
        self._task = task
        self._function = function
        self._keywords = packing.keywords
        self._arguments: list[int | _Maker] = []
        index = 0
        for form in packing.forms:
            maker = _maker(form, index)
            self._arguments.append(maker)
            index = index + 1 if isinstance(maker, int) else maker.end

    def __call__(self, *leaves: Any) -> Any:
        made: list[_Made] = []
        values = [leaves[each] if type(each) is int else each(leaves, made) for each in self._arguments]  # type: ignore[operator]
        if self._keywords:
            count = len(values) - len(self._keywords)
            result = self._function(*values[:count], **dict(zip(self._keywords, values[count:], strict=True)))
        else:
            result = self._function(*values)
        for container, value, parts in made:
            if not (
                len(value) == len(parts) and all(map(is_, value, parts))
                if container.kind is list
                else container.is_unchanged(value, parts)
            ):
                raise self._changed(value)
        return result

    def _changed(self, value: object) -> ContractError:
        kind = type(value).__name__
        return ContractError(
            f"{self._task}() changed a {kind} that holds arrays. Every call gets a new {kind}, so the change would be "
            f"lost: write to the arrays in it, or pass ost.token(...) of the {kind} and declare its arrays as other "
            "arguments"
        )


_Made: TypeAlias = tuple[Container, Any, Sequence[Any]]


class _Maker:
    """Makes a container of the leaves from `begin` to `end`."""

    __slots__ = ("_container", "_parts", "begin", "end")

    def __init__(self, container: Container, begin: int) -> None:
        self._container = container
        self.begin = self.end = begin
        parts: list[int | _Maker] = []
        for part in container.parts:
            maker = _maker(part, self.end)
            parts.append(maker)
            self.end = self.end + 1 if isinstance(maker, int) else maker.end
        self._parts = None if all(isinstance(part, int) for part in parts) else parts

    def __call__(self, leaves: tuple[Any, ...], made: list[_Made]) -> Any:
        parts: Sequence[Any] = (
            leaves[self.begin : self.end]
            if self._parts is None
            else [leaves[each] if type(each) is int else each(leaves, made) for each in self._parts]  # type: ignore[operator]
        )
        value = self._container.make(parts)
        made.append((self._container, value, parts))
        return value


def _maker(form: object, index: int) -> int | _Maker:
    return _Maker(form, index) if isinstance(form, Container) else index


class Token:
    """An object that is a token, whatever it is; made by `token`. Tasks receive its `value`."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"<token of a {type(self.value).__name__}>"


def token(obj: Any) -> Any:
    """Make a token of any object, to be passed to a parameter annotated `Read`, `Write` or `ReadWrite`.

    The task receives `obj`. Ops that name the same object are ordered as if it were an array. Ostinato does not look
    for arrays in it: declare those as arguments of their own.

    Most objects that are no arrays are tokens by themselves. Numbers, strings and lists of arrays are not, for
    example, and neither is an object that holds its data in memory of its own, such as a pandas Series.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> @ost.task
    ... def collect(x: ost.Read, found: ost.ReadWrite):
    ...     found.append(x.sum())
    >>> x, found = np.ones(3), [np.float64(0)]
    >>> with ost.capture() as graph:
    ...     op = collect(x, ost.token(found))
    >>> with graph.compile() as program:
    ...     steps = program.replay(2)
    >>> len(found)
    3
    """
    return obj if isinstance(obj, Token) else Token(obj)


PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), np.float64, np.float32, np.int64})
"""Types that need no look at whether they are plain values."""

_VALUES = (Number, str, np.generic, type(None))
_CONSTANTS = (
    *_VALUES,
    bytes,
    type,
    FunctionType,
    BuiltinFunctionType,
    ModuleType,
    EllipsisType,
    Enum,
    slice,
    range,
    np.dtype,
    np.ufunc,
)
_OF_DATA = ("__array__", "__dataframe__", "__array_interface__", "__array_struct__")


def is_value(value: object) -> bool:
    """Whether an object is a value, which has no memory that calls could share."""
    return isinstance(value, _VALUES)


def is_constant(value: object) -> bool:
    """Whether an object is plainly one that no task changes."""
    return type(value) in PLAIN or isinstance(value, _CONSTANTS)


def refusal_of(value: object) -> str | None:
    """Say why an object that is no array cannot be passed where an access is declared; None where it can."""
    if is_value(value):
        shown = value.item() if isinstance(value, np.generic) else value
        kind = "None" if value is None else f"the {type(value).__name__} {shown!r}"
        return (
            f"must be an array, got {kind}: a value has no memory that tasks could share. Pass an array, such as the "
            "slice x[:1] where x[0] is meant, or declare no access for this parameter"
        )
    if any(hasattr(type(value), name) for name in _OF_DATA):
        return (
            f"must be an array, got a {type(value).__name__}, which does not show the memory of its data: pass "
            "s.to_numpy() or numpy.asarray(s) of it. Pass ost.token(s) where the object itself is meant, and no array "
            "shares its data"
        )
    return None


def opaque_refusal(value: object) -> str:
    """Say why a container that holds arrays, and is not taken apart, is refused."""
    return f"is a {type(value).__name__} of arrays: pass a list, tuple or dict of them, or ost.token(...) of the object"


def is_accessed(value: object) -> bool:
    """Whether what is found in a container counts as an array there, or is refused like one."""
    if type(value) in PLAIN:
        return False
    if isinstance(value, np.ndarray | RingElement | Ring | Token | NoValue):
        return True
    if isinstance(value, bytes) or is_value(value):
        return False
    return refusal_of(value) is not None or as_ndarray(value) is not None


def holding(container: object) -> frozenset[int]:
    """Return the `id` of each container within a container, itself included, that has arrays in it, at any depth."""
    held_by: dict[int, list[int]] = {}
    found: list[int] = []
    for part, outside in _inside(container):
        held_by.setdefault(id(part), []).append(outside)
        if not is_container(part) and is_accessed(part):
            found.append(id(part))
    marked: set[int] = set()
    while found:
        for outside in held_by.get(found.pop(), ()):
            if outside not in marked:
                marked.add(outside)
                found.append(outside)
    return frozenset(marked)


def array_in(value: object) -> object:
    """Return an array, a ring element or a parameter among what is passed as a plain argument; None without any."""
    return next((part for part, _ in _inside(value) if _is_no_plain_value(part)), None)


def _is_no_plain_value(value: object) -> bool:
    if type(value) in PLAIN:
        return False
    return isinstance(value, RingElement | Ring | NoValue | memoryview) or is_array(value)


def _inside(value: object) -> Iterator[tuple[Any, int]]:
    """All that is in a container, at any depth, with the `id` of what holds it; values of plain types are left out."""
    waiting = [value]
    seen = {id(value): value}  # kept, so that each id stays that of one object
    while waiting:
        outside = waiting.pop()
        parts = parts_of(outside)
        if not parts or set(map(type, parts)) <= PLAIN:
            continue
        for part in parts:
            if type(part) in PLAIN:
                continue
            yield part, id(outside)
            if id(part) not in seen:
                seen[id(part)] = part
                waiting.append(part)
