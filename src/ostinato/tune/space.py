"""Spaces of configurations."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ostinato.tune.candidate import canonical, plain

_Constraint = Callable[[dict[str, Any]], bool]


class Space:
    """The configurations that a candidate may have: every combination of values that no constraint excludes.

    Iterating makes them one by one, the last name varying fastest, so a space may be larger than memory.

    Parameters
    ----------
    parameters
        The values of each name.
    where
        A function of a configuration (a dict), or several: only configurations for which all return true belong to
        the space.

    Raises
    ------
    TypeError, ValueError
        If a name is no `str`, values are not several or equal each other, or a value has no form in JSON.

    Examples
    --------
    >>> import ostinato as ost
    >>> space = ost.Space({"tile": [16, 32, 64], "unroll": [1, 4]}, where=lambda c: c["tile"] * c["unroll"] <= 128)
    >>> len(list(space))
    5
    >>> next(iter(space))
    {'tile': 16, 'unroll': 1}
    >>> {"tile": 64, "unroll": 4} in space
    False
    """

    def __init__(
        self, parameters: Mapping[str, Iterable[Any]], where: _Constraint | Sequence[_Constraint] | None = None
    ) -> None:
        self.parameters: dict[str, tuple[Any, ...]] = {}  # what `repr` shows where this fails
        self._constraints: tuple[_Constraint, ...] = ()
        if not isinstance(parameters, Mapping):
            raise TypeError(f"a space must be made from a mapping of names to values, got {parameters!r}")
        self.parameters = {name: _values(name, values) for name, values in parameters.items()}
        constraints = () if where is None else (where,) if callable(where) else tuple(where)
        for constraint in constraints:
            if not callable(constraint):
                raise TypeError(f"where must be a function of a configuration, or a list of them, got {constraint!r}")
        self._constraints = constraints
        self._texts = {name: frozenset(map(canonical, values)) for name, values in self.parameters.items()}
        # Lists and dicts are handed out as copies, so that nobody changes the space.
        self._nested = any(isinstance(value, list | dict) for values in self.parameters.values() for value in values)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for values in itertools.product(*self.parameters.values()):
            configuration = self._configuration(values)
            if self._allows(configuration):
                yield configuration

    def __contains__(self, configuration: object) -> bool:
        if not isinstance(configuration, Mapping) or configuration.keys() != self.parameters.keys():
            return False
        try:
            values: dict[str, Any] = plain(configuration, "a configuration")
        except (TypeError, ValueError):
            return False  # no value of a space is such a thing
        return all(canonical(value) in self._texts[name] for name, value in values.items()) and self._allows(values)

    @property
    def size(self) -> int:
        """Number of combinations, those that constraints exclude included."""
        product = 1
        for values in self.parameters.values():
            product *= len(values)
        return product

    def at(self, index: int) -> dict[str, Any] | None:
        """Return the combination of a number from 0 to `size` - 1, in the order of iteration; None if it is excluded.

        Examples
        --------
        >>> import ostinato as ost
        >>> ost.Space({"tile": [16, 32], "unroll": [1, 2, 4]}).at(4)
        {'tile': 32, 'unroll': 2}
        """
        if not 0 <= index < self.size:
            raise IndexError(f"a space of {self.size} combinations has none of number {index}")
        values = []
        for choices in reversed(self.parameters.values()):
            index, place = divmod(index, len(choices))
            values.append(choices[place])
        configuration = self._configuration(values[::-1])
        return configuration if self._allows(configuration) else None

    def sample(self, rng: random.Random) -> dict[str, Any]:
        """Return one configuration, each as likely as the others.

        Raises
        ------
        ValueError
            If ten thousand tries in a row are excluded.
        """
        for _ in range(10_000):
            configuration = self._configuration([rng.choice(values) for values in self.parameters.values()])
            if self._allows(configuration):
                return configuration
        raise ValueError(f"{self!r}: the constraints exclude (nearly) every combination")

    def _configuration(self, values: Sequence[Any]) -> dict[str, Any]:
        configuration = dict(zip(self.parameters, values, strict=True))
        return copy.deepcopy(configuration) if self._nested else configuration

    def _allows(self, configuration: dict[str, Any]) -> bool:
        return all(constraint(dict(configuration)) for constraint in self._constraints)

    def __repr__(self) -> str:
        return f"Space({self.parameters!r}{', where=...' if self._constraints else ''})"


def _values(name: object, values: Iterable[Any]) -> tuple[Any, ...]:
    if not isinstance(name, str):
        raise TypeError(f"the name of a parameter must be a str, got {name!r}")
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"the values of {name!r} must be a list, got {values!r}")
    found = tuple(plain(value, f"a value of {name!r}") for value in values)
    if not found:
        raise ValueError(f"{name!r} must have at least one value")
    texts = set()
    for value in found:
        text = canonical(value)
        if text in texts:
            raise ValueError(f"the values of {name!r} must differ, got {value!r} twice")
        texts.add(text)
    return found
