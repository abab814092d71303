"""The key of stored results, and which field a miss names."""

from __future__ import annotations

import itertools
from importlib import metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.tune.leases.device import Device
from ostinato.tune.store.database import Context
from ostinato.tune.store.key import contexts, differing, environment, miss, versions

ORDER = ["source", "device", "driver", "versions", "policy", "key"]


def device(name: str, model: str, driver: str = "") -> Device:
    return Device(name=name, kind="sim", identities=(name,), model=model, driver=driver)


def test_devices_of_one_model_share_a_context() -> None:
    there = environment([device("sim:a", "x"), device("sim:b", "x"), device("sim:c", "y")])
    found = contexts("matmul", {"n": 1}, there, {})
    assert found["sim:a"] == found["sim:b"] != found["sim:c"]
    assert differing(found["sim:a"], found["sim:c"]) == {"device"}


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("key", {"key": {"n": 2}}),
        ("key", {"key": {"n": 1.0}}),
        ("policy", {"policy": {"cache": "cold"}}),
        ("versions", {"versions": {"python": "3.12"}}),
        ("device", {"model": "y"}),
        ("driver", {"driver": "2"}),
        ("operation", {"op": "conv"}),
    ],
)
def test_each_field_tells_contexts_apart(field: str, change: dict) -> None:
    def context(op="matmul", key={"n": 1}, model="x", driver="1", versions={"python": "3.11"}, policy={}):  # noqa: B006
        there = {"devices": {"sim:a": {"model": model, "driver": driver}}, "versions": versions}
        return contexts(op, key, there, policy)["sim:a"]

    assert differing(context(), context(**change)) == {field}
    assert differing(context(**change), context(**change)) == frozenset()


def test_the_order_of_names_tells_nothing_apart() -> None:
    one = contexts("op", {"a": 1, "b": 2}, environment([device("sim:a", "x")]), {})
    other = contexts("op", {"b": 2, "a": 1}, environment([device("sim:a", "x")]), {})
    assert one == other


@given(st.lists(st.frozensets(st.sampled_from(ORDER)), max_size=6))
def test_a_miss_names_the_first_field_of_the_most_similar_result(differences: list[frozenset[str]]) -> None:
    expected = None
    for count in range(1, len(ORDER) + 1):  # all sets, from the smallest, in the order of their fields
        for fields in itertools.combinations(ORDER, count):
            if expected is None and frozenset(fields) in differences:
                expected = fields[0]
    assert miss(differences) == expected


def test_every_field_but_the_operation_can_be_named() -> None:
    for name in set(Context._fields) - {"operation"}:
        assert miss([frozenset({name})]) == name


def test_versions_are_those_installed() -> None:
    found = versions()
    assert found["numpy"] == metadata.version("numpy")
    assert set(found) - {"python"} <= {str(one.name).lower() for one in metadata.distributions()}


def test_versions_cannot_be_changed_by_who_gets_them() -> None:
    versions()["numpy"] = "0"
    assert versions()["numpy"] != "0"
