"""The committed stubs of the core say what the core has."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nanobind")

PACKAGE = Path(__file__).parents[1] / "src" / "ostinato"


def stubs(folder: Path) -> dict[str, str]:
    """The text of every stub of the core below `folder`, by relative path."""
    found = [*folder.glob("_core.pyi"), *folder.glob("_core/**/*.pyi")]
    return {str(path.relative_to(folder)): path.read_text() for path in found}


# Newer ones find a type of the stubs elsewhere.
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="stubs are made with Python 3.11 or 3.12")
def test_stubs_are_those_of_the_built_core(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nanobind.stubgen", "--quiet", "--recursive", "--module", "ostinato._core"]
    subprocess.run([*command, "--output-dir", str(tmp_path)], check=True, timeout=60)
    assert stubs(PACKAGE) == stubs(tmp_path), "the core's bindings changed; run `make stubs` and commit the result"
