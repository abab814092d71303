"""What a timed callable says of how it is to be timed, by attributes that it need not have."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["before_sample", "calls_per_sample"]


def before_sample(call: object, flush: Callable[[], None] | None = None) -> Callable[[], None] | None:
    """Return what is called before each sample: the callable's own ``before_sample``, then `flush`; None for nothing.

    Raises
    ------
    TypeError
        If the callable's own is none.
    """
    own = getattr(call, "before_sample", None)
    if own is None:
        return flush
    if not callable(own):
        raise TypeError(f"before_sample must be a function, got {own!r}")
    if flush is None:
        return own  # type: ignore[no-any-return]

    def both() -> None:
        own()
        flush()

    return both


def calls_per_sample(call: object) -> int:
    """Return how many calls one call of a callable stands for; 1 unless it says otherwise.

    Raises
    ------
    TypeError
        If what it says is no positive whole number.
    """
    said = getattr(call, "calls_per_sample", 1)
    if not hasattr(said, "__index__") or said < 1:
        raise TypeError(f"calls_per_sample must be a positive integer, got {said!r}")
    return int(said)
