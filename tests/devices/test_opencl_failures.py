"""Commands of OpenCL that fail while they are under way: PoCL calls nobody back for these."""

from __future__ import annotations

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
    token = kind.recorded(stream)
    if asked_before:
        notice = kind.notice(token)
        event.set_status(FAILED)
    else:
        event.set_status(FAILED)
        notice = kind.notice(token)
    assert notice.wait() < 0
    assert held.get_info(cl.event_info.COMMAND_EXECUTION_STATUS) < 0
    kind.core.close(stream)
    later = kind.core.open()
    assert kind.ended(later).wait() == 0
    kind.core.close(later)
