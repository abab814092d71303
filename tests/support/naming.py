"""Names of parametrized tests."""

import re


def stable_repr(value: object) -> str:
    """Return the `repr` of a value without addresses: processes that share the tests must call them the same."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def stable_str(value: object) -> str:
    """Return what `str` says of a value, without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))
