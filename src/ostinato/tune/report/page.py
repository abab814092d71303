"""A report as a page: one file of HTML that needs no network, in light or dark as its reader has it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import IO, TYPE_CHECKING, Any

from ostinato.text import counted, duration, micros, one_line, setting, settings
from ostinato.tune.candidate import Call, Command
from ostinato.tune.outcome import Status
from ostinato.tune.report.pictures import (
    COLOURS,
    Parameter,
    heat_map,
    kind,
    landscape,
    parameter_picture,
    rank_picture,
    time_line,
)
from ostinato.tune.report.summary import half_width, marks, named, parameters, ranked, sentences, status_counts
from ostinato.view import palette
from ostinato.view.page import Markup, key, page, paragraphs, table

if TYPE_CHECKING:
    from ostinato.tune.report.report import Report
    from ostinato.tune.result import Result

MEANINGS = {
    Status.OK: "measured, and right where it was checked",
    Status.RACED: "cut early, since it could no longer win",
    Status.INVALID: "refused its configuration, or could not be started",
    Status.COMPILE_ERROR: "could not be built",
    Status.COMPILE_TIMEOUT: "took too long to build",
    Status.CRASH: "died of a signal, raised, or ended with a nonzero exit status",
    Status.HANG_KILLED: "still running at its limit of time, and killed",
    Status.OOM: "took more memory than it may",
    Status.WRONG_RESULT: "computed something else than the reference",
    Status.BAD_OUTPUT: "reported nothing, or something that makes no sense",
    Status.CONTENDED: "disturbed so much by something else on its device that its times mean nothing",
    Status.DEVICE_LOST: "its device went away",
    Status.CANCELLED: "its turn did not come, or was taken away",
}
_WORKINGS = {
    "start": "a worker starts",
    "build": "a candidate is built",
    "check": "what a candidate left is checked",
    "measure": "a candidate is measured",
    "anchor": "the reference is measured again",
    "final": "a finalist is measured again",
}
_DOTS = {"winner": "the winner", "tie": "its ties", "default": "the default", "ok": "ok", "raced": "cut early"}
_MOST_PARAMETERS = 12
_MOST_FAILURES = 50  # kinds of them
_LONGEST_MESSAGE = 4000
_LONGEST_IN_TABLE = 300


def write_page(report: Report, out: IO[str]) -> None:
    """Write a report as a page.

    Nothing that candidates said becomes markup: all of it is escaped, and no script runs but the page's own, whose
    hash the page's security policy names.
    """
    script = files("ostinato.tune.report").joinpath("page.js").read_text(encoding="utf-8")
    style = files("ostinato.tune.report").joinpath("page.css").read_text(encoding="utf-8") + _colours()
    mark = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{mark}'; img-src data:"
    title = f"Tuning of {one_line(report.op)}"
    out.write('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n')
    out.write(f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n')
    out.write('<meta name="viewport" content="width=device-width, initial-scale=1">\n')
    out.write(f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n")
    out.write(f"<h1>{escape(title)}</h1>\n")
    if report.key:
        out.write(f'<p class="dim">{escape(settings(report.key))}</p>\n')
    for section in (_verdict, _results, _landscape, _timeline, _failures, _measured):
        out.writelines(f"{line}\n" for line in section(report))
    out.write(f"<footer>Written by Ostinato on {time.strftime('%Y-%m-%d at %H:%M:%S %Z')}.</footer>\n")
    if report.results:
        out.write(f'<script type="application/json" id="results">{_data(report)}</script>\n<script>{script}</script>\n')
    out.write("</body>\n</html>\n")


_MOST_IN_NOTEBOOK = 20


def report_page(report: Report) -> str:
    """Return a report as notebooks show it: what was found, and the best of the results."""
    rows = ranked(report)
    marked, best = marks(report), report.best.time_ns if report.best is not None else None
    names = parameters(report)
    heads = ["", *map(one_line, names), "status", "#time (µs)", "#± (%)", "#x best", "message"]
    cells = []
    for result in rows:
        config, width = result.candidate.config, half_width(result)
        cells.append(
            (
                marked.get(id(result), ""),
                *(setting(config[name]) if name in config else "" for name in names),
                Markup(key(palette.REPORT[str(result.status)][0], result.status)),
                "" if result.time_ns is None else micros(result.time_ns),
                "" if width is None else f"{100 * width:.1f}",
                f"{result.time_ns / best:.4g}" if best and result.time_ns else "",
                _message(result.message, _LONGEST_IN_TABLE).partition("\n")[0],
            )
        )
    counts = "".join(
        f"<p>{key(palette.REPORT[str(status)][0], f'{number} {status}: {MEANINGS[status]}')}</p>"
        for status, number in status_counts(report).items()
    )
    title = f"Tuning of {report.op}"
    return page(title, paragraphs(sentences(report)), table(heads, cells, _MOST_IN_NOTEBOOK), counts)


def _colours() -> str:
    light, dark = (" ".join(f"--{name}: {pair[place]};" for name, pair in palette.REPORT.items()) for place in range(2))
    names = [*MEANINGS, *_WORKINGS, *_DOTS]
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n" + "".join(
        f".key.k-{name}, .shares .k-{name} {{ background: var(--{name}); }} "
        f"rect.k-{name} {{ fill: var(--{name}); }} path.k-{name} {{ stroke: var(--{name}); }}\n"
        for name in names
    )


def _verdict(report: Report) -> Iterator[str]:
    found = "" if report.best is not None else " none"
    yield f'<div class="card verdict{found}">'
    yield from (f"<p>{escape(sentence)}</p>" for sentence in sentences(report))
    if report.best is not None:
        yield from (f'<p class="dim">{what}: <code>{escape(line)}</code></p>' for what, line in _spelled(report.best))
    counts = status_counts(report)
    if counts:
        shares = (f'<span class="k-{status}" style="flex-grow: {number}"></span>' for status, number in counts.items())
        yield f'<div class="shares" aria-hidden="true">{"".join(shares)}</div>'
        yield _legend((f"k-{status}", f"{number} {status}: {MEANINGS[status]}") for status, number in counts.items())
    yield "</div>"


def _spelled(best: Result) -> Iterator[tuple[str, str]]:
    """How the winner is had without the tuner."""
    candidate = best.candidate
    if isinstance(candidate, Command):
        if candidate.build is not None:
            yield "Built by", one_line(shlex.join(candidate.filled(candidate.build, "SCRATCH")))
        yield "As a command", one_line(shlex.join(candidate.filled(candidate.argv, "SCRATCH")))
    elif isinstance(candidate, Call):
        arguments = [f"{name}={value!r}" for name, value in candidate.config.items()]
        given = {"prepared": candidate.prepare, "inputs": candidate.setup}
        arguments += [f"{name}={function}(...)" for name, function in given.items() if function is not None]
        yield "As a call", one_line(f"{candidate.factory}({', '.join(arguments)})")


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    keys = (f'<span><span class="key {css}"></span>{escape(words)}</span>' for css, words in entries)
    return f'<div class="legend">{"".join(keys)}</div>'


def _results(report: Report) -> Iterator[str]:
    if not report.results:
        return
    yield "<h2>Results</h2>"
    yield (
        '<p class="about">The winner and its ties first, then by time. A click on a heading sorts by it, one on a '
        "status hides it; the box finds words, and values written as <code>name=value</code>. The time is the median "
        "of the samples; ± is half the width of its 95 % confidence interval.</p>"
    )
    chips = (
        f'<button aria-pressed="true" data-status="{status}" title="{escape(MEANINGS[status])}">'
        f'<span class="key k-{status}"></span>{status} {number}</button>'
        for status, number in status_counts(report).items()
    )
    yield f'<div class="chips">{"".join(chips)}<input id="search" type="search" placeholder="find" aria-label="find">'
    yield '<span class="dim" id="shown"></span></div>'
    yield '<noscript><p>The table needs JavaScript. <code>report.save("report.csv")</code> needs none.</p></noscript>'
    yield '<div class="card scroll" tabindex="0"><table><thead><tr></tr></thead><tbody></tbody></table></div>'


def _data(report: Report) -> str:
    """The rows of the table, as JSON without the characters that mean something in HTML."""
    columns: list[tuple[dict[str, str], list[Any]]] = []
    rows = ranked(report)
    marked = marks(report)
    best = report.best.time_ns if report.best is not None else None

    def column(name: str, kind: str, values: Iterable[Any], about: str = "", *, always: bool = False) -> None:
        cells = [None if value == "" else value for value in values]
        if always or any(cell is not None for cell in cells):
            columns.append(({"name": name, "kind": kind, "about": about}, cells))

    column("", "mark", (marked.get(id(result), "") for result in rows), always=True)
    for name in parameters(report):
        column(one_line(name), "value", (_value(result.candidate.config, name) for result in rows))
    if any(result.op != report.op for result in rows):
        column("op", "value", (one_line(result.op) for result in rows))
    column("status", "status", (str(result.status) for result in rows))
    column("time", "time", (result.time_ns for result in rows), "median of the samples")
    column("±", "percent", map(half_width, rows), "half the width of the 95 % confidence interval of the median")
    column("x best", "ratio", (result.time_ns / best if best and result.time_ns else None for result in rows))
    column("samples", "count", (len(result.samples) or None for result in rows))
    column("disturbed", "count", (result.contended or None for result in rows), "samples with something else running")
    column("workspace", "count", (result.workspace or None for result in rows), "bytes")
    column("device", "text", (one_line(result.device or "") for result in rows))
    column("store", "text", map(_stored, rows), "whether the store answered, and if not, what differed")
    column("message", "message", (_message(result.message, _LONGEST_IN_TABLE).partition("\n")[0] for result in rows))
    data = {
        "columns": [about for about, _ in columns],
        "rows": list(zip(*(cells for _, cells in columns), strict=True)),
    }
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _value(config: Mapping[str, Any], name: str) -> str | int | float | None:
    if name not in config:
        return None
    value = config[name]
    # Beyond 2**53 JavaScript rounds.
    plain = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 2**53
    return value if plain else setting(value)


def _stored(result: Result) -> str:
    return "answered" if result.cached else f"{one_line(str(result.miss))} differed" if _surprises(result) else ""


def _surprises(result: Result) -> bool:
    """Whether the store might have been expected to answer; not for another problem."""
    return result.miss not in (None, "key")


def _message(message: str, longest: int) -> str:
    """A message without characters that pages may not have, and cut in its middle where it is long."""
    if len(message) > longest:
        message = f"{message[: longest // 2]}\n...\n{message[-longest // 2 :]}"
    return "\n".join(one_line(line) for line in message.expandtabs(4).strip().split("\n"))


def _landscape(report: Report) -> Iterator[str]:
    ranks = rank_picture(report)
    if not ranks:
        return
    yield "<h2>The landscape</h2>"
    yield '<p class="about">The time of one call for every configuration.</p>'
    yield f'<figure class="card">{ranks}'
    yield f"{_legend((f'round k-{css}', words) for css, words in _DOTS.items())}</figure>"
    found = landscape(report)
    if len(found) > 1:
        yield from _pair(report, found[0], found[1])
    if found:
        yield "<h3>Each parameter</h3>"
        yield (
            '<p class="about">Every dot is a configuration, at its value of the parameter; the dashed line joins the '
            "best of each value, and red at the top is the part that failed. The parameter that explains most of the "
            "variance of log(time) is first: its share is the sum of squares between its values over the total. One "
            "with hardly two configurations to a value explains nearly all, whatever it is.</p>"
        )
        yield '<div class="small">'
        for parameter in found[:_MOST_PARAMETERS]:
            yield f'<figure class="card"><figcaption><b>{escape(one_line(parameter.name))}</b> explains '
            yield f"{parameter.share:.0%}</figcaption>{parameter_picture(report, parameter)}</figure>"
        yield "</div>"
    if len(found) > _MOST_PARAMETERS:
        rest = ", ".join(one_line(parameter.name) for parameter in found[_MOST_PARAMETERS:])
        yield f'<p class="dim">Not shown, for they explain less: {escape(rest)}.</p>'


def _pair(report: Report, across: Parameter, down: Parameter) -> Iterator[str]:
    if len(down.labels) > len(across.labels):
        across, down = down, across
    drawn = heat_map(report, across, down)
    ramp = ", ".join(f"rgb({r} {g} {b})" for r, g, b in COLOURS)
    yield f"<h3>{escape(one_line(across.name))} across, {escape(one_line(down.name))} down</h3>"
    yield (
        '<p class="about">The two parameters that explain most: for every pair of their values the best time, whatever '
        "the others are. The winner is framed; where the frame is red and dotted, nothing has a time. "
        f'fast<span class="ramp" style="background: linear-gradient(90deg, {ramp})"></span>slow</p>'
    )
    yield f'<figure class="card">{drawn}</figure>'


def _timeline(report: Report) -> Iterator[str]:
    if not report.spans:
        return
    yield "<h2>What ran when</h2>"
    yield (
        '<p class="about">A row is a device, or a place in the compile pool (build:0 and so on), which builds '
        "candidates ahead and holds no device. Seconds since the search began; at the right, how much of the time it "
        "was busy.</p>"
    )
    meanings = {**{str(status): f"{status}" for status in MEANINGS}, **_WORKINGS}
    seen = {kind(span) for span in report.spans}
    keys = _legend((f"k-{name}", words) for name, words in reversed(meanings.items()) if name in seen)
    yield f'<figure class="card">{time_line(report.spans)}{keys}</figure>'


def _failures(report: Report) -> Iterator[str]:
    """Failures, those whose messages differ in numbers only counted together."""
    groups: dict[tuple[Status, str], list[Result]] = {}
    for result in report.results:
        if result.status not in (Status.OK, Status.RACED):
            alike = re.sub(r"0x[0-9a-f]+|\d+", "#", result.message[:_LONGEST_MESSAGE])
            groups.setdefault((result.status, alike), []).append(result)
    if not groups:
        return
    yield "<h2>Failures</h2>"
    yield '<p class="about">What went wrong, the most frequent first. None of it disturbed other candidates.</p>'
    order = sorted(groups.items(), key=lambda item: -len(item[1]))
    for (status, _), results in order[:_MOST_FAILURES]:
        first = results[0]
        where = f", such as {named(report, first)}" if len(results) > 1 else f": {named(report, first)}"
        yield '<div class="card" style="margin-bottom: .6rem">'
        yield f'<span class="key k-{status}"></span><b>{status}</b>, {counted(len(results), "result")}{escape(where)}'
        if first.message:
            yield f"<pre>{escape(_message(first.message, _LONGEST_MESSAGE))}</pre>"
        yield "</div>"
    if len(order) > _MOST_FAILURES:
        rest = sum(len(results) for _, results in order[_MOST_FAILURES:])
        yield f'<p class="dim">And {counted(rest, "result")} with other messages; the table has them.</p>'


def _measured(report: Report) -> Iterator[str]:
    policy = report.policy
    yield "<h2>How it was measured</h2>"
    yield "<p>Each candidate had its device for itself.</p>"
    if any(isinstance(result.candidate, Command) for result in report.results):
        yield "<p>What commands reported is what they measured themselves.</p>"
    if any(isinstance(result.candidate, Call) for result in report.results):
        cache = (
            "Calls followed each other, with warm caches."
            if policy.cache == "warm"
            else "Before each sample a buffer as large as the last-level cache was written, so caches were cold."
        )
        yield (
            f"<p>{cache} A candidate was sampled until the 95 % confidence interval of its median was within "
            f"{100 * policy.rel_ci:g} % of the median on either side, with at least "
            f"{counted(policy.min_samples, 'sample')}, for at most {duration(policy.max_seconds * 1e9)}; candidates "
            "that could no longer win were cut before.</p>"
        )
    yield from (f"<p>{escape(sentence)}</p>" for sentence in _observed(report))
    if report.environment:
        yield "<h3>The results hold for</h3>"
        yield _listed(report.environment)


def _observed(report: Report) -> Iterator[str]:
    """What can be said of how well measuring went."""
    for what, purpose in (
        ("anchor", "The reference, one candidate that shows whether a device drifts, was measured again"),
        ("final", "The best were measured again in turns, so that what changes with time hits all alike:"),
    ):
        turns = Counter(span.where for span in report.spans if span.what == what)
        if turns:
            places = ", ".join(
                f"{counted(number, 'time')} on {one_line(where)}" for where, number in sorted(turns.items())
            )
            yield f"{purpose} {places}."
    if overheads := sorted(result.overhead_ns for result in report.results if result.overhead_ns):
        yield f"From each sample the time of an empty call was subtracted: at most {duration(overheads[-1])}."
    disturbed = [result for result in report.results if result.contended]
    if disturbed:
        samples = sum(result.contended for result in disturbed)
        yield (
            f"{counted(samples, 'sample')} of {counted(len(disturbed), 'result')} were kept though something else on "
            "the device disturbed them, and up to three more tries."
        )
    misses = Counter(str(result.miss) for result in report.results if _surprises(result))
    for miss, number in misses.most_common():
        yield f"The store had {counted(number, 'result')} that could not be used, since {one_line(miss)} differed."


def _listed(values: object) -> str:
    if isinstance(values, Mapping):
        entries = ((escape(one_line(str(key))), _listed(value)) for key, value in values.items() if value)
        return f"<dl>{''.join(f'<dt>{name}</dt><dd>{value}</dd>' for name, value in entries)}</dl>"
    if isinstance(values, list | tuple):
        return "<br>".join(_listed(value) for value in values)
    return escape(one_line(str(values)))
