"""What must become of the runs of a scene, found by going through its ops one after the other.

A graph with others nested in it becomes a list of nodes in program order, and all dependences between them: those
given, and those that follow from accesses, pair by pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from stress.scene import READ, STEPS, WRITE, Access, Item, Scene, Source, Template, calculate
from stress.watched import fails

_WORLD = Access((-1,), 0, 0, 1, 3)
"""What tasks without arrays share."""


@dataclass
class Node:
    """An op in one of its places; or the begin or the end of a nested graph."""

    kind: str
    item: Item
    row: int
    scopes: tuple[int, ...]
    sources: set[tuple[int, int]] = field(default_factory=set)  # nodes before it, with the distance in steps

    @property
    def accesses(self) -> tuple[Access, ...]:
        return self.item.accesses or ((_WORLD,) if self.kind == "task" else ())


@dataclass
class Ask:
    """What a run is asked to do, and what of it was poisoned from outside."""

    number: int
    steps: int
    seed: int = 0
    odds: int = 0
    poisoned: frozenset[str | None] = frozenset()  # names of preconditions; None for the default one


@dataclass
class Told:
    """What must become of a run; steps count from its first."""

    first: int
    steps: int
    skipped: list[set[int]]
    failed: list[set[int]]

    @property
    def failure(self) -> tuple[int, int] | None:
        """Step and node of the failure that is told."""
        found = [(self.first + step, min(nodes)) for step, nodes in enumerate(self.failed) if nodes]
        return found[0] if found else None

    @property
    def clean(self) -> bool:
        return not any(self.failed) and not any(self.skipped)

    def bad(self, node: int, step: int) -> bool:
        return node in self.failed[step] or node in self.skipped[step]


class Oracle:
    """The sequential twin of a scene's program.

    Attributes
    ----------
    determined
        Whether dependences say all there is to say about the values of arrays.
    ops
        How many ops are done in a step.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.nodes: list[Node] = []
        self.determined = True
        self._infers: list[bool] = []
        self._serial: list[bool] = []
        self._place(scene.top, 0, ())
        self._infer()
        self.ops = sum(node.kind not in ("begin", "end", "pre", "post") for node in self.nodes)
        self.take_arrays()
        self._history: list[set[int]] = []  # by step since all was told: what failed or was skipped
        self._told_at = 0
        self._share()

    # The flat graph

    def _place(self, template: Template, base: int, scopes: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """Add the nodes of a graph; return by item where edges to it go, and where those from it begin."""
        scopes = (*scopes, len(self._infers))
        self._infers.append(template.graph.infer)
        self._serial.append(template.serial or (len(scopes) > 1 and self._serial[scopes[-2]]))
        entry: list[int] = []
        leave: list[int] = []
        inner: dict[int, tuple[list[int], list[int]]] = {}
        for at, item in enumerate(template.items):
            entry.append(len(self.nodes))
            kind = "begin" if item.inner is not None else item.kind
            self.nodes.append(Node(kind, item, base + item.row if item.row >= 0 else -1, scopes))
            if item.inner is not None:
                first = base + sum(_rows(each) for each in template.items[:at])
                inner[at] = self._place(item.inner, first, scopes)
                end = len(self.nodes)
                self.nodes.append(Node("end", item, -1, scopes))
                self._enclose(entry[-1], end)
            leave.append(len(self.nodes) - 1)

        def node(source: Source) -> tuple[int, int]:
            if source.post is None:
                return leave[source.item], source.distance
            named = template.items[source.item].inner
            assert named is not None
            names = [each.name if each.kind == "post" else None for each in named.items]
            return inner[source.item][1][names.index(source.post)], source.distance

        for source, target in template.edges:
            self.nodes[entry[target]].sources.add(node(source))
        for at, item in enumerate(template.items):
            if item.inner is not None:
                for place, each in enumerate(item.inner.items):
                    if each.kind == "pre":
                        self.nodes[inner[at][0][place]].sources.update(node(source) for source in item.ports[each.name])
        return entry, leave

    def _enclose(self, begin: int, end: int) -> None:
        """All of a nested graph comes after its begin and before its end."""
        depth = len(self.nodes[begin].scopes) + 1
        for at in range(begin + 1, end):
            node = self.nodes[at]
            if len(node.scopes) == depth and node.kind != "pre":
                node.sources.add((begin, 0))
            self.nodes[end].sources.add((at, 0))
        self.nodes[end].sources.add((begin, 0))
        self.nodes[end].sources = {
            source for source in self.nodes[end].sources if self.nodes[source[0]].kind not in ("pre", "post")
        }

    def _infer(self) -> None:
        users: dict[int, list[tuple[int, Access]]] = {}
        for at, node in enumerate(self.nodes):
            for access in node.accesses:
                users.setdefault(access.arrays[0], []).append((at, access))  # rings are apart from each other
        for each in users.values():
            for a, one in each:
                for b, other in each:
                    if (one.mode | other.mode) & WRITE and one.low < other.high and other.low < one.high:
                        self._depend(a, one, b, other)

    def _depend(self, a: int, one: Access, b: int, other: Access) -> None:
        period = len(one.arrays)
        distance = (one.offset - other.offset) % period
        if distance == 0 and a >= b:
            distance = period
        scope = _common(self.nodes[a].scopes, self.nodes[b].scopes)
        if self._infers[scope]:
            self.nodes[b].sources.add((a, distance))
        elif one is not _WORLD and (a != b or not (self._serial[scope] or (a, 1) in self.nodes[b].sources)):
            self.determined = False

    def _share(self) -> None:
        """Tell the tasks of the scene what they come after: the nearest tasks before."""
        begin, sources = [0], list[int]()
        by_row = {node.row: node for node in self.nodes if node.kind == "task"}
        for row in range(len(self._scene.counts)):
            for source, distance in sorted(self._tasks_before(by_row[row])) if row in by_row else ():
                sources += [self.nodes[source].row, distance]
            begin.append(len(sources) // 2)
        self._scene.share(np.array(begin, np.int64), np.array([*sources, 0, 0], np.int64))

    def _tasks_before(self, node: Node) -> set[tuple[int, int]]:
        found: set[tuple[int, int]] = set()
        seen: set[tuple[int, int]] = set()
        waiting = list(node.sources)
        while waiting:
            at, distance = waiting.pop()
            if (at, distance) in seen or distance > 4:
                continue
            seen.add((at, distance))
            if self.nodes[at].kind == "task":
                found.add((at, distance))
            else:
                waiting += [(source, distance + more) for source, more in self.nodes[at].sources]
        return found

    # Runs

    @property
    def steps(self) -> int:
        """How many steps the program has made."""
        return self._told_at + len(self._history)

    def told(self, step: int | None = None) -> None:
        """All failures have been told; what is next is step `step`, if that is not known."""
        self._told_at = self.steps if step is None else step
        self._history = []

    def run(self, ask: Ask, values: bool = True) -> Told:
        """Run steps after those before."""
        told = Told(self.steps, 0, [], [])
        while told.steps < ask.steps:
            skipped, failed = self._step(ask, told.steps)
            told.skipped.append(skipped)
            told.failed.append(failed)
            stops = values and self._calculate(self.steps, ask, skipped)
            self._history.append(skipped | failed)
            told.steps += 1
            if stops:
                break
        return told

    def alone(self, ask: Ask) -> Told:
        """A run that has nothing to do with those before it."""
        first, self._told_at, self._history = self.steps, self.steps, []
        told = self.run(ask, values=False)
        self._told_at, self._history = first + ask.steps, []
        return told

    def take_arrays(self) -> None:
        """Take the values of arrays as they are."""
        self._arrays = [array.tolist() for array in self._scene.arrays]

    def arrays_equal(self) -> bool:
        return all(array.tolist() == values for array, values in zip(self._scene.arrays, self._arrays, strict=True))

    def _step(self, ask: Ask, step: int) -> tuple[set[int], set[int]]:
        history, skipped, failed = self._history, set[int](), set[int]()
        now = len(history)
        poisoned: frozenset[str | None] = ask.poisoned if step == 0 else frozenset()
        if not (poisoned or ask.odds or any(history)):
            return skipped, failed
        for at, node in enumerate(self.nodes):
            if self._is_skipped(at, node, poisoned, now, skipped, failed):
                skipped.add(at)
            elif node.kind == "task" and fails(node.row, self._told_at + now, ask.seed, ask.odds):
                failed.add(at)
        return skipped, failed

    def _is_skipped(
        self, at: int, node: Node, poisoned: frozenset[str | None], now: int, skipped: set[int], failed: set[int]
    ) -> bool:
        if None in poisoned:
            return True
        if node.kind == "pre" and len(node.scopes) == 1:
            return node.item.name in poisoned
        for source, distance in node.sources:
            if distance == 0:
                if source in skipped or source in failed:
                    return True
            elif distance <= now and source in self._history[now - distance]:
                return True
        return False

    def _calculate(self, step: int, ask: Ask, skipped: set[int]) -> bool:
        """Do what the ops of a step do to arrays; return whether the step is the last."""
        stops = False
        for at, node in enumerate(self.nodes):
            if at in skipped or not node.item.accesses:
                continue
            accesses = node.item.accesses
            written = [access for access in accesses if access.mode & WRITE]
            if node.kind == "fill":
                new = [[ask.number] * (access.high - access.low) for access in written]
            elif node.kind == "until":
                stops = self._arrays[accesses[0].arrays[0]][0] % 256 != 0
                continue
            else:
                read = [self._cells(access, step) for access in accesses if access.mode & READ]
                new = calculate(node.row, step, ask.number, read, [access.high - access.low for access in written])
            for access, values in zip(written, new, strict=True):
                self._arrays[access.array(step)][access.low : access.high] = values
        return stops

    def _cells(self, access: Access, step: int) -> list[int]:
        return self._arrays[access.array(step)][access.low : access.high]

    def arrivals(self, told: Told, barrier: str) -> Iterator[tuple[int, int]]:
        """Yield, for each step of a run, its number and how many arrivals are made."""
        named = [at for at, node in enumerate(self.nodes) if (node.kind, node.item.name) == ("arrive", barrier)]
        for step in range(told.steps):
            made = sum(self.nodes[at].item.count for at in named if at not in told.skipped[step])
            yield told.first + step, made

    def posts(self, told: Told) -> Mapping[str, bool]:
        """Whether each postcondition of a run is poisoned."""
        posts = [at for at, node in enumerate(self.nodes) if node.kind == "post" and len(node.scopes) == 1]
        return {self.nodes[at].item.name: told.steps > 0 and at in told.skipped[-1] for at in posts}

    def counts_differ(self, told: Told, number: int) -> str:
        """Say how the log of a run is not what it must be; nothing if it is."""
        for step in range(told.steps):
            column = told.first + step
            if column >= STEPS:
                break
            for at, node in enumerate(self.nodes):
                if node.kind == "task":
                    expected = 0 if at in told.skipped[step] else number + 1
                    if (found := self._scene.counts[node.row, column]) != expected:
                        return f"{node.item.op!r}, row {node.row}, step {column}: {found} instead of {expected}"
        return ""


def _rows(item: Item) -> int:
    return item.inner.rows if item.inner is not None else int(item.row >= 0)


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return [a for a, b in zip(one, other, strict=False) if a == b][-1]
