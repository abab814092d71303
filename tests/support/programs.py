"""Random programs: recipes, which print what they do, and the graphs built of them.

All programs share the same few arrays, so that their views overlap a lot. What an op writes depends on all that it
reads, so that a fault of order shows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

import ostinato as ost
from native import load
from ostinato.runtime.sequential import run_sequentially

A = np.zeros(12, np.int64)
B = np.zeros(12, np.int64)
C = np.zeros((4, 5), np.int64)
NARROW = B.view(np.int32)
REAL = np.zeros(12)
FLAGS = (np.zeros(1, np.bool_), np.zeros(1), np.zeros((), np.int32))
INDICES = np.zeros(6, np.int64)
TAKING_TURNS = tuple(np.zeros(12, np.int64) for _ in range(4))
REBOUND = {"A": A, "B": B, "C": C, "turn": TAKING_TURNS[1]}
"""Arrays that others may stand for."""
SPARE = {name: np.zeros_like(array) for name, array in REBOUND.items()}
MEMORY = (A, B, C, REAL, *FLAGS, INDICES, *TAKING_TURNS, *SPARE.values())
TOKENS: tuple[list[Any], ...] = ([], [], [])
UNDECLARED: list[Any] = TOKENS[2]

RINGS = (
    *(TAKING_TURNS[:n] for n in (1, 2, 3, 4)),
    (C[0], C[2]),  # of an array that is used without the ring, too
    (A[0:6], A[3:9], A[6:12]),  # of each other's memory
    (TAKING_TURNS[3], TAKING_TURNS[1], TAKING_TURNS[2]),  # of another ring's
)
LINE = (
    *(np.s_[:], np.s_[:6], np.s_[6:], np.s_[3:9], np.s_[::2], np.s_[1::2], np.s_[::-1], np.s_[::3], np.s_[2:10:2]),
    *(np.s_[4:5], np.s_[8:2:-2], np.s_[0:0], np.s_[1:7], np.s_[-1:-4:-1], np.s_[5:6]),
)
PLANE = (
    *(np.s_[:, :], np.s_[0], np.s_[:, 1], np.s_[1:3], np.s_[:, ::2], np.s_[::-1], np.s_[1:3, 2:4], np.s_[::2, ::-1]),
    *(np.s_[3:, :], np.s_[2, 1:4], np.s_[0:2, 1:3], np.s_[3:0:-2, 0:4:3], np.s_[1:2, 1:2]),
)
ARRAYS = {"A": (A, LINE), "B": (B, LINE), "C": (C, PLANE), "A34": (A.reshape(3, 4), PLANE), "C.T": (C.T, PLANE)}
OTHERS = {"NARROW": (NARROW, LINE), "REAL": (REAL, LINE)}


@dataclass(frozen=True)
class Where:
    """An array: by name, or a ring's, at an offset; and the part of it."""

    array: str | int
    part: Any
    offset: int = 0

    def shape(self) -> tuple[int, ...]:
        whole = RINGS[self.array][0] if isinstance(self.array, int) else {**ARRAYS, **OTHERS}[self.array][0]
        return whole[self.part].shape


def _valid(array: np.ndarray, part: Any) -> bool:
    try:
        return array[part].ndim >= 1
    except IndexError:
        return False


WHOLES = [Where(name, part) for name, (array, parts) in ARRAYS.items() for part in parts if _valid(array, part)]
RING_PARTS = [
    Where(ring, part, offset)
    for ring, arrays in enumerate(RINGS)
    for part in LINE
    for offset in range(len(arrays))
    if _valid(arrays[0], part)
]
OTHER_PARTS = [Where(name, part) for name, (_, parts) in OTHERS.items() for part in parts]
BY_SHAPE: dict[tuple[int, ...], list[Where]] = {}
for _where in (*WHOLES, *RING_PARTS, *OTHER_PARTS):
    BY_SHAPE.setdefault(_where.shape(), []).append(_where)
ONES = [where for where in BY_SHAPE[(1,)] if where.array not in OTHERS]
ROWS = [where for where in (*WHOLES, *RING_PARTS) if len(where.shape()) == 1]

somewhere = st.one_of(st.sampled_from(WHOLES), st.sampled_from(WHOLES), st.sampled_from(RING_PARTS))
READ, WRITE, READ_WRITE = 1, 2, 3
ACCESS = {READ: ost.Read, WRITE: ost.Write, READ_WRITE: ost.ReadWrite}
PRICES = (1e-4, 3e-5, 1e-6, 1e-7, 1e-9)


@dataclass(frozen=True)
class Step:
    """One op."""

    kind: str
    accesses: tuple[tuple[int, Where], ...] = ()
    scalars: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    on: int | None = None
    priority: int = 0
    price: int | None = None


@dataclass(frozen=True)
class Run:
    """Steps that are run together."""

    waits: bool
    steps: int
    seed: int
    rebinds: str | None  # the array that changes places with its spare one before


@dataclass(frozen=True)
class Recipe:
    """A program, and the runs of it."""

    ops: list[Step]
    edges: list[tuple[int, int, int]]
    infer: str  # "yes", "no" (then the same edges are given), or "serial"
    combine: bool
    cpus: int
    lanes: int
    runs: list[Run]
    spin: int


@st.composite
def _task(draw: st.DrawFn, kind: str) -> Step:
    modes = draw(
        st.sampled_from([(3,), (2,), (3, 1), (2, 1), (2, 1, 1), (3, 1, 1), (2, 2, 1), (3, 2, 1), (3, 3), (1,)])
    )
    accesses = tuple((mode, draw(somewhere)) for mode in modes)
    scalars = draw(st.sampled_from([(), (), ("step",), ("p",), ("q", 7), ("p", "step"), (5,)]))
    options = {"releases_gil": draw(st.booleans())} if kind == "python" else {}
    return Step(kind, accesses, scalars, options)


@st.composite
def _copy(draw: st.DrawFn) -> Step:
    reduce = draw(st.sampled_from([None, None, "+", "min", "max", "*"]))
    how = draw(st.sampled_from(["plain", "plain", "gather", "scatter", "both"]))
    if how != "plain":
        source, target = draw(st.sampled_from(ROWS)), draw(st.sampled_from(ROWS))
        options: dict[str, Any] = {"reduce": reduce}
        length, room = source.shape()[0], target.shape()[0]
        if how == "gather":
            options["indices"] = room
        elif how == "scatter":
            options["scatter"] = length
        else:
            options["indices"] = options["scatter"] = draw(st.integers(1, 5))
        if 0 in (length, room):
            return Step("copy", ((READ, source), (WRITE, source)))
        return Step("copy", ((READ, source), (READ_WRITE, target)), (), options)
    target = draw(st.one_of(somewhere, st.sampled_from(OTHER_PARTS)))
    source = draw(st.sampled_from(BY_SHAPE[target.shape()]))
    if source.array == "REAL" and target.array != "REAL":
        source, target = target, source
    if "REAL" in (source.array, target.array) and reduce == "*":
        reduce = "+"
    return Step("copy", ((READ, source), (WRITE, target)), (), {"reduce": reduce})


@st.composite
def _fill(draw: st.DrawFn) -> Step:
    target = draw(somewhere)
    value = draw(st.sampled_from(["p", "q", 4, "row", "row"]))
    if value != "row":
        return Step("fill", ((WRITE, target),), (value,))
    rows = BY_SHAPE.get(target.shape()[-1:], ())
    fitting = [where for where in rows if where.array != "REAL"]
    return Step("fill", ((WRITE, target), (READ, draw(st.sampled_from(fitting)) if fitting else target)))


@st.composite
def _decide(draw: st.DrawFn) -> Step:
    options = {"flag": draw(st.integers(0, len(FLAGS) - 1)), "odds": draw(st.integers(1, 6))}
    return Step("decide", ((READ, draw(somewhere)),), (), options)


@st.composite
def _log(draw: st.DrawFn) -> Step:
    kind = draw(st.sampled_from(["log", "tell", "note"]))
    options = {"token": draw(st.integers(0, 1))}
    return Step(kind, ((WRITE if kind == "tell" else READ, draw(somewhere)),) if kind != "note" else (), (), options)


@st.composite
def _shuffle(draw: st.DrawFn) -> Step:
    return Step("shuffle", ((READ, draw(somewhere)),))


any_op = st.one_of(
    _task("native"), _task("native"), _task("native"), _task("python"), _copy(), _fill(), _log(), _shuffle(), _decide()
)


@st.composite
def recipes(draw: st.DrawFn, most_ops: int) -> Recipe:
    cpus, lanes = draw(
        st.sampled_from([(2, 2), (3, 3), (4, 4), (2, 2), (3, 3), (4, 4), (4, 2), (2, 2), (1, 1), (2, 1)])
    )
    least = draw(st.sampled_from([most_ops // 2, 1, 1 + most_ops // 4]))
    ops = draw(st.lists(any_op, min_size=least, max_size=most_ops))
    count = len(ops)
    if draw(st.integers(0, 3)) == 0:
        flag = draw(st.one_of(st.integers(0, len(FLAGS) - 1), st.sampled_from(ONES)))
        place = draw(st.integers(0, count))
        ops.insert(place, Step("until", (), (), {"flag": flag, "every": draw(st.integers(1, 3))}))
        count += 1
    index = st.integers(0, count - 1)
    edges = []
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        a, b, distance = draw(index), draw(index), draw(st.integers(0, 3))
        if distance == 0 and a != b:
            edges.append((min(a, b), max(a, b), 0))
        elif distance:
            edges.append((a, b, distance))
    # How ops spread: as the model likes, by costs that make it pay, or as bound here.
    spread = draw(st.sampled_from(["bound", "prices", "bound", "model"]))
    extras = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 7)), min_size=count, max_size=count))
    placed = []
    for op, (price, place) in zip(ops, extras, strict=True):
        bound = place % cpus if spread == "bound" else None
        cost = price if spread == "prices" else None
        placed.append(replace(op, on=bound, price=cost, priority=(place == 7) - (place == 6)))
    rebinds = st.sampled_from([None, *REBOUND]) if draw(st.integers(0, 3)) == 0 else st.none()
    run = st.builds(
        Run,
        st.sampled_from([False, True, False]),
        st.sampled_from([2, 1, 3, 0, 4, 5, 7, 40]),
        st.integers(0, 3),
        rebinds,
    )
    return Recipe(
        ops=placed,
        edges=edges,
        infer=draw(st.sampled_from(["yes"] * 5 + ["no", "no", "serial"])),
        combine=draw(st.booleans()),
        cpus=cpus,
        lanes=lanes,
        runs=draw(st.lists(run, min_size=1, max_size=5)),
        spin=draw(st.sampled_from([0, 1, 10])),
    )


def start() -> None:
    """Bring all memory and all tokens to the state that programs begin with."""
    for place, array in enumerate(MEMORY):
        values = (np.arange(array.size) * 7 + place * 13 + 1) % 31
        array[...] = values.reshape(array.shape)
    for array in (*FLAGS, INDICES):
        array[...] = 0
    for token in TOKENS:
        token.clear()


def state() -> tuple[bytes | list[Any], ...]:
    """All that programs can change."""
    return (*(array.tobytes() for array in MEMORY), *(list(token) for token in TOKENS))


def parameters(seed: int) -> dict[str, int]:
    """Values of the parameters of a run."""
    return {"q": seed * 5 + 1, "p": seed} if seed % 2 else {"q": seed * 3 - 1}


def uses(graph: ost.Graph, name: str | None) -> bool:
    """Whether ops access memory of an array in `REBOUND`."""
    views = (view for op in graph.ops for operand in op.operands for view in operand.arrays if view.size)
    return name is not None and any(np.may_share_memory(REBOUND[name], view) for view in views)


class Bindings:
    """Which of the arrays in `REBOUND` have changed places with their spare ones: a substitution for the oracle."""

    def __init__(self) -> None:
        self._pairs = [[array, array, SPARE[name]] for name, array in REBOUND.items()]

    def change(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return what stood for an array, and what stands for it from now on."""
        pair = self._pairs[list(REBOUND).index(name)]
        pair[1:] = pair[:0:-1]
        return pair[2], pair[1]

    def substitute(self, array: np.ndarray) -> np.ndarray:
        low, high = np.lib.array_utils.byte_bounds(array)
        for captured, now, _ in self._pairs:
            begin, end = np.lib.array_utils.byte_bounds(captured)
            if begin <= low and high <= end and array.size:
                return np.ndarray(array.shape, array.dtype, now, array.ctypes.data - begin, array.strides)
        return array

    def value(self, value: object) -> object:
        return value


def sequential(recipe: Recipe, graph: ost.Graph) -> tuple[list[int], tuple[bytes | list[Any], ...]]:
    """How many steps each run has when run line by line, and the state after the last."""
    start()
    steps: list[int] = []
    bindings = Bindings()
    for run in recipe.runs:
        if uses(graph, run.rebinds):
            bindings.change(run.rebinds)
        steps.append(run_sequentially(graph.ops, run.steps, sum(steps), bindings, parameters(run.seed)))
    return steps, state()


def build(recipe: Recipe) -> tuple[ost.Graph, dict[Any, float]]:
    """Return the graph of a recipe, and its costs."""
    if recipe.infer == "yes":
        return _build(recipe, ost.Graph())
    graph, costs = _build(recipe, ost.Graph(infer=False))
    ops = graph.ops
    if recipe.infer == "serial":
        for before, after in pairwise(ops):
            graph.edge(before, after)
        if recipe.edges:  # with an edge between steps, steps overlap as far as the edges allow
            graph.edge(ops[-1], ops[0], 1)
    else:
        twin, _ = _build(recipe, ost.Graph())
        for a, b, distance in twin.edges:
            graph.edge(ops[a.index], ops[b.index], distance)
        graph.edge(ops[-1], ops[-1], 1)
    return graph, costs


def _build(recipe: Recipe, graph: ost.Graph) -> tuple[ost.Graph, dict[Any, float]]:
    rings = tuple(ost.ring(*arrays) for arrays in RINGS)
    combine = _combine if recipe.combine else None
    graph.param("p", 5, combine)
    graph.param("q")

    def scalar(value: Any) -> Any:
        return ost.step if value == "step" else graph.param(value) if value in ("p", "q") else value

    def find(where: Where) -> Any:
        if isinstance(where.array, int):
            return rings[where.array][where.offset][where.part]
        return {**ARRAYS, **OTHERS}[where.array][0][where.part]

    costs = {}
    for step in recipe.ops:
        arrays = [find(where) for _, where in step.accesses]
        common = {"on": None if step.on is None else f"cpu:{step.on}", "priority": step.priority}
        op = _ADD[step.kind](graph, step, arrays, [scalar(value) for value in step.scalars], common, recipe.spin)
        if op is not None and step.price is not None:
            costs[op] = PRICES[step.price]
    for a, b, distance in recipe.edges:
        graph.edge(graph.ops[a], graph.ops[b], distance)
    return graph, costs


def _combine(default: int, given: int) -> int:
    return default * 31 + given


def _digest(arrays: Any, *scalars: object) -> int:
    found = zlib.crc32(repr(scalars).encode())
    for array in arrays:
        found = zlib.crc32(array.tobytes(), found)
    return found


def _spread(arrays: Any, value: int) -> None:
    for place, array in enumerate(arrays):
        array[...] = ((np.arange(array.size) * 37 + value + place) % 1009).reshape(array.shape)


def _mix(modes: tuple[int, ...]) -> Callable[..., None]:
    def mix(*args: Any) -> None:
        arrays, scalars = args[: len(modes)], args[len(modes) :]
        value = _digest([array for array, mode in zip(arrays, modes, strict=True) if mode & READ], *scalars)
        _spread([array for array, mode in zip(arrays, modes, strict=True) if mode & WRITE], value)

    return mix


@cache
def native_mix(modes: tuple[int, ...], scalars: int, spin: int) -> Any:
    access = (*(ACCESS[mode] for mode in modes), *[int] * scalars)
    return ost.native(load("support/programs.c").mix, access, name="native", user=np.array([spin, *modes], np.int64))


@cache
def _python_mix(modes: tuple[int, ...], scalars: int, releases_gil: bool) -> Any:
    function = _mix(modes)
    names = [f"a{i}: {('', 'Read', 'Write', 'ReadWrite')[mode]}" for i, mode in enumerate(modes)]
    names += [f"s{i}" for i in range(scalars)]
    values = ", ".join(name.split(":")[0] for name in names)
    scope = {"function": function, "Read": ost.Read, "Write": ost.Write, "ReadWrite": ost.ReadWrite}
    exec(f"def python({', '.join(names)}): function({values})", scope)
    return ost.task(releases_gil=releases_gil)(scope["python"])


@ost.task
def _log_task(token: ost.ReadWrite, array: ost.Read, step) -> None:
    token.append((step, _digest([array])))


@ost.task
def _tell(token: ost.Read, array: ost.Write) -> None:
    _spread([array], _digest((), len(token), token[-1:]))


@ost.task
def _note(step) -> None:
    UNDECLARED.append(step)


@ost.task
def _shuffle_task(array: ost.Read, indices: ost.Write) -> None:
    indices[...] = (np.arange(indices.size) * 5 + _digest([array])) % indices.size


@ost.task
def _decide_task(array: ost.Read, flag: ost.Write, odds) -> None:
    flag[...] = _digest([array]) % odds == 0


def _add_native(graph: Any, step: Step, arrays: Any, scalars: Any, common: Any, spin: int) -> Any:
    modes = tuple(mode for mode, _ in step.accesses)
    return graph.task(native_mix(modes, len(scalars), spin), *arrays, *scalars, **common)


def _add_python(graph: Any, step: Step, arrays: Any, scalars: Any, common: Any, spin: int) -> Any:
    modes = tuple(mode for mode, _ in step.accesses)
    return graph.task(_python_mix(modes, len(scalars), step.options["releases_gil"]), *arrays, *scalars, **common)


def _add_copy(graph: Any, step: Step, arrays: Any, scalars: Any, common: Any, spin: int) -> Any:
    options = dict(step.options)
    for name, which in (("indices", 0), ("scatter", 1)):
        if options.get(name) is not None:
            # Indices that other ops change, where they are in range whatever these do; else ones that never change.
            count, room = options[name], arrays[which].shape[0]
            options[name] = INDICES[:count] if count <= 6 <= room else np.arange(count) * 3 % room
    return graph.copy(*arrays, **options, **common)


def _add_fill(graph: Any, step: Step, arrays: Any, scalars: Any, common: Any, spin: int) -> Any:
    return graph.fill(arrays[0], *arrays[1:], *scalars, **common)


def _add_decide(graph: Any, step: Step, arrays: Any, scalars: Any, common: Any, spin: int) -> Any:
    return graph.task(_decide_task, *arrays, FLAGS[step.options["flag"]], step.options["odds"], **common)


def _add_log(graph: Any, step: Step, arrays: Any, scalars: Any, common: Any, spin: int) -> Any:
    token = TOKENS[step.options["token"]]
    if step.kind == "log":
        return graph.task(_log_task, token, *arrays, ost.step, **common)
    if step.kind == "tell":
        return graph.task(_tell, token, *arrays, **common)
    return graph.task(_note, ost.step, **common)


def _add_shuffle(graph: Any, step: Step, arrays: Any, scalars: Any, common: Any, spin: int) -> Any:
    return graph.task(_shuffle_task, *arrays, INDICES, **common)


def _add_until(graph: Any, step: Step, arrays: Any, scalars: Any, common: Any, spin: int) -> Any:
    flag = step.options["flag"]
    if isinstance(flag, Where):
        rings = tuple(ost.ring(*arrays) for arrays in RINGS)
        whole = rings[flag.array][flag.offset] if isinstance(flag.array, int) else ARRAYS[flag.array][0]
        found = whole[flag.part]
    else:
        found = FLAGS[flag]
    graph.until(found, step.options["every"])


_ADD: dict[str, Callable[..., Any]] = {
    "native": _add_native,
    "python": _add_python,
    "copy": _add_copy,
    "fill": _add_fill,
    "decide": _add_decide,
    "log": _add_log,
    "tell": _add_log,
    "note": _add_log,
    "shuffle": _add_shuffle,
    "until": _add_until,
}
