"""The stream of a device that a task puts its work on."""

from __future__ import annotations

__all__ = ["Stream"]


class Stream:
    """The stream of a device: the annotation of a parameter that receives one, and what it then receives.

    A task with a parameter annotated so starts its work on that stream, in stream order, and returns without waiting
    for it. Calls leave the parameter out: which stream it is, is the program's business. On CUDA, streams have
    ``__cuda_stream__``, so that libraries take them as they are; on OpenCL, they have the command queue as ``queue``.
    Type checkers, too, let calls leave it out where it comes first.

    Attributes
    ----------
    handle
        The device's own name for the stream: a ``CUstream``, a ``cl_command_queue``.

    Examples
    --------
    >>> import numpy as np, ostinato as ost
    >>> from ostinato.devices import fake
    >>> @ost.task
    ... def scale(stream: ost.Stream, src: ost.Read, dst: ost.Write, factor=2.0):
    ...     fake.launch(stream, np.multiply, src, factor, dst)
    >>> a, b = np.ones(3), np.zeros(3)
    >>> with fake.install():  # a device for tests
    ...     scale(a, b, 0.5)
    >>> b
    array([0.5, 0.5, 0.5])
    """

    __slots__ = ("handle",)

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.handle:#x}>"
