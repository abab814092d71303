"""What a program is, as text: lanes, waits, costs, the critical path, and what was serialised and why."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato.compiler.inserted import Fence, InstanceCopy
from ostinato.compiler.ir import HOST, Activity, Edges, Executable, Step, WriteBack
from ostinato.compiler.wording import duration, size
from ostinato.graph.body import PythonCall, Until
from ostinato.graph.messages import Message
from ostinato.graph.op import Op, format_op
from ostinato.graph.param import STEP
from ostinato.text import counted, one_line

if TYPE_CHECKING:
    from ostinato import _core

_MOST_NAMES = 6


def format_rest(number: int, what: str) -> Sequence[str]:
    """Return the line that says how many were left out, if any were."""
    return [f"  and {counted(number, what)} more"] if number > 0 else []


def format_names(names: Iterable[str]) -> str:
    """Return names, each once with its number, the most frequent first.

    Examples
    --------
    >>> format_names(["add", "scale", "add"])
    '2 x add, scale'
    """
    counts = Counter(names)
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    shown = [f"{counts[name]} x {name}" if counts[name] > 1 else name for name in ranked[:_MOST_NAMES]]
    return ", ".join([*shown, *(line.strip() for line in format_rest(len(ranked) - _MOST_NAMES, "name"))]) or "nothing"


_MOST = 32


class Segment(NamedTuple):
    """Ops of a stream that can be captured together."""

    device: str
    """The name of their device."""
    ops: Sequence[int]
    """Their numbers, in order."""
    phases: int
    """How many captures it takes, as rings turn."""
    times: int
    """How many times it was captured."""
    why: str | None
    """Why it cannot be captured; None if it was, or if nobody tried yet. Empty: the device captures nothing."""
    failed: int
    """The op that cannot be captured; -1: none in particular."""

    def plus(self, other: Segment) -> Segment:
        """Return the result of both plans."""
        if not other.tried:
            return self
        if not self.tried:
            return other
        failed = self if self.why is not None else other
        return failed._replace(phases=self.phases + other.phases, times=self.times + other.times)

    @property
    def tried(self) -> bool:
        """Whether somebody has tried to capture it."""
        return self.times > 0 or self.why is not None


def segments_of(plans: Iterable[_core.Plan]) -> list[Segment]:
    """Return the segments of the plans of one executable, as the core knows them."""
    by_plan = [[Segment(*each) for each in plan.segments] for plan in plans]
    return [functools.reduce(Segment.plus, same) for same in zip(*by_plan, strict=True)]


def captures(ops: Sequence[Op], segments: Iterable[Segment]) -> list[str]:
    """Return what is issued as one, what is called in each step, and why: for all ops of a schedule."""
    lines: list[str] = []
    waiting: list[int] = []
    for each in segments:
        if each.why is not None:
            lines += _called(each, ops)
        elif each.times:
            lines.append(_issued(each, ops))
        else:
            waiting += each.ops
    lines += [f"{_shown(op)} is called in each step: ost.step is another in each" for op in ops if _takes_step(op)]
    if waiting:
        lines.append(f"not captured yet, since bodies are called once before: {_listed(waiting, ops)}")
    if not lines:
        return []
    return ["Captures", *(f"  {line}" for line in lines[:_MOST]), *format_rest(len(lines) - _MOST, "line")]


def _issued(segment: Segment, ops: Sequence[Op]) -> str:
    again = segment.times - segment.phases
    changed = f", {counted(again, 'time')} again for other parameters" if again > 0 else ""
    as_one = " as one" * (len(segment.ops) > 1)
    return f"{segment.device}: {counted(len(segment.ops), 'op')} captured{as_one}{changed}: {_listed(segment.ops, ops)}"


def _called(segment: Segment, ops: Sequence[Op]) -> Iterator[str]:
    why = segment.why or f"{segment.device} captures nothing"
    failed = segment.ops[0] if segment.failed < 0 and len(segment.ops) == 1 else segment.failed
    if failed < 0:
        yield f"{segment.device}: called in each step: {_listed(segment.ops, ops)}: {why}"
        return
    yield f"{_shown(ops[failed])} is called in each step: {why}"
    others = [index for index in segment.ops if index != failed]
    if others:
        yield f"{segment.device}: called in each step with it: {_listed(others, ops)}"


def _shown(op: Op) -> str:
    return f"{format_op(op)} at {op.call_site}"


def _listed(numbers: Iterable[int], ops: Sequence[Op]) -> str:
    return format_names(ops[index].name for index in numbers)


def _takes_step(op: Op) -> bool:
    return isinstance(op.body, PythonCall) and op.body.launch_only and any(arg is STEP for arg in op.body.args)


_MOST_COPIES = 32


def copies(step: Step) -> list[str]:
    """Return the copies with what they move in each step, the largest first; and what goes back when a run ends."""
    activity = step.coherence.activity
    names = {HOST: "the host"} | {index: device.name for index, device in enumerate(step.devices)}
    told = [_Copy(op, op.body, names, activity.get(op.index)) for op in step.nodes if isinstance(op.body, InstanceCopy)]
    told.sort(key=lambda copy: (-copy.later, -copy.first))
    lines = [f"  {copy}" for copy in told[:_MOST_COPIES]]
    if len(told) > _MOST_COPIES:
        lines.append(f"  and {len(told) - _MOST_COPIES} more")
    lines += [f"  {line}" for line in _written_back(step.coherence.write_backs, names)]
    if not lines:
        return ["Copies between memories: none"]
    moved = size(sum(copy.later for copy in told))
    once = sum(copy.first for copy in told)
    per_run = f", and {size(once)} once a run" if once else ""
    return [f"Copies between memories: {moved} a step{per_run}", *lines]


class _Copy:
    """What a copy moves: bytes `later` a step on average, and `first` more once a run."""

    def __init__(self, op: Op, body: InstanceCopy, names: dict[int, str], activity: Activity | None) -> None:
        self._op, self._body, self._names = op, body, names
        moved, period = np.array(body.nbytes), body.period
        acts = np.ones(period, np.bool_) if activity is None else activity[1]
        self.later = float((moved * acts).mean())
        self._steps = 0 if activity is None else activity[0].shape[1]
        since = np.arange(self._steps)
        in_first = moved[since % period] * (0 if activity is None else activity[0][0])
        self._in_first = int(np.sum(in_first))
        self.first = max(self._in_first - int((moved * acts)[since % period].sum()), 0)

    def __str__(self) -> str:
        source, target = self._names[self._body.source], self._names[self._body.target]
        return f"{self._often()}, {source} to {target}, for {self._op.original.name!r} at {self._op.call_site}"

    def _often(self) -> str:
        if not self._steps:
            return f"{size(self.later)} a step"
        first = "a run's first step" if self._steps == 1 else f"a run's first {self._steps} steps"
        if not self.later:
            return f"{size(self._in_first)} in {first}"
        if not self._in_first:
            return f"{size(self.later)} a step after {first}"
        return f"{size(self.later)} a step, {size(self._in_first)} in {first}"


def _written_back(write_backs: Iterable[WriteBack], names: dict[int, str]) -> Iterator[str]:
    """What is copied home when a run ends, by where it comes from."""
    moved: dict[tuple[str, str], int] = {}
    for each in write_backs:
        if each.usual:
            way = names[each.source], names[each.target]
            moved[way] = moved.get(way, 0) + sum(source.nbytes for source, _ in each.pairs)
    for (source, home), nbytes in moved.items():
        yield f"at most {size(nbytes)} when a run ends, {source} to {home}: what was written last on {source}"


_MOST_LANES = 32
_ENDS_OF_PATH = 6  # ops shown from each end of a long critical path


def explain(
    executable: Executable,
    crowded: bool,
    processors: int,
    adapting: Iterable[str],
    segments: Iterable[Segment] = (),
    shared: frozenset[tuple[bool, int]] = frozenset(),
    by_workers: bool = True,
) -> str:
    """Return what a schedule is, as text.

    The machine has so many `processors`, and is `crowded` if there are fewer cores. `adapting` says what was learned
    in replays, or why nothing was. `segments` are the parts of the
    work for devices that can be captured, with what became of that so far. Messages that are sent or not, and the other
    rank, are `shared` if memory carries them. `by_workers`: idle workers look for messages.
    """
    nodes, lanes = len(executable.step.nodes), len(executable.lane_ops)
    step = executable.step
    on_devices = [copies(step), captures(step.nodes, segments)] if step.uses_devices else []
    sections = [
        [f"{counted(nodes, 'op')} on {counted(lanes, 'lane')}, for {counted(processors, 'processor')}"],
        _lanes(executable),
        _costs(executable),
        _critical_path(executable),
        _dependences(executable),
        *filter(None, on_devices),
        *filter(None, [messages(step.nodes, float(step.costs.seconds.max(initial=0)), shared, by_workers)]),
        ["Adapting", *(f"  {line}" for line in adapting)],
        ["Serialised", *(f"  {line}" for line in list(_serialised(executable, processors)) or ["nothing"])],
    ]
    if crowded:
        sections.append(
            [f"The machine has more processors ({processors}) than there are cores: slower, never a livelock."]
        )
    return "\n\n".join("\n".join(map(one_line, section)) for section in sections) + "\n"


_LARGE, _LONG = 2**16, 1e-3
"""Bytes from which on MPI waits for the other rank before it sends, and seconds between two looks for messages where
all workers are busy."""


def messages(ops: Sequence[Op], longest: float, shared: frozenset[tuple[bool, int]], by_workers: bool) -> list[str]:
    """Return what this rank sends and receives in a step, by the other rank, for which operations, and how.

    `longest`: seconds that the longest operation takes. The rest is as for `explain`.
    """
    found: dict[tuple[int, bool], list[Op]] = {}
    for op in ops:
        if isinstance(op.body, Message):
            found.setdefault((op.body.peer, op.body.sends), []).append(op)
    lines, largest = [], 0
    for (peer, sends), those in sorted(found.items()):
        sizes = [each.body.operand.arrays[0].nbytes for each in those if isinstance(each.body, Message)]
        sites = list(dict.fromkeys(f"{op.original.name} at {op.call_site}" for op in those))
        shown = ", ".join(
            [*sites[:_MOST_NAMES], *(rest.strip() for rest in format_rest(len(sites) - _MOST_NAMES, "line"))]
        )
        to, way = "to" if sends else "from", "memory"
        if (sends, peer) not in shared:
            way, largest = "MPI", max(largest, *sizes)
        told = f"{counted(len(those), 'message')}, {size(sum(sizes))} a step"
        lines.append(f"  {to} rank {peer}: {told}, by {way}, for {shown}")
    if not lines:
        return []
    looks = "workers with nothing else to do" if by_workers else "a thread of its own"
    progress = [f"  progress by {looks}"]
    if by_workers and largest >= _LARGE and longest > _LONG:
        progress.append(
            f"  a message of {size(largest)} may wait while all workers are in ops, of which the longest takes "
            f"{duration(longest)}; Ranks(progress='thread') avoids that"
        )
    return ["Messages", *lines[:_MOST], *format_rest(len(lines) - _MOST, "line"), *progress]


def _lanes(executable: Executable) -> list[str]:
    lines = ["Lanes"]
    waits = np.diff(executable.step.waits.start)
    for lane, slots in enumerate(executable.lane_ops[:_MOST_LANES]):
        ops = slots[slots < len(executable.step.nodes)]  # not the barrier between steps
        pinned = ", pinned" if executable.step.placement.pinned[lane] else ""
        names = [executable.step.nodes[i].name for i in ops] + ["the barrier between steps"] * (len(slots) - len(ops))
        lines.append(
            f"  lane {lane} (cpu:{executable.step.placement.affinity[lane]}{pinned}{_device(executable, ops)}): "
            f"{counted(len(ops), 'op')}, "
            f"{counted(int(waits[slots].sum()), 'wait')}, {counted(_publishes(executable, slots), 'publish')}, "
            f"{duration(executable.step.costs.seconds[ops].sum())} a step: {format_names(names)}"
        )
    return [*lines, *format_rest(len(executable.lane_ops) - _MOST_LANES, "lane")]


def _device(executable: Executable, ops: npt.NDArray[np.int32]) -> str:
    """Which device a lane puts work on, or waits for."""
    step = executable.step
    if not step.uses_devices or not len(ops):
        return ""
    stream = step.streams.of[ops[0]]
    if stream < 0:
        return ""
    waits = isinstance(step.nodes[ops[0]].body, Fence)
    return f", {'waits for' if waits else 'a stream of'} {step.devices[step.streams.device[stream]].name}"


def _publishes(executable: Executable, slots: npt.NDArray[np.int32]) -> int:
    """How often a lane says in a step how far it is: where others wait for it."""
    if len(executable.lane_ops) == 1:
        return 0
    return int(executable.step.waits.published[slots].sum())


def _costs(executable: Executable) -> list[str]:
    """The cost of all ops of each name, source and variant, the dearest first."""
    costs = executable.step.costs
    total: dict[tuple[str, str], float] = {}
    count: Counter[tuple[str, str]] = Counter()
    for op, seconds, source in zip(executable.step.nodes, costs.seconds.tolist(), costs.source.tolist(), strict=True):
        known = costs.sources[source]
        if op.variant is not None and f"variant {op.variant.label}" not in known:
            known += f", variant {op.variant.label}"
        total[op.name, known] = total.get((op.name, known), 0.0) + seconds
        count[op.name, known] += 1
    lines = ["Costs a step"]
    ranked = sorted(total, key=lambda key: (-total[key], key))
    for key in ranked[:_MOST_LANES]:
        name, known = key
        lines.append(f"  {duration(total[key])} in {counted(count[key], 'op')} {name!r}, {known}")
    lines += format_rest(len(ranked) - _MOST_LANES, "name")
    lines += [f"  {note}" for note in costs.notes]
    work = float(costs.seconds.sum())
    span = duration(executable.step.placement.step_seconds)
    # The model knows what threads do, not what devices do meanwhile.
    takes = f"its threads take {span} of a step" if executable.step.uses_devices else f"a step takes {span}"
    return [*lines, f"  {duration(work)} in all; with its lanes, {takes} by the model"]


def _critical_path(executable: Executable) -> list[str]:
    path = _longest_path(executable.step.edges, executable.step.costs.seconds)
    seconds = float(executable.step.costs.seconds[path].sum())
    lines = [
        f"  {op.name} at {op.call_site}, {duration(executable.step.costs.seconds[op.index])}"
        for op in (executable.step.nodes[i] for i in path)
    ]
    if len(lines) > 2 * _ENDS_OF_PATH:
        left_out = f"  ... {len(lines) - 2 * _ENDS_OF_PATH} more ..."
        lines = [*lines[:_ENDS_OF_PATH], left_out, *lines[-_ENDS_OF_PATH:]]
    return [f"Critical path of a step, estimated: {counted(len(path), 'op')}, {duration(seconds)}", *lines]


def _longest_path(edges: Edges, seconds: npt.NDArray[np.float64]) -> list[int]:
    """The ops that depend on each other within a step and take longest together."""
    inside = edges.distance == 0
    sources, targets = edges.src[inside], edges.dst[inside]
    by_source = np.argsort(sources, kind="stable")
    begin = np.searchsorted(sources[by_source], np.arange(len(seconds) + 1)).tolist()
    followers = targets[by_source].tolist()
    missing = np.bincount(targets, minlength=len(seconds)).tolist()
    cost = seconds.tolist()
    ends, before = list(cost), [-1] * len(cost)
    ready = [op for op, count in enumerate(missing) if count == 0]
    for op in ready:  # grows
        for follower in followers[begin[op] : begin[op + 1]]:
            if before[follower] < 0 or ends[op] + cost[follower] > ends[follower]:
                ends[follower], before[follower] = ends[op] + cost[follower], op
            missing[follower] -= 1
            if missing[follower] == 0:
                ready.append(follower)
    path = [max(range(len(cost)), key=ends.__getitem__)] if cost else []
    while path and before[path[-1]] >= 0:
        path.append(before[path[-1]])
    return path[::-1]


def _dependences(executable: Executable) -> list[str]:
    distances, counts = np.unique(executable.step.edges.distance, return_counts=True)
    lines = [f"Dependences: {len(executable.step.edges.src)}, of which lanes wait for {len(executable.step.waits.op)}"]
    for distance, count in zip(distances.tolist(), counts.tolist(), strict=True):
        where = ("within a step", "on the step before")[distance] if distance < 2 else f"on {distance} steps before"
        lines.append(f"  {count} {where}")
    if len(executable.lane_ops) > 1:
        lines.append(f"  also, no lane gets {executable.core.window} steps ahead of another")
    return lines


def _serialised(executable: Executable, processors: int) -> Iterator[str]:
    ops, lanes = executable.step.nodes, len(executable.lane_ops)
    held = executable.step.operations.gil_bound[: len(ops)].copy()
    if executable.step.uses_devices:
        held &= executable.step.streams.of < 0  # streams have lanes of their own
    bound = [ops[index].name for index in np.flatnonzero(held)]
    if len(bound) > 1:
        yield (
            f"{counted(len(bound), 'Python op')} hold the GIL and take turns on one lane: {format_names(bound)}. "
            "releases_gil=True says that a task spends its time without it"
        )
    if executable.step.serial:
        yield (
            "each step begins when the one before has ended: with infer=False and no edge between steps, nothing says "
            "which ops may overlap"
        )
    for op in ops:
        if isinstance(op.body, Until):
            every = f"every {counted(op.body.every, 'step')}" if op.body.every > 1 else "in every step"
            yield f"{every}, all lanes wait for until at {op.call_site} before they begin another one"
    if lanes == 1 and len(ops) > 1 and len(bound) < len(ops):
        yield f"all ops are on one lane: {_why_one_lane(executable, processors)}"


def _why_one_lane(executable: Executable, processors: int) -> str:
    if processors == 1:
        return "the machine has one processor"
    if executable.target.threads == 1:
        return "lanes=1 was asked for"
    return (
        "by the model, two would be slower, since what they gain is less than what it costs to pass data between cores"
    )
