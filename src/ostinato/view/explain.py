"""What a program is, as text: lanes, waits, costs, the critical path, and what was serialised and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ostinato.compiler.ir import Edges, Executable
from ostinato.compiler.streams.fences import Completion
from ostinato.compiler.streams.staging import Staged
from ostinato.compiler.wording import duration
from ostinato.counting import counted
from ostinato.graph.body import Until
from ostinato.one_line import one_line
from ostinato.view.explain_captures import Stretch, captures
from ostinato.view.explain_copies import copies
from ostinato.view.listing import listed, more

__all__ = ["explain"]

_MOST_LANES = 32
_ENDS_OF_PATH = 6  # ops shown from each end of a long critical path


def explain(executable: Executable, crowded: bool, processors: int, stretches: Iterable[Stretch] = ()) -> str:
    """Return what a schedule is, as text.

    Parameters
    ----------
    executable
        The schedule.
    crowded
        Whether the machine has more processors than there are cores.
    processors
        How many processors it has.
    stretches
        What of its work for devices can be captured, and what became of that so far.
    """
    nodes, lanes = len(executable.step.nodes), len(executable.lane_ops)
    sections = [
        [f"{counted(nodes, 'op')} on {counted(lanes, 'lane')}, for {counted(processors, 'processor')}"],
        _lanes(executable),
        _costs(executable),
        _critical_path(executable),
        _dependences(executable),
        *(_on_devices(executable, executable.step.staged, stretches) if executable.step.staged is not None else []),
        ["Serialised", *(f"  {line}" for line in list(_serialised(executable, processors)) or ["nothing"])],
    ]
    if crowded:
        sections.append(
            [f"The machine has more processors ({processors}) than there are cores: slower, never a livelock."]
        )
    return "\n\n".join("\n".join(map(one_line, section)) for section in sections) + "\n"


def _on_devices(executable: Executable, staged: Staged, stretches: Iterable[Stretch]) -> list[list[str]]:
    captured = captures(executable.step.nodes, stretches)
    return [copies(staged), captured] if captured else [copies(staged)]


def _lanes(executable: Executable) -> list[str]:
    lines = ["Lanes"]
    waits = np.diff(executable.step.waits.start)
    for lane, slots in enumerate(executable.lane_ops[:_MOST_LANES]):
        ops = slots[slots < len(executable.step.nodes)]  # not the barrier between steps
        pinned = ", pinned" if executable.step.placement.pinned[lane] else ""
        names = [executable.step.nodes[i].name for i in ops] + ["the barrier between steps"] * (len(slots) - len(ops))
        lines.append(
            f"  lane {lane} (cpu:{executable.step.placement.home[lane]}{pinned}{_device(executable, ops)}): "
            f"{counted(len(ops), 'op')}, "
            f"{counted(int(waits[slots].sum()), 'wait')}, {counted(_publishes(executable, slots), 'publish')}, "
            f"{duration(executable.step.costs.seconds[ops].sum())} a step: {listed(names)}"
        )
    return [*lines, *more(len(executable.lane_ops) - _MOST_LANES, "lane")]


def _device(executable: Executable, ops: npt.NDArray[np.int32]) -> str:
    """Which device a lane puts work on, or waits for."""
    staged = executable.step.staged
    if staged is None or not len(ops):
        return ""
    stream = staged.streams.of[ops[0]]
    if stream < 0:
        return ""
    waits = isinstance(executable.step.nodes[ops[0]].body, Completion)
    return f", {'waits for' if waits else 'a stream of'} {staged.devices[staged.streams.device[stream]].name}"


def _publishes(executable: Executable, slots: npt.NDArray[np.int32]) -> int:
    """How often a lane says in a step how far it is: where others wait for it, and at the end of each step."""
    if len(executable.lane_ops) == 1:
        return 0
    return int(executable.step.waits.published[slots[:-1]].sum()) + 1


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
    lines += more(len(ranked) - _MOST_LANES, "name")
    lines += [f"  {note}" for note in costs.notes]
    work = float(costs.seconds.sum())
    span = executable.step.placement.step_seconds
    return [*lines, f"  {duration(work)} in all; with its lanes, a step takes {duration(span)} by the model"]


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
    if executable.step.staged is not None:
        held &= executable.step.staged.streams.of < 0  # streams have lanes of their own
    bound = [ops[index].name for index in np.flatnonzero(held)]
    if len(bound) > 1:
        yield (
            f"{counted(len(bound), 'Python op')} hold the GIL and take turns on one lane: {listed(bound)}. "
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
