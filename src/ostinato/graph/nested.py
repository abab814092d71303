"""Graphs inside graphs: what nesting one records, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ostinato.errors import GraphError
from ostinato.graph.body import Nested
from ostinato.graph.no_value import NoValue
from ostinato.graph.param import REQUIRED, Param
from ostinato.graph.ring import Ring
from ostinato.graph.sources import Source

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph
    from ostinato.graph.op import Op
    from ostinato.graph.recorder import Recorder

__all__ = ["check_given", "graphs_in", "nested_body", "stop_in"]


def nested_body(
    outer: Graph,
    recorder: Recorder,
    inner: Graph,
    params: Mapping[str, Any],
    preconditions: Mapping[str, tuple[Source, ...]],
) -> Nested:
    """Return the body of a nested graph, having checked that it can be nested."""
    if any(graph is outer for graph in graphs_in(inner)):
        raise GraphError("a graph cannot contain itself, neither directly nor inside another that it contains")
    if inner.is_recording:
        raise GraphError("the inner graph is still being captured; nest it after the block")
    other = stop_in(inner)
    own = None if other is None else stop_in(outer)
    if own is not None and other is not None:
        raise GraphError(
            f"a graph has at most one until(), nested graphs included, but there is one at {own.call_site} and, in "
            f"the graph that is nested, one at {other.call_site}"
        )
    values = dict(params)
    for name, value in values.items():
        values[name] = _value(recorder, name, value)
    nested = Nested(inner, values, dict(preconditions))
    check_given(nested)
    return nested


def check_given(nested: Nested) -> None:
    """Raise unless a nested graph is given exactly what it declares."""
    inner = nested.graph
    _check_names("preconditions", nested.preconditions, inner.preconditions, inner.preconditions)
    required = [name for name, param in inner.params.items() if param.default is REQUIRED]
    _check_names("params", nested.params, inner.params, required)


def graphs_in(graph: Graph) -> Iterator[Graph]:
    """Yield a graph and those nested in it, at any depth, each once."""
    seen = {id(graph)}
    waiting = [graph]
    while waiting:
        found = waiting.pop()
        yield found
        for inner in found.nested:
            if id(inner) not in seen:
                seen.add(id(inner))
                waiting.append(inner)


def stop_in(graph: Graph) -> Op | None:
    """Return the op of `Graph.until`, of the graph or of one nested in it."""
    return next((found.stop for found in graphs_in(graph) if found.stop is not None), None)


def _value(recorder: Recorder, name: str, value: object) -> object:
    """Return what is recorded of a value for a parameter of a nested graph."""
    if isinstance(value, Param):
        return recorder.own_param(value, lambda _: f"parameter {name!r} of subgraph()", 0)
    if isinstance(value, NoValue | Ring):
        raise TypeError(
            f"parameter {name!r} of subgraph() must be a value, the same in all steps, or a parameter, got {value!r}"
        )
    return value


def _check_names(argument: str, given: Iterable[str], known: Iterable[str], required: Iterable[str]) -> None:
    given, known = set(given), list(known)
    what = {"params": "parameter", "preconditions": "precondition"}[argument]
    unknown = given.difference(known)
    if unknown:
        names = ", ".join(map(repr, known)) or "none"
        raise GraphError(f"the nested graph has no {what} {min(unknown, key=str)!r}; it has {names}")
    missing = [name for name in required if name not in given]
    if missing:
        raise GraphError(f"the nested graph declares {what} {missing[0]!r}, so give it in {argument}=")
