"""What calls of tasks and kernels outside captures go through: the core, and Python where that leaves them to it."""

from __future__ import annotations

import numpy as np

from ostinato import _core
from ostinato.graph.context import recording
from ostinato.graph.refusal import PLAIN

__all__ = ["KernelCalls", "call_kernel", "call_task"]

_core.prepare_calls(recording, np.ndarray, tuple(PLAIN))

KernelCalls = _core.KernelCalls
call_kernel = _core.call_kernel
call_task = _core.call_task
