"""The chaos: a search of many bad candidates on many devices, killed again and again, and watched by an observer.

`python -m chaos.run [SEED]`, or ``make chaos``, is the whole of it. It prints a table, and ends with 1 if anything was
wrong.

A search over all candidates runs in a process that is killed with SIGKILL at random moments: while candidates are
measured, while it starts, and in its final. The next one is ready by then and goes on at once, while what the dead one
left is still being killed. Another process tunes on some of the same devices all the time. What is checked:

* no device is leased twice: by the candidates themselves (`calls`, `candidate.c`), and by the observer;
* nothing of a killed tuner is left, nor of the last one;
* whatever the observer saw in the store stays there, and is not measured again;
* each candidate ends as `plan` says, and the fastest wins.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from chaos.plan import FAULTS, Part, part, winner

TESTS = Path(__file__).parents[1]
STALL_SECONDS = 60.0
FINAL = ("ok", "raced", "crash", "hang_killed", "bad_output")
"""What the store answers: no candidate of ours ends in another way that stands."""

CHECKS = {
    "leases held twice": ("lease held twice", "witnessed: overlap", "still leased"),
    "candidates without a lease": ("witnessed: unleased",),
    "orphans": ("orphan",),
    "committed results lost": ("committed", "the store", "the search made again measured"),
    "wrong winners": ("wrong winner", "the search made again has"),
    "wrong results": ("wrong result", "witnessed: wrong"),
}
"""Rows of the table, and how the faults begin that they count."""


class Size(NamedTuple):
    """How much of it."""

    candidates: int
    simulated: int
    kills: int
    seed: int


class Process:
    """One that takes part: it is told lines, and says lines."""

    def __init__(self, directory: Path, name: str, *arguments: str, marked: bool = True) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CHAOS_")}
        environment |= {"PYTHONPATH": str(TESTS), "OSTINATO_LEASE_DIR": str(directory / "leases")}
        environment |= {"OSTINATO_CACHE_DIR": str(directory / "cache"), "TMPDIR": str(directory / "temporary")}
        if marked:
            environment |= {"CHAOS_DIR": str(directory), "CHAOS_LIFE": name}
        self.name = name
        self._stderr = directory / f"stderr-{name}"
        with open(self._stderr, "wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
            )
        self._said = b""

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def hear(self, seconds: float) -> str | None:
        """Return the next line; None if there is none in time, the empty text if there will be no more."""
        assert self.process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._said:
            if not select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                return ""
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def ask(self, **question: Any) -> Any:
        self.tell(json.dumps(question))
        return json.loads(self.hear(120.0) or self.broken())

    def broken(self) -> str:
        raise RuntimeError(f"{self.name} ended or hangs:\n{self._stderr.read_text()[-4000:]}")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout):
            assert file is not None
            file.close()


class Chaos:
    """One chaos, from the first life to the verdict."""

    def __init__(self, size: Size, directory: Path) -> None:
        self.size = size
        self.directory = directory
        self.faults: list[str] = []
        self.parts = [part(size.seed, size.candidates, number) for number in range(size.candidates)]
        self.random = Random(size.seed)
        self.table: dict[str, Any] = {}
        self.rest: list[tuple[int, dict[str, str]]] = []  # after each kill: the life, and all that was committed
        self.kills: Counter[str] = Counter()
        self.stopped = 0
        self._read = 0  # bytes of the log
        self._count = 0
        simulated = [f"sim:c{n:02}?noise=0.01{'&drift=0.0002' * (n % 8 == 7)}" for n in range(size.simulated)]
        cores = [f"cpu:{n}" for n in range(min(2, len(os.sched_getaffinity(0))))]
        self.real = len(cores)
        for name in ("leases", "witnesses", "temporary", "cache"):
            (directory / name).mkdir()
        given = {
            "seed": size.seed,
            "candidates": size.candidates,
            "devices": [*simulated, *cores],
            "rival": [*simulated[:4], cores[0]],
        }
        (directory / "given.json").write_text(json.dumps(given))
        compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
        options = ["-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
        source = Path(__file__).parent / "candidate.c"
        subprocess.run([compiler, *options, source, "-o", directory / "candidate"], check=True)

    def run(self) -> None:
        begin = time.monotonic()
        observer = Process(self.directory, "observer", "chaos.observer", str(self.directory), marked=False)
        processes = [observer]
        try:
            rival = self._start(processes, "rival")
            moments = self._moments()
            life = self._start(processes, "0")
            for number, (kind, moment) in enumerate(moments):
                following = self._start(processes, str(number + 1))
                self._live(life, kind, moment)
                stopped = bool(number % 2)
                answer = observer.ask(kill=life.process.pid, life=life.name, stopped=stopped)
                if life.process.wait() != -signal.SIGKILL:
                    self.faults.append(f"life {life.name} ended before it was killed: {life.process.returncode}")
                self.rest.append((number, answer["statuses"]))
                self.kills[kind] += 1
                self.stopped += stopped
                life = following
            again = self._start(processes, str(len(moments) + 1))
            self._live(life, "end", 0)
            self._live(again, "end", 0)
            assert rival.process.stdin is not None
            rival.process.stdin.close()
            self.table["searches of the rival"] = int(rival.hear(120.0) or rival.broken())
            rival.process.wait()
            observed = observer.ask(end=True)
            self.faults += observed.pop("faults")
            self.table |= observed
            self._judge(len(moments))
        finally:
            for process in processes:
                process.close()
        self.table["seconds"] = round(time.monotonic() - begin, 1)

    def _start(self, processes: list[Process], name: str) -> Process:
        process = Process(self.directory, name, "chaos.searcher", name)
        processes.append(process)
        if process.hear(120.0) != "ready":
            process.broken()
        return process

    def _moments(self) -> list[tuple[str, float]]:
        """Return when each life is killed: in its start or final, so many seconds later, or at so many measurements."""
        final, start = max(1, self.size.kills // 10), self.size.kills // 10
        work = sorted(self.random.sample(range(1, self.size.candidates), self.size.kills - final - start))
        moments: list[tuple[str, float]] = [("at work", entered) for entered in work]
        for _ in range(start):
            place = self.random.randrange(len(moments) + 1)
            moments.insert(place, ("starting", self.random.uniform(0, 0.6)))
        return moments + [("in the final", self.random.uniform(0, 0.03)) for _ in range(final)]

    def _live(self, life: Process, kind: str, moment: float) -> None:
        """Let a life begin, and wait for its moment."""
        life.tell("begin")
        if kind == "starting":
            time.sleep(moment)
            return
        moved, entered = time.monotonic(), -1
        while True:
            line = life.hear(0.01)
            if line == "":
                life.broken()
            if line == "end":
                if kind != "end":
                    self.faults.append(f"life {life.name} came to its end instead of being killed {kind}")
                return
            if kind == "in the final" and line == "final":
                time.sleep(moment)
                return
            now = self._entered()
            if kind == "at work" and now >= moment:
                return
            if now != entered:
                moved, entered = time.monotonic(), now
            if time.monotonic() > moved + STALL_SECONDS:
                life.process.send_signal(signal.SIGABRT)
                life.process.wait()
                life.broken()

    def _entered(self) -> int:
        """Return how many candidates began to run, those of all lives together."""
        with open(self.directory / "log", "a+b") as log:
            log.seek(self._read)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        self._count += len(re.findall(rb"^enter (?!rival )", whole, re.MULTILINE))
        return self._count

    # The verdict.

    def _judge(self, last: int) -> None:
        report = json.loads((self.directory / f"report-{last}.json").read_text())
        again = json.loads((self.directory / f"report-{last + 1}.json").read_text())
        self._judge_log(last)
        self._judge_results(report["results"])
        best = winner(self.size.seed, self.size.candidates)
        if report["best"] != best or report["ties"] != [best]:
            self.faults.append(f"wrong winner: {report['best']} (ties {report['ties']}), but {best} is the fastest")
        if (again["best"], again["ties"]) != (report["best"], report["ties"]):
            self.faults.append(f"the search made again has another winner: {again['best']} (ties {again['ties']})")
        measured = [result["number"] for result in again["results"] if not result["cached"]]
        if measured:
            self.faults.append(f"the search made again measured {len(measured)} candidates: {measured[:10]}")
        self.table["winner"] = f"{report['best']} ({self.parts[best].runs}, {best} is right)"
        self.table["seconds of the last search"] = round(report["seconds"], 2)
        self.table["seconds of the search made again"] = round(again["seconds"], 2)
        self.table["directories left in TMPDIR"] = len(os.listdir(self.directory / "temporary"))

    def _judge_results(self, results: list[dict[str, Any]]) -> None:
        numbers = [result["number"] for result in results]
        if numbers != list(range(self.size.candidates)):
            self.faults.append(f"{len(numbers)} results of {len(set(numbers))} candidates, not one of each in order")
        statuses: Counter[str] = Counter()
        for result in results:
            what = self.parts[result["number"]]
            statuses[result["status"]] += 1
            wrong = self._wrong(what, result)
            if wrong:
                self.faults.append(f"wrong result: {wrong}: {tuple(what)}: {result}")
        self.table |= {f"ended {status}": count for status, count in sorted(statuses.items())}

    def _wrong(self, what: Part, result: dict[str, Any]) -> str:
        """Say what is wrong with a result; nothing if nothing is."""
        device = result["device"] or ""
        if result["status"] == "contended" and device.startswith("cpu:") and what.runs == "call":
            return ""  # two cores for so many devices: so it is
        if result["status"] not in what.statuses:
            return "status"
        if what.reason not in result["message"]:
            return "reason"
        if result["status"] == "ok" and result["time_ns"] < 0.9 * what.ns:
            return "time"
        if result["status"] == "ok" and what.runs == "command" and result["time_ns"] > 1.2 * what.ns:
            return "time"
        return ""

    def _judge_log(self, last: int) -> None:
        entered: dict[str, set[int]] = {}
        excepted: dict[str, set[int]] = {}
        kinds: Counter[str] = Counter()
        for line in (self.directory / "log").read_text().splitlines():
            kind, life, *words = line.split()
            kinds[kind] += 1
            if kind in ("overlap", "unleased", "wrong", "note"):
                self.faults.append(f"witnessed: {line}")
            elif kind == "enter":
                entered.setdefault(life, set()).add(int(words[2]))
            elif kind == "again":
                excepted.setdefault(life, set()).add(int(words[2]))
        for killed, statuses in self.rest:
            for life in map(str, range(killed + 1, last + 2)):
                for number in entered.get(life, set()) - excepted.get(life, set()):
                    status = statuses.get(str(number))
                    if status in FINAL and status != "raced":
                        self.faults.append(f"committed and measured again: {number} ({status}), in life {life}")
        self.table["candidates begun"] = kinds["enter"]
        begun = Counter(
            number for life in entered if life.isdigit() for number in entered[life] - excepted.get(life, set())
        )
        self.table["begun again in a later life"] = sum(times - 1 for times in begun.values())
        self.table["children left behind"] = kinds["left"]

    def show(self) -> None:
        """Print the table, and what was wrong."""
        faults = Counter(what.fault for what in self.parts)
        runs = Counter(what.runs for what in self.parts)
        kills = [f"{count} {kind}" for kind, count in self.kills.items()]
        rows: dict[str, Any] = {
            "candidates": f"{self.size.candidates} ({runs['call']} callables, {runs['command']} commands)",
            "of which bad": ", ".join(f"{faults[name]} {name}" for name in FAULTS),
            "devices": f"{self.size.simulated} simulated, {self.real} real",
            "kills": f"{self.kills.total()} ({', '.join(kills)}), {self.stopped} of them stopped before",
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
    directory = Path(tempfile.mkdtemp(prefix="ostinato-chaos-"))
    chaos = Chaos(Size(candidates=10_000, simulated=64, kills=50, seed=seed), directory)
    chaos.run()
    chaos.show()
    if chaos.faults:
        print(f"all that was written down is in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
