"""Variants: what can be declared, and what ops do with another implementation."""

import numpy as np
import pytest

import ostinato as ost
from ostinato.graph.variant import default_variant, variants_of
from ostinato.runtime.sequential import AsCaptured, run_op

SCALE = (ost.Read, ost.Write, float, int)  # as in native_tasks.c: dst = src * factor + offset


@pytest.fixture
def scale():
    @ost.task
    def scale(src: ost.Read, dst: ost.Write, factor, offset=0):
        np.multiply(src, factor, out=dst)
        dst += offset

    return scale


@pytest.fixture(scope="module")
def kernel():
    pytest.importorskip("numba")

    @ost.kernel
    def scale_kernel(src: ost.Read, dst: ost.Write, factor, offset):
        for i in range(src.size):
            dst[i] = src[i] * factor + offset

    return scale_kernel


def run(op, body, step=0, params=None):
    """Run an op with another body."""
    kept, op.body = op.body, body
    try:
        run_op(op, step, AsCaptured(), params or {})
    finally:
        op.body = kept


def test_declaring(scale):
    @scale.variant(config={"block": 4})
    @scale.variant(on="cpu", name="in blocks", config={"block": 8, "note": "x"})
    def blocks(src: ost.Read, dst: ost.Write, factor, offset, *, block):
        for at in range(0, len(src), block):
            dst[at : at + block] = src[at : at + block] * factor + offset

    assert type(blocks) is type(run)
    assert [each.label for each in scale.variants] == ["in blocks(block=8, note=x)", "blocks(block=4)"]
    assert [each.on for each in scale.variants] == ["cpu", None]
    a, b = np.arange(10.0), np.zeros(10)
    with ost.capture() as graph:
        op = scale(a, b, 3.0, offset=1)
    assert graph.ops[0].body.task is scale
    found = variants_of(op.body)
    assert found == (default_variant(op.body), *scale.variants)
    assert default_variant(op.body) is default_variant(op.body)
    assert (found[0].name, found[0].config, found[0].task, found[0].label) == ("scale", {}, scale, "scale")
    assert found[0].body(op.body) is op.body
    for variant in found[1:]:
        b[:] = 0
        run(op, variant.body(op.body))
        assert b.tolist() == (a * 3 + 1).tolist()
