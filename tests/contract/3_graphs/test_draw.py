"""Pictures of graphs, and what notebooks show of everything that has something to show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import ostinato as ost
from ostinato.runtime.results import CostChange, Retuning, StepTime

MADE_UP = 777
EVIL = "<script>alert('&')</script>"


@ost.task
def relax(src: ost.Read, dst: ost.Write):
    dst[:] = src


def recorded(name: str = "relax") -> ost.Graph:
    a, b = np.zeros(4), np.zeros(4)
    graph = ost.Graph()
    for _ in range(3):
        graph.task(relax, a, b, name=name)
        graph.copy(b, a)
    return graph


def report(message: str = "", name: str = "relax") -> ost.Report:
    results = tuple(
        ost.Result(
            candidate=ost.Candidate.call("json:dumps", {name: value}),
            op=name,
            status=ost.Status.OK if time else ost.Status.CRASH,
            time_ns=time,
            samples=(time,) * 8 if time else (),
            interval_ns=(time * 0.99, time * 1.01) if time else None,
            message=message,
        )
        for value, time in (("fast", 1500.0), ("slow", 9000.0), ("broken", None))
    )
    return ost.Report(
        op=name, key={}, policy=ost.Policy(), best=results[0], ties=results[:1], results=results, default=results[1]
    )


def retuning(name: str = "relax") -> Retuning:
    times = StepTime(2e-6, 1.9e-6, 2.2e-6), StepTime(1e-6, 0.9e-6, 1.1e-6)
    return Retuning(100, "new", *times, MADE_UP, (CostChange(name, "a.py:1 in step", 1e-6, 2e-6),), "it was faster")


def shown(name: str) -> Iterator[Any]:
    """Yield one of each kind; of programs retuned, with whatever was found."""
    graph = recorded(name)
    yield graph
    with ost.Machine(cpus=2) as machine, graph.compile(machine) as program:
        yield program
        yield program.trace(3)
        yield program.retune(20)
    yield report(name=name, message=name)
    yield retuning(name)


class Page(HTMLParser):
    """Checks that what is opened is closed, and nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe", "img")
        assert not {"src", "href", "onclick", "onload"} & {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words += data + "\n"


@pytest.mark.parametrize("name", ["relax", EVIL], ids=["plain", "evil"])
def test_what_notebooks_show(name):
    for each in shown(name):
        page = Page()
        text = each._repr_html_()
        page.feed(text)
        page.close()
        assert not page.open
        if not isinstance(each, Retuning) or each.pairs == MADE_UP:  # others may say nothing of tasks
            assert name in page.words, each
        assert not re.search(r"url\(|@import", text)
        for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
            ElementTree.fromstring(svg)
            assert "currentColor" in svg  # words have the colour of the page, light or dark
            assert "background" not in svg


def test_a_report_says_what_won():
    page = Page()
    page.feed(report()._repr_html_())
    for words in ("winner", "default", "fast", "slow", "1.5", "9", "ok", "crash", "time (µs)", "6 times as fast"):
        assert words in page.words


def test_retuning_says_what_changed():
    page = Page()
    page.feed(retuning()._repr_html_())
    for words in ("kept the new schedule", "it was faster", "before", "after", "a step (µs)", "a.py:1 in step"):
        assert words in page.words


@pytest.mark.parametrize("count", [0, 1, 10, 100, 10_000])
def test_graphs_of_any_size_are_drawn(tmp_path, count):
    a, b, graph = np.zeros(4), np.zeros(4), ost.Graph()
    for _ in range(count):
        graph.task(relax, a, b)
    graph.draw(tmp_path / "step.svg")
    root = ElementTree.parse(tmp_path / "step.svg").getroot()
    assert root.tag.endswith("svg")
    assert ("relax" in "".join(root.itertext())) == (count > 0)
    assert len(list(root.iter())) < 1000
    assert graph.to_dot().startswith("digraph")


def test_png(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    recorded().draw(tmp_path / "step.png")
    assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\.svg or \.png"):
        recorded().draw(tmp_path / "step.gif")


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    (tmp_path / "step.svg").write_text("old")
    with pytest.raises(OSError, match="missing"):
        recorded().draw(tmp_path / "missing" / "step.svg")
    recorded().draw(str(tmp_path / "step.svg"))
    assert [path.name for path in tmp_path.iterdir()] == ["step.svg"]
    assert (tmp_path / "step.svg").read_text().endswith("</svg>\n")


def test_pointing_at_an_operation_names_the_line_and_the_arrays(tmp_path):
    velocity, pressure = np.zeros(4), np.zeros(4)
    with ost.capture() as graph:
        op = relax(velocity[:2], pressure[2:])
    graph.draw(tmp_path / "step.svg")
    titles = [
        each.text or ""
        for each in ElementTree.parse(tmp_path / "step.svg").getroot().iter("{http://www.w3.org/2000/svg}title")
    ]
    (found,) = (title for title in titles if title.startswith("relax\n"))
    assert str(op.call_site) in found
    assert "reads velocity[0:2]" in found
    assert "writes pressure[2:4]" in found
