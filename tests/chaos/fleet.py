"""The chaos of a fleet: hosts are killed and started again, and so is the process that has the search.

`python -m chaos.fleet [SEED]`; ``make chaos`` runs it, too. What is checked, besides what `chaos.run` checks:

* of a search that was killed, nothing runs on any host after `WITHIN` seconds;
* each candidate has one result, however many hosts were lost while they measured it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from chaos.observer import Observer, command
from chaos.plan import winner
from chaos.run import FINAL, STALL_SECONDS, Chaos, Process, Size

WITHIN = 10.0
"""Seconds after the death of the process that has the search."""

CHECKS = {
    "candidates lost": ("lost", "committed and lost"),
    "candidates counted twice": ("twice", "committed and measured again", "the search made again measured"),
    "orphans": ("orphan",),
    "leases held twice": ("lease held twice", "witnessed: overlap", "still leased"),
    "candidates without a lease": ("witnessed: unleased",),
    "wrong winners": ("wrong winner", "the search made again has"),
    "wrong results": ("wrong result", "witnessed: wrong"),
}


class Fleet(NamedTuple):
    """How large it is."""

    hosts: int
    devices: int
    kills: int  # of hosts


class FleetChaos(Chaos):
    """A search over hosts that are processes here; `Size.kills` are those of the process that has the search."""

    def __init__(self, size: Size, fleet: Fleet, directory: Path) -> None:
        super().__init__(size, directory)
        self.fleet = fleet
        self.hosts: dict[str, Process] = {}
        self.starts: Counter[str] = Counter()
        self.due: list[tuple[float, str]] = []  # hosts that are to be started again, and when
        self.killed_at: list[tuple[float, dict[str, str]]] = []  # when the next search may begin: what was committed
        self.longest = 0.0
        (directory / "hosts").mkdir()
        given = json.loads((directory / "given.json").read_text())
        given["devices"] = [f"sim:c{n:02}?noise=0.01" for n in range(fleet.devices)]
        given["fleet"] = f"processes://{directory / 'hosts'}"
        (directory / "given.json").write_text(json.dumps(given))

    def run(self) -> None:
        begin = time.monotonic()
        self.observer = Process(self.directory, "observer", "chaos.observer", str(self.directory), marked=False)
        self.processes = [self.observer]
        try:
            for number in range(self.fleet.hosts):
                self._start_host(f"node{number}")
            whens = sorted(self.random.sample(range(1, self.size.candidates), self.size.kills + self.fleet.kills))
            heads = set(self.random.sample(whens, self.size.kills))
            number = 0
            life = self._head(number)
            for when in whens:
                self._until(life, when)
                if when not in heads:
                    self._kill_host(stopped=bool(self.kills["host"] % 2))
                    continue
                number += 1
                self._kill_head(life, waits=bool(number % 2))
                life = self._head(number)
            self._until(life, None)
            again = self._head(number + 1)
            self._until(again, None)
            for each in self.hosts.values():
                each.close()
            observed = self.observer.ask(end=True)
            self.faults += observed.pop("faults")
            self.table |= observed
            self._judge(number)
        finally:
            for process in self.processes:
                process.close()
        self.table["seconds"] = round(time.monotonic() - begin, 1)

    def _start_host(self, name: str) -> None:
        self.starts[name] += 1
        life = f"{name}.{self.starts[name]}"
        process = Process(self.directory, life, "support.hosts", str(self.directory / "hosts" / f"{life}.sock"))
        self.processes.append(process)
        if process.hear(120.0) != "ready":
            process.broken()
        self.hosts[name] = process

    def _head(self, number: int) -> Process:
        life = self._start(self.processes, str(number))
        life.tell("begin")
        return life

    def _until(self, life: Process, entered: int | None) -> None:
        """Wait until so many candidates have begun, or the search has ended; start hosts again meanwhile."""
        moved, before = time.monotonic(), -1
        while True:
            line = life.hear(0.01)
            if line == "":
                life.broken()
            if line == "end":
                if entered is not None:
                    self.faults.append(f"lost: life {life.name} came to its end before {entered} candidates had begun")
                return
            for due in [each for each in self.due if each[0] <= time.monotonic()]:
                self.due.remove(due)
                self._start_host(due[1])
            now = self._entered()
            if entered is not None and now >= entered:
                return
            if now != before:
                moved, before = time.monotonic(), now
            if time.monotonic() > moved + STALL_SECONDS:
                life.process.send_signal(signal.SIGABRT)
                life.process.wait()
                life.broken()

    def _kill_host(self, *, stopped: bool) -> None:
        name = self.random.choice(sorted(self.hosts))
        host = self.hosts.pop(name)
        self.observer.ask(kill=host.process.pid, life=host.name, stopped=stopped)
        host.process.wait()
        (self.directory / "hosts" / f"{host.name}.sock").unlink()
        self.due.append((time.monotonic() + self.random.uniform(0, 3), name))
        self.kills["host"] += 1
        if not self.hosts:  # a search without any host ends
            self._start_host(self.due.pop()[1])

    def _kill_head(self, life: Process, *, waits: bool) -> None:
        answer = self.observer.ask(kill=life.process.pid, life=life.name, stopped=True)
        life.process.wait()
        died = time.monotonic()
        self.kills["head"] += 1
        if waits:
            looks = Observer(self.directory)
            known = {each.process.pid for each in self.processes}
            while left := looks.marked().keys() - known:
                if time.monotonic() > died + WITHIN:
                    named = ", ".join(f"{pid} ({command(pid)})" for pid in left)
                    self.faults.append(f"orphans {WITHIN:g} s after the search was killed: {named}")
                    break
                time.sleep(0.02)
            self.longest = max(self.longest, time.monotonic() - died)
        self.killed_at.append((time.monotonic(), answer["statuses"]))

    # The verdict.

    def _judge_log(self, last: int) -> None:
        entered: list[tuple[float, int]] = []
        excepted: set[int] = set()
        for line in (self.directory / "log").read_text().splitlines():
            kind, _, *words = line.split()
            if kind in ("overlap", "unleased", "wrong"):
                self.faults.append(f"witnessed: {line}")
            elif kind == "enter":
                entered.append((float(words[4]), int(words[2])))
            elif kind == "again":
                excepted.add(int(words[2]))
        for moment, statuses in self.killed_at:
            committed = {int(n) for n, status in statuses.items() if status in FINAL and status != "raced"}
            for number in {number for when, number in entered if when > moment} & committed - excepted:
                self.faults.append(f"committed and measured again: {number} ({statuses[str(number)]})")
        with closing(sqlite3.connect(self.directory / "tune.db")) as store:
            # Measured again: what was cut and would not be by what is known now, and what says nothing of a candidate.
            runs = store.execute(
                "SELECT k.config, COUNT(DISTINCT a.run) AS runs FROM attempt a JOIN candidate k ON k.id = a.candidate"
                " WHERE a.phase = 'screen' AND a.status NOT IN ('raced', 'device_lost', 'contended')"
                " GROUP BY k.config HAVING runs > 1"
            ).fetchall()
        for config, count in runs:
            number = json.loads(config)["number"]
            if number not in excepted:
                self.faults.append(f"twice: candidate {number} has {count} runs in the store")
        times = Counter(number for _, number in entered)
        self.table["candidates begun"] = len(entered)
        self.table["begun again"] = sum(count - 1 for number, count in times.items() if number not in excepted)

    def _judge_results(self, results: list[dict[str, Any]]) -> None:
        for result in results:
            if result["status"] in ("device_lost", "cancelled"):
                self.faults.append(f"lost: {result}")
        super()._judge_results(results)

    def show(self) -> None:
        best = winner(self.size.seed, self.size.candidates)
        rows: dict[str, Any] = {
            "candidates": self.size.candidates,
            "hosts": f"{self.fleet.hosts} of {self.fleet.devices} simulated devices",
            "kills": f"{self.kills['host']} of hosts, {self.kills['head']} of the process that has the search",
            "the right winner": f"{best} ({self.parts[best].runs})",
            "s until nothing of a killed search ran, at most": round(self.longest, 2),
            **self.table,
            **{name: sum(fault.startswith(kinds) for fault in self.faults) for name, kinds in CHECKS.items()},
            "faults in all": len(self.faults),
        }
        width = max(map(len, rows))
        for name, value in rows.items():
            print(f"{name:<{width}}  {value}")
        for fault in self.faults[:40]:
            print(f"FAULT: {fault[:600]}")


def main() -> int:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    directory = Path(tempfile.mkdtemp(prefix="ostinato-chaos-", dir=os.environ.get("TMPDIR")))
    size = Size(candidates=10_000, simulated=0, kills=5, seed=seed)
    chaos = FleetChaos(size, Fleet(hosts=3, devices=8, kills=20), directory)
    chaos.run()
    chaos.show()
    if chaos.faults:
        print(f"all that was written down is in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
