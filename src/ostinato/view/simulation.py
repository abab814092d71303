"""How a program would run on a machine: its schedule, run by a model of the replay core."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ostinato.arguments import integer
from ostinato.compiler.pipeline.arrangement import GIL, Arrangement, arrange, arrange_as_compiled, arrange_copies
from ostinato.compiler.target import MachineModel
from ostinato.compiler.wording import duration
from ostinato.text import brief, counted

if TYPE_CHECKING:
    from ostinato.compiler.ir import Executable
    from ostinato.view.trace import Trace

MOST_STEPS, LEAST_STEPS = 1024, 8
MOST_OPS = 2_000_000
"""So many ops are simulated, in fewer steps the more ops a step has, but in `LEAST_STEPS` at least."""

FEW_OPS = 100_000
"""So many are enough for a rough prediction."""

MOST_SHOWN, MOST_RECORDS = 16, 1_000_000
"""So many steps have their ops told one by one, and no more than so many ops if these are two steps."""

FULL = 0.95
"""A thread that is in ops for so much of the time is what bounds a step."""

LANE = np.dtype([("thread", np.int32), ("busy", np.float64), ("queued", np.float64), ("waiting", np.float64)])
THREAD = np.dtype([("busy", np.float64), ("idle", np.float64)])


class Bottleneck(NamedTuple):
    """The lane that bounds a step."""

    lane: int
    share: float
    """How much of the time it spends in what bounds the step: all its ops, or those of a chain."""
    reason: str
    """That its thread has no time left, or which chain of ops that wait for each other takes so long."""


@dataclass(frozen=True, repr=False, eq=False)
class Prediction:
    """What `Program.simulate` predicts.

    Attributes
    ----------
    model
        The machine.
    step_seconds
        What a step takes once many are under way.
    work
        What the ops of a step take of the cores, one after the other; without what only devices do, and tasks that may
        block: lanes wait for these, and no core does.
    efficiency
        How much of its cores' time goes into ops: ``work / (threads * step_seconds)``.
    bottleneck
        The lane that bounds a step, its share of the time, and why.
    lanes
        A structured array with a row for each lane, in seconds a step: ``thread`` that it is at home on, ``busy`` in
        ops, ``queued`` (its next op could run, but all threads have something else to do), ``waiting`` for other lanes.
    threads
        The same for each thread: ``busy`` in ops, and the rest, ``idle``.
    copies
        How many copies of the program's step there are.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> @ost.task(releases_gil=True)
    ... def relax(tile: ost.ReadWrite): ...
    >>> with ost.capture() as graph:
    ...     for tile in np.zeros((64, 1000)):
    ...         op = relax(tile)
    >>> with ost.Machine(cpus=2) as machine, graph.compile(machine, costs={relax: 1e-3}) as program:
    ...     found = program.simulate(ost.MachineModel(cores=16))
    >>> f"{found.step_seconds * 1e3:.1f} ms, {found.efficiency:.0%}"
    '4.0 ms, 100%'
    """

    model: MachineModel
    step_seconds: float
    work: float
    bottleneck: Bottleneck
    lanes: npt.NDArray[np.void]
    threads: npt.NDArray[np.void]
    copies: int
    _replayed: tuple[Executable, Arrangement, int, dict[str, Any]]
    """What was replayed, in how many steps, and the core's answer."""

    @property
    def efficiency(self) -> float:
        """How much of the cores' time goes into ops."""
        return self.work / (len(self.threads) * self.step_seconds) if self.step_seconds > 0 else 1.0

    @cached_property
    def timeline(self) -> Trace:
        """The last steps, as `Program.trace` would have recorded them; times in whole nanoseconds."""
        from ostinato.view.trace import RECORD, Trace

        executable, arrangement, replayed, answer = self._replayed
        slots = arrangement.ops // self.copies
        op = np.arange(arrangement.ops) % slots
        shown = np.flatnonzero(op < len(executable.step.nodes))  # not the barrier between steps
        steps = len(answer["start"])
        records = np.zeros((steps, len(shown)), RECORD)
        records["op"] = op[shown]
        records["step"] = np.arange(replayed - steps, replayed)[:, None]
        records["thread"] = answer["thread"][:, shown]
        records["lane"] = arrangement.number[arrangement.lane_of[shown]]
        origin = answer["start"].min(initial=np.inf)
        records["start"] = np.rint((answer["start"][:, shown] - origin) * 1e9)
        records["end"] = np.rint((answer["end"][:, shown] - origin) * 1e9)
        flat = records.reshape(-1)
        cores = self.model.cores
        return Trace(
            flat[np.argsort(flat["start"], kind="stable")],
            [op.name for op in executable.step.nodes],
            [str(op.call_site) for op in executable.step.nodes],
            [
                f"node {home // cores} cpu:{home % cores}" if self.model.nodes > 1 else f"cpu:{home}"
                for home in self.lanes["thread"].tolist()
            ],
        )

    def plot(self, path: str | os.PathLike[str], measured: Trace | None = None, steps: int = 4) -> None:
        """Draw the last `steps` steps as a timeline; with a measured one below it, on the same axis of time.

        Parameters
        ----------
        path
            The suffix chooses the format (``.png``, ``.svg``, ``.pdf``).
        measured
            A trace of the program, from `Program.trace`.
        steps
            How many steps.

        Raises
        ------
        ImportError
            When matplotlib is missing: it comes with the extra ``plot``.
        """
        from ostinato.view.trace import draw

        traces = {"": self.timeline} if measured is None else {"predicted": self.timeline, "measured": measured}
        draw(traces, path, integer("steps", steps, 1))

    def __str__(self) -> str:
        model = self.model
        where = counted(model.cores, "core") + f" on each of {counted(model.nodes, 'node')}" * (model.nodes > 1)
        what = f"{self.copies} copies of a step" if self.copies > 1 else "a step"
        lane = self.bottleneck.lane
        busy = self.threads["busy"] / max(self.step_seconds, 1e-30)
        return "\n".join(
            (
                f"{what} on {where}: {duration(self.step_seconds)}, of which {duration(self.work)} of work, "
                f"efficiency {self.efficiency:.1%}",
                f"{counted(len(self.lanes), 'lane')}; threads are in ops for {busy.min():.0%} to "
                f"{busy.max():.0%} of it",
                f"bottleneck: lane {lane}, {self.bottleneck.share:.0%} of the time: {self.bottleneck.reason}",
            )
        )

    def __repr__(self) -> str:
        return f"<Prediction: {duration(self.step_seconds)} a step, efficiency {self.efficiency:.1%}>"


def simulate(
    executable: Executable, model: MachineModel, *, copies: int = 1, steps: int | None = None, seed: int = 0
) -> Prediction:
    """Predict how a schedule runs on a machine.

    The schedule stays as it is if the machine has as many cores as it was made for; else its ops are placed for it.
    `copies` of the step run side by side, each on its own share of the machine. The second half of the `steps` counts;
    None: as many as say something. `seed` is that of what ops take from step to step, where that was measured to vary.
    """
    if not isinstance(model, MachineModel):
        raise TypeError(f"model must be an ostinato.MachineModel, got {brief(model)}")
    for name, value in (("copies", copies), ("steps", steps)):
        if isinstance(value, bool):
            raise TypeError(f"{name} must be an integer, got {value!r}")
    copies = integer("copies", copies, 1)
    steps = None if steps is None else integer("steps", steps, 2)
    arrangement = _arrangement(executable, model, copies)
    if steps is None:
        steps = int(np.clip(MOST_OPS // arrangement.ops, LEAST_STEPS, MOST_STEPS))
    shown = int(np.clip(MOST_RECORDS // arrangement.ops, 2, min(steps, MOST_SHOWN)))
    answer = arrangement.replayed(model, steps, shown, seed)
    seconds = answer["step_seconds"]
    a_step = seconds / answer["span"] if answer["span"] > 0 else 0.0
    lanes = np.empty(len(arrangement.affinity), LANE)
    number = arrangement.number
    lanes["thread"][number] = arrangement.affinity
    lanes["busy"][number] = answer["lane_busy"] * a_step
    lanes["queued"][number] = answer["lane_queued"] * a_step
    lanes["waiting"] = np.maximum(seconds - lanes["busy"] - lanes["queued"], 0.0)
    threads = np.empty(arrangement.threads, THREAD)
    threads["busy"] = answer["thread_busy"] * a_step
    threads["idle"] = np.maximum(seconds - threads["busy"], 0.0)
    return Prediction(
        model,
        seconds,
        arrangement.work,
        _bottleneck(arrangement, answer, lanes, threads, seconds),
        lanes,
        threads,
        copies,
        (executable, arrangement, steps, answer),
    )


def predict_seconds(executable: Executable, model: MachineModel) -> float:
    """Return roughly what a step of a schedule takes on a machine, in little time: to compare schedules by."""
    arrangement = _arrangement(executable, model, 1)
    steps = int(np.clip(FEW_OPS // arrangement.ops, LEAST_STEPS, MOST_STEPS))
    seconds: float = arrangement.replayed(model, steps, 1, 0)["step_seconds"]
    return seconds


def _arrangement(executable: Executable, model: MachineModel, copies: int) -> Arrangement:
    if copies > 1:
        return arrange_copies(executable, model, copies)
    if model.nodes == 1 and model.cores == executable.target.model.cores:
        return arrange_as_compiled(executable, model)
    return arrange(executable, model)


def _bottleneck(
    arrangement: Arrangement,
    answer: dict[str, Any],
    lanes: npt.NDArray[np.void],
    threads: npt.NDArray[np.void],
    seconds: float,
) -> Bottleneck:
    thread = int(threads["busy"].argmax())
    busy = float(threads["busy"][thread])
    if busy >= FULL * seconds:
        at_home = np.flatnonzero(lanes["thread"] == thread)
        if not len(at_home):  # it only visits
            at_home = np.arange(len(lanes))
        lane = int(at_home[lanes["busy"][at_home].argmax()])
        share = float(lanes["busy"][lane]) / seconds if seconds > 0 else 1.0
        of = f"the thread of {counted(len(at_home), 'lane')} is in ops for {_share(busy, seconds)} of the time"
        return Bottleneck(lane, share, of)
    return _chain(arrangement, answer)


def _chain(arrangement: Arrangement, answer: dict[str, Any]) -> Bottleneck:
    """Say what the chain of ops, each begun because the one before it had ended, is made of."""
    chain = answer["chain"]
    start, end, thread = (answer[name].ravel()[chain] for name in ("start", "end", "thread"))
    lane = arrangement.number[arrangement.lane_of[chain % arrangement.ops]]
    span = float(end[-1] - start[0])
    by_lane = np.bincount(lane, end - start)
    most = int(by_lane.argmax())
    gaps = start[1:] - end[:-1]
    node = thread // arrangement.threads_a_node
    parts = {
        "ops": float((end - start).sum()),
        "passing results from node to node": float(gaps[node[1:] != node[:-1]].sum()),
        "passing results from core to core": float(gaps[(node[1:] == node[:-1]) & (lane[1:] != lane[:-1])].sum()),
    }
    parts["turning to the next op"] = span - sum(parts.values())
    told = ", ".join(f"{_share(part, span)} {name}" for name, part in parts.items() if part >= 0.005 * span)
    several = counted(len(np.unique(lane)), "lane")
    held = arrangement.manner[chain % arrangement.ops] == GIL
    if len(np.unique(lane)) > 1 and float((end - start)[held].sum()) > span / 2:
        ops = f"ops of {several} hold the GIL and take turns (releases_gil=True says that a task does not)"
    else:
        ops = f"ops of {several} wait for each other in turn"
    return Bottleneck(most, float(by_lane[most]) / span if span > 0 else 1.0, f"{ops}: {told}")


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole > 0 else "100%"
