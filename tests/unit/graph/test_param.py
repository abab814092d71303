"""Parameters: one for each name."""

import numpy as np
import pytest

import ostinato as ost
from ostinato.errors import GraphError
from ostinato.graph.param import REQUIRED


def test_all_mentions_are_one_parameter():
    graph = ost.Graph()
    first = graph.param("omega")
    assert first.default is REQUIRED
    assert graph.param("omega", 0.5) is first
    assert graph.param("omega", 0.5, combine=max) is first
    assert (first.default, first.combine) == (0.5, max)
    assert graph.params == {"omega": first}


@pytest.mark.parametrize(
    ("one", "same"),
    [(float("nan"), float("nan")), (np.arange(3), np.arange(3)), ([1, 2.0], [1, 2.0]), ("a", "a"), (1j, 1j)],
)
def test_equal_defaults_agree(one, same):
    graph = ost.Graph()
    assert graph.param("p", one) is graph.param("p", same)


class Awkward:
    def __eq__(self, other):
        raise RuntimeError("not comparable")

    __hash__ = None


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (0.0, -0.0), (1, 2), (np.arange(3), np.arange(4)), (np.zeros(2), np.zeros(2, "f4")),
     ([1], [2]), (None, 0), (Awkward(), Awkward())],
)  # fmt: skip
def test_different_defaults_are_refused(one, other):
    graph = ost.Graph()
    graph.param("p", one)
    with pytest.raises(GraphError, match="parameter 'p' has two defaults"):
        graph.param("p", other)


def test_different_combines_are_refused():
    graph = ost.Graph()
    graph.param("p", 1, combine=max)
    with pytest.raises(GraphError, match="combine="):
        graph.param("p", combine=min)
    with pytest.raises(TypeError, match="combine of"):
        graph.param("q", combine=3)


@pytest.mark.parametrize(("name", "error"), [("", ValueError), (3, TypeError)])
def test_names_are_text(name, error):
    with pytest.raises(error):
        ost.Graph().param(name)


def test_each_capture_has_its_own():
    @ost.task
    def use(x): ...

    with ost.capture() as first:
        p = ost.param("p", 1)
        op = use(p)
    assert op.body.args == (p,)
    with ost.capture() as second:
        assert ost.param("p", 2) is not p
        with pytest.raises(GraphError, match="another graph"):
            use(p)
        use(ost.param("p"))
    assert first.params["p"].default == 1
    assert second.params["p"].default == 2


def test_until_is_for_captures():
    with pytest.raises(GraphError, match=r"graph\.until"):
        ost.until(np.zeros(1))


def test_a_parameter_is_no_array():
    @ost.task
    def use(x: ost.Read): ...

    with pytest.raises(GraphError, match="parameter 'x' of use\\(\\) must be an array"), ost.capture() as graph:
        use(ost.param("p"))
    assert len(graph) == 0
