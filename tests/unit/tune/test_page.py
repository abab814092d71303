"""The page of a report: what it shows, and that nothing a candidate says becomes part of it."""

import base64
import hashlib
import json
import random
import re
from html.parser import HTMLParser

import pytest

import ostinato as ost
import reports
from ostinato.text import one_line
from ostinato.tune.report.page import MEANINGS
from ostinato.tune.report.pictures import Scale, heat_map, landscape, parameter_picture, rank_picture, time_line
from ostinato.tune.result import Span

VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """Everything that a page says, and that its elements are closed in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def said(self) -> str:
        return " ".join(" ".join(self.words).split())

    def count(self, tag: str, css: str = "") -> int:
        return sum(name == tag and css in (attrs.get("class") or "") for name, attrs in self.found)


@pytest.fixture
def page(tmp_path):
    def saved(report) -> Page:
        report.save(tmp_path / "report.html")
        return Page((tmp_path / "report.html").read_text(encoding="utf-8"))

    return saved


def rows(page: Page) -> list[dict]:
    data = json.loads(page.scripts[0])
    return [dict(zip([column["name"] for column in data["columns"]], row, strict=True)) for row in data["rows"]]


def test_it_opens_with_the_verdict_and_says_how_it_was_measured(page):
    report = reports.search(100)
    said = page(report).said
    assert said.startswith("Tuning of matmul Tuning of matmul n=512 dtype=float64 The winner is tile=")
    for sentence in report.why().splitlines()[:-1]:
        assert sentence in said
    order = ["Results", "The landscape", "What ran when", "Failures", "How it was measured", "The results hold for"]
    assert sorted(order, key=said.index) == order
    assert "within 1 % of the median on either side, with at least 7 samples, for at most 1 s" in said
    assert "Calls followed each other, with warm caches" in said
    references = sum(span.what == "anchor" for span in report.spans)
    assert references
    assert sum(map(int, re.findall(r"(\d+) times? on", said.split("The reference")[1].split(".")[0]))) == references
    assert "Some <Processor>" in said
    assert "numpy 2.1.0" in said


def test_the_table_has_every_result_the_winner_first(page):
    report = reports.search(100)
    found = rows(page(report))
    assert len(found) == len(report.results)
    assert found[0][""] == "winner"
    assert found[0]["time"] == report.best.time_ns
    assert {(row["tile"], row["unroll"], row["order"]) for row in found} == {
        (r.candidate.config["tile"], r.candidate.config["unroll"], r.candidate.config["order"]) for r in report.results
    }
    assert {row["status"] for row in found} == {str(result.status) for result in report.results}
    assert sum(row["store"] == "answered" for row in found) == sum(result.cached for result in report.results)


def test_numbers_that_a_browser_would_round_stay_as_they_are(page):
    found = rows(page(reports.report([reports.result({"seed": 2**60 + 1}), reports.result({"seed": 2**53})])))
    assert sorted(str(row["seed"]) for row in found) == ["1152921504606846977", str(2**53)]


def test_hostile_words_are_shown_and_do_nothing(page, tmp_path):
    evil = reports.HOSTILE
    config = {evil: evil, "tile": 1}
    results = [
        reports.result(config, ns=1.0, op=evil, device=evil),
        reports.result({evil: "fine", "tile": 2}, ns=2.0, message=evil),
        reports.result({evil: "dead", "tile": 3}, "crash", message=evil, miss=evil),
    ]
    spans = [Span(evil, "measure", result.candidate, 0.0, 1.0, result.status) for result in results]
    report = reports.report(results, default=results[1], spans=spans)
    report.op, report.key, report.environment = evil, {evil: evil}, {evil: [evil, {evil: evil}]}
    shown = page(report)
    assert len(shown.scripts) == 2  # the data and the page's own
    assert shown.count("script") == 2
    assert not {"<", ">", "&"} & set(shown.scripts[0])
    assert not any(name.startswith("on") for _, attrs in shown.found for name in attrs)
    assert "<script>alert('x')</script> & \"quotes\" \\x1b[31m" in shown.said
    assert [row["message"] for row in rows(shown)] == [None, one_line(evil), one_line(evil)]
    assert all(cell.isprintable() for row in rows(shown) for item in row.items() for cell in map(str, item))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize("count", [3, 100])
def test_it_needs_nothing_else_and_runs_no_script_but_its_own(page, tmp_path, count):
    shown = page(reports.search(count))
    for _, attrs in shown.found:
        assert not {"src", "href", "action", "srcset"} & attrs.keys()
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"url\(|@import|https?:", text)
    policy = next(attrs["content"] for _, attrs in shown.found if attrs.get("http-equiv"))
    for script in shown.scripts[1:]:
        mark = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{mark}'" in policy
    assert "default-src 'none'" in policy


def test_failures_of_a_kind_are_told_once(page):
    results = [reports.result({"tile": n}, "crash", message=f"bad pointer 0x{n:x}f in frame {n}") for n in range(40)]
    results += [reports.result({"tile": 1000}, "oom", message="took\n2 GiB")]
    shown = page(reports.report(results))
    assert "crash , 40 results, such as tile=0" in shown.said
    assert "oom , 1 result: tile=1000 took 2 GiB" in shown.said
    assert shown.count("pre") == 2


def test_failures_beyond_what_can_be_read_are_counted(page):
    words = [f"{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(60)]
    results = [reports.result({"word": word}, "invalid", message=f"unknown {word}") for word in words]
    shown = page(reports.report(results))
    assert shown.count("pre") == 50
    assert "And 10 results with other messages" in shown.said


def test_long_messages_are_cut_in_their_middle(page):
    shown = page(reports.report([reports.result({}, "crash", message="begin" + "x" * 10**6 + "end")]))
    assert re.search(r"beginx{1000,} \.\.\. x{1000,}end", shown.said)
    assert len(shown.said) < 10_000


def test_a_search_that_the_store_answered_has_no_time_line(page):
    shown = page(reports.report([reports.result({"tile": 8}, cached=True)]))
    assert "What ran when" not in shown.said
    assert "1 of them from the store" in shown.said


def test_nothing_at_all(page):
    shown = page(reports.report([]))
    assert "No candidate was tried." in shown.said
    assert shown.scripts == []


def test_every_status_has_a_meaning_and_a_colour(page, tmp_path):
    assert set(MEANINGS) == set(ost.Status)
    page(reports.report([reports.result({"status": str(status)}, str(status)) for status in ost.Status]))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    used = set(re.findall(r"var\(--(\w+)\)", text))
    assert set(map(str, ost.Status)) <= used
    assert used <= set(re.findall(r"--(\w+):", text))


def test_a_command_is_spelled_out(page):
    result = reports.result({"tile": 8})
    result.candidate = ost.Candidate.command(["./mat mul", "--tile={tile}"], {"tile": 8})
    assert "As a command: './mat mul' --tile=8" in page(reports.report([result])).said


def test_a_command_that_is_built_is_spelled_out_with_its_build(page):
    result = reports.result({"tile": 8})
    result.candidate = ost.Candidate.command(
        ["{scratch}/a"], {"tile": 8}, build=["c++", "-DT={tile}", "-o", "{scratch}/a", "a b.cpp"]
    )
    said = page(reports.report([result])).said
    assert "Built by: c++ -DT=8 -o SCRATCH/a 'a b.cpp'" in said
    assert "As a command: SCRATCH/a" in said


def test_a_call_is_spelled_out_with_what_it_is_given(page):
    result = reports.result({})
    result.candidate = ost.Candidate.call("json:dumps", {"obj": 1}, setup="json:loads")
    assert "As a call: json:dumps(obj=1, inputs=json:loads(...))" in page(reports.report([result])).said


def test_how_calls_are_sampled_is_not_said_of_commands(page):
    call, command = reports.result({"tile": 8}), reports.result({"tile": 8})
    command.candidate = ost.Candidate.command(["./matmul"], {"tile": 8})
    assert "what they measured themselves" in page(reports.report([command])).said
    assert "with at least" not in page(reports.report([command])).said
    assert "what they measured themselves" not in page(reports.report([call])).said
    assert "with at least" in page(reports.report([call])).said


def test_what_differs_is_said_unless_it_is_the_problem(page):
    assert "source differed" in page(reports.report([reports.result({"tile": 8}, miss="source")])).said
    assert "differed" not in page(reports.report([reports.result({"tile": 8}, miss="key")])).said


@pytest.mark.parametrize("what", ["start", "build", "check", "measure", "anchor", "final"])
def test_all_that_keeps_a_device_busy_has_a_colour_and_is_explained(page, tmp_path, what):
    result = reports.result({"tile": 8})
    shown = page(reports.report([result], spans=[Span("cpu:0", what, result.candidate, 0.0, 1.0, ost.Status.OK)]))
    assert shown.count("rect", f"k-{what}") == 1
    assert shown.count("span", f"k-{what}") == 1
    assert f"rect.k-{what} {{ fill: var(--{what}); }}" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_pages_of_thousands_stay_small(page, tmp_path):
    shown = page(reports.search(3000, devices=4))
    assert sum(tag in ("circle", "rect", "path", "text", "line") for tag, _ in shown.found) < 3000
    assert (tmp_path / "report.html").stat().st_size < 1_000_000
    assert len(rows(shown)) == 3000


def made(configs, time):
    return reports.report([reports.result(config, ns=time(config)) for config in configs])


def test_the_parameter_that_explains_most_is_first():
    rng = random.Random(1)
    report = made(
        ost.Space({"weak": [1, 2, 3], "none": ["a", "b"], "strong": [1, 2, 4, 8], "fixed": [1], "copy": range(5)}),
        lambda c: 1000.0 * c["strong"] * 1.5 ** c["weak"] * (1 + 0.01 * rng.random()),
    )
    found = landscape(report)
    assert [parameter.name for parameter in found][:2] == ["strong", "weak"]
    assert [parameter.name for parameter in found if parameter.share < 0.01] == ["none", "copy"]
    assert 0.7 < found[0].share < 1
    assert sum(parameter.share for parameter in found) == pytest.approx(1, abs=0.02)


def test_shares_are_those_of_a_one_way_analysis_of_variance_in_a_small_space_too():
    # log2(time): rows 0 0 0, 4 4 4 and 9 9 9, columns 0, 1, 2 more
    report = made(ost.Space({"row": [0, 4, 9], "column": [0, 1, 2]}), lambda c: 2.0 ** (c["row"] + c["column"]))
    rows, columns = landscape(report)
    squares = {"row": 3 * ((13 / 3) ** 2 + (1 / 3) ** 2 + (14 / 3) ** 2), "column": 3 * 2.0}
    total = sum(squares.values())
    assert (rows.name, columns.name) == ("row", "column")
    assert (rows.share, columns.share) == pytest.approx((squares["row"] / total, squares["column"] / total), rel=0.02)
    assert (f"{rows.share:.0%}", f"{columns.share:.0%}") == ("95%", "5%")


def test_values_are_in_their_order_and_those_that_are_absent_too():
    report = made([{"n": 10}, {"n": 9}, {"n": 8.5}, {"flag": "-O3"}, {"flag": "-O2"}], lambda c: 1.0)
    found = {parameter.name: parameter for parameter in landscape(report)}
    assert found["n"].labels == ("10", "9", "8.5", "(none)")
    assert found["flag"].labels == ("(none)", "-O3", "-O2")
    assert found["flag"].levels == (0, 0, 0, 1, 2)
    numbers = made([{"n": 10}, {"n": 9}, {"n": 8.5}], lambda c: 1.0)
    assert landscape(numbers)[0].labels == ("8.5", "9", "10")
    assert landscape(numbers)[0].levels == (2, 1, 0)


def test_a_parameter_whose_values_are_all_different_does_not_explain_everything():
    rng = random.Random(2)
    report = made(
        [{"x": rng.random(), "y": rng.choice([1, 2])} for _ in range(200)],
        lambda c: 100.0 * c["y"] * rng.uniform(1, 1.2),
    )
    found = landscape(report)
    assert found[0].name == "y"
    assert found[1].share < 0.4  # of forty groups of five, a fifth by chance
    assert len(found[1].labels) == 40
    assert " to " in found[1].labels[0]


def test_a_parameter_whose_values_are_all_different_may_explain_nearly_everything():
    report = made([{"x": x / 20, "y": x % 2} for x in range(20)], lambda c: 1000.0 * 30 ** c["x"])
    (x, y) = landscape(report)
    assert (x.name, y.name) == ("x", "y")
    assert x.share == 1
    assert y.share < 0.01


def test_several_ops_are_a_parameter():
    report = reports.report([reports.result({}, op=op, ns=10.0) for op in ("gemm_a", "gemm_b")])
    assert [(parameter.name, parameter.labels) for parameter in landscape(report)] == [("op", ("gemm_a", "gemm_b"))]


def test_the_heat_map_has_the_best_time_of_each_pair():
    report = made(ost.Space({"a": [1, 2], "b": [1, 2, 3], "c": [0, 5]}), lambda c: 1000.0 * c["a"] * c["b"] + c["c"])
    report.results += (reports.result({"a": 3, "b": 1, "c": 0}, "crash"),)
    found = {parameter.name: parameter for parameter in landscape(report)}
    drawn = Page(heat_map(report, found["b"], found["a"]))
    assert drawn.count("rect", "cell") == 6
    assert drawn.count("rect", "winner-cell") == 1
    assert drawn.count("rect", "hole") == 1
    assert "best of 2: a=1 b=2 c=" in drawn.said


def test_failures_are_shown_at_the_values_where_they_happen():
    results = [
        reports.result({"tile": tile, "n": n}, "crash" if tile == 2 else "ok") for tile in (1, 2) for n in (1, 2)
    ]
    report = reports.report(results)
    tile = next(parameter for parameter in landscape(report) if parameter.name == "tile")
    drawn = Page(parameter_picture(report, tile))
    assert drawn.count("rect", "failed") == 1
    assert "2 of 2 failed" in drawn.said
    assert drawn.count("circle") == 2


def test_pictures_of_nothing_and_of_one():
    nothing = reports.report([reports.result({"tile": 1}, "crash"), reports.result({"tile": 2}, "crash")])
    assert rank_picture(nothing) == ""
    assert parameter_picture(nothing, landscape(nothing)[0]) == ""
    assert time_line([]) == ""
    one = Page(rank_picture(reports.report([reports.result({"tile": 1}, ns=5.0)])))
    assert one.count("circle", "winner") == 1
    assert "nan" not in rank_picture(reports.report([reports.result({"tile": 1}, ns=5.0)]))


def test_the_time_line_has_a_bar_for_each_stretch_and_says_how_busy_a_device_was():
    candidate = ost.Candidate.call("json:dumps", {"tile": 8})
    drawn = Page(
        time_line(
            [
                Span("cpu:10", "measure", candidate, 0.0, 1.0, ost.Status.OK),
                Span("cpu:9", "measure", candidate, 0.0, 1.0, ost.Status.CRASH),
                Span("cpu:9", "final", candidate, 2.0, 4.0, ost.Status.OK),
                Span("build:0", "build", candidate, 0.0, 0.001, ost.Status.COMPILE_ERROR),
            ]
        )
    )
    bars = [attrs for tag, attrs in drawn.found if tag == "rect"]
    assert [bar["class"] for bar in bars] == ["bar k-crash", "bar k-final", "bar k-measure"]
    assert float(bars[1]["width"]) == pytest.approx(2 * float(bars[2]["width"]), rel=0.01)
    assert drawn.count("path", "k-compile_error") == 1
    names = re.findall(r"\b(cpu:\d+|build:0|\d+%)", drawn.said)
    assert list(dict.fromkeys(names)) == ["cpu:9", "75%", "cpu:10", "25%", "build:0", "0%"]
    assert "final: tile=8, 2 s, ok" in drawn.said


@pytest.mark.parametrize(
    ("low", "high"), [(1, 1), (0, 0), (1e-3, 1e9), (3, 11), (999, 1001), (0, 7), (5, 21), (1e9, 1.1e9)]
)
def test_axes_have_a_few_round_numbers_within_their_ends(low, high):
    scale = Scale(float(low), float(high), 10.0, 200.0)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 8
    assert ticks == sorted(set(ticks))
    places = [scale.place(tick) for tick in ticks]
    assert places == sorted(places)
    assert all(9.9 <= place <= 200.1 for place in places)


def test_the_time_line_of_a_fleet_has_a_heading_for_each_host():
    candidate = ost.Candidate.command(["true"])
    spans = [
        Span(where, "measure", candidate, 0.0, end, ost.Status.OK)
        for where, end in (("node7/cuda:0", 1.0), ("node7/cuda:1", 0.5), ("node8/cuda:0", 0.25))
    ]
    words = re.findall(r"<text[^>]*>([^<]+)", time_line(spans))
    assert [word for word in words if word.startswith("node")] == ["node7: 2 devices", "node8: 1 device"]
    assert [word for word in words if word.endswith("%")] == ["75%", "100%", "50%", "25%", "25%"]
