"""The channels of a step, as ranks tell each other about them, and whether both ends of each agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from ostinato.graph.messages import Message

if TYPE_CHECKING:
    from ostinato.graph.op import Op


class End(NamedTuple):
    """One end of a channel: a send or a receive of one rank."""

    sends: bool
    peer: int
    shape: tuple[int, ...]
    dtype: str
    line: str
    after: tuple[int, ...]
    """Which ends of this rank must be done before, in the same step."""

    def describe(self, rank: int) -> str:
        """Say which rank does what, and where that was recorded."""
        verb, to = ("sends", "to") if self.sends else ("receives", "from")
        return f"rank {rank} {verb} shape {self.shape}, {self.dtype}, {to} rank {self.peer} at {self.line}"


class Common(NamedTuple):
    """What must be the same on all ranks that a program's arrays are spread over."""

    arrays: Mapping[int, str]
    """The distributed arrays that a rank uses: by number, how each is distributed."""
    operations: tuple[str, ...]
    """What is recorded for all ranks, or for one that is named, in order."""
    winners: str = ""
    """A digest of the variants that the ranks agreed to run."""


NOTHING_IN_COMMON = Common({}, ())


def find_difference(ranks: Sequence[Common]) -> str:
    """Say what ranks have made or recorded differently, given what each has; nothing if all is the same."""
    known: dict[int, tuple[int, str]] = {}
    for rank, common in enumerate(ranks):
        if common.winners != ranks[0].winners:
            return (
                f"rank {rank} compiles with other variants of tasks than rank 0; compile programs in one thread, and "
                "in the same order on all ranks"
            )
        for number, words in sorted(common.arrays.items()):
            first, wanted = known.setdefault(number, (rank, words))
            if words != wanted:
                return (
                    f"distributed array {number} differs: on rank {first} it has {wanted}, on rank {rank} {words}; all "
                    "ranks must make the same arrays, in the same order"
                )
    for rank, common in enumerate(ranks):
        for ours, theirs in zip_longest(ranks[0].operations, common.operations):
            if ours != theirs:
                here, there = (words or "nothing" for words in (ours, theirs))
                return (
                    f"rank 0 records {here}, where rank {rank} records {there}; all ranks must record what runs on all "
                    "of them or on a rank that is named, in the same order: not in a loop over tiles(near=...)"
                )
    return ""


def find_ends(ops: Sequence[Op], edges: Iterable[tuple[int, int, int]]) -> list[End]:
    """Return the ends of a step's channels in program order; edges are triples (before, after, distance)."""
    messages = {op.index: number for number, op in enumerate(op for op in ops if isinstance(op.body, Message))}
    before: list[list[int]] = [[] for _ in ops]
    for src, dst, distance in edges:
        if distance == 0 and src < len(ops) and dst < len(ops):
            before[dst].append(src)
    known: dict[int, frozenset[int]] = {}
    ends = []
    for op in ops:
        if isinstance(op.body, Message):
            array = op.body.operand.arrays[0]
            after = frozenset().union(*(_messages_up_to(src, before, messages, known) for src in before[op.index]))
            line = f"{op.call_site}"
            ends.append(End(op.body.sends, op.body.peer, array.shape, str(array.dtype), line, tuple(sorted(after))))
    return ends


def _messages_up_to(
    op: int, before: list[list[int]], messages: dict[int, int], known: dict[int, frozenset[int]]
) -> frozenset[int]:
    """Return the messages nearest before an op, itself included, by their numbers."""
    waiting = [op]
    while waiting:
        at = waiting[-1]
        missing = [each for each in before[at] if each not in known and at not in messages]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        if at not in known:
            if at in messages:
                known[at] = frozenset((messages[at],))
            else:
                known[at] = frozenset().union(*(known[each] for each in before[at]))
    return known[op]


def find_mismatch(ends: Sequence[Sequence[End]]) -> str:
    """Say what does not fit together, or which messages wait for each other, given the ends of every rank."""
    places: dict[tuple[int, int, bool], list[tuple[int, int]]] = {}
    for rank, own in enumerate(ends):
        for place, end in enumerate(own):
            pair = (rank, end.peer, True) if end.sends else (end.peer, rank, False)
            places.setdefault(pair, []).append((rank, place))
    matched: dict[tuple[int, int], tuple[int, int]] = {}
    for source, target, _ in sorted(places):
        sent, received = (places.get((source, target, sends), []) for sends in (True, False))
        for out, into in zip_longest(sent, received):
            if out is None or into is None:
                rank, place = out or into
                here, there = (source, target) if into is None else (target, source)
                other = "receives nothing that matches it" if into is None else "sends nothing that matches it"
                last = _last_line(ends[there], here, sends=into is not None)
                return f"{ends[rank][place].describe(rank)}, but rank {there} {other}{last}"
            a, b = (ends[rank][place] for rank, place in (out, into))
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                return f"{a.describe(source)}, but {b.describe(target)}"
            matched[into] = out
    return _find_cycle(ends, matched)


def _last_line(ends: Sequence[End], peer: int, sends: bool) -> str:
    """Say where a rank recorded its last message in a direction."""
    same = [end for end in ends if end.peer == peer and end.sends is sends]
    count = len(same)
    return f": it has {count} such message{'s' * (count != 1)}, the last one at {same[-1].line}" if same else ""


def _find_cycle(ends: Sequence[Sequence[End]], matched: dict[tuple[int, int], tuple[int, int]]) -> str:
    """Say which messages wait for each other within a step (Kahn 1962); nothing if none do."""
    needs = {
        (rank, place): [*((rank, each) for each in end.after), *filter(None, [matched.get((rank, place))])]
        for rank, own in enumerate(ends)
        for place, end in enumerate(own)
    }
    needed_by: dict[tuple[int, int], list[tuple[int, int]]] = {each: [] for each in needs}
    for each, before in needs.items():
        for other in before:
            needed_by[other].append(each)
    left = {each: len(before) for each, before in needs.items()}
    ready = [each for each, count in left.items() if count == 0]
    while ready:
        done = ready.pop()
        del left[done]
        for each in needed_by[done]:
            left[each] -= 1
            if left[each] == 0:
                ready.append(each)
    if not left:
        return ""
    at = min(left)
    path: list[tuple[int, int]] = []
    while at not in path:
        path.append(at)
        at = next(each for each in needs[at] if each in left)
    cycle = path[path.index(at) :]
    lines = "; ".join(ends[rank][place].describe(rank) for rank, place in cycle)
    return f"these messages of one step wait for each other: {lines}"
