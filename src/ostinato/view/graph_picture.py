"""The picture of a graph: operations with their arrays, and what comes after what; repeats are drawn once."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.compiler.dependences import find_outer_edges
from ostinato.compiler.ir import Edges
from ostinato.compiler.wording import size
from ostinato.devices.registry import address_of
from ostinato.errors import GraphError
from ostinato.graph.arrays import READ, WRITE, Operand, root_of
from ostinato.graph.body import Copy, Nested
from ostinato.text import counted, one_line
from ostinato.view.page import disclosed, page, paragraphs, picture, table
from ostinato.view.palette import COPY, DIM, ink_on, task_colour
from ostinato.view.svg import Box, Line, Point, Scene, Words, width_of, wrap

if TYPE_CHECKING:
    from ostinato.graph.context import CallSite
    from ostinato.graph.graph import Graph
    from ostinato.graph.op import Op

FEW = 30
"""So many operations are drawn one by one."""
_MOST_BOXES, _MOST_LAYERS, _MOST_IN_LAYER = 80, 24, 5
_MOST_BACK = 10  # dependences on earlier steps that are drawn as lines
_MOST_NAMES, _MOST_TOLD, _LETTERS = 4, 8, 32
_LEGEND_LETTERS = 46
_GAP, _BETWEEN, _MARGIN = 24.0, 46.0, 16.0


class ArrayNames:
    """What arrays are called: as variables were when the graph was recorded, else by number."""

    def __init__(self, known: Mapping[int, Sequence[str]]) -> None:
        self._known = known
        self._numbers: dict[str, int] = {}
        self._names: dict[Hashable, str] = {}
        self.about: dict[str, str] = {}
        """By name, what each array is, as far as they have been named."""

    def name(self, operand: Operand) -> str:
        """Return the name of the array of an operand; of a ring, with the element."""
        arrays = operand.arrays
        ring = operand.ring
        key: Hashable
        if ring is not None:
            key = id(ring.ring)
        else:
            key = ("array", address_of(root_of(arrays[0]))) if arrays else ("token", id(operand.value))
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._new(operand)
        return name if ring is None else f"{name}[{ring.offset}]"

    def part(self, operand: Operand) -> str:
        """Return the name of the array of an operand, with the part that is used."""
        arrays = operand.arrays
        return self.name(operand) + (_part(arrays[0], root_of(arrays[0])) if arrays else "")

    def _new(self, operand: Operand) -> str:
        arrays = operand.arrays
        if not arrays:
            name = self._numbered(type(operand.value).__name__)
            self.about[name] = "token"
            return name
        roots = [root_of(array) for array in arrays]
        names = [self._known.get(address_of(root), ()) for root in roots]
        about = f"{roots[0].dtype} {roots[0].shape}, {size(roots[0].nbytes)}"
        if operand.ring is not None:
            common = [name for name in names[0] if all(name in others for others in names)]
            name = common[-1] if common else self._numbered("ring")
            about = f"ring of {len(roots)}, each {about}"
        else:
            name = names[0][0] if names[0] else self._numbered("array")
        self.about[name] = about if operand.memory == "host" else f"{about}, on {operand.memory}"
        return name

    def _numbered(self, kind: str) -> str:
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        return f"{kind} {self._numbers[kind]}"


def _part(view: np.ndarray[Any, Any], root: np.ndarray[Any, Any]) -> str:
    """Return the index that gives a view of an array, such as ``[2:5, 0]``; empty for all of it.

    >>> import numpy as np
    >>> x = np.zeros((8, 8))
    >>> _part(x[2:5, 0], x), _part(x, x), _part(x[:, ::2], x), _part(x.T, x)
    ('[2:5, 0]', '', '[:, 0:7:2]', ' as (8, 8)')
    """
    if view.shape == root.shape and view.strides == root.strides:
        return ""
    offset, entries, axis = address_of(view) - address_of(root), [], 0
    other = f" as {view.shape}"
    if view.itemsize != root.itemsize or not view.size or sorted(root.strides, reverse=True) != list(root.strides):
        return other
    for length, stride in zip(root.shape, root.strides, strict=True):
        if stride <= 0:
            return other
        start, offset = divmod(offset, stride)
        last = axis == view.ndim
        step = 0 if last else view.strides[axis]
        fits = not last and step > 0 and step % stride == 0 and start + (view.shape[axis] - 1) * step // stride < length
        if not fits or view.ndim - axis < 0:
            entries.append(str(start))
            continue
        stop = start + (view.shape[axis] - 1) * (step // stride) + 1
        whole = start == 0 and stop == length and step == stride
        entries.append(":" if whole else f"{start}:{stop}" + f":{step // stride}" * (step != stride))
        axis += 1
    while entries[1:] and entries[-1] == ":":
        entries.pop()
    return f"[{', '.join(entries)}]" if axis == view.ndim and offset == 0 else other


@dataclass
class Node:
    """A box: operations that are drawn as one."""

    ops: list[Op]
    name: str = ""
    lines: list[str] = field(default_factory=list)
    title: str = ""
    repeats: bool = False  # whether some of its operations come after others of them
    is_marked: bool = False  # whether dependences on earlier steps or repeats are not drawn as lines
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0

    @property
    def colour(self) -> str:
        """The colour of its task."""
        return COPY if isinstance(self.ops[0].body, Copy) else task_colour(self.ops[0].name)


class Arrow(NamedTuple):
    """A dependence between nodes: of `dst` on `src`, so many steps before."""

    src: int
    dst: int
    distance: int
    edges: int
    """How many dependences between operations it stands for."""


class Folded(NamedTuple):
    """A graph as it is drawn."""

    nodes: list[Node]
    ahead: list[Arrow]
    """Within a step, from earlier nodes to later ones: no cycle."""
    back: list[Arrow]
    """All others: to later steps; and where repeats are folded, to later repeats within the step."""
    names: ArrayNames
    ops: int


def fold(graph: Graph) -> Folded:
    """Return the graph with its repeats folded as far as it takes for all to be seen.

    Few operations stay as they are. Of more, those of one line are put together that could run side by side; if that
    is not enough, all of one line; then all of one name, then all of one kind.
    """
    ops, edges = graph.ops, find_outer_edges(graph)
    inside = edges.within_a_step()
    level: list[int] = []
    if not len(_core.passes.find_cycle(len(ops), inside)):
        level = _core.passes.levels(len(ops), inside).tolist()
    sites: dict[CallSite, str] = {}  # which many operations share

    def site(op: Op) -> str:
        found = sites.get(op.call_site)
        if found is None:
            found = sites[op.call_site] = str(op.call_site)
        return found

    keys: list[Callable[[Op], Hashable]] = [lambda op: (op.name, site(op)), lambda op: op.name]
    keys += [site, lambda op: type(op.body).__name__, lambda op: None]
    if level:
        keys.insert(0, lambda op: (level[op.index], op.name, site(op)))
    if len(ops) <= FEW:
        keys.insert(0, lambda op: op.index)
    for key in keys:
        numbers: dict[Hashable, int] = {}
        group = np.array([numbers.setdefault(key(op), len(numbers)) for op in ops], np.int64)
        if len(numbers) > (FEW if len(ops) <= FEW else _MOST_BOXES):
            continue
        ahead, back, repeats = _quotient(group, edges, len(numbers))
        layers = _layers(len(numbers), ahead)
        if len(ops) <= FEW or len(layers) <= _MOST_LAYERS or key is keys[-1]:
            break
    nodes = [Node([], repeats=number in repeats) for number in range(len(numbers))]
    for op, number in zip(ops, group.tolist(), strict=True):
        nodes[number].ops.append(op)
    names = ArrayNames(graph.array_names)
    for node in nodes:
        _describe(node, names)
    if len(nodes) == len(ops):
        back = _needed(len(nodes), ahead, back)
    _tell_sources(nodes, ahead, back)
    ahead = _reduced(len(nodes), ahead)
    return Folded(nodes, ahead, back, names, len(ops))


def _quotient(group: npt.NDArray[np.int64], edges: Edges, count: int) -> tuple[list[Arrow], list[Arrow], set[int]]:
    """Return the edges between groups: within a step onwards, all others, and the groups with edges inside."""
    if not len(edges.src):
        return [], [], set()
    distances = edges.longest + 1
    keys = (group[edges.src] * count + group[edges.dst]) * distances + edges.distance
    found, counts = np.unique(keys, return_counts=True)
    pairs, distance = np.divmod(found, distances)
    columns = (pairs // count, pairs % count, distance, counts)
    arrows = [Arrow(*entry) for entry in zip(*(column.tolist() for column in columns), strict=True)]
    repeats = {each.src for each in arrows if each.src == each.dst and not each.distance}
    between = [each for each in arrows if not each.distance and each.src != each.dst]
    order = _order(count, between)
    ahead = [each for each in between if order[each.src] < order[each.dst]]
    back = [each for each in arrows if each not in set(ahead)]
    return ahead, back, repeats


def _order(count: int, arrows: Sequence[Arrow]) -> list[int]:
    """Return the place of each node in an order that arrows follow; where they form a cycle, the first node leads."""
    missing, after = [0] * count, [[] for _ in range(count)]  # type: tuple[list[int], list[list[int]]]
    for each in arrows:
        missing[each.dst] += 1
        after[each.src].append(each.dst)
    place, left = [-1] * count, dict.fromkeys(range(count))
    while left:
        node = next((each for each in left if missing[each] <= 0), next(iter(left)))
        place[node] = count - len(left)
        del left[node]
        for follower in after[node]:
            missing[follower] -= 1
    return place


def _layers(count: int, ahead: Sequence[Arrow]) -> list[list[int]]:
    """Return the nodes by layer: each below all that it comes after, and few side by side."""
    sources: list[list[int]] = [[] for _ in range(count)]
    for each in ahead:
        sources[each.dst].append(each.src)
    place = _order(count, ahead)
    layer, found = [0] * count, []  # type: tuple[list[int], list[list[int]]]
    for node in sorted(range(count), key=place.__getitem__):
        number = max((layer[each] + 1 for each in sources[node]), default=0)
        while number < len(found) and len(found[number]) >= _MOST_IN_LAYER:
            number += 1
        while number >= len(found):
            found.append([])
        found[number].append(node)
        layer[node] = number
    return found


def _reaches(count: int, ahead: Sequence[Arrow]) -> npt.NDArray[np.bool_]:
    """Return which nodes come after which, themselves included."""
    found = np.eye(count, dtype=np.bool_)
    place = _order(count, ahead)
    for each in sorted(ahead, key=lambda each: -place[each.src]):
        found[each.src] |= found[each.dst]
    return found


def _reduced(count: int, ahead: Sequence[Arrow]) -> list[Arrow]:
    """Leave out what follows from others."""
    reaches = _reaches(count, ahead)
    after: dict[int, list[int]] = {}
    for each in ahead:
        after.setdefault(each.src, []).append(each.dst)
    return [
        each for each in ahead if not any(reaches[other, each.dst] for other in after[each.src] if other != each.dst)
    ]


def _needed(count: int, ahead: Sequence[Arrow], back: Sequence[Arrow]) -> list[Arrow]:
    """Leave out dependences on earlier steps that follow from others."""
    reaches = _reaches(count, ahead)

    def follows(each: Arrow, other: Arrow) -> bool:
        implied = other.distance == each.distance and reaches[each.src, other.src] and reaches[other.dst, each.dst]
        return bool(implied) and other != each

    return [each for each in back if not any(follows(each, other) for other in back)]


def _describe(node: Node, names: ArrayNames) -> None:
    """Say what a node does, from its operations."""
    op, many = node.ops[0], len(node.ops)
    alike = all(each.name == op.name for each in node.ops)
    name = op.name if alike else f"{op.name} and others"
    node.name = one_line(f"{many} x {name}" if many > 1 else name)
    reads, writes, parts = {}, {}, {}  # type: tuple[dict[str, None], dict[str, None], dict[str, int]]
    for each in node.ops:
        for operand in each.operands:
            part = names.part(operand) if len(parts) <= _MOST_TOLD else ""
            shown = part if many == 1 else names.name(operand)
            if operand.mode & READ:
                reads[shown] = None
            if operand.mode & WRITE:
                writes[shown] = None
            if part:
                parts[part] = parts.get(part, 0) | operand.mode
    node.lines = [line for line in (_listed(reads), f"→ {_listed(writes)}" if writes else "") if line]
    if len(" ".join(node.lines)) <= _LETTERS:
        node.lines = [" ".join(node.lines)] if node.lines else []
    if isinstance(op.body, Nested):
        node.lines.append(f"a graph of {counted(len(op.body.graph), 'op')}")
    sites = dict.fromkeys(map(str, dict.fromkeys(each.call_site for each in node.ops)))
    node.title = "\n".join(_told(node.name, list(sites), op.call_site, parts))


def tell_op(op: Op, names: ArrayNames) -> list[str]:
    """Return lines that say what an operation is: its name, the line of source, its arrays."""
    parts: dict[str, int] = {}
    for operand in op.operands:
        part = names.part(operand)
        parts[part] = parts.get(part, 0) | operand.mode
    return _told(one_line(op.name), [str(op.call_site)], op.call_site, parts)


def _told(name: str, sites: Sequence[str], site: CallSite, parts: Mapping[str, int]) -> list[str]:
    told = [name, *[f"at {each}" for each in sites[:3]]]
    told += [f"at {counted(len(sites) - 3, 'other line')}"] if len(sites) > 3 else []
    source = linecache.getline(site.filename, site.line).strip()
    told += [f"    {source}"] if source and len(sites) == 1 else []
    words = {1: "reads", 2: "writes", 3: "reads and writes"}
    told += [f"{words[mode]} {part}" for part, mode in list(parts.items())[:_MOST_TOLD]]
    return told + (["and other parts of arrays"] * (len(parts) > _MOST_TOLD))


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    rest = [f"{len(found) - _MOST_NAMES} more"] if len(found) > _MOST_NAMES + 1 else []
    return ", ".join(found[:_MOST_NAMES] + rest if rest else found)


def _tell_sources(nodes: list[Node], ahead: Sequence[Arrow], back: Sequence[Arrow]) -> None:
    """Add to the titles what each node comes after."""
    by_node: dict[int, list[str]] = {}
    for each in (*ahead, *back):
        name = nodes[each.src].name if each.src != each.dst else "itself"
        where = f"{name}{_when(each, nodes)}"
        by_node.setdefault(each.dst, []).append(where)
    for number, found in by_node.items():
        rest = [f"{len(found) - _MOST_TOLD} more"] if len(found) > _MOST_TOLD else []
        nodes[number].title += f"\nafter {', '.join([*found[:_MOST_TOLD], *rest])}"


def _when(arrow: Arrow, nodes: Sequence[Node]) -> str:
    if not arrow.distance:
        return "" if arrow.src != arrow.dst else " (earlier in the step)"
    return " in the step before" if arrow.distance == 1 else f" {arrow.distance} steps before"


def to_dot(graph: Graph) -> str:
    """Return a graph in the language of Graphviz; see `Graph.to_dot`."""
    folded = fold(graph)
    lines = ["digraph ostinato {", '  node [shape=box, style="rounded,filled", fontname="monospace"];']
    for number, node in enumerate(folded.nodes):
        label = _quoted("\n".join([node.name, *node.lines]))
        font = f', fontcolor="{ink_on(node.colour)}"'
        lines.append(f'  n{number} [label={label}, tooltip={_quoted(node.title)}, fillcolor="{node.colour}"{font}];')
    lines += [f"  n{each.src} -> n{each.dst};" for each in folded.ahead]
    for each in folded.back:
        label = f"{each.distance} steps" if each.distance > 1 else "next step" if each.distance else "again"
        style = "dashed" if each.distance else "solid"
        lines.append(f'  n{each.src} -> n{each.dst} [style={style}, constraint=false, label="{label}"];')
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(words: str) -> str:
    lines = (one_line(line).replace("\\", "\\\\").replace('"', '\\"') for line in words.split("\n"))
    return '"' + "\\n".join(lines) + '"'


def draw_graph(graph: Graph) -> Scene:
    """Return the picture of a graph."""
    folded = fold(graph)
    nodes, nearest = folded.nodes, {}  # type: tuple[list[Node], dict[tuple[int, int], Arrow]]
    for each in sorted(folded.back, key=lambda each: each.distance):
        if each.distance or each.src != each.dst:
            nearest.setdefault((each.src, each.dst), each)
    again = [Arrow(number, number, 0, 1) for number, node in enumerate(nodes) if node.repeats]
    scene = Scene(f"a graph of {counted(folded.ops, 'operation')}")
    for node in nodes:
        _measure(node)
    paths = _place(nodes, _layers(len(nodes), folded.ahead), folded.ahead)
    scene.width = max((node.x + node.width for node in nodes), default=0) + _MARGIN
    scene.height = max((node.y + node.height for node in nodes), default=0) + _MARGIN
    for arrow, path in zip(folded.ahead, paths, strict=True):
        title = f"{nodes[arrow.dst].name} comes after {nodes[arrow.src].name}"
        scene.add(Line(_smooth(path), arrow=True), title=title)
    back = [*again, *nearest.values()]
    marked = [each for each in back if not _at_the_right(nodes, each)]
    if len(back) - len(marked) > _MOST_BACK:
        marked = back
    for arrow in marked:
        nodes[arrow.dst].is_marked = True
    drawn = [each for each in back if each not in marked]
    for number, arrow in enumerate(drawn):
        _draw_back(scene, nodes, arrow, number)
    for node in nodes:
        _draw_node(scene, node)
    _draw_legend(scene, folded, drawn)
    return scene


def _measure(node: Node) -> None:
    title = wrap(node.name, _LETTERS)
    node.lines = [part for line in node.lines for part in wrap(line, _LETTERS + 6)]
    widths = [width_of(line, 12) for line in title] + [width_of(line, 10) for line in node.lines]
    node.width = max(max(widths) + 20, 64)
    node.height = 16 * len(title) + 13 * len(node.lines) + 12


def _draw_node(scene: Scene, node: Node) -> None:
    ink = ink_on(node.colour)
    parts: list[Box | Words] = []
    if len(node.ops) > 1:
        parts += [Box(node.x + 4, node.y + 4, node.width, node.height, node.colour, ink, 6)]
    outside = node.ops[0].body.waits_outside
    parts.append(Box(node.x, node.y, node.width, node.height, node.colour, ink, 6, outside))
    middle, y = node.x + node.width / 2, node.y + 4.0
    for line in wrap(node.name, _LETTERS):
        y += 16
        parts.append(Words(line, middle, y, 12, "middle", ink, True))
    for line in node.lines:
        y += 13
        parts.append(Words(line, middle, y, 10, "middle", ink))
    if node.is_marked:
        stacked = 4 * (len(node.ops) > 1)
        parts.append(Words("↺", node.x + node.width + 3 + stacked, node.y + 10 + stacked, 12))
    scene.add(*parts, title=node.title)


def _place(nodes: list[Node], layers: list[list[int]], ahead: Sequence[Arrow]) -> list[list[Point]]:
    """Place nodes in layers, and return the points that each arrow goes through (Sugiyama, Tagawa, Toda 1981)."""
    layer = {node: number for number, row in enumerate(layers) for node in row}
    rows: list[list[int]] = [list(row) for row in layers]
    widths = [node.width for node in nodes]
    links: list[tuple[int, int]] = []  # between neighbouring layers
    routes: list[list[int]] = []
    for each in ahead:
        route = [each.src]
        for number in range(layer[each.src] + 1, layer[each.dst]):
            rows[number].append(len(widths))
            route.append(len(widths))
            widths.append(8.0)
        routes.append([*route, each.dst])
        links += pairwise(routes[-1])
    above: list[list[int]] = [[] for _ in widths]
    below: list[list[int]] = [[] for _ in widths]
    for src, dst in links:
        above[dst].append(src)
        below[src].append(dst)
    _uncross(rows, above, below)
    centre = _centres(rows, widths, above, below)
    y, tops = _MARGIN, []
    for row in layers:
        tops.append(y)
        y += max(nodes[each].height for each in row) + _BETWEEN
    for number, node in enumerate(nodes):
        node.x, node.y = centre[number] - node.width / 2, tops[layer[number]]
    paths = []
    for route in routes:
        first, last = nodes[route[0]], nodes[route[-1]]
        path = [(centre[route[0]], first.y + first.height)]
        for step, number in enumerate(route[1:-1], layer[route[0]] + 1):
            path += [(centre[number], tops[step] - 6), (centre[number], tops[step + 1] - _BETWEEN + 6)]
        paths.append([*path, (centre[route[-1]], last.y)])
    return paths


def _uncross(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Order each row by the middle of what its entries are joined to."""
    for turn in range(8):
        down = turn % 2 == 0
        for number in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            beside = {entry: place for place, entry in enumerate(rows[number - 1 if down else number + 1])}
            joined = above if down else below
            middle = {
                entry: sum(beside[each] for each in joined[entry]) / len(joined[entry]) if joined[entry] else place
                for place, entry in enumerate(rows[number])
            }
            rows[number].sort(key=middle.__getitem__)


def _centres(rows: list[list[int]], widths: list[float], above: list[list[int]], below: list[list[int]]) -> list[float]:
    """Return where entries are, near those that they are joined to, and not on each other."""
    centre = [0.0] * len(widths)
    for row in rows:
        x = -sum(widths[entry] + _GAP for entry in row) / 2
        for entry in row:
            centre[entry] = x + widths[entry] / 2
            x += widths[entry] + _GAP
    for turn in range(12):
        down = turn % 2 == 0
        for row in rows if down else reversed(rows):
            wanted = []
            for entry in row:
                joined = (above if down else below)[entry] or [entry]
                wanted.append(sum(centre[each] for each in joined) / len(joined))
            apart = [(widths[a] + widths[b]) / 2 + _GAP for a, b in pairwise(row)]
            from_left, from_right = list(wanted), list(wanted)
            for place, room in enumerate(apart):
                from_left[place + 1] = max(from_left[place + 1], from_left[place] + room)
            for place, room in reversed(list(enumerate(apart))):
                from_right[place] = min(from_right[place], from_right[place + 1] - room)
            for entry, left, right in zip(row, from_left, from_right, strict=True):
                centre[entry] = (left + right) / 2
    leftmost = min((centre[entry] - widths[entry] / 2 for row in rows for entry in row), default=0.0)
    return [each - leftmost + _MARGIN for each in centre]


def _smooth(path: Sequence[Point]) -> tuple[Point, ...]:
    """Return curves through points that leave and arrive vertically."""
    points = [path[0]]
    for (x, y), (to_x, to_y) in pairwise(path):
        points += [(x, (y + to_y) / 2), (to_x, (y + to_y) / 2), (to_x, to_y)]
    return tuple(points)


def _draw_back(scene: Scene, nodes: list[Node], arrow: Arrow, number: int) -> None:
    """Draw an arrow at the right: upwards, or to the node itself."""
    src, dst = nodes[arrow.src], nodes[arrow.dst]
    between = [node for node in nodes if min(src.y, dst.y) - 1 <= node.y <= max(src.y, dst.y) + 1]
    right = max(node.x + node.width for node in between)
    begin = src.x + src.width, src.y + src.height * 0.7
    end = dst.x + dst.width, dst.y + dst.height * 0.3
    out = right + 34 + 10 * (number % 6) if src is not dst else right + 34 + 14 * (arrow.distance > 0)
    control = [(out, begin[1]), (out, end[1])]
    if src is dst:
        control = [(out, begin[1] + 6), (out, end[1] - 6)]
    title = f"{dst.name} comes after {'itself' if src is dst else src.name}{_when(arrow, nodes)}"
    scene.add(Line((begin, *control, end), dashed=arrow.distance > 0, arrow=True), title=title)
    words = f"{arrow.distance} steps" if arrow.distance > 1 else ""
    middle = 0.75 * out + 0.25 * begin[0]
    if words:
        scene.add(Words(words, middle + 4, (begin[1] + end[1]) / 2 + 3, 10, colour=DIM))
    scene.width = max(scene.width, out, middle + _MARGIN + width_of(words, 10) + 4 * bool(words))


def _at_the_right(nodes: list[Node], arrow: Arrow) -> bool:
    """Whether nothing in their rows is at the right of both ends, so that a line there is hidden by no other box."""
    ends = nodes[arrow.src], nodes[arrow.dst]
    return not any(node.y == end.y and node.x > end.x for end in ends for node in nodes)


def _draw_legend(scene: Scene, folded: Folded, back: Sequence[Arrow]) -> None:
    entries: dict[str, Box | Line] = {}
    for node in folded.nodes:
        name = "copy" if node.colour == COPY else one_line(node.ops[0].name)
        entries.setdefault(name, Box(0, 0, 18, 10, node.colour, ink_on(node.colour)))
    if folded.ahead or any(not each.distance for each in back):
        entries["comes after, in the step"] = Line(((0, 0),), arrow=True)
    if any(each.distance for each in back):
        entries["comes after, in a later step"] = Line(((0, 0),), dashed=True, arrow=True)
    width = max(scene.width, 420.0)
    y = scene.add_legend(entries.items(), _MARGIN, scene.height + 8, width - 2 * _MARGIN)
    if any(node.is_marked for node in folded.nodes):
        y += 18
        for line in wrap("↺ also comes after operations of earlier steps or repeats", _LEGEND_LETTERS):
            scene.add(Words(line, _MARGIN, y))
            scene.width = max(scene.width, _MARGIN * 2 + width_of(line, 11))
            y += 15
        y -= 15
    shown = list(folded.names.about.items())
    rest = [f"and {counted(len(shown) - 12, 'other array')}"] if len(shown) > 13 else []
    listed = [f"{name}: {about}" for name, about in (shown[:12] if rest else shown)] + rest
    for words in listed:
        for line in wrap(words, 90):
            y += 15
            scene.add(Words(line, _MARGIN, y + 4, 10, colour=DIM))
            scene.width = max(scene.width, _MARGIN * 2 + width_of(line, 10))
    scene.height = y + _MARGIN


def graph_page(graph: Graph) -> str:
    """Return a graph as notebooks show it."""
    title = f"Graph of {counted(len(graph), 'operation')}"
    if graph.is_recording:
        return page(title, paragraphs(["It is still being captured."]))
    try:
        scene = draw_graph(graph)
    except GraphError as error:
        return page(title, paragraphs([str(error)]))
    return page(title, picture(scene.svg(inline=True)), disclosed("Arrays", _table_of_arrays(graph)))


def _table_of_arrays(graph: Graph) -> str:
    names, users = ArrayNames(graph.array_names), Counter()  # type: tuple[ArrayNames, Counter[str]]
    for op in graph.ops:
        users.update({names.name(operand) for operand in op.operands})
    by_name: Counter[str] = Counter()
    for name, count in users.items():
        by_name[name if name in names.about else name.rpartition("[")[0]] += count
    rows = [(name, about, by_name[name]) for name, about in names.about.items()]
    return table(["array", "what it is", "#uses"], rows) or paragraphs(["none"])
