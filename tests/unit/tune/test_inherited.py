"""What candidates inherit of the environment: all of it, or what `env_allow` names and what programs need to run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import ostinato as ost
from ostinato.tune.searching.job import JobError, load, run

QUICK = ost.Policy(rel_ci=0.5, min_samples=2, max_seconds=0.05)
SEEN = (
    'for name in API_TOKEN MKL_THREADS MKL_DEBUG TMPDIR LC_ALL OWN; do eval "value=\\$$name"; '
    '[ -z "$value" ] || seen="$seen$name "; done; '
)
REPORT = SEEN + 'echo "OP:[$seen],TIME:1,WS:0"'


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("API_TOKEN", "MKL_THREADS", "MKL_DEBUG"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("LC_ALL", "C")


@pytest.mark.parametrize(
    ("allow", "seen"),
    [
        (None, "API_TOKEN MKL_THREADS MKL_DEBUG TMPDIR LC_ALL OWN "),
        ([], "TMPDIR LC_ALL OWN "),
        (["MKL_*"], "MKL_THREADS MKL_DEBUG TMPDIR LC_ALL OWN "),
        (("MKL_DEBUG", "NOT_THERE", "api_token"), "MKL_DEBUG TMPDIR LC_ALL OWN "),
    ],
)
def test_commands_and_their_builds_see_what_is_allowed(allow: list[str] | None, seen: str) -> None:
    built = ost.Candidate.command(
        ["cat", "{scratch}/seen"], {"n": 1}, build=["sh", "-c", f"({REPORT}) > {{scratch}}/seen"], env={"OWN": "1"}
    )
    plain = ost.Candidate.command(["sh", "-c", REPORT], env={"OWN": "1"})
    with ost.Tuner("sim:a", store=False, progress=False, policy=QUICK, env_allow=allow) as tuner:
        report = tuner.tune("op", [plain, built])
    assert [(result.op, result.status) for result in report.results] == [(f"[{seen}]", "ok")] * 2


@pytest.mark.parametrize(("allow", "status"), [(None, "invalid"), ([], "ok"), (["API_TOKEN"], "invalid")])
def test_callables_their_preparation_and_checks_see_what_is_allowed(allow: list[str] | None, status: str) -> None:
    """Each of the three refuses to work where there is a secret."""
    candidate = ost.Candidate.call("tune.mean:refuses_a_secret", {"n": 1})
    prepared = ost.Candidate.call("tune.mean:is_prepared", {"n": 2}, prepare="tune.mean:prepares_without_a_secret")
    with ost.Tuner("sim:a", store=False, progress=False, policy=QUICK, env_allow=allow) as tuner:
        report = tuner.tune("op", [candidate, prepared], verify="tune.mean:accepts_without_a_secret")
        assert [str(result.status) for result in report.results] == [
            status, "compile_error" if status == "invalid" else "ok"
        ]  # fmt: skip
        os.environ["ANOTHER_TOKEN"] = "1"  # a worker of the last search is not asked: it has the variables of then
        try:
            assert [str(result.status) for result in tuner.tune("op", [candidate]).results] == [status]
        finally:
            del os.environ["ANOTHER_TOKEN"]


@pytest.mark.parametrize("allow", ["API_TOKEN", 3, [3], [""], ["A=B"], ["A\0"]])
def test_what_names_no_variable_is_refused(allow: object) -> None:
    with pytest.raises((TypeError, ValueError), match="env_allow must"):
        ost.Tuner("sim:a", store=False, env_allow=allow)  # type: ignore[arg-type]


def test_a_job_says_what_is_inherited(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    text = (
        'op = "op"\ndevices = ["sim:a"]\nstore = "tune.db"\nenv_allow = ["MKL_D*"]\n'
        f"[space]\nn = [1]\n[command]\nargv = ['sh', '-c', '''{REPORT}''']\n[policy]\nmin_samples = 2\n"
    )
    path.write_text(text)
    report, _ = run(load(path))
    assert [result.op for result in report.results] == ["[MKL_DEBUG TMPDIR LC_ALL ]"]
    path.write_text(text.replace('["MKL_D*"]', '["A=B"]'))
    with pytest.raises(JobError, match="env_allow"):
        load(path)
