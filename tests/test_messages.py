"""Every message that the source can raise, read from its syntax trees: how it is worded."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "ostinato"

REFUSALS = {"TypeError", "ValueError", "GraphError", "OverflowError"}
"""What a wrong argument raises."""

# English that readers must decode, and the wordings that "must be ..., got ..." has replaced.
OLD = re.compile(
    r"\b(is|are|takes?) (an?|one of|a whole number|finite|positive|at least)\b.*, not (of |by |on |with )?\{"
    r"|, \{[^{}]*\} is (none|neither|not)\b|wanted here|\w= is (an?|one of|None|more)\b|whole number|is none of"
)
BANNED = re.compile(r"\b(anew|such as are|likewise|of which there|besides|mend)\b")
PLURAL = re.compile(
    r"\{(len\(|[^{}]*\b(count|number|steps|total)\b)[^{}]*\} "
    r"(ops|steps|tasks|arrays|candidates|lanes|records|arrivals|threads|elements|processors|cores|values|results)\b"
)


def text(node: ast.AST) -> str:
    """A string of the source, with what is filled in between braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text, node.values))
    if isinstance(node, ast.FormattedValue):
        return "{" + ast.unparse(node.value) + ("!r" if node.conversion == ord("r") else "") + "}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text(node.left) + text(node.right)
    return "{" + ast.unparse(node) + "}"


@functools.cache
def trees() -> list[tuple[str, list[ast.AST]]]:
    paths = sorted(SOURCE.rglob("*.py"))
    return [(str(path.relative_to(SOURCE)), list(ast.walk(ast.parse(path.read_text())))) for path in paths]


def raised() -> Iterator[tuple[str, str, str]]:
    """Return place, exception and message of each `raise`."""
    for name, nodes in trees():
        for node in nodes:
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                message = " ".join(map(text, node.exc.args))
                yield f"{name}:{node.lineno}", ast.unparse(node.exc.func), message


def strings() -> Iterator[tuple[str, str]]:
    """Return all text of the source but docstrings, which do not stand in an expression of their own."""
    for name, nodes in trees():
        alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        left_out = alone | inside
        for node in nodes:
            is_text = isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant) and isinstance(node.value, str)
            )
            if is_text and id(node) not in left_out:
                yield f"{name}:{node.lineno}", text(node)


def rejects_a_value(message: str) -> bool:
    """Whether a message quotes what was given and says that something else is right."""
    return bool(re.search(r"\{[^{}]*(!r|__name__)\}\s*$|, got \{|, not \{|, but [^{}]*\{[^{}]*!r\}", message))


def wrong_in(message: str, exception: str) -> str | None:
    """What is wrong with a message, if anything."""
    if found := OLD.search(message):
        return f"say 'must be ..., got ...' in place of {found[0]!r}"
    if exception in REFUSALS and rejects_a_value(message) and not re.search(r"\bmust\b.*\bgot\b", message):
        return "a message that quotes what was given must say 'must be ..., got ...'"
    return None


def test_messages_say_what_must_be_and_what_was_given() -> None:
    found = list(raised())
    assert sum(" must " in message for _, _, message in found) > 100  # the test reads what it should
    wrong = [f"{place}: {message}: {why}" for place, kind, message in found if (why := wrong_in(message, kind))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "message",
    [
        "{name} is a whole number, not {value!r}",
        "runs= is one of {_RUNS}, not {runs!r}",
        "an event or a run is wanted here, not {value!r}",
        "a simulation takes a MachineModel, not {type(model).__name__}",
        "an edge joins ops, {op!r} is none",
        "costs= is None, the path of a store, or a Trace, not {type(costs).__name__}",
    ],
)
def test_old_wordings_are_found(message: str) -> None:
    assert wrong_in(message, "TypeError")


def test_text_uses_plain_words() -> None:
    wrong = [
        f"{place}: {said}"
        for place, said in strings()
        if " " in said and BANNED.search(re.sub(r"\{[^{}]*\}|--anew", "", said))
    ]
    assert not wrong, "\n".join(wrong)


def test_counts_have_a_singular() -> None:
    """Text is made by `counted`, which says "1 op": no number stands before a fixed plural."""
    wrong = [f"{place}: {said}" for place, said in strings() if PLURAL.search(said)]
    assert not wrong, "\n".join(wrong)
