"""The tree is as docs/architecture.md draws it: arrows go one way, folders and files are small, insides stay inside."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ostinato

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "ostinato"
CORE = ROOT / "core"
MODULES = sorted(SOURCE.rglob("*.py"))
CPP = sorted(path for root in (CORE, SOURCE) for path in root.rglob("*") if path.suffix in (".cpp", ".h"))

MOST_MODULES = 230
MOST_FILES = 20  # of one folder
MOST_LINES = 800  # of one class with its documentation; its insides are not for others to split it

KNOWS_GRAPHS = "tune/graphs"  # all else in `tune` could be used without the rest of Ostinato
GRAPHS = {"graph", "compiler", "runtime", "checking"}

# What the standard library, not one of our classes, calls with an underscore.
NOT_PRIVATE = {
    *("_asdict", "_exit", "_fields", "_getframe", "_is_gil_enabled", "_make", "_replace", "_core"),
    *("_addressof", "_cl", "_getvalue", "_pyfunc", "_sizeof"),  # of mpi4py, pyopencl and Numba
    "_implementation",  # of NumPy's functions
    *("_failed", "_idx", "_ret", "_stdout"),  # of the tasks that the ancestor of profiler_runner has
}


def layers() -> list[set[str]]:
    """The picture of the layers in docs/architecture.md, from the top one down."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    picture = re.search(r"^```text\n# layers\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert picture, "docs/architecture.md has a picture of the layers"
    return [set(line.partition("  ")[0].split()) for line in picture[1].splitlines()]


def part_of(module: str) -> str:
    """The part of a module's dotted name that is in the picture."""
    return module.split(".")[1]


def name_of(path: Path) -> str:
    words = ("ostinato", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


NAMES = {name_of(path) for path in MODULES}


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of every module of ours that a file imports: in functions and for type checkers, too."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            while name.startswith("ostinato.") and name not in NAMES:
                name = name.rpartition(".")[0]
            if name.startswith("ostinato."):
                yield node.lineno, name


def child_of(folder: str, module: str) -> str:
    """The file or folder in a folder, by its dotted name, that a module is, or lies in; empty if it lies elsewhere."""
    inside = module.removeprefix(f"{folder}.") if module.startswith(f"{folder}.") else ""
    return inside.partition(".")[0]


def test_every_part_is_in_the_picture() -> None:
    drawn = set().union(*layers())
    there = {part_of(name) for name in NAMES if name != "ostinato"}
    assert drawn == there - {"__main__"}


def test_imports_go_down_the_picture() -> None:
    height = {part: -level for level, parts in enumerate(layers()) for part in parts}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in MODULES
        if path.parent != SOURCE or not path.stem.startswith("__")
        for line, name in imported(path)
        if part_of(name) != part_of(name_of(path)) and height[part_of(name)] >= height[part_of(name_of(path))]
    ]
    assert not wrong, "\n".join(wrong)


def test_only_one_folder_of_the_tuner_knows_graphs() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in (SOURCE / "tune").rglob("*.py")
        if SOURCE / KNOWS_GRAPHS not in path.parents
        for line, name in imported(path)
        if part_of(name) in GRAPHS
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", sorted(name for name in NAMES if SOURCE.joinpath(*name.split(".")[1:]).is_dir()))
def test_folders_have_no_cycle(folder: str) -> None:
    """What lies in a folder, files and folders, does not import each other in a circle that a folder is part of."""
    arrows: dict[str, set[str]] = {}
    for path in MODULES:
        here = child_of(folder, name_of(path))
        if here and not here.startswith("__"):
            arrows.setdefault(here, set()).update(child_of(folder, name) for _, name in imported(path))
    base = SOURCE.joinpath(*folder.split(".")[1:])
    folders = {child for child in arrows if (base / child).is_dir()}
    for child in folders:
        reached, waiting = set(), [*arrows[child] - {child, ""}]
        while waiting:
            at = waiting.pop()
            if at not in reached:
                reached.add(at)
                waiting += arrows.get(at, set()) - {""}
        assert child not in reached, f"{folder}.{child} imports what imports it: {', '.join(sorted(reached))}"


def test_nobody_reaches_into_others() -> None:
    """`x._y` is for the class of x only: `self`, `cls`, and another of the same class in the same file."""
    wrong = []
    for path in MODULES:
        tree = ast.parse(path.read_text())
        own = {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        }
        own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        wrong += [
            f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr)
            if node.attr not in NOT_PRIVATE | own
        ]
    assert not wrong, "\n".join(wrong)


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
            or name in ("ostinato", "ostinato.process", "_interpreters", "_xxsubinterpreters")
            or name.startswith("ostinato.tune")
        ), name
    # Each of these alone takes longer to import than all that a worker needs.
    assert not {"ast", "asyncio", "dataclasses", "enum", "inspect", "re", "typing"} & set(found)


def test_only_few_files_of_the_core_know_python() -> None:
    for path in CPP:
        if not {"bindings", "python"} & {*path.relative_to(ROOT).parts} and not path.name.startswith("bindings"):
            wrong = re.findall(r"#include [<\"](?:Python\.h|nanobind/.*)[>\"]", path.read_text())
            assert not wrong, f"{path.relative_to(ROOT)}: {wrong[0]}"


def test_the_core_knows_nothing_of_the_compiler() -> None:
    for path in CORE.rglob("*"):
        if path.suffix in (".cpp", ".h"):
            assert "compiler/" not in path.read_text(), path.relative_to(ROOT)


def test_folders_and_files_are_small() -> None:
    assert len(MODULES) <= MOST_MODULES
    folders: dict[Path, int] = {}
    for path in [*MODULES, *CPP]:
        folders[path.parent] = folders.get(path.parent, 0) + 1
        lines = len(path.read_text().splitlines())
        assert lines <= MOST_LINES, f"{path.relative_to(ROOT)} has {lines} lines"
    large = {folder.relative_to(ROOT).as_posix(): count for folder, count in folders.items() if count > MOST_FILES}
    assert not large
