"""Random graphs of every kind of op, nested in each other, whose tasks log what they do and check their place."""

from __future__ import annotations

import ctypes
import operator
import time
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

import ostinato as ost
from native import load
from stress.watched import fails

STEPS = 640
"""How many steps of a program are counted."""

EXCLUSIVE = 1 << 20
"""The weight of an exclusive holder; as in soak.c."""

READ, WRITE = 1, 2
_MODES = {1: ost.Read, 2: ost.Write, 3: ost.ReadWrite}
_CELLS = 6
_MASK = 2**64 - 1


@dataclass(frozen=True)
class Access:
    """One of `arrays`, or of a ring with this offset, from `low` to `high`."""

    arrays: tuple[int, ...]
    offset: int
    low: int
    high: int
    mode: int

    def array(self, step: int) -> int:
        return self.arrays[(step + self.offset) % len(self.arrays)]


@dataclass(frozen=True)
class Source:
    """What stands in ``after=``: an item, or a postcondition of it, some steps before."""

    item: int
    post: str | None = None
    distance: int = 0


@dataclass
class Item:
    """An op of a graph, wherever that is nested; `row` counts from the row of the graph's place."""

    kind: str
    op: Any
    name: str = ""
    row: int = -1
    accesses: tuple[Access, ...] = ()
    inner: Template | None = None
    ports: dict[str, list[Source]] = field(default_factory=dict)
    count: int = 0
    closed: bool = False  # nothing else shall be put before it


@dataclass
class Template:
    """A graph, and what the soak knows of it."""

    graph: ost.Graph
    items: list[Item] = field(default_factory=list)
    edges: list[tuple[Source, int]] = field(default_factory=list)
    rows: int = 0

    def names(self, kind: str) -> list[str]:
        return [item.name for item in self.items if item.kind == kind]

    @property
    def serial(self) -> bool:
        """Whether each step begins when the one before has ended."""
        ports = (source for item in self.items for sources in item.ports.values() for source in sources)
        far = any(source.distance for source, _ in self.edges) or any(source.distance for source in ports)
        return not self.graph.infer and not far


class _Shared(ctypes.Structure):
    _fields_ = (
        ("counts", ctypes.c_void_p),
        ("steps", ctypes.c_int64),
        ("violations", ctypes.c_int64),
        ("begin", ctypes.c_void_p),
        ("sources", ctypes.c_void_p),
        ("holders", ctypes.c_void_p),
        ("seen", ctypes.c_int64 * 4),
    )


@dataclass(frozen=True)
class Features:
    """What a scene may have in it.

    `barriers` are pairs of a barrier and of how often a step arrives there; `held` says which reservation runs hold,
    and whether alone: their graph is but one task.
    """

    arrays: bool = True
    ports: bool = True
    nested: bool = True
    reservations: tuple[ost.Reservation, ...] = ()
    barriers: tuple[tuple[ost.Barrier, int], ...] = ()
    given_barrier: bool = False
    blocking: bool = False
    until: bool = False
    held: tuple[int, bool] | None = None


class Scene:
    """A random graph; parameters `run`, `floor`, `seed`, `odds` and `gate` say what its tasks do in a run.

    Attributes
    ----------
    top
        The graph.
    counts
        By row and step: one more than the number of the run that ran the task; a sum if several did.
    arrays
        What tasks work on.
    """

    def __init__(self, random: Random, cpus: int, features: Features, holders: npt.NDArray[np.int64]) -> None:
        self.random = random
        self.features = features
        self.arrays: list[npt.NDArray[np.int64]] = []
        self._holders = holders
        self._shared = _Shared()
        self._cpus = cpus
        self._bound, self._python = random.choice([0, 0.3, 1]), random.choice([0, 0, 0.1, 0.5])
        self._spin = random.choice([0, 10, 100])
        self._pool = [self._array() for _ in range(random.randint(1, 4))]
        self._rings = [tuple(self._array() for _ in range(length)) for length in random.choice([(), (2,), (3, 2)])]
        self._made: list[Template] = []
        self.flag = self._array() if features.until else None
        self.top = self._template(0, random.choice([1, 2, 4, 8, 12]))
        self.counts: npt.NDArray[np.int64] = np.zeros((max(self.top.rows, 1), STEPS), np.int64)

    @property
    def violations(self) -> str:
        """What ran before what it comes after, or beside who may not; the first only."""
        run, row, step, source = self._shared.seen
        what = "beside another holder" if source < 0 else f"before row {source}, which it comes after"
        return f"run {run} did row {row} in step {step} {what}" if self._shared.violations else ""

    def share(self, begin: npt.NDArray[np.int64], sources: npt.NDArray[np.int64]) -> None:
        """Tell tasks what they come after: by row, where pairs of a row and a distance begin."""
        self._kept = begin, sources
        pointers = [array.ctypes.data for array in (begin, sources, self._holders)]
        self._shared.counts, self._shared.steps = self.counts.ctypes.data, STEPS
        self._shared.begin, self._shared.sources, self._shared.holders = pointers

    def _array(self) -> int:
        self.arrays.append(np.array([self.random.randrange(1000) for _ in range(_CELLS)], np.int64))
        return len(self.arrays) - 1

    # Graphs

    def _template(self, depth: int, size: int) -> Template:
        random = self.random
        made = Template(ost.Graph(infer=random.random() < 0.6 or (depth == 0 and self.features.until)))
        if self.features.ports:
            for k in range(0 if self.features.held else random.choice([0, 0, 1, 2])):
                made.items.append(Item("pre", made.graph.precondition(f"pre {k}"), f"pre {k}"))
        conditions = len(made.items)
        if self.features.held is not None:
            which, exclusive = self.features.held
            self._record(made, (), [], which, EXCLUSIVE if exclusive else 1)
            return made
        for _ in range(size):
            self._add(made, depth)
        if depth == 0:
            self._add_ends(made)
        for _ in range(int(size * random.choice([0, 0, 0.5, 1]))):
            self._add_edge(made)
        for at in range(conditions):  # each is followed by something
            self._link(made, Source(at), random.choice(self._open(made)))
        if self.features.ports:
            for k in range(random.choice([0, 1, 2])):
                self._add_post(made, f"post {k}")
        self._made.append(made)
        return made

    def _add(self, made: Template, depth: int) -> None:
        random, chance = self.random, self.random.random()
        if depth < 3 and self.features.nested and chance < 0.15 and self._open(made):
            known = [each for each in self._made if each.rows <= 20]
            fresh = not known or random.random() < 0.5
            inner = self._template(depth + 1, random.choice([1, 2, 4])) if fresh else random.choice(known)
            self._add_nested(made, inner, depth)
        elif chance < 0.25 and self.features.reservations:
            self._add_section(made)
        elif chance < 0.32 and self.features.arrays:
            access = self._access(made, WRITE)
            op = made.graph.fill(self._operand(made, access), made.graph.param("run", 0), self._after(made))
            made.items.append(Item("fill", op, accesses=(access,)))
        else:
            self._add_task(made, blocking=self.features.blocking and chance < 0.4)

    def _add_task(self, made: Template, blocking: bool = False) -> None:
        random = self.random
        accesses: list[Access] = []
        if self.features.arrays:
            accesses = [self._access(made, random.choice([1, 2, 3])) for _ in range(random.choice([0, 1, 1, 2, 3]))]
        if accesses and not made.graph.infer and random.random() < 0.7:  # of its own, and in the order of steps
            accesses = [Access((self._array(),), 0, 0, _CELLS, 3)]
        self._record(made, tuple(accesses), self._after(made), blocking=blocking)
        if accesses and not made.graph.infer and random.random() < 0.9:
            self._link(made, Source(len(made.items) - 1, distance=1), len(made.items) - 1)

    def _record(
        self,
        made: Template,
        accesses: tuple[Access, ...],
        after: list[Any],
        reservation: int = 0,
        weight: int = 0,
        blocking: bool = False,
    ) -> None:
        random, graph = self.random, made.graph
        row = made.rows
        made.rows += 1
        operands = [self._operand(made, access) for access in accesses]
        at = graph.param(f"at {row}", row, operator.add)
        scalars = [at, *(graph.param(name, 0) for name in ("run", "floor", "seed", "odds")), reservation, weight]
        modes = tuple(access.mode for access in accesses)
        if weight == 0 and (blocking or random.random() < self._python):
            body = _python_task(self, modes, random.choice([None, None, 0, 1e-5]), random.random() < 0.5, blocking)
            scalars += [ost.step, graph.param("gate", None) if blocking else None]
        else:
            user = np.array([ctypes.addressof(self._shared), self._spin, *modes], np.int64)
            access = (*(_MODES[mode] for mode in modes), *[int] * 7)
            body = ost.native(load("stress/soak.c").soak, access, name="native", user=user)
        on = f"cpu:{random.randrange(self._cpus)}" if random.random() < self._bound else None
        op = graph.task(body, *operands, *scalars, after=after, on=on, priority=random.randint(-1, 1))
        made.items.append(Item("task", op, row=row, accesses=accesses))

    def _add_section(self, made: Template) -> None:
        """Acquire, some tasks that depend on nothing else, release."""
        random = self.random
        which, exclusive = random.randrange(len(self.features.reservations)), random.random() < 0.6
        reservation, begin = self.features.reservations[which], len(made.items)
        made.items.append(Item("acquire", made.graph.acquire(reservation, exclusive, self._after(made))))
        tasks = range(begin + 1, begin + 1 + random.choice([1, 1, 2]))
        for at in tasks:
            accesses = (Access((self._array(),), 0, 0, _CELLS, 3),)
            before = at - 1 if exclusive else begin  # of tasks that hold it alone, one at a time
            self._record(made, accesses, [made.items[before].op], which, EXCLUSIVE if exclusive else 1)
            self._note(made, [Source(before)])
            made.items[-1].closed = True
        sources = [Source(at) for at in (begin, *tasks)]
        op = made.graph.release(reservation, [made.items[source.item].op for source in sources])
        made.items.append(Item("release", op, closed=True))
        self._note(made, sources)

    def _add_nested(self, made: Template, inner: Template, depth: int) -> None:
        graph, first = made.graph, made.rows
        params: dict[str, Any] = {}
        for name in inner.graph.params:
            if not name.startswith("at "):
                params[name] = graph.param(name, None if name == "gate" else 0)
            elif depth == 0 and self.random.random() < 0.5:
                params[name] = first
            else:
                params[name] = graph.param(f"at {first}", first, operator.add)
        ports = {name: self._sources(made) for name in inner.names("pre")}
        given = {name: [self._as_after(made, source) for source in sources] for name, sources in ports.items()}
        op = graph.subgraph(inner.graph, params, given, self._after(made))
        made.items.append(Item("nested", op, inner=inner, ports=ports))
        made.rows += inner.rows

    def _add_ends(self, made: Template) -> None:
        """Add what only the outermost graph has: barriers, and the end of the run."""
        graph = made.graph
        for k, (barrier, count) in enumerate(self.features.barriers):
            if count:
                op = graph.arrive(barrier, count, after=self._after(made))
                made.items.append(Item("arrive", op, str(k), count=count))
        for k, (barrier, _) in enumerate(self.features.barriers):
            if self.random.random() < 0.7:
                made.items.append(Item("wait", graph.wait(barrier, self._after(made)), str(k)))
                for _ in range(self.random.choice([0, 1, 3])):
                    self._add_task(made)
        if self.features.given_barrier:
            barrier, count, value = graph.param("barrier"), graph.param("count"), graph.param("run", 0)
            made.items.append(Item("arrive given", graph.arrive(barrier, count, value, self._after(made))))
        if self.flag is not None:
            self._record(made, (Access((self.flag,), 0, 0, 1, 3),), [])
            self._note(made, [])
            op = graph.until(self.arrays[self.flag].view(np.int8)[:1])  # its low byte
            made.items.append(Item("until", op, accesses=(Access((self.flag,), 0, 0, 1, 1),)))

    def _add_post(self, made: Template, name: str) -> None:
        sources = [source for source in self._sources(made) if not source.distance]
        sources = [source for source in sources if made.items[source.item].kind != "pre"]
        sources = sources or [Source(self.random.choice(self._open(made)))]
        op = made.graph.postcondition(name, [self._as_after(made, source) for source in sources])
        made.items.append(Item("post", op, name, closed=True))
        self._note(made, sources)

    # Operands

    def _access(self, made: Template, mode: int) -> Access:
        random = self.random
        low = random.randrange(_CELLS)
        high = random.randint(low + 1, _CELLS)
        if self._rings and random.random() < 0.3:
            arrays = random.choice(self._rings)
            return Access(arrays, random.randrange(len(arrays)), low, high, mode)
        return Access((random.choice(self._pool),), 0, low, high, mode)

    def _operand(self, made: Template, access: Access) -> Any:
        arrays = [self.arrays[array] for array in access.arrays]
        whole = arrays[0] if len(arrays) == 1 else made.graph.ring(*arrays)[access.offset]
        return whole[access.low : access.high]

    # Edges

    def _open(self, made: Template) -> list[int]:
        """Items that others may be put before."""
        return [at for at, item in enumerate(made.items) if item.kind != "pre" and not item.closed]

    def _sources(self, made: Template) -> list[Source]:
        random = self.random
        found = []
        for _ in range(random.choice([0, 0, 1, 1, 2])):
            at = random.randrange(len(made.items)) if made.items else None
            if at is None or made.items[at].kind == "post":
                continue
            item = made.items[at]
            posts = item.inner.names("post") if item.inner is not None else []
            post = random.choice(posts) if posts and random.random() < 0.7 else None
            distance = 0 if item.kind == "pre" else random.choice([0, 0, 0, 1, 2])
            found.append(Source(at, post, distance))
        return found

    def _as_after(self, made: Template, source: Source) -> Any:
        op = made.items[source.item].op
        found = op if source.post is None else op.posts[source.post]
        for _ in range(source.distance):
            found = ost.previous(found)
        return found

    def _after(self, made: Template) -> list[Any]:
        """What the next item comes after; noted for it."""
        sources = self._sources(made)
        self._note_for(made, sources, len(made.items))
        return [self._as_after(made, source) for source in sources]

    def _note(self, made: Template, sources: list[Source]) -> None:
        """Note what the last item was recorded to come after."""
        self._note_for(made, sources, len(made.items) - 1)

    def _note_for(self, made: Template, sources: list[Source], item: int) -> None:
        made.edges += [(source, item) for source in sources]

    def _add_edge(self, made: Template) -> None:
        sources = self._sources(made)
        if sources and (targets := self._open(made)):
            self._link(made, sources[0], self.random.choice(targets))

    def _link(self, made: Template, source: Source, target: int) -> None:
        if source.distance == 0 and source.item >= target:
            if made.items[source.item].kind == "pre" or self.random.random() < 0.5:
                return
            source = Source(source.item, source.post, self.random.randint(1, 3))
        op = made.items[source.item].op
        made.graph.edge(op if source.post is None else op.posts[source.post], made.items[target].op, source.distance)
        made.edges.append((source, target))


def calculate(row: int, step: int, run: int, read: list[list[int]], written: list[int]) -> list[list[int]]:
    """Return what a task writes, given what it reads and how much it writes; as in soak.c."""
    total = row * 31 + step * 17 + run
    for values in read:
        for value in values:
            total = ((total ^ value) * 1099511628211 + 1) & _MASK
    found = []
    for length in written:
        values = []
        for _ in range(length):
            values.append(total >> 40)
            total = (total * 6364136223846793005 + 1442695040888963407) & _MASK
        found.append(values)
    return found


@cache
def _signature(modes: tuple[int, ...]) -> str:
    names = [f"a{i}: {('', 'Read', 'Write', 'ReadWrite')[mode]}" for i, mode in enumerate(modes)]
    scalars = ["row", "run", "floor", "seed", "odds", "reservation", "weight", "step", "gate"]
    arrays = "".join(f"a{i}, " for i in range(len(modes)))
    return f"def python({', '.join(names + scalars)}): function(({arrays}), row, run, floor, seed, odds, step, gate)"


def _python_task(scene: Scene, modes: tuple[int, ...], nap: float | None, releases_gil: bool, blocking: bool) -> Any:
    shared = scene._shared

    def function(arrays: Any, row: int, run: int, floor: int, seed: int, odds: int, step: int, gate: Any) -> None:
        begin, sources = scene._kept
        for i in range(begin[row], begin[row + 1]):
            source, distance = sources[2 * i], sources[2 * i + 1]
            before = step - distance
            looks = distance == 0 if floor < 0 else before >= floor
            if looks and before < STEPS and scene.counts[source, before] == 0:
                shared.violations += 1
                shared.seen[:] = [run, row, step, source]
        if nap is not None:
            time.sleep(nap)
        if gate is not None:
            gate.wait(60)
        reads = [array.tolist() for array, mode in zip(arrays, modes, strict=True) if mode & READ]
        targets = [array for array, mode in zip(arrays, modes, strict=True) if mode & WRITE]
        for target, values in zip(targets, calculate(row, step, run, reads, [len(t) for t in targets]), strict=True):
            target[...] = values
        if step < STEPS:
            scene.counts[row, step] += run + 1
        if fails(row, step, seed, odds):
            raise ArithmeticError(f"row {row} in step {step}")

    scope = {"function": function, "Read": ost.Read, "Write": ost.Write, "ReadWrite": ost.ReadWrite}
    exec(_signature(modes), scope)
    return ost.task(releases_gil=releases_gil, blocking=blocking)(scope["python"])
