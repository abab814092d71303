"""What compile makes of a store: costs, the fastest correct variant, and why there is no answer."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.compiler.costs import Costed, estimate
from ostinato.compiler.flatten import flatten
from ostinato.compiler.summary import summarize
from ostinato.environment import default_store
from ostinato.tune.graphs import cost_store, costing
from tune.graphs.faking import Fake, tune
from tune.graphs.tasks import add, graph_of, relax

TIMES = {"relax": (900.0, 1000.0, 1100.0), "at_once": (150.0, 200.0, 350.0)}


def costed(graph: ost.Graph, path: Path | None) -> Costed:
    return costing(path)(summarize(flatten(graph).ops))


def variants(graph: ost.Graph, path: Path | None) -> list[str | None]:
    return [op.variant and op.variant.label for op in costed(graph, path).ops]


def sources(found: Costed) -> list[str]:
    return [found.costs.sources[source] for source in found.costs.source]


def test_the_fastest_correct_variant_is_chosen(path: Path) -> None:
    graph = graph_of(1.0, 1.0)
    graph.task(add, np.zeros(8), np.zeros(8))
    graph.fill(np.zeros(3), 0.0)
    tune(graph, Fake({**TIMES, "blocked(block=8)": (100.0,)}), path)
    found = costed(graph, path)
    assert [op.variant and op.variant.label for op in found.ops] == ["blocked(block=8)", "blocked(block=8)", None, None]
    assert found.costs.seconds == pytest.approx([100e-9, 100e-9, 1e-6, 1e-6])
    assert all("measured 20" in source for source in sources(found))
    assert [source.endswith(", variant blocked(block=8)") for source in sources(found)] == [True, True, False, False]
    assert found.costs.notes == ()


def test_costs_are_medians_with_their_spread(path: Path) -> None:
    tune(graph_of(), Fake({"relax": (900.0, *[1000.0] * 5, 1200.0)}), path)
    found = costed(graph_of(), path)
    assert found.costs.seconds == pytest.approx([1e-6])
    low, high = np.percentile([900.0, *[1000.0] * 5, 1200.0], (5, 95))
    assert found.costs.spread == pytest.approx([(high - low) / 2 / 1000])


@pytest.mark.parametrize("status", ["wrong_result", "crash", "hang_killed", "oom"])
def test_what_is_not_right_is_never_chosen(path: Path, status: str) -> None:
    tune(graph_of(), Fake({**TIMES, "at_once": status}), path)
    assert variants(graph_of(), path) == [None]


def test_where_the_task_was_disturbed_the_best_of_the_others_is_chosen(path: Path) -> None:
    graph = graph_of(1.0)
    fake = Fake({**TIMES, "relax": "contended"})
    tune(graph, fake, path)
    assert variants(graph, path) == ["at_once"]
    found = costed(graph_of(1.0, 2.0), path)
    assert [op.variant and op.variant.label for op in found.ops] == ["at_once", None]
    assert [source.partition(" ")[0] for source in sources(found)] == ["measured", "estimated"]
    tune(graph, fake, path)
    assert len(fake.measured) == 2


def test_ops_of_nested_graphs_get_variants_too(path: Path) -> None:
    inner = graph_of()
    outer = ost.Graph()
    outer.subgraph(inner)
    tune(inner, Fake(TIMES), path)
    assert variants(outer, path) == ["at_once"]


def test_an_op_whose_circumstances_were_not_compared_keeps_its_task(path: Path) -> None:
    a = np.zeros(16)
    tune(graph_of(1.0), Fake(TIMES), path)
    graph = graph_of(1.0, 2.0)
    graph.task(relax, a[::2], a[1::2])
    graph.task(relax, a[:8], a[:8])
    found = costed(graph, path)
    assert [op.variant and op.variant.label for op in found.ops] == ["at_once", None, None, None]
    assert found.costs.seconds == pytest.approx([200e-9, 1e-6, 1e-6, 1e-6])
    (note,) = found.costs.notes
    assert note.startswith("relax: 3 ops left with the task itself")
    tune(graph, Fake(TIMES), path)
    assert variants(graph, path) == ["at_once"] * 4
    assert variants(graph_of(1.0), path) == ["at_once"]


def test_a_variant_that_cannot_take_an_ops_arguments_is_not_put_there(path: Path) -> None:
    pytest.importorskip("numba")

    @ost.task
    def scale(x: ost.ReadWrite, by: object) -> None: ...

    @scale.variant(name="compiled")
    @ost.kernel
    def compiled(x: ost.ReadWrite, by: float) -> None:
        for i in range(x.size):
            x[i] *= by

    graph = ost.Graph()
    for value in (*np.linspace(0.0, 1.0, 40).tolist(), "a lot"):
        graph.task(scale, np.zeros(4), value)
    tune(graph, Fake({"scale": (100.0,), "compiled": (50.0,)}), path)
    assert variants(graph, path) == ["compiled"] * 40 + [None]
    assert costed(graph, path).costs.seconds[-1] == pytest.approx(100e-9)


def test_tolerances_are_said(path: Path) -> None:
    tune(graph_of(), Fake(TIMES), path, rtol=1e-6)
    assert sources(costed(graph_of(), path))[0].endswith(", variant at_once, equal within rtol=1e-06")


def test_why_there_is_no_answer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune(graph_of(), Fake(TIMES), path)
    there = cost_store.environment
    monkeypatch.setattr(
        cost_store,
        "environment",
        lambda devices: {**there(devices), "devices": {"cpu:0": {"model": "Z80", "driver": ""}}},
    )
    found = costed(graph_of(1.0, 2.0), path)
    assert sources(found) == ["estimated"] * 2
    (note,) = found.costs.notes
    assert note.startswith("relax: the store's results are for another device (")
    with graph_of().compile(costs=path) as program:
        assert note in program.explain()


def test_ops_that_nobody_tuned_keep_their_estimates(path: Path) -> None:
    tune(graph_of(), Fake(TIMES), path)
    graph = graph_of(size=9)
    found = costed(graph, path)
    assert found.costs.notes == ()
    assert found.costs.seconds.tolist() == estimate(graph.ops).seconds.tolist()
    assert not found.costs.measured.any()
    assert found.ops == graph.ops


def test_the_default_store_is_asked_by_default() -> None:
    graph = graph_of()
    tune(graph, Fake(TIMES))
    assert variants(graph, None) == ["at_once"]
    with graph.compile() as program:
        assert "variant at_once" in program.explain()


def test_a_store_that_is_named_must_be_there(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ost.TuningError, match=f"{path}.*no such file"):
        graph_of().compile(costs=path)
    with pytest.raises(ost.TuningError, match="no such file"):
        graph_of().compile(costs=str(tmp_path))
    path.write_bytes(b"garbage" * 1000)
    with pytest.raises(ost.TuningError, match=str(path)):
        graph_of().compile(costs=path)
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_default_store_that_cannot_be_read_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path))
    (tmp_path / "tune.db").write_bytes(b"garbage" * 1000)
    found = costed(graph_of(), None)
    assert sources(found) == ["estimated"]
    assert "is no store" in found.costs.notes[0]


def run(script: str, **environment: Any) -> str:
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_without_a_store_nothing_is_imported_and_no_file_is_made(tmp_path: Path) -> None:
    script = """
        import os, sys, numpy as np, ostinato as ost
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # so that all can be measured
        graph = ost.Graph()
        graph.fill(np.zeros(3), 1.0)
        with ost.Machine(cpus=1) as machine:
            graph.compile(machine).close()
        print(*(name for name in sys.modules if name == "sqlite3" or name.startswith("ostinato.tune.store")))
    """
    cache = tmp_path / "none"
    assert run(script, OSTINATO_CACHE_DIR=str(cache)).split() == []
    assert not cache.exists()


def test_costs_of_other_tasks_are_not_worth_the_tuners_import(tmp_path: Path) -> None:
    script = """
        import sys, numpy as np, ostinato as ost
        graph = ost.Graph()
        x, y = np.zeros((2, 3))
        if {tunes}:
            graph.copy(x, y)
            graph.tune(progress=False)
        else:
            graph.{call}
            graph.compile().close()
            print(*(name for name in sys.modules if name.startswith("ostinato.tune.graphs.stored")))
    """
    environment = {"OSTINATO_CACHE_DIR": str(tmp_path / "cache"), "OSTINATO_LEASE_DIR": str(tmp_path / "leases")}
    run(script.format(tunes=True, call="fill(x, 1.0)"), **environment)
    assert run(script.format(tunes=False, call="fill(x, 1.0)"), **environment).split() == []
    assert run(script.format(tunes=False, call="copy(y, x)"), **environment).split() != []


def test_a_store_of_calibrations_alone_is_not_worth_the_tuners_import(tmp_path: Path) -> None:
    script = """
        import os, sys, numpy as np, ostinato as ost
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core can be measured however busy the host
        graph = ost.Graph()
        graph.fill(np.zeros(3), 1.0)
        with ost.Machine(cpus=1) as machine:
            assert ost.MachineModel.of(machine).source.startswith('measured')
            graph.compile(machine).close()
        print(*(name for name in sys.modules if name.startswith("ostinato.tune.graphs.stored")))
    """
    for _ in range(2):
        assert run(script, OSTINATO_CACHE_DIR=str(tmp_path / "cache")).split() == []
    assert {path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir()} == {"tune.db"}  # and its log


def test_another_process_finds_what_this_one_tuned(path: Path) -> None:
    tune(graph_of(), Fake(TIMES), path)
    script = f"""
        import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from tune.graphs.test_known import Path, graph_of, variants
        print(variants(graph_of(), Path({str(path)!r})))
    """
    assert run(script).strip() == "['at_once']"


def test_a_program_runs_the_variants_that_it_was_compiled_with(path: Path) -> None:
    a, b, called = np.arange(4.0), np.zeros(4), []

    @ost.task
    def double(x: ost.Read, y: ost.Write) -> None:
        y[...] = x * 2

    @double.variant
    def twice(x: ost.Read, y: ost.Write) -> None:
        called.append(len(x))
        y[...] = x + x

    graph = ost.Graph()
    graph.task(double, a, b)
    tune(graph, Fake({"double": (100.0,), "twice": (50.0,)}), path)
    assert called == []
    with graph.compile(costs=path) as program:
        program.replay(2)
    assert called == [4, 4]
    assert b.tolist() == [0, 2, 4, 6]


def tuned(fast: Any, path: Path | None) -> ost.Graph:
    """A graph of a task with a variant that closes over something; tuned."""

    @ost.task
    def double(x: ost.Read, y: ost.Write) -> None:
        y[...] = x * 2

    double.variant(name="fast")(fast)
    graph = ost.Graph()
    graph.task(double, np.ones(4), np.zeros(4))
    tune(graph, Fake({"double": (100.0,), "fast": (50.0,)}), path)
    return graph


def test_what_variants_close_over_may_change(path: Path) -> None:
    calls: list[int] = []

    def fast(x: ost.Read, y: ost.Write) -> None:
        calls.append(1)

    graph = tuned(fast, path)
    assert sources(costed(graph, path))[0].endswith(", variant fast")
    for _ in range(2):
        with graph.compile(costs=path) as program:
            program.replay(1)
    assert len(calls) == 2
    assert sources(costed(graph, path))[0].endswith(", in this process, variant fast")
    path.unlink()
    with pytest.raises(ost.TuningError):
        costed(graph, path)


def test_what_cannot_be_told_is_known_to_this_process(path: Path) -> None:
    thing = object()

    def fast(x: ost.Read, y: ost.Write) -> None:
        assert thing

    graph = tuned(fast, None)
    assert sources(costed(graph, None))[0].endswith(", in this process, variant fast")
    tune(graph_of(), Fake(TIMES), path)
    assert sources(costed(graph, path)) == ["estimated"]


def test_addresses_are_known_to_this_process() -> None:
    address = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda call: 0)
    for function in (address, ctypes.cast(callback, ctypes.c_void_p).value, callback):
        graph = tuned(ost.native(function, (ost.Read, ost.Write), name="fast"), None)
        assert variants(graph, None) == ["fast"]


def test_methods_are_known_to_this_process_as_long_as_their_object_lives() -> None:
    class Solver:
        def step(self, x: Any) -> None: ...

    graph, solver = ost.Graph(), Solver()
    graph.task(solver.step, np.zeros(3), access=(ost.ReadWrite,))
    tune(graph, Fake({"step": (50.0,)}))
    again = ost.Graph()
    again.task(solver.step, np.zeros(3), access=(ost.ReadWrite,))
    assert sources(costed(again, None))[0].endswith(", in this process")
    again = ost.Graph()
    again.task(Solver().step, np.zeros(3), access=(ost.ReadWrite,))
    assert sources(costed(again, None)) == ["estimated"]


def test_compiled_functions_are_known() -> None:
    graph = ost.Graph()
    graph.task(np.add, np.zeros(3), np.zeros(3), np.zeros(3), access=(ost.Read, ost.Read, ost.Write))
    tune(graph, Fake({"add": (50.0,)}))
    assert costed(graph, None).costs.measured.all()


def test_what_is_gone_is_forgotten() -> None:
    thing = object()

    def graph() -> ost.Graph:
        def fast(x: ost.Read, y: ost.Write) -> None:
            assert thing

        return tuned(fast, None)

    path = Path(default_store())
    kept = graph()
    assert cost_store.knows(path)
    del kept
    gc.collect()
    assert not cost_store.knows(path)


def test_many_ops_of_few_cases(path: Path) -> None:
    graph = ost.Graph()
    arrays = [np.zeros(8) for _ in range(30)]
    for place in range(3000):
        graph.task(relax, arrays[place % 30], arrays[(place + 1) % 30], float(place))
        graph.task(add, arrays[place % 30], arrays[(place + 1) % 30])
    tune(graph, Fake(TIMES), path)
    found = costed(graph, path)
    assert {op.variant and op.variant.label for op in found.ops[::2]} == {"at_once"}
    assert found.costs.seconds[:2] == pytest.approx([200e-9, 1e-6])
    assert found.costs.measured.all()
