"""How much memory is to be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from ostinato.environment import spare_memory


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal:  9 kB\nMemAvailable:    4 kB\n"}
GROUP = {"sys/fs/cgroup/memory.max": "5000\n", "sys/fs/cgroup/memory.current": "2000\n"}
OLD_GROUP = {
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "3500\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "4000\n",
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        (MEMINFO, 4096),
        (GROUP, 3000),
        (MEMINFO | GROUP, 3000),
        (MEMINFO | GROUP | {"sys/fs/cgroup/memory.max": "max\n"}, 4096),
        (MEMINFO | OLD_GROUP, 0),
        ({"proc/meminfo": "MemAvailable: many\n"}, None),
    ],
)
def test_the_least_of_what_is_said(tmp_path: Path, files: dict[str, str], expected: int | None) -> None:
    assert spare_memory(written(tmp_path, files)) == expected
