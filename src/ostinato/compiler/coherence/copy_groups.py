"""Copies of units that are made together, as one op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato.compiler.coherence.validity import CopyKey, OfUnit

__all__ = ["Activity", "CopyGroup", "copy_groups"]

Activity: TypeAlias = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
"""When an op acts, `first` and `later`.

In the step that is number r of its run, from 0, and number s of its program, it acts if ``first[(s - r) % period, r]``,
or where `first` has no such column, if ``later[s % period]``.
"""


class CopyGroup(NamedTuple):
    """Copies between the same memories, in the same steps, which one op needs, or is the first to need."""

    op: int
    source: int
    target: int
    after: bool
    """Whether they come after the op, not before it."""
    members: tuple[tuple[int, ...], ...]
    """The units, by step modulo the period."""
    first: frozenset[int]
    """In which of a run's first steps they are made; of so many as the period has."""
    later: bool
    """Whether in those that follow."""

    @property
    def period(self) -> int:
        """After how many steps the same units are copied."""
        return len(self.members)

    @property
    def activity(self) -> Activity | None:
        """When there is something to copy; None: in every step."""
        return _activity(self.first, self.later, tuple(map(bool, self.members)))


@lru_cache(256)
def _activity(first: frozenset[int], later: bool, any_in: tuple[bool, ...]) -> Activity | None:
    """Return when there is something to copy, by steps modulo the period; the arrays are not to be changed."""
    period = len(any_in)
    columns = max((r + 1 for r in range(period) if (r in first) != later), default=0)
    some = np.array(any_in)
    if not columns and later and some.all():
        return None
    since = np.arange(columns)
    phase = (np.arange(period)[:, None] + since) % period
    needed = np.array([r in first for r in since.tolist()], np.bool_)
    return (some[phase] & needed).astype(np.uint8), (some & later).astype(np.uint8)


def copy_groups(
    followed: Mapping[int, OfUnit], allocation_of: Callable[[int], int], sequence: Sequence[int]
) -> tuple[list[CopyGroup], dict[tuple[int, int], int]]:
    """Return the groups; and by unit and place among its nodes, the group that a copy belongs to.

    What is copied once in a run, as it was when the run began, is copied for all ops together, before the first that
    needs some of it.

    Parameters
    ----------
    followed
        By unit, what it needs.
    allocation_of
        Gives for a unit the allocation that it is part of.
    sequence
        The ops in an order that agrees with what comes after what.
    """
    position = {op: place for place, op in enumerate(sequence)}
    wanted = [
        (position[key.op], key, unit, place) for unit, of_unit in followed.items() for place, key, _ in of_unit.copies()
    ]
    alike: dict[tuple[object, ...], list[tuple[CopyKey, int, int]]] = {}
    for _, key, unit, place in sorted(wanted):
        found, ops = followed[unit]
        need = found.copies[place]
        for_all = frozenset([ops[reader] for reader in need.readers]), need.initial, need.later
        alike.setdefault((*key[:4], key.after, found.period, frozenset(need.first), for_all), []).append(
            (key, unit, place)
        )
    together: dict[tuple[object, ...], list[tuple[CopyKey, int, int]]] = {}
    for number, copies in enumerate(alike.values()):
        key, unit, place = copies[0]
        found = followed[unit].found
        need = found.copies[place]
        if need.initial and not need.later and not key.after:
            where = frozenset([(each.phase, allocation_of(of)) for each, of, _ in copies])
            sign = (key.source, key.target, frozenset(need.first), found.period, where)
            together.setdefault(sign, []).extend(copies)
        else:
            together[number,] = copies
    groups: list[CopyGroup] = []
    of_copy: dict[tuple[int, int], int] = {}
    for copies in together.values():
        key, unit, place = copies[0]
        found = followed[unit].found
        need = found.copies[place]
        by_phase: list[list[int]] = [[] for _ in range(found.period)]
        for each, of, node in copies:
            of_copy[of, node] = len(groups)
            by_phase[each.phase].append(of)
        members = tuple(map(tuple, by_phase))
        groups.append(CopyGroup(key.op, key.source, key.target, key.after, members, frozenset(need.first), need.later))
    return groups, of_copy
