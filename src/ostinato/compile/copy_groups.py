"""Copies of units that are made together, as one op."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ostinato.compile.validity import CopyKey, Followed

__all__ = ["Activity", "CopyGroup", "copy_groups"]

Activity: TypeAlias = tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
"""When an op acts, `first` and `later`.

In the step that is number r of its run, from 0, and number s of its program, it acts if ``first[(s - r) % period, r]``,
or where `first` has no such column, if ``later[s % period]``.
"""


class CopyGroup(NamedTuple):
    """Copies for one operand of one op, between the same memories, in the same steps, on which the same ops rely."""

    op: int
    source: int
    target: int
    after: bool
    """Whether they come after the op, not before it."""
    members: tuple[tuple[int, ...], ...]
    """The units, by step modulo the period."""
    first: frozenset[int]
    """In which of a run's first steps they are made; of so many as the units' own period has."""
    later: bool
    """Whether in those that follow."""
    unit_period: int

    @property
    def period(self) -> int:
        """After how many steps the same units are copied."""
        return len(self.members)

    @property
    def activity(self) -> Activity | None:
        """When there is something to copy; None: in every step."""
        own, period = self.unit_period, self.period
        columns = max((r + 1 for r in range(own) if (r in self.first) != self.later), default=0)
        any_in = np.array([bool(units) for units in self.members])
        if not columns and self.later and any_in.all():
            return None
        since = np.arange(columns)
        phase = (np.arange(period)[:, None] + since) % period
        needed = np.array([r in self.first for r in since.tolist()], np.bool_)
        return (any_in[phase] & needed).astype(np.uint8), (any_in & self.later).astype(np.uint8)


def copy_groups(followed: Mapping[int, Followed]) -> tuple[list[CopyGroup], dict[tuple[int, CopyKey], int]]:
    """Return the groups; and for each copy of a unit, the group that it belongs to.

    Parameters
    ----------
    followed
        By unit, what it needs.
    """
    wanted: dict[tuple[int, int, int, int, bool], list[tuple[int, CopyKey]]] = {}
    for unit, found in followed.items():
        for key in sorted(found.copies):
            wanted.setdefault((key.op, key.operand, key.source, key.target, key.after), []).append((unit, key))
    groups: list[CopyGroup] = []
    of_copy: dict[tuple[int, CopyKey], int] = {}
    for (op, _, source, target, after), copies in sorted(wanted.items()):
        period = math.lcm(*{followed[unit].period for unit, _ in copies})
        alike: dict[tuple[int, frozenset[int], bool, frozenset[int]], list[tuple[int, CopyKey]]] = {}
        for unit, key in copies:
            need = followed[unit].copies[key]
            sign = (followed[unit].period, frozenset(need.first), need.later, frozenset(need.readers))
            alike.setdefault(sign, []).append((unit, key))
        for (own, first, later, _), members in alike.items():
            by_phase: list[list[int]] = [[] for _ in range(period)]
            for unit, key in members:
                of_copy[unit, key] = len(groups)
                for phase in range(key.phase, period, own):
                    by_phase[phase].append(unit)
            groups.append(CopyGroup(op, source, target, after, tuple(map(tuple, by_phase)), first, later, own))
    return groups, of_copy
