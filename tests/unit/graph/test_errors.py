"""The tree of exceptions."""

import pickle

import pytest

from ostinato import errors


@pytest.mark.parametrize(
    "name", [name for name in errors.__all__ if name.endswith("Error") and name != "OstinatoError"]
)
def test_one_tree_printed_in_the_docstring(name):
    error = getattr(errors, name)
    assert error.__bases__[0] is (errors.GraphError if name == "TracerError" else errors.OstinatoError)
    assert f"+-- {name} " in errors.__doc__


def test_task_errors_say_which_op_and_step():
    error = errors.TaskError("message", op="op", step=3)
    assert (str(error), error.op, error.step) == ("message", "op", 3)
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.op, copied.step) == ("message", "op", 3)
