"""A process that tunes, and that is killed: `python -m chaos.searcher LIFE`, or `RIVAL` for the one that is in its way.

It reads one line when it may begin, and says what it does: ``ready``, ``measuring``, ``final``, ``end``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import ostinato as ost
from chaos.plan import CLAIMED, SECONDS, Part, part
from ostinato.tune.candidate import Candidate
from ostinato.tune.progress import Progress
from ostinato.tune.report.report import Report
from support.hosts import offer

DIRECTORY = Path(os.environ["CHAOS_DIR"])
RIVAL = "rival"
_OF_RIVAL = 12
"""Candidates in each of the rival's searches."""


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())


def candidate(what: Part) -> Candidate:
    if what.runs == "call":
        return Candidate.call("chaos.calls:candidate", {"number": what.number, "way": what.way, "ns": what.ns})
    words = [str(DIRECTORY / "candidate"), "{number}", "{way}", "{ns}", "chaos", str(CLAIMED)]
    config = {"number": what.number, "way": what.way, "ns": what.ns}
    return Candidate.command(words, config, timeout=SECONDS)


class Told(Progress):
    """Says when something is measured first, and when the final begins; writes down what is measured once more."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def running(self, device: str, candidate: Candidate | None, what: str) -> None:
        word = "final" if what == "final" else "measuring"
        if word not in self._said:
            self._said.add(word)
            say(word)
        if what in ("final", "anchor") and candidate is not None:
            with open(DIRECTORY / "log", "a") as log:
                log.write(f"again {os.environ['CHAOS_LIFE']} {what} {device} {candidate.config['number']} 0 0\n")

    def note(self, text: str) -> None:
        with open(DIRECTORY / "log", "a") as log:
            log.write(f"note {os.environ['CHAOS_LIFE']} {text.replace(' ', '_')} - 0 0 0\n")


def described(report: Report, seconds: float) -> dict[str, Any]:
    results = [
        {
            "number": result.candidate.config["number"],
            "op": result.op,
            "status": result.status,
            "time_ns": result.time_ns,
            "samples": len(result.samples),
            "device": result.device,
            "message": result.message,
            "cached": result.cached,
            "miss": result.miss,
        }
        for result in report.results
    ]
    numbers = [result.candidate.config["number"] for result in report.ties]
    best = report.best.candidate.config["number"] if report.best else None
    return {"best": best, "ties": numbers, "results": results, "seconds": seconds}


def search(life: str, seed: int, candidates: int, devices: list[str], fleet: str | None) -> None:
    offered = [candidate(part(seed, candidates, number)) for number in range(candidates)]
    say("ready")
    sys.stdin.readline()
    store = DIRECTORY / "tune.db"
    with ost.Tuner(devices, store=store, timeout=SECONDS, progress=Told(), fleet=fleet) as tuner:
        report = tuner.tune("chaos", offered, default=offered[0])
    temporary = DIRECTORY / f"report-{life}.tmp"
    temporary.write_text(json.dumps(described(report, report.seconds)))
    temporary.rename(DIRECTORY / f"report-{life}.json")
    say("end")


def be_in_the_way(seed: int, devices: list[str]) -> None:
    """Tune on some of the same devices, again and again, until standard input ends."""
    say("ready")
    os.set_blocking(0, False)
    searches = 0
    with ost.Tuner(devices, store=DIRECTORY / "rival.db", timeout=SECONDS, progress=False) as tuner:
        while sys.stdin.buffer.raw.read(1) != b"":  # type: ignore[attr-defined]
            searches += 1
            parts = [part(-seed * 1_000_003 - searches, _OF_RIVAL, number) for number in range(_OF_RIVAL)]
            parts = [each._replace(number=each.number + 1_000_000) for each in parts if each.fault != "hang"]
            report = tuner.tune("chaos", [candidate(each) for each in parts], key={"search": searches})
            for each, result in zip(parts, report.results, strict=True):
                if result.status not in each.statuses | {"contended"}:
                    with open(DIRECTORY / "log", "a") as log:
                        log.write(f"wrong {RIVAL} {result.status} {each.fault}/{each.way} {each.number} 0 0\n")
    say(str(searches))


def main() -> None:
    life = os.environ["CHAOS_LIFE"] = sys.argv[1]
    given = json.loads((DIRECTORY / "given.json").read_text())
    if life == RIVAL:
        be_in_the_way(given["seed"], given["rival"])
    else:
        offer()
        search(life, given["seed"], given["candidates"], given["devices"], given.get("fleet"))


if __name__ == "__main__":
    main()
