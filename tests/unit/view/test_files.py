"""Files that are replaced in one go: nothing else in their directory is touched."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from ostinato.view.trace import replacing


@pytest.mark.parametrize("fails", [False, True])
def test_files_of_the_user_beside_it_stay(tmp_path: Path, fails: bool) -> None:
    target = tmp_path / "trace.json"
    target.write_text("before")
    for name in (f".{os.getpid()}-trace.json", "trace.json.partial", f"trace.json.{os.getpid()}.partial"):
        (tmp_path / name).write_text("a user's")
    others = {path: path.read_text() for path in tmp_path.iterdir() if path != target}
    with suppress(RuntimeError), replacing(target) as draft:
        draft.write_text("after")
        if fails:
            raise RuntimeError
    assert target.read_text() == ("before" if fails else "after")
    assert {path: path.read_text() for path in tmp_path.iterdir() if path != target} == others
