"""kill -9 at any moment: what was committed stays, what was not is gone as a whole, and the store goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from ostinato.tune.store.store import Store
from tune.storing import candidate, outcome, search

TESTS = str(Path(__file__).parents[2])
OPS = 3  # of a run, so that half a run would show

# Writes runs, each of several ops, and tells the number of each once it is committed. Several runs share a commit.
WRITER = """if True:
    import os, random, sys
    sys.path.insert(0, sys.argv[1])
    from ostinato.tune.store.store import Store
    from tune.storing import candidate, outcome, search
    store, rng = Store(sys.argv[2]), random.Random(int(sys.argv[3]))
    now, number = search(store), int(sys.argv[4])
    while True:
        for _ in range(rng.randrange(1, 5)):
            ops = [outcome(f"op {index}", samples=[number] * rng.randrange(200)) for index in range(3)]
            now.add(candidate(number), "s", "sim:a", ops)
            number += 1
        while not now.commit():
            pass
        os.write(1, b"%d\\n" % number)
"""


def read_independently(path: Path) -> list[tuple[int, str]]:
    """Number and op of all that is stored, read with nothing but SQL; the file is whole."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [
            (json.loads(config)["tile"], json.loads(op))
            for config, op in connection.execute(
                "SELECT config, op FROM attempt JOIN candidate ON candidate.id = attempt.candidate"
            )
        ]


def whole(numbers: range) -> list[tuple[int, str]]:
    return [(number, f"op {index}") for number in numbers for index in range(OPS)]


@pytest.mark.parametrize("seed", [1, 2])
def test_writers_killed_at_random_moments_lose_nothing_they_had_committed(tmp_path: Path, seed: int) -> None:
    path, rng, written = tmp_path / "tune.db", random.Random(seed), 0
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, TESTS, path, str(rng.random()).partition(".")[2], str(written)],
            stdout=subprocess.PIPE,
            text=True,
        ) as writer:
            assert writer.stdout is not None
            for _ in range(rng.randrange(1, 40)):
                told = writer.stdout.readline()
            time.sleep(rng.random() * 0.002)  # somewhere in the next commit
            writer.kill()
            told = [told, *writer.stdout.read().splitlines()][-1]
        assert writer.returncode == -signal.SIGKILL
        stored = read_independently(path)
        written = len(stored) // OPS
        assert written >= int(told)
        assert sorted(stored) == whole(range(written))


def test_writers_that_others_outlive_leave_the_store_to_them(tmp_path: Path) -> None:
    path, rng = tmp_path / "tune.db", random.Random(3)
    first = [1_000_000 * index for index in range(3)]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, TESTS, path, "1", str(begin)], stdout=subprocess.PIPE, text=True
        )
        for begin in first
    ]
    told = list(first)
    try:
        for index, writer in enumerate(writers):
            for _ in range(rng.randrange(20, 40)):
                told[index] = int(writer.stdout.readline())
            writer.kill()
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate(timeout=60)
    stored = read_independently(path)
    for begin, end in zip(first, told, strict=True):
        here = [one for one in stored if begin <= one[0] < begin + 1_000_000]
        assert len(here) >= OPS * (end - begin)
        assert sorted(here) == whole(range(begin, begin + len(here) // OPS))


# Opens a store, puts three runs into it in two commits, and kills itself before the statement of the given number,
# or after it; tells how many commits it had come through.
DYING = """if True:
    import os, signal, sqlite3, sys
    sys.path.insert(0, sys.argv[1])
    from ostinato.tune.store.store import Store
    from tune.storing import candidate, outcome, search

    class Dying(sqlite3.Connection):
        left, before = 0, False

        def count(self, statement, sql, parameters):
            Dying.left -= 1
            if Dying.left == 0 and Dying.before:
                os.kill(os.getpid(), signal.SIGKILL)
            found = statement(sql, *parameters)
            if Dying.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        def execute(self, sql, *parameters):
            return self.count(super().execute, sql, parameters)

        def executemany(self, sql, *parameters):
            return self.count(super().executemany, sql, parameters)

    def write(path, left, before, told):
        Dying.left, Dying.before = left, before
        store = Store(path)
        now = search(store)
        for tiles in ([0, 1], [2]):
            for tile in tiles:
                now.add(candidate(tile), "s", "sim:a", [outcome(f"op {index}") for index in range(3)])
            now.set_verdict({"best": tile})
            now.commit()
            os.write(told, b".")
        store.close()

    connect = sqlite3.connect
    sqlite3.connect = lambda *arguments, **how: connect(*arguments, **how, factory=Dying)
    for before in (False, True):
        for left in range(1, 1000):
            told, telling = os.pipe()
            path = os.path.join(sys.argv[2], f"{left}-{before}.db")
            if os.fork() == 0:
                write(path, left, before, telling)
                os._exit(0)
            os.close(telling)
            status = os.waitstatus_to_exitcode(os.wait()[1])
            commits = len(os.read(told, 10))
            os.close(told)
            print(path, status, commits, flush=True)
            if status == 0:
                break
"""


def test_a_death_at_any_statement_leaves_whole_commits(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", DYING, TESTS, tmp_path], capture_output=True, text=True, timeout=100
    )
    assert found.returncode == 0, found.stderr
    deaths = [line.split() for line in found.stdout.splitlines()]
    assert [status for _, status, _ in deaths].count("0") == 2
    assert {status for _, status, _ in deaths} == {"0", str(-signal.SIGKILL)}
    assert {commits for _, _, commits in deaths} == {"0", "1", "2"}
    assert len(deaths) > 40
    for path, _, commits in deaths:
        with Store(path) as store:  # whatever was left is opened, or made again
            survived = sorted({attempt["config"]["tile"] for attempt in store.attempts()})
            # A death just after the COMMIT is one before it could be told.
            assert survived in [[[], [0, 1], [0, 1, 2]][number] for number in (int(commits), min(int(commits) + 1, 2))]
            assert sorted(read_independently(Path(path))) == whole(range(len(survived)))
            with search(store) as now:
                found_again = [now.find(candidate(tile).id, candidate(tile).config, "s")[0] for tile in range(3)]
                assert [attempts is not None for attempts in found_again] == [tile in survived for tile in range(3)]
                seen = now.verdict()
                assert seen == ({"best": survived[-1]} if survived else None)
                now.add(candidate(9), "s", "sim:a", [outcome()])
            assert len(list(store.attempts())) == OPS * len(survived) + 1
        assert os.path.exists(path)
