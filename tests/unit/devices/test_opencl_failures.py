"""Commands of OpenCL that fail while they are under way: PoCL calls nobody back for these."""

from __future__ import annotations

import numpy as np
import pytest

from devices.kinds import opencl

cl = pytest.importorskip("pyopencl")

FAILED = -5  # CL_OUT_OF_RESOURCES


@pytest.mark.parametrize("asked_before", [True, False])
def test_work_that_fails_is_told_of(asked_before: bool) -> None:
    kind = opencl()
    stream = kind.core.open()
    event = cl.UserEvent(kind.device.context)  # type: ignore[attr-defined]
    held = cl.enqueue_barrier(kind.device.stream(stream).queue, wait_for=[event])  # type: ignore[attr-defined]
    recorded = kind.recorded(stream)
    if asked_before:
        notice = kind.notice(recorded)
        event.set_status(FAILED)
    else:
        event.set_status(FAILED)
        notice = kind.notice(recorded)
    assert notice.wait() < 0
    assert held.get_info(cl.event_info.COMMAND_EXECUTION_STATUS) < 0
    kind.core.close(stream)
    later = kind.core.open()
    assert kind.ended(later).wait() == 0
    kind.core.close(later)


def test_it_is_told_of_when_what_came_before_is_done() -> None:
    kind = opencl()
    stream = kind.core.open()
    queue = kind.device.stream(stream).queue  # type: ignore[attr-defined]
    array = kind.array([1.0] * 4)
    kind.work(stream, 0.2)
    before = cl.enqueue_fill_buffer(queue, array.base_data, np.float64(2.0), 0, array.nbytes)  # type: ignore[attr-defined]
    event = cl.UserEvent(kind.device.context)  # type: ignore[attr-defined]
    held = [cl.enqueue_barrier(queue, wait_for=[event])]
    notice = kind.ended(stream)
    event.set_status(FAILED)
    assert notice.wait() < 0
    assert before.get_info(cl.event_info.COMMAND_EXECUTION_STATUS) == cl.command_execution_status.COMPLETE
    assert held[0].get_info(cl.event_info.COMMAND_EXECUTION_STATUS) < 0
    kind.core.close(stream)
