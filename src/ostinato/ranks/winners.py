"""Which variants of tasks the ranks of a program run: on all ranks those that one rank's store knows to be the fastest.

Stores of hosts differ. Each rank tells which variants it has, and what its store knows of them (`Offer`). What the
first rank knows that knows anything counts for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias


class Offer(NamedTuple):
    """The variants of a task for arrays of some shapes, as a rank has them, and what its store knows of them."""

    task: str
    variants: tuple[str, ...]
    """What messages call them, the task itself first."""
    source: str | None
    """A digest of their code; None if another process cannot tell what they are."""
    winner: str = ""
    """The fastest one; empty if the rank does not know."""
    record: bytes = b""
    """What was measured, pickled; empty if nothing was."""


Offers: TypeAlias = Mapping[str, Offer]
"""By what identifies the task, its arrays and the kind of processor."""


class Winners(NamedTuple):
    """What all ranks compile with."""

    digest: str
    records: Mapping[str, bytes]
    """By the keys of `Offers`."""


NO_WINNERS = Winners("", {})


def choose_winners(ranks: Sequence[Offers | None]) -> tuple[Winners, str]:
    """Return what all ranks compile with, and what is wrong; empty if nothing is.

    `ranks`: the offers of each rank; None where it was given costs instead of a store.

    Examples
    --------
    >>> fast = Offer("relax", ("relax", "fast"), None, "fast", b"measured")
    >>> winners, problem = choose_winners([{"key": fast._replace(winner="", record=b"")}, {"key": fast}])
    >>> winners.records, problem
    ({'key': b'measured'}, '')
    """
    found: dict[str, tuple[int, Offer]] = {}
    for rank, offers in enumerate(ranks):
        for key, offer in (offers or {}).items():
            if offer.record:
                found.setdefault(key, (rank, offer))
    for key, (first, chosen) in found.items():
        for rank, offers in enumerate(ranks):
            problem = _find_problem(first, chosen, rank, None if offers is None else offers.get(key, chosen))
            if problem:
                return NO_WINNERS, problem
    if not found:
        return NO_WINNERS, ""
    digest = blake2b(digest_size=16)
    for key, (_, chosen) in sorted(found.items()):
        digest.update(repr((key, chosen.winner, chosen.record)).encode())
    records = {key: chosen.record for key, (_, chosen) in found.items()}
    return Winners(digest.hexdigest(), records), ""


def _find_problem(first: int, chosen: Offer, rank: int, own: Offer | None) -> str:
    """Say why a rank cannot run what another one knows to be the fastest."""
    told = f"{chosen.task!r}: by the store of rank {first}, {chosen.winner or 'no variant'} is the one to run"
    if own is None:
        return f"{told}, but rank {rank} was given costs=; give all ranks the same costs="
    if chosen.winner not in ("", *own.variants):
        return f"{told}, but rank {rank} has {', '.join(own.variants)}; declare the same variants on all ranks"
    if own.variants != chosen.variants:
        both = (f"rank {at} has {', '.join(each.variants)}" for at, each in ((first, chosen), (rank, own)))
        return f"{told}, but {' and '.join(both)}; declare the same variants on all ranks, in the same order"
    if own.source != chosen.source and None not in (own.source, chosen.source):
        return f"{told}, but the code of its variants on rank {rank} differs; install the same version for all ranks"
    return ""
