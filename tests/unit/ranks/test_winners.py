"""Ranks whose stores differ run the same variants; ranks that cannot say so, on all ranks."""

from __future__ import annotations

import importlib.util
import pickle
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.support.in_process_ranks import PlannedRanks

import ostinato as ost
from ostinato.compiler.costs import cost_as_given
from ostinato.compiler.ir import Target
from ostinato.compiler.pipeline.compile import compile
from ostinato.compiler.summary import summarize
from ostinato.errors import GraphError
from ostinato.ranks.channels import Common, find_difference, find_ends
from ostinato.ranks.coordinator import (
    COMPILE,
    NO_WINNERS,
    WINNERS,
    Abandoned,
    Agreed,
    Begun,
    Coordinator,
    Offer,
    Offers,
    Winners,
    choose_winners,
)
from ostinato.tune.graphs import costing_of_ranks, stored_costs
from support.mpi import MPIEXEC, run_ranks
from tune.graphs import tasks
from tune.graphs.faking import Fake, tune

FAST = Offer("relax", ("relax", "fast", "faster"), "code", "fast", b"measured")
UNKNOWN = FAST._replace(winner="", record=b"")


def told(*offers: Offers | None) -> str:
    return choose_winners(offers)[1]


class TestChoosing:
    def test_the_first_rank_that_knows_counts(self) -> None:
        other = FAST._replace(winner="faster", record=b"other")
        winners, problem = choose_winners([{"a": UNKNOWN}, {"a": FAST, "b": other}, {"a": other, "c": UNKNOWN}])
        assert (dict(winners.records), problem) == ({"a": b"measured", "b": b"other"}, "")
        again, _ = choose_winners([{"b": other}, {"a": FAST}])
        assert again.digest == winners.digest
        assert choose_winners([{"a": other}, {"a": FAST, "b": other}])[0].digest != winners.digest

    def test_nobody_knows_anything(self) -> None:
        assert choose_winners([{"a": UNKNOWN}, {}, None]) == (NO_WINNERS, "")

    def test_a_rank_without_the_task_is_not_asked(self) -> None:
        assert told({"a": FAST}, {}) == ""

    def test_a_variant_that_a_rank_lacks(self) -> None:
        assert told({"a": FAST}, {"a": UNKNOWN._replace(variants=("relax", "faster"))}) == (
            "'relax': by the store of rank 0, fast is the one to run, but rank 1 has relax, faster; declare the same "
            "variants on all ranks"
        )

    def test_other_variants_beside_it(self) -> None:
        assert "rank 0 has relax, fast, faster and rank 1 has relax, fast; declare the same" in told(
            {"a": FAST}, {"a": UNKNOWN._replace(variants=("relax", "fast"))}
        )

    def test_other_code(self) -> None:
        assert "but the code of its variants on rank 1 differs; install the same version" in told(
            {"a": FAST}, {"a": UNKNOWN._replace(source="other")}
        )
        assert told({"a": FAST}, {"a": UNKNOWN._replace(source=None)}) == ""

    def test_costs_instead_of_a_store(self) -> None:
        assert "but rank 1 was given costs=; give all ranks the same" in told({"a": FAST}, None)


class TestCoordinator:
    def heard(self, *offers: Offers) -> list[tuple[int, Any]]:
        sent: list[tuple[int, Any]] = []
        coordinator = Coordinator(len(offers), 1000, lambda rank, message: sent.append((rank, message)))
        for rank, each in enumerate(offers):
            coordinator.hear(rank, Begun(1, WINNERS, None, "compiles a program", offers=each))
        return sent

    def test_all_ranks_get_the_same(self) -> None:
        found = self.heard({"a": UNKNOWN}, {"a": FAST})
        assert [rank for rank, _ in found] == [0, 1]
        for _, message in found:
            assert isinstance(message, Agreed)
            assert message.winners.records == {"a": b"measured"}

    def test_or_the_same_error(self) -> None:
        found = self.heard({"a": FAST}, {"a": UNKNOWN._replace(source="other")})
        assert {(rank, type(message), message.what) for rank, message in found} == {
            (rank, Abandoned, COMPILE) for rank in (0, 1)
        }

    def test_the_digest_is_compared_with_the_program(self) -> None:
        assert find_difference([Common({}, (), "a"), Common({}, (), "a")]) == ""
        assert "rank 1 compiles with other variants of tasks than rank 0" in find_difference(
            [Common({}, (), "a"), Common({}, (), "b")]
        )


class Together:
    """Ranks that are threads of this process, which agree as the coordinator has them do."""

    def __init__(self, size: int) -> None:
        self._offers: list[Offers | None] = [None] * size
        self._barrier = Barrier(size, timeout=30)

    def agreement(self, rank: int) -> Any:
        """Return the part of an `Agreement` that costings need."""
        return SimpleNamespace(agree_on_winners=lambda offers: self._agree(rank, offers))

    def _agree(self, rank: int, offers: Offers | None) -> Winners:
        self._offers[rank] = pickle.loads(pickle.dumps(offers))
        self._barrier.wait()
        winners, problem = choose_winners(self._offers)
        if problem:
            raise GraphError(problem)
        return winners


def on_each(size: int, do: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(do, range(size)))


def labels_on_ranks(stores: Sequence[Path | None]) -> list[str]:
    """Compile a call of `relax` on ranks, each with a store of its own, and return which variants they run."""
    together = Together(len(stores))

    def label(rank: int) -> str:
        costing = costing_of_ranks(stores[rank], together.agreement(rank), tuple)
        (op,) = costing(summarize(tuple(tasks.graph_of(1.0).ops))).ops
        return "relax" if op.variant is None else op.variant.label

    found: list[str] = on_each(len(stores), label)
    return found


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, Path]:
    """Stores by the variant that each of them knows to be the fastest; one knows nothing of `relax`."""
    slow = dict.fromkeys(("relax", "at_once", "blocked(block=16)", "blocked(block=8)"), [1000.0] * 9)
    found = {}
    for winner in ("at_once", "blocked(block=8)", "relax"):
        found[winner] = tmp_path / f"{len(found)}.db"
        tune(tasks.graph_of(1.0), Fake({**slow, winner: [10.0] * 9}), found[winner])
    found["nothing"] = tmp_path / "nothing.db"
    graph = ost.Graph()
    graph.task(tasks.add, np.zeros(8), np.zeros(8))
    tune(graph, Fake(), found["nothing"])
    return found


class TestCosting:
    @pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
    def test_ranks_with_other_stores_run_the_same_variant(
        self, stores: dict[str, Path], order: tuple[int, ...]
    ) -> None:
        names = [["at_once", "blocked(block=8)", "relax"][place] for place in order]
        assert labels_on_ranks([stores[name] for name in names]) == [names[0]] * 3

    def test_what_rank_0_does_not_know_another_one_does(self, stores: dict[str, Path]) -> None:
        names = ["nothing", "blocked(block=8)", "at_once"]
        assert labels_on_ranks([stores[name] for name in names]) == ["blocked(block=8)"] * 3

    def test_alone_each_would_run_another(self, stores: dict[str, Path]) -> None:
        assert labels_on_ranks([stores["at_once"]]) == ["at_once"]
        assert labels_on_ranks([stores["nothing"]]) == ["relax"]

    def test_a_variant_that_cannot_be_imported_is_an_error(
        self, stores: dict[str, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def replace(*_: object) -> None:
            raise ImportError("No module named 'numba'")

        monkeypatch.setattr(stored_costs, "replace_variants", replace)
        with pytest.raises(GraphError, match=r"agreed to run the variants at_once.*No module named 'numba'; install"):
            labels_on_ranks([stores["at_once"]])


def test_costs_of_ranks_may_differ_but_channels_do_not() -> None:
    """Measured costs change lanes and their order, and nothing that another rank sees."""

    def ends_of(rank: int, seconds: dict[object, float]) -> Any:
        ranks = PlannedRanks(rank, 2)
        spread = ranks.array(16, tiles=4)
        with ost.capture() as graph:
            graph.join(ranks)
            for tile in spread.tiles(margin=1):
                graph.task(shift, spread[tile.halo], spread[tile.inner])
        made = compile(graph, Target(2, 2), cost_as_given(seconds))
        edges = made.step.edges
        triples = zip(edges.src.tolist(), edges.dst.tolist(), edges.distance.tolist(), strict=True)
        return find_ends(made.step.nodes, triples), made.step.common

    cheap, dear = ({shift: seconds} for seconds in (1e-7, 1e-2))
    for rank in (0, 1):
        ends, common = ends_of(rank, cheap)
        other_ends, other_common = ends_of(rank, dear)
        assert ends
        assert [end._replace(line="") for end in ends] == [end._replace(line="") for end in other_ends]
        assert find_difference([common, other_common]) == ""


@ost.task
def shift(source: ost.Read, target: ost.ReadWrite) -> None:
    target += source[: target.shape[0]]


PROGRAM = """
import sys
import numpy as np, ostinato as ost
sys.path[:0] = ["tests/unit", "tests"]
from tune.graphs import tasks
from tune.graphs.faking import Fake, tune

ranks = ost.Ranks()
case, directory = sys.argv[1:]
store = f"{directory}/{ranks.rank}.db"
slow = dict.fromkeys(("relax", "at_once", "blocked(block=16)", "blocked(block=8)"), [1000.0] * 9)
winner = ("at_once", "blocked(block=8)")[ranks.rank]
if case != "default" or ranks.rank == 0:
    tune(tasks.graph_of(1.0, size=4), Fake({**slow, winner: [10.0] * 9}), store)
else:
    open(store, "w").close()
if case == "lacks" and ranks.rank == 1:
    tasks.relax.variants_held = tasks.relax.variants_held[:1]
costs = {tasks.relax: 1e-6} if case == "costs" and ranks.rank == 1 else store
if case == "missing" and ranks.rank == 1:
    costs = f"{directory}/none.db"
array, out = ranks.array(8, tiles=2), ranks.array(8, tiles=2)

def tell(name, what):
    sys.stdout.write(f"rank {ranks.rank} {name}: {what}\\n")
    sys.stdout.flush()

for name in ("first", "again"):
    with ost.capture() as graph:
        for tile in array.tiles():
            tasks.relax(array[tile.inner], out[tile.inner], 2.0 if case == "scalars" else 1.0)
    try:
        with graph.compile(ost.Machine(cpus=1), costs=costs, ranks=ranks) as program:
            program.replay(2)
            found = program.explain()
            label = next((each for each in slow if f"variant {each}" in found), "relax")
            tell(name, label)
    except Exception as error:
        tell(name, f"{type(error).__name__}: {error}")
        costs = store if case in ("costs", "missing") else {}
"""


@pytest.mark.mpi
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
@pytest.mark.skipif(MPIEXEC is None, reason="mpiexec is not installed")
@pytest.mark.parametrize(
    ("case", "first", "again"),
    [
        ("differ", "at_once", "at_once"),
        ("default", "at_once", "at_once"),
        (
            "lacks",
            "GraphError: .*the ranks have agreed on a variant of 'tune.graphs.tasks.relax', but here none is declared;",
            "relax",
        ),
        ("costs", "GraphError: 'relax': by the store of rank 0, at_once .* but rank 1 was given costs=", "at_once"),
        ("missing", r"(TuningError: |GraphError: rank 1: TuningError: )costs= names the store .*none.db", "at_once"),
    ],
)
def test_two_ranks_with_stores_of_their_own(tmp_path: Path, case: str, first: str, again: str) -> None:
    found = run_ranks(2, "-c", PROGRAM, case, str(tmp_path), timeout=60)
    assert found.returncode == 0, found.stderr
    for rank in (0, 1):
        for name, words in (("first", first), ("again", again)):
            assert re.search(rf"^rank {rank} {name}: {words}", found.stdout, re.MULTILINE), found.stdout + found.stderr
