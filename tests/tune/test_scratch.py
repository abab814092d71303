"""Directories of candidates: there as long as the search, and no longer than a dead one's successor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ostinato.errors import TuningError
from ostinato.tune.process.scratch import Scratch


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    return directory


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
    code = (
        "import os, signal, sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from ostinato.tune.process.scratch import Scratch\n"
        "print(Scratch().directory('b'), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(temporary)], capture_output=True, text=True, timeout=60)
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    other = Scratch()
    mine = Path(other.directory("c"))
    assert not left.exists()
    assert kept.is_dir()
    assert mine.is_dir()
    other.remove()
    living.remove()


def test_what_looks_like_one_and_is_none_is_left_alone(temporary: Path) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    link = temporary / "ostinato-tune-link"
    link.symlink_to(elsewhere)
    file = temporary / "ostinato-tune-file"
    file.write_text("text")
    scratch = Scratch()
    scratch.directory("a")
    scratch.remove()
    assert elsewhere.is_dir()
    assert link.is_symlink()
    assert file.is_file()


def test_without_a_directory_for_temporary_files(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "missing"))
    with pytest.raises(TuningError, match="TMPDIR"):
        Scratch().directory("a")
