"""Pictures of graphs and programs: what is in them, how much of it, and that words stay whole."""

from __future__ import annotations

import re
import sys
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pydot
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from ostinato.view.palette import COPY, STEPS, ink_on, task_colour
from ostinato.view.svg import Box, Scene, Words, width_of, wrap

# pydot calls its parser by names that are going away.
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated - use:DeprecationWarning")

SVG = "{http://www.w3.org/2000/svg}"


@ost.task
def relax(src: ost.Read, dst: ost.Write): ...


@ost.task(releases_gil=True)
def grow(x: ost.ReadWrite): ...


@ost.task
def norm(x: ost.Read, total: ost.Write): ...


@ost.task
def tile(up: ost.Read, left: ost.Read, here: ost.ReadWrite): ...


def strips(count: int) -> ost.Graph:
    """Strips of an array that takes turns with another, and a norm of them all."""
    a, b, total = np.zeros(count + 2), np.zeros(count + 2), np.zeros(1)
    u = ost.ring(a, b)
    with ost.capture() as graph:
        for index in range(count):
            relax(u[0][index : index + 3], u[1][index + 1 : index + 2])
        norm(u[1], total)
    return graph


def wavefront(size: int) -> ost.Graph:
    grid = np.zeros((size + 1, size + 1, 2))
    with ost.capture() as graph:
        for i in range(1, size + 1):
            for j in range(1, size + 1):
                tile(grid[i - 1, j], grid[i, j - 1], grid[i, j])
    return graph


def loop(times: int) -> ost.Graph:
    a, b = np.zeros(2), np.zeros(2)
    with ost.capture() as graph:
        ost.fill(a, 1.0)
        for _ in range(times):
            relax(a, b)
            relax(b, a)
    return graph


def drawn(what: ost.Graph | ost.Program, path: Path) -> ElementTree.Element:
    what.draw(path)
    return ElementTree.parse(path).getroot()


def titles(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}title")]


def words(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "drawn.svg"


def test_few_operations_have_a_box_each(path):
    root = drawn(strips(9), path)
    assert words(root).count("relax") == 9 + 1  # and the legend
    found = next(title for title in titles(root) if title.startswith("relax\n"))
    assert re.search(r"^at test_pictures\.py:\d+ in strips$", found, re.MULTILINE)
    assert "relax(u[0][index : index + 3], u[1][index + 1 : index + 2])" in found
    assert "reads u[0][0:3]" in found
    assert "writes u[1][1:2]" in found
    assert "after" in found
    assert "norm comes after relax" in titles(root)
    assert {"u: ring of 2, each float64 (11,), 88 bytes", "total: float64 (1,), 8 bytes"} <= set(words(root))


def test_a_step_is_told_from_the_next_one(path):
    dashed = [each for each in drawn(loop(2), path).iter(f"{SVG}path") if each.get("stroke-dasharray")]
    assert dashed
    assert any("in the step before" in title for title in titles(drawn(loop(2), path)))


@pytest.mark.parametrize(
    ("graph", "boxes"),
    [
        (strips(100), ["100 x relax", "norm"]),
        (wavefront(10), ["tile", *(f"{n} x tile" for n in (*range(2, 11), *range(9, 1, -1))), "tile"]),
        (strips(10_000), ["10000 x relax", "norm"]),
        (wavefront(100), ["10000 x tile"]),
        (loop(5_000), ["fill", "5000 x relax", "5000 x relax"]),
    ],
    ids=["strips 100", "wavefront 100", "strips 10,000", "wavefront 10,000", "loop 10,000"],
)
def test_repeats_are_folded(graph, boxes, path):
    root = drawn(graph, path)
    bold = [each.text for each in root.iter(f"{SVG}text") if each.get("font-weight")]
    assert sorted(bold) == sorted(boxes)
    assert float(root.get("width", "")) < 1400
    assert float(root.get("height", "")) < 2400


def test_many_lines_of_names_are_one_box_at_last(path):
    a = np.zeros(2)
    graph = ost.Graph()
    for index in range(1000):
        graph.task(relax, a, np.zeros(2), name=f"op{index}")
    assert "1000 x op0 and others" in " ".join(words(drawn(graph, path)))


def test_boxes_do_not_overlap(path):
    for graph in (strips(20), wavefront(5), loop(9), wavefront(9)):
        boxes = [
            [float(each.get(name, "")) for name in ("x", "y", "width", "height")]
            for each in drawn(graph, path).iter(f"{SVG}rect")
            if each.get("rx") == "6"
        ]
        apart = [
            a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0] or a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1]
            for number, a in enumerate(boxes)
            for b in boxes[:number]
            if abs(a[0] - b[0]) != 4  # the second sheet of a box for several operations
        ]
        assert all(apart)


@pytest.mark.parametrize("graph", [ost.Graph(), strips(3), wavefront(6), loop(100)], ids=["empty", "few", "100", "200"])
def test_dot_is_read_by_others(graph):
    (read,) = pydot.graph_from_dot_data(graph.to_dot())
    names = {node.get_name() for node in read.get_nodes()} - {"node"}
    assert {edge.get_source() for edge in read.get_edges()} | {
        edge.get_destination() for edge in read.get_edges()
    } <= names
    assert bool(names) == bool(len(graph))
    assert graph.to_dot() == graph.to_dot()


ODD = 'a<b>&"c"\\ \x1b]0;\n$x_1$ é 漢字 \udcff'


def test_odd_names_are_words_and_nothing_else(tmp_path):
    graph = ost.Graph()
    graph.task(relax, np.zeros(2), np.zeros(2), name=ODD)
    graph.task(relax, np.zeros(2), np.zeros(2), name="</title></svg><script>alert(1)</script>")
    root = drawn(graph, tmp_path / "odd.svg")
    assert not list(root.iter(f"{SVG}script"))
    assert any("\\x1b]0;\\n$x_1$ é 漢字 \\udcff" in title for title in titles(root))
    assert len(pydot.graph_from_dot_data(graph.to_dot())[0].get_nodes()) == 3
    for page in (graph._repr_html_(), graph.compile()._repr_html_()):
        assert "<script" not in page
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    graph.draw(tmp_path / "odd.png")
    assert (tmp_path / "odd.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_pictures_are_the_same_each_time(tmp_path, suffix):
    if suffix == "png":
        pytest.importorskip("matplotlib", reason="needs the extra plot")
    paths = [tmp_path / f"{number}.{suffix}" for number in range(2)]
    for each in paths:
        loop(3).draw(each)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == paths


@pytest.mark.parametrize("name", ["step.pdf", "step", "step.svg.gz"])
def test_another_suffix(tmp_path, name):
    graph = strips(2)
    for what in (graph, graph.compile()):
        with pytest.raises(ValueError, match=r"must be \.svg or \.png, got") as caught:
            what.draw(tmp_path / name)
        assert name in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_png_without_matplotlib_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"ostinato\[plot\]"):
        strips(2).draw(tmp_path / "step.png")
    strips(2).draw(tmp_path / "step.svg")


def test_a_graph_that_is_not_done(tmp_path):
    with ost.capture() as graph:
        relax(np.zeros(2), np.zeros(2))
        with pytest.raises(ost.GraphError, match="still being captured; draw it after the block"):
            graph.draw(tmp_path / "step.svg")
        assert "still being captured" in graph._repr_html_()
    circle = ost.Graph()
    first, second = (circle.task(print, access=()) for _ in range(2))
    circle.edge(first, second)
    circle.edge(second, first)
    with pytest.raises(ost.GraphError, match="wait for each other"):
        circle.draw(tmp_path / "step.svg")
    assert "wait for each other" in circle._repr_html_()


def test_nested_graphs_tokens_and_what_is_outside(path):
    inner, graph, lines = strips(3), ost.Graph(), []
    ready = graph.precondition("input ready")
    nested = graph.subgraph(inner, after=ready)
    graph.task(print, lines, access=(ost.ReadWrite,), name="report", after=nested)
    graph.postcondition("done", after=nested)
    found = words(drawn(graph, path))
    assert "a graph of 4 ops" in found
    assert {"input ready", "subgraph", "report", "done", "list 1 → list 1", "list 1: token"} <= set(found)


def test_arrays_are_called_as_variables_were():
    def step(state, parts):
        relax(state["u"], parts[1])

    with ost.Machine(cpus=1) as machine:
        program = ost.compile(step, {"u": np.zeros(4)}, [np.zeros(4), np.zeros(4)], machine=machine)
        assert "state['u'] → parts[1]" in unescape(program.graph._repr_html_())
    temperature = np.zeros((4, 4))
    with ost.capture() as graph:
        relax(temperature[0], temperature[1:3, ::2])
        relax(np.zeros(1), temperature.T)
    page = unescape(graph._repr_html_())
    assert "reads temperature[0]\nwrites temperature[1:3, 0:3:2]" in page
    assert "array 1" in page


def test_programs_have_a_row_for_each_lane(path):
    a = np.zeros((4, 8))
    graph = ost.Graph()
    for index in range(4):
        name = ("right", "left")[index % 2]
        graph.task(grow, a[index], on=f"cpu:{index % 2}", name=name)
    with ost.Machine(cpus=2) as machine, graph.compile(machine, costs={"left": 2e-6, "right": 1e-6}) as program:
        root = drawn(program, path)
        page = program._repr_html_()
    found = words(root)
    assert {"lane 0, cpu:0", "lane 1, cpu:1", "left", "right", "planned time within a step (µs)"} <= set(found)
    assert any(title.startswith("left\nat test_pictures.py") and "2 µs, given" in title for title in titles(root))
    assert "Program of 4 operations on 2 lanes" in page
    assert "lane 1 (cpu:1" in page


def test_very_many_operations_are_joined_in_lanes(path):
    with ost.Machine(cpus=2) as machine, wavefront(60).compile(machine) as program:
        root = drawn(program, path)
    assert len(list(root.iter(f"{SVG}rect"))) < 2000


def test_a_task_has_its_colour_everywhere(path):
    graph = strips(3)
    pages = [path.read_text() for _ in [drawn(graph, path)]]
    with graph.compile() as program:
        drawn(program, path)
        pages += [path.read_text(), program._repr_html_(), graph._repr_html_(), graph.to_dot()]
    for page in pages:
        assert task_colour("relax") in page
        assert task_colour("norm") in page


def test_every_colour_is_in_the_legend(path):
    graph = wavefront(3)
    graph.copy(np.zeros(2), np.zeros(2))
    for what in (graph, graph.compile()):
        boxes = [each.get("fill") for each in drawn(what, path).iter(f"{SVG}rect")]
        samples = {each.get("fill") for each in drawn(what, path).iter(f"{SVG}rect") if each.get("width") == "18"}
        assert set(boxes) == samples == {COPY, task_colour("tile")}


@given(st.text(min_size=1, max_size=60))
def test_colours_of_names(name):
    colour = task_colour(name)
    assert re.fullmatch("#[0-9a-f]{6}", colour)
    assert colour == task_colour(name)


@pytest.mark.parametrize("colour", [*STEPS, COPY, *(task_colour(f"task{n}") for n in range(50))])
def test_words_can_be_read_on_colours(colour):
    def light(each: str) -> float:
        parts = (int(each[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05

    one, other = light(colour), light(ink_on(colour))
    assert max(one, other) / min(one, other) >= 4.0


@given(st.text(st.sampled_from("ab_ .漢[]"), max_size=80), st.integers(3, 20))
def test_words_are_wrapped_and_never_cut(text, most):
    lines = wrap(text, most)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(len(line) <= most for line in lines)


def test_a_scene_shrinks_to_what_a_picture_can_be(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    scene = Scene("long", 400, 40_000, [Box(0, 0, 10, 39_000, "#ffffff"), Words("end", 0, 39_990)])
    scene.save(tmp_path / "long.png", "a picture")
    assert width_of("end", 10) < 40


def test_narrow_bars_are_joined_with_those_of_the_same_task_first():
    from ostinato.view.lane_picture import Bar, draw_rows

    def bars(begin: int, count: int, name: str) -> list[Bar]:
        return [Bar(begin + i, begin + i + 1, name, "#123456", name, name) for i in range(count)]

    svg = draw_rows(
        "lanes", [("lane 0", [*bars(0, 500, "relax"), *bars(500, 500, "norm"), *bars(1000, 1, "end")])], []
    ).svg()
    assert "500 x relax" in svg
    assert "500 x norm" in svg
    assert "several tasks" not in svg
    mixed = [bar for i in range(1000) for bar in bars(i, 1, f"task{i % 2}")]
    assert "several tasks" in draw_rows("lanes", [("lane 0", mixed)], []).svg()


def test_the_legend_of_a_narrow_graph_is_not_cut():
    from ostinato.view.graph_picture import draw_graph
    from ostinato.view.svg import Titled

    u, v, parts, change = np.zeros(98), np.zeros(98), np.zeros(12), np.zeros(1)
    with ost.capture() as graph:
        for src, dst in ((u, v), (v, u), (u, v), (v, u)):
            for at in range(0, 96, 8):
                graph.task(print, src[at : at + 10], dst[at + 1 : at + 9], access=(ost.Read, ost.Write), name="a")
            for at in range(12):
                graph.task(
                    print, dst[at * 8 + 1 : at * 8 + 9], parts[at : at + 1], access=(ost.Read, ost.Write), name="b"
                )
            graph.task(print, parts, change, access=(ost.Read, ost.Write), name="c")
            graph.task(print, dst, change, access=(ost.ReadWrite, ost.Read), name="d")
    scene = draw_graph(graph)
    words = [part for part in scene.parts if isinstance(part, Words)]
    words += [
        each for part in scene.parts if isinstance(part, Titled) for each in part.parts if isinstance(each, Words)
    ]
    assert any("repeats" in part.words for part in words)
    for part in words:
        if part.anchor == "start":
            assert part.x + width_of(part.words, part.size) <= scene.width, part


def test_a_saved_picture_is_dark_on_a_dark_page(tmp_path):
    x = np.zeros(1)
    with ost.capture() as graph:
        graph.fill(x, 1.0)
    graph.draw(tmp_path / "step.svg")
    assert "@media(prefers-color-scheme:dark)" in (tmp_path / "step.svg").read_text()
    assert "@media" not in graph._repr_html_().replace("ostinato{", "")
