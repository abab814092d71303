"""Reports of searches that never were: times from a formula, so that tests know what they should say."""

import itertools
import random
from statistics import median

import ostinato as ost
from ostinato.tune.result import Result, Span

HOSTILE = "<script>alert('x')</script> & \"quotes\" \x1b[31m \ud83d </script><!-- \u2028 \x00"
MESSAGES = {
    "crash": "killed by SIGSEGV",
    "compile_error": 'matmul.cpp:{tile}:9: error: no type named "v{tile}f"\n  v{tile}f x;\n  ^~~~',
    "wrong_result": "AssertionError: 12 of 4096 values differ, most by 0.25 at (3, 7)",
    "hang_killed": "still running after 30 s",
}


def space(tiles=(8, 16, 32, 64, 128), unrolls=(1, 2, 4, 8), orders=("ijk", "ikj")):
    return ost.Space({"tile": tiles, "unroll": unrolls, "order": orders, "openmp": [False]})


def time_ns(config):
    cost = 1 + abs(config.get("tile", 32) - 32) / 32 + 0.05 * abs(config.get("unroll", 4) - 4)
    return 20_000 * cost * (1.3 if config.get("order") == "ijk" else 1)


def result(config, status="ok", *, ns=None, count=20, rng=None, op="matmul", device="cpu:0", message="", **others):
    candidate = ost.Candidate.call("json:dumps", config)
    samples = ()
    if status in ("ok", "raced"):
        middle = time_ns(config) if ns is None else ns
        rng = rng or random.Random(candidate.id)
        samples = tuple(middle * (1 + 0.01 * rng.gauss(0, 1)) for _ in range(count))
    ordered = sorted(samples)
    return Result(
        candidate=candidate,
        op=op,
        status=ost.Status(status),
        time_ns=median(samples) if samples else None,
        interval_ns=(ordered[count // 4], ordered[-count // 4]) if samples else None,
        samples=samples,
        device=device,
        message=message,
        **others,
    )


def report(results, *, default=None, ties=None, spans=(), **others):
    """Return a report; the fastest result that is ok wins."""
    good = sorted((r for r in results if r.status == "ok"), key=lambda r: r.time_ns)
    best = good[0] if good else None
    return ost.Report(
        op="matmul",
        key={"n": 512, "dtype": "float64"},
        policy=ost.Policy(),
        best=best,
        ties=((best,) if best else ()) if ties is None else tuple(ties),
        results=tuple(results),
        default=default,
        seconds=max((span.end for span in spans), default=0.0),
        spans=tuple(spans),
        environment={
            "host": "node7",
            "devices": {"cpu:0": {"model": "Some <Processor>", "driver": ""}, "cpu:1": {"model": "Some <Processor>"}},
            "versions": {"python": "3.11.7", "numpy": "2.1.0"},
        },
        **others,
    )


def search(count, devices=2, seed=0):
    """Return a report of `count` candidates, a fifth of them failing, with what every device did when."""
    rng = random.Random(seed)
    names = [f"cpu:{number}" for number in range(devices)]
    results, spans = [], []
    free = dict.fromkeys([*names, "build:0", "build:1"], 0.4)
    for name in names:
        spans.append(Span(name, "start", None, 0.0, 0.4, ost.Status.OK))

    def busy(where, what, candidate, seconds, status="ok", earliest=0.0):
        begin = max(free[where], earliest)
        free[where] = begin + seconds
        spans.append(Span(where, what, candidate, begin, free[where], ost.Status(status)))
        return free[where]

    tiles = [8 * (1 + number) for number in range(-(-count // 10))]
    for config in itertools.islice(space(tiles=tiles, unrolls=(1, 2, 4, 8, 16)), count):
        good = "ok" if time_ns(config) < 40_000 else "raced"
        status = rng.choices([good, *MESSAGES], [9, 1, 0.5, 0.3, 0.2])[0]
        if config["tile"] > 64 and config["unroll"] == 16:
            status = "crash"
        device = min(names, key=free.__getitem__)
        message = MESSAGES.get(status, "").format(**config)
        found = result(config, status, device=device, message=message, count=5 if status == "raced" else 20, rng=rng)
        found.cached = rng.random() < 0.1
        found.contended = int(rng.random() < 0.05)
        results.append(found)
        if found.cached:
            found.miss = None
            continue
        found.miss = rng.choice([None, None, "source"])
        slot = min(("build:0", "build:1"), key=free.__getitem__)
        failed = status == "compile_error"
        built = busy(slot, "build", found.candidate, rng.uniform(0.05, 0.3), status if failed else "ok")
        if not failed:
            seconds = 2.0 if status == "hang_killed" else rng.uniform(0.1, 0.4)
            busy(device, "measure", found.candidate, seconds, status, built)
        if len(results) % 25 == 0:
            busy(device, "anchor", results[0].candidate, 0.1)
    good = sorted((r for r in results if r.status == "ok"), key=lambda r: r.time_ns)
    for _ in range(4):
        for finalist in good[:3]:
            busy(names[0], "final", finalist.candidate, 0.1)
    default = next((r for r in results if r.status == "ok"), None)
    return report(results, default=default, ties=good[:2], spans=spans)
