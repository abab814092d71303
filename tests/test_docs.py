"""The documentation says what is so: its code runs, its links lead somewhere, and every public name is in it."""

import contextlib
import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import ostinato as ost

ROOT = Path(__file__).parents[1]
EXTRAS = ("PIL", "matplotlib", "numba", "optuna", "pyopencl")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NAMES = (
    "index",
    "tutorial",
    "concepts",
    "events",
    "tuning",
    "costs",
    "devices",
    "ranks",
    "profilers",
    "measuring",
    "coming_from",
    "extending",
    "errors",
)
PAGES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in NAMES)]
MARKDOWN = [*ROOT.glob("*.md"), *(ROOT / "core").rglob("*.md"), *(ROOT / "docs").rglob("*.md")]
MODULES = [
    module.name
    for module in pkgutil.walk_packages(ost.__path__, "ostinato.")
    if "__main__" not in module.name and "_core" not in module.name
]


class Block(NamedTuple):
    """One fenced block of a page."""

    language: str
    line: int  # of its first line of text, from 0
    text: str


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What examples write, lease and remember is nobody else's; what they define in files can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OSTINATO_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("OSTINATO_CACHE_DIR", str(tmp_path / "cache"))


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text().splitlines()
    opened: int | None = None
    for number, line in enumerate(lines):
        if line.startswith("```") and opened is None:
            opened = number
        elif line.startswith("```") and opened is not None:
            yield Block(lines[opened].removeprefix("```"), opened + 1, "\n".join(lines[opened + 1 : number]) + "\n")
            opened = None
    assert opened is None, f"{page}:{opened}: a fence is never closed"


def run_doctest(test: doctest.DocTest) -> None:
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    runner.run(test, out=report.append, clear_globs=False)
    assert not report, "".join(report)


def run_console(page: Path, block: Block) -> None:
    """Run the commands of a `console` block, each behind "$ "; what follows one is what it prints."""
    for command, wanted in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
        ran = subprocess.run(command, shell=True, check=False, capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0, f"{page.name}:{block.line}: {command}\n{ran.stdout}{ran.stderr}"
        if not doctest.OutputChecker().check_output(wanted, ran.stdout, FLAGS):
            pytest.fail(f"{page.name}:{block.line}: {command} printed\n{ran.stdout}")


@contextlib.contextmanager
def without_missing_extras() -> Iterator[None]:
    """Skip the test where an extra is missing."""
    try:
        yield
    except ImportError as error:
        for each in (error, error.__cause__):
            if isinstance(each, ModuleNotFoundError) and each.name in EXTRAS:
                pytest.skip(f"needs {each.name}")
        raise


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_of_a_page_runs_from_top_to_bottom(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that begin with the name of a file are written to it, whatever their language.

    All other `python` blocks are executed, `pycon` blocks are doctests, in one namespace a page, and so are `console`
    blocks, of the shell.
    """
    module = types.ModuleType(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    for block in blocks(page):
        file = re.match(r"(?:#|//|/\*) (\w+\.\w+)(?: \*/)?\n", block.text)
        if file is not None:
            Path(file[1]).write_text(block.text)
            importlib.invalidate_caches()
        elif block.language == "python":
            with without_missing_extras():
                exec(compile("\n" * block.line + block.text, str(page), "exec"), module.__dict__)
        elif block.language == "pycon":
            parser = doctest.DocTestParser()
            run_doctest(parser.get_doctest(block.text, module.__dict__, page.name, str(page), block.line))
        elif block.language == "console":
            run_console(page, block)


def test_the_first_ten_lines_of_the_README_are_a_program_that_needs_no_extra() -> None:
    lines = next(blocks(ROOT / "README.md")).text.splitlines(keepends=True)[:10]
    code = "import sys; sys.modules.update(dict.fromkeys(" + repr(sorted(EXTRAS)) + "))\n" + "".join(lines)
    code += "assert a[1] > 90 and 0 < a[50] < b[40] < 100\n"
    Path("first_lines.py").write_text(code)
    subprocess.run([sys.executable, "first_lines.py"], check=True, timeout=120)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        pytest.skip(f"needs {error.name}")
    if name == "ostinato.graph.kernel":
        pytest.importorskip("numba")
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs={"ost": ost, "np": np}):
        run_doctest(test)


@pytest.mark.parametrize("name", ost.__all__)
def test_public_names_are_documented(name: str) -> None:
    assert (getattr(ost, name).__doc__ or "").strip(), f"ostinato.{name} has no docstring"
    api = (ROOT / "docs" / "api.md").read_text()
    assert re.search(rf"^\.\. \w+:: {name}$", api, re.MULTILINE), f"docs/api.md does not list {name}"


def messages_in_tables(page: Path) -> list[str]:
    """What tables quote in their first column, below "Messages by subject"."""
    text = page.read_text().partition("## Messages by subject")[2].partition("## Nothing happens")[0]
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize("message", messages_in_tables(ROOT / "docs" / "errors.md"))
def test_messages_that_are_explained_exist(message: str) -> None:
    if message in ("TaskError", "PoisonError", "TimeoutError"):
        return
    source = "".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    source += "".join(path.read_text() for path in sorted((ROOT / "core").rglob("*.cpp")))
    source = re.sub(r"\"\n\s*f?\"", "", source)  # a string that goes on in the next line
    for part in re.split(
        r"'\w'|\.\.\.|\d+(?:\.\d+)?|\{.*|(?:pre|post)conditions?=?|param(?:eter|s=)|triggered", message
    ):
        assert part in source, f"docs/errors.md: no message has {part!r}"


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.relative_to(ROOT)} links to {target}, which does not exist"
        assert not anchor or anchor in anchors(linked), f"{page.relative_to(ROOT)}: no heading for {target}"


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "index.md"], ids=lambda page: page.stem)
def test_commands_named_in_a_page_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", page.read_text())) <= targets
