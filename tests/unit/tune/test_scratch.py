"""Directories of candidates: there as long as the search, and no longer than a dead one's successor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ostinato.errors import TuningError
from ostinato.tune.workers.scratch import Scratch


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def killed_search(temporary: Path) -> Path:
    """The directory that a search left which was killed."""
    code = (
        "import os, signal, sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from ostinato.tune.workers.scratch import Scratch\n"
        "print(Scratch().directory('b'), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(temporary)], capture_output=True, text=True, timeout=60)
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    return left.parents[1]


def test_nothing_is_made_before_it_is_asked_for_nor_left(temporary: Path) -> None:
    scratch = Scratch()
    scratch.remove()
    assert list(temporary.iterdir()) == []
    path = Path(scratch.directory("a"))
    (path / "file").write_text("text")
    assert path.is_relative_to(temporary)
    scratch.remove()
    scratch.remove()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_search_left_is_removed_and_what_a_living_one_has_is_not(temporary: Path) -> None:
    living = Scratch()
    kept = Path(living.directory("a"))
    left = killed_search(temporary)
    other = Scratch()
    mine = Path(other.directory("c"))
    assert not left.exists()
    assert kept.is_dir()
    assert mine.is_dir()
    other.remove()
    living.remove()


def test_what_is_not_of_a_search_is_never_removed(temporary: Path) -> None:
    ours = temporary / f"ostinato-{os.geteuid()}"
    renamed = killed_search(temporary).rename(ours / "tune-renamed")
    left = killed_search(temporary)
    shutil.copytree(left, ours / "copy")
    shutil.copytree(left, ours / "tune-copy")
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / "data.csv").write_text("text")
    (ours / "tune-link").symlink_to(temporary / "elsewhere")
    for kept in (temporary / "ostinato-tune-my-results", ours / "tune-my-results", ours / "my-results"):
        kept.mkdir()
        (kept / "data.csv").write_text("text")
    (ours / "tune-file").write_text("text")
    (left / "notes").write_text("put beside the candidates' directories by a user")
    hard = ours / "tune-hard"
    hard.mkdir()
    os.link(renamed / "ostinato-scratch", hard / "ostinato-scratch")
    before = {path for path in temporary.rglob("*") if not path.is_relative_to(left)}
    scratch = Scratch()
    scratch.directory("a")
    scratch.remove()
    assert {path for path in temporary.rglob("*") if not path.is_relative_to(left)} == before
    assert [path.name for path in left.iterdir()] == ["notes"]


READ_ONLY = """
import os, sys, tempfile
from pathlib import Path
from ostinato.tune.workers.scratch import Scratch
tempfile.tempdir = sys.argv[1]
if os.geteuid() == 0:  # whom no mode keeps out
    os.chown(sys.argv[1], 65534, 65534)
    os.setresuid(65534, 65534, 65534)
scratch = Scratch()
path, outside = Path(scratch.directory("a")), Path(sys.argv[1], "outside")
(path / "cache" / "inner").mkdir(parents=True)
(path / "cache" / "inner" / "file").write_text("text")
outside.mkdir(0o500)
(path / "cache" / "link").symlink_to(outside)
(path / "cache" / "inner").chmod(0)
(path / "cache").chmod(0o500)
scratch.remove()
print(path.exists(), oct(outside.stat().st_mode))
"""


def test_what_candidates_made_read_only_is_removed() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        done = subprocess.run([sys.executable, "-c", READ_ONLY, name], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False 0o40500\n", done.stderr


@pytest.mark.parametrize("what", ["a file", "a link", "open to others", "of somebody else"])
def test_candidates_build_only_where_nobody_else_may_write(temporary: Path, what: str) -> None:
    taken = temporary / f"ostinato-{os.geteuid()}"
    if what == "a file":
        taken.write_text("text")
    elif what == "a link":
        taken.symlink_to(temporary)
    else:
        taken.mkdir()
        if what == "open to others":
            taken.chmod(0o777)
        elif os.geteuid() == 0:
            os.chown(taken, 65534, 65534)
        else:
            pytest.skip("only root can give a directory away")
    with pytest.raises(TuningError, match="TMPDIR"):
        Scratch().directory("a")


def test_without_a_directory_for_temporary_files(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "missing"))
    with pytest.raises(TuningError, match="TMPDIR"):
        Scratch().directory("a")
