"""How runs ended in which devices had a part: who else may have failed, and which devices are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.compiler.streams.fences import completions_of
from ostinato.devices.discovery import lose
from ostinato.errors import DeviceError, TaskError
from ostinato.runtime.outcome import outcome

if TYPE_CHECKING:
    from ostinato import _core
    from ostinato.compiler.schedule import Scheduled
    from ostinato.graph.op import Op

__all__ = ["ended"]

_MOST_TOLD = 8


def ended(scheduled: Scheduled, run: _core.Run) -> int | BaseException:
    """Return how a run of a program ended, as `outcome` does; note devices that cannot be used any more."""
    end = outcome(run, scheduled.ops)
    if scheduled.staged is None or not isinstance(end, BaseException):
        return end
    for index, _, reason in run.failures()[0]:
        if not isinstance(reason, DeviceError):
            continue
        if not reason.usable:
            for device in scheduled.staged.used:
                if device.name == reason.device:
                    lose(device)
        if isinstance(end, TaskError) and reason is end.__cause__:
            others = _issued_with(scheduled, index)
            if others:
                named = ", ".join(f"{op.name!r} at {op.call_site}" for op in others[-_MOST_TOLD:])
                end.add_note(f"the device tells of these together with it, so it may have been one of them: {named}")
    return end


def _issued_with(scheduled: Scheduled, index: int) -> list[Op]:
    """The ops before one on its stream after which nobody looked whether the device was done."""
    looked = {each.of[0] for _, each in completions_of(scheduled.ops) if each.waits and len(each.of) == 1}
    lane = next((lane.tolist() for lane in scheduled.lane_ops if index in lane), [index])
    before = lane[: lane.index(index)]
    kept = [place for place, op in enumerate(before) if op in looked]
    return [scheduled.ops[op] for op in before[kept[-1] + 1 if kept else 0 :]]
