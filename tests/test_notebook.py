"""The notebook of the documentation runs from top to bottom, and each cell shows what it should."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba", reason="needs the extra numba")

NOTEBOOK = Path(__file__).parents[1] / "docs" / "tour.ipynb"


def run(source: str, names: dict[str, Any], cell: str) -> Any:
    """Run a cell as notebooks do, and return the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, cell, "exec"), names)
    return eval(compile(ast.Expression(last.value), cell, "eval"), names) if isinstance(last, ast.Expr) else None


def test_the_tour_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    names: dict[str, Any] = {"__name__": "__main__"}
    shown: list[str] = []
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "outputs are made when the documentation is built"
            source = "".join(cell["source"])
            path = tmp_path / f"cell{number}.py"  # kernels read their source
            path.write_text(source)
            value = run(source, names, str(path))
            if value is not None:
                shown.append(value._repr_html_())
    titles = ("Graph of 18 operations", "Program of 18 operations", "Trace: ", "Retuning over ", "Tuning of ")
    assert len(shown) == len(titles)
    for html, title in zip(shown, titles, strict=True):
        assert title in html
    printed = capsys.readouterr().out
    for words in ("compared: ", " steps; the largest change", "critical path", "the largest value is"):
        assert words in printed
