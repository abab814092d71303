"""The contract's section "Tasks": how accesses are declared, and tasks that are not pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import numpy as np
import pytest

import ostinato as ost

if TYPE_CHECKING:
    import ostinato as only_for_checkers


def edges(graph):
    return [(a.index, b.index) for a, b, distance in graph.edges if distance == 0]


def captured(copy):
    """The edges of three copies from one array to the next."""
    a, b, c = np.arange(3.0), np.zeros(3), np.zeros(3)
    with ost.capture() as graph:
        copy(a, b)
        copy(a, c)
        copy(c, b)
    return edges(graph)


COPIES = [(0, 2), (1, 2)]


def test_access_declares_what_annotations_do():
    @ost.task(access={"src": ost.Read, "dst": ost.Write})
    def copy(src, dst):
        dst[...] = src

    assert captured(copy) == COPIES


def test_access_and_annotations_together():
    @ost.task(access={"src": ost.Read})
    def copy(src: np.ndarray, dst: ost.Write):
        dst[...] = src

    assert captured(copy) == COPIES


def test_access_of_star_args():
    @ost.task(access={"arrays": ost.ReadWrite})
    def double(*arrays):
        for each in arrays:
            each *= 2

    a, b = np.ones(2), np.ones(2)
    with ost.capture() as graph:
        double(a, b)
        double(b)
    assert edges(graph) == [(0, 1)]


@pytest.mark.parametrize(
    ("access", "message"),
    [
        ({"nothing": ost.Read}, r"must name its parameters \('x'\), got 'nothing'"),
        ({"x": "Read"}, r"must be ost\.Read, ost\.Write or ost\.ReadWrite for 'x', got 'Read'"),
        ({"x": ost.Write}, r"parameter 'x' of f\(\) must have one access"),
    ],
)
def test_wrong_access_is_refused(access, message):
    def f(x: ost.Read): ...

    with pytest.raises(TypeError, match=message):
        ost.task(access=access)(f)


def test_annotated_declares_an_access():
    @ost.task
    def copy(src: Annotated[np.ndarray, ost.Read], dst: Annotated[np.ndarray, "to", ost.Write]):
        dst[...] = src

    assert captured(copy) == COPIES


def test_annotated_within_a_union_declares_an_access():
    @ost.task
    def copy(src: Optional[Annotated[np.ndarray, ost.Read]], dst: Annotated[np.ndarray, ost.Write] | None):  # noqa: UP045
        dst[...] = src

    assert captured(copy) == COPIES


def test_annotated_that_only_checkers_can_resolve_declares_an_access():
    @ost.task
    def copy(src: Annotated[np.ndarray, only_for_checkers.Read], dst: only_for_checkers.Write | None):
        dst[...] = src

    assert captured(copy) == COPIES


def test_two_accesses_of_one_parameter_are_refused():
    def f(x: Annotated[np.ndarray, ost.Read, ost.Write]): ...

    with pytest.raises(TypeError, match="an annotation must name one access"):
        ost.task(f)


def test_annotated_works_for_kernels():
    pytest.importorskip("numba")

    @ost.kernel
    def double(x: Annotated[np.ndarray, ost.ReadWrite]):
        for i in range(x.size):
            x[i] *= 2

    x = np.ones(3)
    double(x)
    assert x.tolist() == [2, 2, 2]


def test_a_variant_has_the_accesses_of_its_task():
    @ost.task(access={"x": ost.ReadWrite}, pure=False)
    def double(x):
        x *= 2

    @double.variant
    def add(x):
        x += x

    (variant,) = double.variants
    assert variant.task.modes == double.modes
    assert not variant.task.pure


def test_pure_is_kept_on_the_task():
    @ost.task(pure=False)
    def log(x: ost.Read): ...

    @ost.task
    def double(x: ost.ReadWrite): ...

    assert (log.pure, double.pure) == (False, True)
