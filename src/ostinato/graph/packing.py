"""Calls with containers among their arguments, recorded as calls of what the containers hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Any, TypeAlias

from ostinato.errors import ContractError
from ostinato.graph.containers import Container, walk

__all__ = ["Packing", "pack"]

Values: TypeAlias = tuple[object, ...]


class Packing:
    """How the arguments of a call are made of a flat list of values, the *leaves*.

    Attributes
    ----------
    keywords
        The names of the last arguments.
    forms
        By argument, a `Container` that has None where leaves go, or None for an argument that is a leaf itself.
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

    def where(self, place: int) -> tuple[int, str]:
        """Return which argument the leaf at a place is in, and where in that, as Python would write it."""
        rest = place
        for argument, form in enumerate(self.forms):
            paths = [*_paths(form)]
            if rest < len(paths):
                return argument, paths[rest]
            rest -= len(paths)
        raise IndexError(place)

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
        place = 0
        for form in packing.forms:
            maker = _maker(form, place)
            self._arguments.append(maker)
            place = place + 1 if isinstance(maker, int) else maker.end

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


def _maker(form: object, place: int) -> int | _Maker:
    return _Maker(form, place) if isinstance(form, Container) else place
