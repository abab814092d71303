"""The contract on `compile(costs=)`: what a store knows."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from costed import explained, lines_with, many, two_ops

pytestmark = pytest.mark.usefixtures("places")


@pytest.fixture(scope="module")
def machine():
    with ost.Machine(cpus=2, gpus=0) as machine:
        yield machine


def test_a_store_that_is_not_there(machine, tmp_path):
    with pytest.raises(ost.TuningError, match=r"nowhere\.db"):
        two_ops().compile(machine, costs=tmp_path / "nowhere.db")
    assert not (tmp_path / "nowhere.db").exists()


def test_a_file_that_is_no_store(machine, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, thousands of words of them\n" * 100)
    for costs in (path, str(path), tmp_path):
        with pytest.raises(ost.TuningError):
            two_ops().compile(machine, costs=costs)
    assert path.read_text().startswith("these are my notes")


def test_a_default_store_that_is_no_good_stops_no_program(machine):
    """What was measured makes programs faster; without it they run as well."""
    path = Path(os.environ["OSTINATO_CACHE_DIR"], "tune.db")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("these are my notes, thousands of words of them\n" * 100)
    text = explained(two_ops(), machine, None)
    assert lines_with(text, "estimated")
    assert "tune.db" in text
    assert path.read_text().startswith("these are my notes")


def test_a_default_store_that_is_a_folder_stops_no_program(machine):
    Path(os.environ["OSTINATO_CACHE_DIR"], "tune.db").mkdir(parents=True)
    assert lines_with(explained(two_ops(), machine, None), "estimated")


def test_a_default_store_that_nobody_may_read_stops_no_program(machine, monkeypatch):
    monkeypatch.setenv("OSTINATO_CACHE_DIR", "/proc/nowhere")
    assert lines_with(explained(two_ops(), machine, None), "estimated")


def test_a_store_that_knows_other_things(machine, tmp_path):
    store = tmp_path / "store.db"
    many(1)[0].tune(machine, store=store, everything=True, progress=False)
    text = explained(two_ops(), machine, store)
    assert lines_with(text, "estimated")
    assert not lines_with(text, "measured 2")


def naps(*ms):
    """A task, and variants that take so many ms."""

    @ost.task(releases_gil=True)
    def nap(src: ost.Read, dst: ost.Write):
        time.sleep(0.006)
        dst[...] = src * 2

    for each in ms:

        @nap.variant(name=f"nap{each}")
        def variant(src: ost.Read, dst: ost.Write, each=each):
            time.sleep(each / 1000)
            dst[...] = src * 2

    return nap


def nap_graph(nap, shape=(8,)):
    a, b = np.ones(shape), np.zeros(shape)
    with ost.capture() as graph:
        op = nap(a, b)
    return graph, op, b


def test_explain_says_where_each_op_s_cost_is_from(machine, tmp_path):
    store = tmp_path / "store.db"
    nap = naps(1)
    graph, _op, b = nap_graph(nap)
    graph.tune(machine, store=store, progress=False)
    graph.fill(np.zeros(3), 1.0)
    text = explained(graph, machine, store)
    (line,) = [line for line in lines_with(text, "nap") if "measured" in line]
    assert time.strftime("%Y-", time.gmtime()) in line
    assert "nap1" in line
    assert any("fill" in line and "estimated" in line for line in text.splitlines())
    assert b.tolist() == [2.0] * 8


def test_the_default_store_is_asked(machine):
    nap = naps(1)
    graph, _op, _b = nap_graph(nap)
    graph.tune(machine, progress=False)
    assert "nap1" in explained(graph, machine, None)
    assert "nap1" in explained(nap_graph(nap)[0], machine, None)


def test_a_mapping_and_a_trace_do_not_ask_the_store(machine):
    nap = naps(1)
    graph, _op, _b = nap_graph(nap)
    with graph.compile(machine) as program:
        trace = program.trace(2)
    graph.tune(machine, progress=False)
    assert "nap1" not in explained(graph, machine, {nap: 1e-3})
    assert "nap1" not in explained(graph, machine, trace)


def test_a_trace_of_a_tuned_program_keeps_its_variants(machine):
    nap = naps(1)
    graph, _op, _b = nap_graph(nap)
    graph.tune(machine, progress=False)
    with graph.compile(machine) as program:
        trace = program.trace(3)
    text = explained(graph, machine, trace)
    assert lines_with(text, "traced")
    assert "nap1" in text


@pytest.mark.parametrize("runs", ["pipelined", "serial", "concurrent"])
def test_chosen_variants_in_every_kind_of_program(machine, runs):
    nap = naps(1)
    graph, _op, b = nap_graph(nap)
    graph.tune(machine, progress=False)
    with graph.compile(machine, runs=runs) as program:
        assert "nap1" in program.explain()
        assert program.submit(2).result(60) == 2
        program.verify()
    assert b.tolist() == [2.0] * 8
    graph.compile(machine, runs="once").replay()


def test_a_program_with_chosen_variants_is_rebound(machine):
    nap = naps(1)
    a, b, c, d = np.ones(8), np.zeros(8), np.full(8, 3.0), np.zeros(8)
    with ost.capture() as graph:
        nap(a, b)
    graph.tune(machine, progress=False)
    with graph.compile(machine) as program:
        program.replay()
        program.rebind([(a, c), (b, d)])
        program.replay()
        program.verify()
    assert (b[0], d[0]) == (2, 6)


def test_names_are_those_of_the_task(machine):
    nap = naps(1)
    graph, op, _b = nap_graph(nap)
    graph.tune(machine, progress=False)
    with graph.compile(machine) as program:
        assert list(program.trace(2).op_names) == ["nap"]
        run = program.submit(1, profile=True)
        run.result(60)
        assert run.profile[0].op is op
        assert graph.ops == (op,)
        assert graph.ops[0].name == "nap"


def test_a_variant_is_not_chosen_for_another_shape(machine):
    nap = naps(1)
    graph, *_ = nap_graph(nap)
    graph.tune(machine, progress=False)
    text = explained(nap_graph(nap, (9,))[0], machine, None)
    assert "nap1" not in text
    assert lines_with(text, "estimated")


def test_a_variant_that_is_gone_is_not_chosen(machine, module, tmp_path):
    """The store knows a variant that this process never declared."""
    store = tmp_path / "store.db"
    nap_graph(naps(1))[0].tune(machine, store=store, progress=False)
    graph, _, b = nap_graph(naps())
    assert "nap1" not in explained(graph, machine, store)
    assert b.tolist() == [2.0] * 8


def test_compiling_twice_gives_the_same_program(machine):
    nap = naps(1, 2)
    graph, *_ = nap_graph(nap)
    graph.tune(machine, progress=False)
    for costs in (None, {nap: 1e-3}):
        assert explained(graph, machine, costs) == explained(graph, machine, costs)


def test_an_empty_graph(machine, tmp_path):
    explained(ost.Graph(), machine, {})
    ost.Graph().tune(machine, store=tmp_path / "store.db", progress=False)
    explained(ost.Graph(), machine, None)
