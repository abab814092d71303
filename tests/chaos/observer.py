"""Looks on: a process that shares no code with the tuner and nothing but the file system with those it observes.

It reads locks out of /proc, processes by the mark in their environment, and the store with plain SQL. It is told on
standard input, as JSON, one line each, and answers with one line: ``{"kill": PID, "life": L, "stopped": bool}``,
``{"look": true}``, ``{"end": true}``.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
import signal
import sqlite3
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

SCAN_SECONDS = 0.25
LOCKS_SECONDS = 0.02
STORE_SECONDS = 1.0
GRACE_SECONDS = 5.0
"""How long after the death of a tuner anything of it may still be there."""


class Observer:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.leases = directory / "leases"
        self.faults: list[str] = []
        self.seen: dict[int, tuple[str, str]] = {}
        """What was ever seen committed: a digest of each row of the store, and what it says."""
        self.killed: dict[str, float] = {}
        """When the tuner of each life was killed."""
        names = ("looks at locks", "looks at processes", "looks at the store")
        self.counts = dict.fromkeys((*names, "most devices leased at once", "most processes at once"), 0)
        self.longest = 0.0
        """Seconds from the death of a tuner until nothing of it was left, the longest."""
        self._gone: set[str] = set()

    @property
    def waiting(self) -> bool:
        """Whether something of a killed tuner may still be there."""
        return len(self._gone) < len(self.killed)

    # Locks.

    def look_at_locks(self) -> None:
        """No file is locked by two."""
        self.counts["looks at locks"] += 1
        named = self._lock_files()
        held = self._held(named)
        for name, pids in held.items():
            # The kernel's list moves on while it is read, so what is there twice may have moved: it is asked again.
            if len(pids) > 1 and all(len(self._held(named).get(name, ())) > 1 for _ in range(3)):
                self.faults.append(f"lease held twice: {name} by {sorted(pids)}")
        self.counts["most devices leased at once"] = max(self.counts["most devices leased at once"], len(held))

    def _held(self, named: dict[str, str]) -> dict[str, set[str]]:
        """Return the processes that locked each lock file."""
        held: dict[str, set[str]] = {}
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "->" not in fields and fields[1] == "FLOCK" and fields[3] == "WRITE" and fields[5] in named:
                held.setdefault(named[fields[5]], set()).add(fields[4])
        return held

    def _lock_files(self) -> dict[str, str]:
        """Return the names of lock files by what /proc/locks calls them."""
        found = {}
        for entry in os.scandir(self.leases):
            about = entry.stat()
            found[f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"] = entry.name
        return found

    # Processes.

    def look_at_processes(self) -> None:
        """No device has two owners, and nothing is left of the dead."""
        self.counts["looks at processes"] += 1
        lives = self.marked()
        self.counts["most processes at once"] = max(self.counts["most processes at once"], len(lives))
        owners: dict[str, dict[tuple[str, str], int]] = {}
        for pid in lives:
            for path, lock in self._locks_of(pid):
                owners.setdefault(path, {})[lock] = pid
        for path, locks in owners.items():
            # One may have been given back and the other taken while we looked; then they are not there at once.
            if len(locks) > 1 and all(
                any((path, lock) in self._locks_of(pid) for lock, pid in locks.items() if lock == asked)
                for asked in locks
            ):
                self.faults.append(f"lease held twice: {path} by {sorted(locks)}")
        now = time.monotonic()
        alive = set(lives.values())
        for life, moment in self.killed.items():
            if life in self._gone:
                continue
            if life not in alive:
                self._gone.add(life)
                self.longest = max(self.longest, now - moment)
            elif now > moment + GRACE_SECONDS:
                self._gone.add(life)
                left = [f"{pid} ({command(pid)})" for pid, other in lives.items() if other == life]
                self.faults.append(f"orphans {GRACE_SECONDS:g} s after life {life} was killed: {', '.join(left)}")

    def marked(self) -> dict[int, str]:
        """Return the life that each living process of this chaos belongs to."""
        mark = f"CHAOS_DIR={self.directory}".encode()
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            try:
                variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
                if mark in variables and state(int(name)) not in "ZX":
                    life = next((each[11:] for each in variables if each.startswith(b"CHAOS_LIFE=")), b"")
                    found[int(name)] = life.decode()
            except OSError:
                continue
        return found

    def _locks_of(self, pid: int) -> set[tuple[str, tuple[str, str]]]:
        """Return the lock files that a process holds: each with who took the lock, and the file's number."""
        found = set()
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            return found
        for name in names:
            try:
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if not target.startswith(f"{self.leases}/"):
                    continue
                lines = Path(f"/proc/{pid}/fdinfo/{name}").read_text().splitlines()
            except OSError:
                continue
            for line in lines:
                if line.startswith("lock:") and "FLOCK" in line:
                    fields = line.split()
                    found.add((target.removesuffix(" (deleted)"), (fields[5], fields[6])))
        return found

    # The store.

    def look_at_store(self) -> None:
        """What was seen committed is there, as it was; what is new is remembered."""
        path = self.directory / "tune.db"
        if path.exists():
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=60)) as connection:
                self._compare(connection)

    def look_at_copy(self) -> None:
        """The same, of what is on the disk when nobody has the store open: SQLite recovers it anew."""
        place = self.directory / "copy"
        place.mkdir()
        for name in ("tune.db", "tune.db-wal"):
            with suppress(FileNotFoundError):
                shutil.copy(self.directory / name, place / name)
        if (place / "tune.db").exists():
            with closing(sqlite3.connect(place / "tune.db")) as connection:
                verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
                if verdict != "ok":
                    self.faults.append(f"the store is damaged: {verdict}")
                self._compare(connection)
        shutil.rmtree(place)

    def _compare(self, connection: sqlite3.Connection) -> None:
        self.counts["looks at the store"] += 1
        try:
            rows = connection.execute(
                "SELECT attempt.id, run, attempt.device, op, status, samples, workspace, message, config"
                " FROM attempt JOIN candidate ON candidate.id = attempt.candidate"
            ).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error) or self.seen:
                self.faults.append(f"the store cannot be read: {error}")
            return
        there = {}
        for identity, *row in rows:
            number = json.loads(row[-1])["number"]
            there[identity] = hashlib.sha256(repr(row).encode()).hexdigest(), f"{number} {row[3]}"
        for identity, (digest, what) in self.seen.items():
            if there.get(identity, ("", ""))[0] != digest:
                self.faults.append(f"committed and lost: row {identity} (candidate and status {what})")
        self.seen.update(there)

    # What it is told.

    def kill(self, pid: int, life: str, stopped: bool) -> dict[str, Any]:
        """Kill a tuner; if it is stopped before, all that is committed at that moment is known."""
        if stopped:
            os.kill(pid, signal.SIGSTOP)
            while state(pid) not in "TZ":
                time.sleep(0.0005)
            self.look_at_store()
        os.kill(pid, signal.SIGKILL)
        while state(pid) not in "ZX":
            time.sleep(0.0005)
        self.killed[life] = time.monotonic()
        if stopped:
            self.look_at_copy()
        return {"statuses": dict(self.seen[identity][1].split() for identity in sorted(self.seen))}

    def end(self) -> dict[str, Any]:
        """The last look: all must be there, and all processes gone."""
        end = time.monotonic() + GRACE_SECONDS
        while (left := self.marked()) and time.monotonic() < end:
            time.sleep(0.02)
        mine = {os.getpid(), os.getppid()}
        for pid in left.keys() - mine:
            self.faults.append(f"orphan at the end: {pid} of life {left[pid]} ({command(pid)})")
        self.look_at_locks()
        self.look_at_processes()
        self.look_at_copy()
        for name in self._lock_files().values():
            if str(self.leases / name) in {path for pid in self.marked() for path, _ in self._locks_of(pid)}:
                self.faults.append(f"still leased at the end: {name}")
        return {
            "faults": self.faults,
            "rows of the store": len(self.seen),
            "ms until all of a killed tuner was gone, at most": round(1e3 * self.longest),
            **self.counts,
        }


def state(pid: int) -> str:
    """Return the letter of a process's state; X if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "gone"


def main() -> None:
    observer = Observer(Path(sys.argv[1]))
    due = {observer.look_at_locks: 0.0, observer.look_at_processes: 0.0, observer.look_at_store: 0.0}
    every = dict(zip(due, (LOCKS_SECONDS, SCAN_SECONDS, STORE_SECONDS), strict=True))
    while True:
        pause = max(0.0, min(due.values()) - time.monotonic())
        if select.select([0], [], [], pause)[0]:
            told = json.loads(sys.stdin.buffer.raw.readline() or '{"end":true}')
            answer = observer.kill(told["kill"], told["life"], told["stopped"]) if "kill" in told else observer.end()
            os.write(1, json.dumps(answer).encode() + b"\n")
            if "end" in told:
                return
        now = time.monotonic()
        for look, moment in due.items():
            if moment <= now:
                look()
                hurry = look == observer.look_at_processes and observer.waiting
                due[look] = time.monotonic() + (LOCKS_SECONDS if hurry else every[look])


if __name__ == "__main__":
    main()
