"""An op has no value, and says so; otherwise it is a plain hashable object."""

import operator
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost


@ost.task
def work(a: ost.ReadWrite): ...


@pytest.fixture
def op():
    with ost.capture():
        op = work(np.zeros(3))
    return op


USES = {
    "op + 1": lambda op: op + 1,
    "1 + op": lambda op: 1 + op,
    "array + op": lambda op: np.ones(2) + op,
    "op @ array": lambda op: op @ np.ones(2),
    "-op": lambda op: -op,
    "op < 1": lambda op: op < 1,
    "op >= array": lambda op: op >= np.ones(2),
    "bool": bool,
    "not": operator.not_,
    "if": lambda op: 1 if op else 2,
    "int": int,
    "float": float,
    "complex": complex,
    "index": lambda op: [1, 2][op],
    "round": round,
    "iter": iter,
    "unpack": lambda op: [*op],
    "len": len,
    "in": lambda op: 1 in op,
    "op[0]": lambda op: op[0],
    "op[0] = 1": lambda op: operator.setitem(op, 0, 1),
    "asarray": np.asarray,
    "sqrt": np.sqrt,
    "divmod": lambda op: divmod(op, 2),
    "as an argument": lambda op: captured(work, op),
}


def captured(task, *args):
    with ost.capture():
        task(*args)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_every_use_as_a_value_raises(op, use):
    with pytest.raises(TypeError) as caught:
        use(op)
    if use is not np.sqrt:  # NumPy's own message
        assert "has no value" in str(caught.value)
        assert "test_op.py" in str(caught.value)


def test_hash_and_equality_are_of_identity(op):
    assert op == op
    assert op != object()
    assert {op: 1}[op] == 1
    assert op in [op]


def test_params_and_step_have_no_value_either():
    param = ost.Graph().param("omega", 1.0)
    for use in (bool, float, lambda x: x * 2):
        with pytest.raises(TypeError, match="'omega' has no value"):
            use(param)
        with pytest.raises(TypeError, match=r"step has no value"):
            use(ost.step)


def test_call_site(op):
    assert str(op.call_site).startswith("test_op.py:")
    assert str(op.call_site).endswith("op")
    assert (
        Path(op.call_site.filename).read_text().splitlines()[op.call_site.line - 1].strip() == "op = work(np.zeros(3))"
    )


def test_every_way_to_record_knows_its_line():
    graph, a, b = ost.Graph(), np.zeros(1), np.ones(1)
    ops = [
        graph.task(work, a),
        graph.copy(a, b),
        graph.fill(a, 1),
        graph.until(a),
    ]
    with ost.capture():
        ops += [work(a), ost.Graph().until(a)]
    lines = [op.call_site.line for op in ops]
    assert lines[1:4] == [lines[0] + 1, lines[0] + 2, lines[0] + 3]
    assert lines[4] == lines[5] == lines[0] + 6
    assert {op.call_site.filename for op in ops} == {__file__}


def test_repr_says_which_and_where(op):
    assert repr(op).startswith("<Op 0 'work' at test_op.py:")


def test_what_was_recorded_is_itself_the_original(op):
    assert op.original is op
