"""Commands that install something work as printed, and one table says what each extra brings."""

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from ostinato import cli
from ostinato.devices import device

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# What else is installed: Ostinato itself, a driver, and a peer of the benchmarks.
OTHERS = {"ostinato", ".", "pocl-binary-distribution", "tbb-devel", "mpich"}
WORD = r"'[^'\n]*'|[\w.{][^\s'\"`)]*"
COMMAND = re.compile(rf"\bpip install\b((?: +(?:{WORD}))*)")


def commands() -> Iterator[tuple[str, str]]:
    """Return the place and the arguments of every `pip install` that users may see, kinds of devices filled in."""
    for pattern in ("*.md", "docs/*.md", "src/**/*.py", "examples/**/*.*", "benchmarks/**/*.*"):
        for path in sorted(ROOT.glob(pattern)):
            if path.suffix not in (".md", ".py"):
                continue
            text = path.read_text()
            for found in COMMAND.finditer(text):
                place = f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}"
                for kind in device.KINDS if "{kind}" in found[1] else [""]:
                    yield place, found[1].replace("{kind}", kind)


def wrong_in(arguments: str) -> str | None:
    """Say what is wrong with the arguments of an installation, if anything."""
    words = re.findall(WORD, arguments)
    if not words:
        return "nothing is installed"
    for word in words:
        extras = re.fullmatch(r"'(?:ostinato|\.)\[([\w,-]+)\]'", word)
        if extras is None and word not in OTHERS and not word.startswith("dist/ostinato-"):
            return f"{word} must be an extra in single quotes, such as 'ostinato[numba]'"
        if extras and (unknown := set(extras[1].split(",")) - set(EXTRAS)):
            return f"there is no extra {', '.join(sorted(unknown))}"
    return None


def test_commands_that_install_work_in_any_shell() -> None:
    found = list(commands())
    assert len(found) > 20  # the test reads what it should
    wrong = [f"{place}: pip install{arguments}: {why}" for place, arguments in found if (why := wrong_in(arguments))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "arguments", [" ostinato[numba]", ' "ostinato[numba]"', " 'ostinato[no-such]'", "", " 'ostinato[numba]' and"]
)
def test_commands_that_do_not_work_are_found(arguments: str) -> None:
    found = COMMAND.search(f"pip install{arguments}")
    assert found
    assert wrong_in(found[1])


def test_the_installed_package_has_the_extras_that_messages_name() -> None:
    assert set(metadata.metadata("ostinato").get_all("Provides-Extra") or ()) == set(EXTRAS)


def test_the_table_of_extras_is_complete() -> None:
    section = (ROOT / "docs" / "install.md").read_text().split("\n## ")[1]
    assert section.startswith("Extras\n")
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)) == sorted(EXTRAS)


def test_devices_names_an_extra_for_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    nothing = SimpleNamespace(version=version, PackageNotFoundError=metadata.PackageNotFoundError)
    monkeypatch.setattr(cli, "metadata", nothing)  # the command's view only: packages ask for their versions, too
    lines = CliRunner().invoke(cli.main, ["devices"]).output.splitlines()
    missing = [line for line in lines if line.startswith("missing ")]
    for extra in ("numba", "plot", "optuna", "opencl", "cuda", "demo"):
        assert any(line.endswith(f": pip install 'ostinato[{extra}]'") for line in missing), missing
    for name in ("mpi4py", "ray"):
        assert any(line.startswith(f"missing  {name} (") for line in missing), missing


def test_devices_says_how_to_get_an_MPI_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "missing  MPI (starts ranks): pip install mpich" in CliRunner().invoke(cli.main, ["devices"]).output
    mpiexec = tmp_path / "mpiexec"
    mpiexec.touch(0o755)
    assert f"found    MPI {mpiexec} (starts ranks)" in CliRunner().invoke(cli.main, ["devices"]).output


def test_devices_says_what_is_found() -> None:
    pytest.importorskip("numba")
    lines = CliRunner().invoke(cli.main, ["devices"]).output.splitlines()
    assert f"found    numba {metadata.version('numba')} (@ost.kernel)" in lines
    assert [line.split()[0] for line in lines if " CUDA driver " in line or " NVML " in line]


def test_extras_bring_what_messages_say_is_missing() -> None:
    for name, _, advice in cli._PACKAGES:
        if extra := re.search(r"ostinato\[(\w+)\]", advice):
            assert any(re.match(rf"{name}\b", requirement) for requirement in EXTRAS[extra[1]])
