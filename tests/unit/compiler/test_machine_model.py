"""What a machine model takes, and what it is by default."""

from __future__ import annotations

import dataclasses

import pytest

from ostinato.compiler.target import MachineModel


def test_what_is_assumed() -> None:
    model = MachineModel(cores=3)
    assert (model.cores, model.nodes, model.source) == (3, 1, "assumed")


def test_a_model_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        MachineModel(cores=3).cores = 4  # type: ignore[misc]


def test_where_it_comes_from_does_not_make_a_model_another() -> None:
    assert MachineModel(cores=2, source="measured") == MachineModel(cores=2)
    assert len({MachineModel(cores=2, source="measured"), MachineModel(cores=2), MachineModel(cores=3)}) == 2


@pytest.mark.parametrize("name", ["cores", "nodes"])
@pytest.mark.parametrize("value", [0, -1, 1.0, True, "2", None])
def test_counts_are_whole_numbers(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be an integer of at least 1, got"):
        MachineModel(**{"cores": 1, name: value})


@pytest.mark.parametrize(
    "name", ["transfer", "poll", "switch", "wake", "notify", "native_call", "python_call", "hand_over", "link_latency"]
)
@pytest.mark.parametrize("value", [-1e-9, float("inf"), float("nan"), True, "1", None])
def test_times_are_finite_and_not_negative(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be a number, finite and not negative, got"):
        MachineModel(cores=1, **{name: value})
    assert getattr(MachineModel(cores=1, **{name: 0}), name) == 0


def test_links_carry_something() -> None:
    with pytest.raises(ValueError, match="link_bandwidth must be positive"):
        MachineModel(cores=1, link_bandwidth=0)
