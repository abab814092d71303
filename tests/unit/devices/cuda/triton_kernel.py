"""A kernel of Triton, which reads its source from a file."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def double(x_ptr, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=mask) * 2, mask=mask)
