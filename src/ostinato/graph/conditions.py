"""Where a graph meets what is outside of it: preconditions and postconditions, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ostinato.errors import GraphError
from ostinato.graph.body import Postcondition, Precondition
from ostinato.one_line import brief

if TYPE_CHECKING:
    from ostinato.graph.op import Op
    from ostinato.graph.sources import Source

__all__ = ["check_not_outside", "postcondition_body", "precondition_body"]


def precondition_body(name: str, known: Mapping[str, Op]) -> Precondition:
    """Return the body of a precondition, having checked that its name is new."""
    return Precondition(_new_name("precondition", name, known))


def postcondition_body(
    name: str, known: Mapping[str, Op], sources: Sequence[Source], ops: Sequence[Op]
) -> Postcondition:
    """Return the body of a postcondition, having checked that its name is new and that it comes after something."""
    body = Postcondition(_new_name("postcondition", name, known))
    if not sources:
        raise GraphError(f"postcondition {name!r} comes after nothing; give the ops that it stands for as after=")
    for source in sources:
        check_not_outside(name, ops[source.op])
    return body


def check_not_outside(name: str, source: Op) -> None:
    """Raise if a postcondition would come after a precondition: nothing of the graph would be between them."""
    if isinstance(source.body, Precondition):
        raise GraphError(
            f"postcondition {name!r} cannot come after precondition {source.body.name!r}, at {source.call_site}: it "
            "tells of ops. Whoever waits for it can wait for the event that is given as the precondition"
        )


def _new_name(what: str, name: str, known: Mapping[str, Op]) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a {what} must be a str, got {brief(name)}")
    if not name:
        raise GraphError(f"the name of a {what} must not be empty")
    if name in known:
        raise GraphError(f"the graph has a {what} {name!r} already, at {known[name].call_site}; choose another name")
    return name
