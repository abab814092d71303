"""Which parts of the source may know of which."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import ostinato

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ostinato"
CORE = ROOT / "core"
CPP = sorted(path for kind in ("*.cpp", "*.h") for root in (CORE, SOURCE) for path in root.rglob(kind))

MAY_NOT_IMPORT = {
    "devices": {"events", "graph", "compiler", "runtime", "tune", "view", "cli", "demo"},
    "events": {"devices", "graph", "compiler", "runtime", "tune", "view", "cli", "demo"},
    "graph": {"compiler", "runtime", "tune", "view", "cli", "demo"},
    "compiler": {"runtime", "tune", "view", "cli", "demo"},
    "runtime": {"tune", "cli", "demo"},
    "tune/graphs": {"cli", "demo", "profiler_runner"},
    "tune": {"events", "graph", "compiler", "runtime", "view", "cli", "demo", "profiler_runner"},
    "view": {"runtime", "cli", "demo"},
}

# Of the folders of `tune`, too: leases, processes, races and the store can each be used alone.
IN_TUNE_MAY_NOT_IMPORT = {
    "leases": {"workers", "racing", "store", "report", "job", "legacy", "search", "tuner"},
    "workers": {"racing", "store", "report", "job", "legacy", "search", "tuner"},
    "racing": {"leases", "workers", "store", "report", "job", "legacy", "search", "tuner"},
    "store": {"workers", "racing", "report", "job", "legacy", "search", "tuner"},
    "report": {"leases", "workers", "store", "job", "legacy", "search", "tuner"},
}

MOST_LINES = 800  # of one class with its documentation; its insides are not for others to split it


def imported_at_once(path: Path, inside: str = "ostinato.") -> set[str]:
    """Parts that a module imports when it is imported: not inside a function, nor for type checkers only."""
    depth = inside.count(".")
    found = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        waiting += ast.iter_child_nodes(node)
    return {name.split(".")[depth] for name in found if name.startswith(inside) and name.count(".") >= depth}


@pytest.mark.parametrize("part", MAY_NOT_IMPORT)
def test_imports_go_along_the_arrows(part: str) -> None:
    for path in (SOURCE / part).rglob("*.py"):
        if part == "tune" and "graphs" in path.parts:
            continue  # it joins the tuner with graphs
        wrong = imported_at_once(path) & MAY_NOT_IMPORT[part]
        assert not wrong, f"{path.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


def test_a_tuners_worker_starts_with_the_standard_library_only() -> None:
    """Workers start anew after each crash; and what a candidate imports must not depend on what measures it."""
    statements = (
        "import sys",
        f"sys.path.insert(0, {str(Path(ostinato.__file__).parents[1])!r})",
        "before = set(sys.modules)",
        "from ostinato.tune.worker import __main__, channel, worker",
        "print(*set(sys.modules) - before)",
    )
    bare = [sys.executable, "-I", "-S", "-c", "; ".join(statements)]
    found = subprocess.run(bare, capture_output=True, check=True, text=True, timeout=60).stdout.split()
    assert "ostinato.tune.worker.worker" in found
    for name in found:
        top = name.partition(".")[0]
        assert (
            top in sys.stdlib_module_names
            or name
            in ("ostinato", "ostinato.interpreter", "ostinato.interpreter", "_interpreters", "_xxsubinterpreters")
            or name.startswith("ostinato.tune")
        ), name
    # Each of these alone takes longer to import than all that a worker needs.
    assert not {"ast", "asyncio", "dataclasses", "enum", "inspect", "re", "typing"} & set(found)


@pytest.mark.parametrize("part", IN_TUNE_MAY_NOT_IMPORT)
def test_imports_within_the_tuner_go_along_the_arrows(part: str) -> None:
    files = sorted((SOURCE / "tune" / part).rglob("*.py"))
    assert len(files) > 1
    for path in files:
        wrong = imported_at_once(path, "ostinato.tune.") & IN_TUNE_MAY_NOT_IMPORT[part]
        assert not wrong, f"{path.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


def test_only_few_files_of_the_core_know_python() -> None:
    for path in CPP:
        if "bindings" not in str(path) and path.parent != CORE / "python":
            wrong = re.findall(r"#include [<\"](?:Python\.h|nanobind/.*)[>\"]", path.read_text())
            assert not wrong, f"{path.relative_to(ROOT)}: {wrong[0]}"


def test_the_core_knows_nothing_of_the_passes() -> None:
    for path in CPP:
        for included in re.findall(r"#include \"(.+)\"", path.read_text()) if path.is_relative_to(CORE) else ():
            assert (CORE / included).exists() or (CORE / "include" / included).exists(), path.relative_to(ROOT)


def test_folders_of_cpp_are_small() -> None:
    for folder, files in Counter(path.parent for path in CPP).items():
        assert files <= 20, f"{folder.relative_to(ROOT)} has {files} files"


def test_files_are_short() -> None:
    for path in [*sorted(SOURCE.rglob("*.py")), *CPP]:
        lines = len(path.read_text().splitlines())
        assert lines <= MOST_LINES, f"{path.relative_to(ROOT)} has {lines} lines"
