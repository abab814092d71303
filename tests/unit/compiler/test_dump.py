"""Every stage of a compile prints itself, and is written to a file where OSTINATO_DUMP says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato.compiler.dependences import infer_dependences
from ostinato.compiler.flatten import flatten
from ostinato.compiler.ir import Target
from ostinato.compiler.pipeline.compile import compile


@ost.task
def double(x: ost.ReadWrite) -> None:
    x *= 2


def graph_of_two() -> ost.Graph:
    x, y = np.ones(3), np.zeros(3)
    with ost.capture() as graph:
        double(x)
        ost.copy(x, y)
    return graph


def test_a_step_prints_a_row_for_each_node() -> None:
    head, names, *rows = str(infer_dependences(flatten(graph_of_two()))).splitlines()
    assert head == "2 nodes; dependences: 1 within a step, 3 between steps; 0 edges that only order"
    assert names.split() == ["node", "name", "does", "after", "at"]
    assert [row.split()[:3] for row in rows] == [["0", "double", "PythonCall"], ["1", "copy", "Copy"]]
    assert "0 1-1" in rows[1]  # after node 0 of its step, and itself in the step before
    assert "test_dump.py:" in rows[0]


def test_an_executable_prints_lanes_too() -> None:
    text = str(compile(graph_of_two(), Target(1, 1)))
    assert text.splitlines()[1].split() == ["node", "name", "does", "cost", "kind", "lane", "order", "after", "at"]
    assert text.endswith("lane 0: 0 1")


def test_a_step_without_nodes_prints_too() -> None:
    assert str(compile(ost.Graph(), Target(1, 1))).startswith("0 nodes")


def test_each_stage_is_a_numbered_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSTINATO_DUMP", str(tmp_path / "stages"))
    found = compile(graph_of_two(), Target(1, 1))
    compile(ost.Graph(), Target(1, 1))
    files = sorted((tmp_path / "stages").iterdir())
    first = [file for file in files if file.name.split("-")[1] == files[0].name.split("-")[1]]
    assert [file.stem.split("-")[3] for file in first] == [
        "flatten",
        "infer_dependences",
        "choose_variants",
        "list_operations",
        "place",
        "order",
        "split_lanes",
        "prune_waits",
        "build",
    ]
    assert [int(file.stem.split("-")[2]) for file in first] == [*range(len(first))]
    assert len(files) == 2 * len(first)
    assert first[-1].read_text() == f"{found}\n"


def test_without_the_variable_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OSTINATO_DUMP", raising=False)
    monkeypatch.chdir(tmp_path)
    compile(graph_of_two(), Target(1, 1))
    assert not list(tmp_path.iterdir())
