"""A device has one candidate at a time, whatever kinds there are."""

from __future__ import annotations

from pathlib import Path

import ostinato as ost


def test_an_anchor_that_is_a_command_waits_for_calls_that_were_sent_ahead(tmp_path: Path) -> None:
    # The command says that it runs by a directory, and every call fails that finds it there.
    running = tmp_path / "running"
    script = f"mkdir {running} && sleep 0.02 && rmdir {running} && echo OP:op,TIME:0.001,WS:0"
    reference = ost.Candidate.command(["sh", "-c", script])
    calls = [
        ost.Candidate.call("tune.candidates:alone", {"path": str(running), "number": number}) for number in range(300)
    ]
    with ost.Tuner(["sim:a"], store=tmp_path / "db", progress=False) as tuner:
        report = tuner.tune("op", [reference, *calls], default=reference)
    assert sum(span.what == "anchor" for span in report.spans) >= 3
    assert {result.message for result in report.results} == {""}
