"""Reading what commands report, piece by piece and whatever else comes with it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.tune.outcome import Status
from ostinato.tune.workers import protocol
from ostinato.tune.workers.protocol import BadLine, Lines, OldLine, OldLines, Reading, nameless, read_lines

CRASH = (Status.CRASH, "killed by SIGSEGV")


def said(*messages: dict[str, object], **fields: object) -> bytes:
    return b"".join(json.dumps({"v": 1, **fields, **message}).encode() + b"\n" for message in messages)


def start(op: str) -> dict[str, object]:
    return {"type": "start", "op": op}


def sample(op: str, ns: object) -> dict[str, object]:
    return {"type": "sample", "op": op, "ns": ns}


def result(op: str, **fields: object) -> dict[str, object]:
    return {"type": "result", "op": op, "status": "ok", **fields}


def outcomes(data: bytes, died=None, *, printed: bytes = b"", **options):
    reading = Reading(**options)
    reading.reported(data)
    reading.printed(printed)
    return reading.finish(died)


def only(data: bytes, **options):
    (outcome,) = outcomes(data, **options)
    return outcome


@given(st.lists(st.binary(max_size=8)), st.data())
def test_lines_do_not_depend_on_how_they_come(lines, data):
    text = b"\n".join(lines)
    splitter, found, at = Lines(), [], 0
    while at < len(text):
        size = data.draw(st.integers(1, 8))
        found += splitter.feed(text[at : at + size])
        at += size
    assert found + splitter.feed(b"\n") == text.split(b"\n")


def test_a_line_that_never_ends_is_left_out_and_takes_no_memory():
    lines = Lines()
    for _ in range(20):
        assert lines.feed(b"x" * (1 << 17)) == []
    assert len(lines._part) <= 1 << 20
    assert lines.feed(b"x\nnext\n") == [b"next"]


def test_samples_and_a_result():
    data = said(start("a"), sample("a", [3.5, 2]), sample("a", 4), result("a", workspace=64, message="fine"))
    assert only(data).samples == (3.5, 2.0, 4.0)
    assert (only(data).op, only(data).status, only(data).workspace, only(data).message) == ("a", "ok", 64, "fine")


def test_a_result_may_bring_its_time_itself_or_samples_alone_do():
    assert only(said(result("a", ns=15))).samples == (15.0,)
    assert only(said(sample("a", [1, 2]))).samples == (1.0, 2.0)
    assert only(said(sample("a", [1, 2]), result("a", ns=9))).samples == (1.0, 2.0)
    assert only(said(result("a", ns=1), result("a", ns=3))).samples == (1.0, 3.0)


def test_times_are_divided_by_the_iterations():
    assert only(said(sample("a", [10]), result("a")), iterations=10).samples == (1.0,)
    assert only(b"", printed=b"OP:a,TIME:10,WS:0\n", iterations=10).samples == (1e6,)


def test_what_has_no_name_is_of_the_op_searched_for():
    assert only(said({"type": "result", "ns": 1}), op="matmul").op == "matmul"
    assert outcomes(said({"type": "result", "ns": 1})) == ()


def test_ops_in_the_order_in_which_they_were_named():
    data = said(start("b"), result("b", ns=1), start("a"), result("a", ns=1))
    assert [outcome.op for outcome in outcomes(data)] == ["b", "a"]


def test_unknown_fields_and_types_are_ignored():
    data = said({"type": "hello"}, {"type": "of the future"}, result("a", ns=1, clock=3), extra=[1])
    assert only(data).status == "ok"


@pytest.mark.parametrize("ns", [0, -1.0, float("nan"), float("inf"), 10**400, "1", True, [1, 0], [[1]], {}])
def test_a_time_that_is_none_costs_its_op_only(ns):
    bad, good = outcomes(said(result("bad", ns=ns), result("good", ns=2)))
    assert (bad.status, bad.samples) == ("bad_output", ())
    assert "the time" in bad.message
    assert (good.status, good.samples) == ("ok", (2.0,))


@pytest.mark.parametrize("field", [{"status": "fine"}, {"status": 3}, {"workspace": -1}, {"workspace": 0.5}])
def test_a_result_that_makes_no_sense_is_bad_output(field):
    bad, good = outcomes(said(result("bad", ns=1) | field, result("good", ns=2)))
    assert (bad.status, good.status) == ("bad_output", "ok")


def test_ok_without_a_time_is_bad_output():
    assert only(said(start("a"), result("a"))).status == "bad_output"
    assert only(said(start("a"))).status == "bad_output"


def test_a_failure_is_taken_over_and_not_made_good():
    data = said(result("a", status="oom", message="no room"), result("a", ns=1))
    assert (only(data).status, only(data).message) == ("oom", "no room")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"segv\n", "no JSON"),
        (b'{"v":1,"type"\n', "no JSON"),
        (b'{"v":' + b"[" * 99999 + b"\n", "no JSON"),
        (b'{"v":2}\n', '"v": 1'),
    ],
)
def test_a_line_that_is_none_costs_nothing_else_and_is_quoted(line, what):
    reading = Reading()
    reading.reported(line + said(result("a", ns=1)) + line)
    assert what in reading.problem
    assert len(reading.problem) < 200
    (outcome,) = reading.finish()
    assert outcome.status == "ok"


def test_the_culprit_is_known_and_the_others_stand():
    data = said(start("a"), result("a", ns=1), start("b"), sample("b", 2))
    a, b = outcomes(data, CRASH)
    assert (a.status, a.samples) == ("ok", (1.0,))
    assert (b.status, b.samples, b.message) == ("crash", (), "killed by SIGSEGV")


def test_without_a_culprit_all_fail():
    data = said(start("a"), result("a", ns=1), start("b"), result("b", ns=1))
    assert [outcome.status for outcome in outcomes(data, CRASH)] == ["crash", "crash"]
    printed = b"OP:a,TIME:1,WS:0\nOP:b,TIME:1,WS:0\n"
    assert [outcome.status for outcome in outcomes(b"", CRASH, printed=printed)] == ["crash", "crash"]


def test_a_last_line_counts_unless_it_may_be_cut():
    whole = said(start("a"), result("a", ns=1), start("b"), result("b", ns=12345))
    assert outcomes(whole[:-1])[1].samples == (12345.0,)
    assert [outcome.status for outcome in outcomes(whole[:-1], CRASH)] == ["ok", "crash"]
    assert outcomes(b"", printed=b"OP:a,TIME:1,WS:16")[0].workspace == 16
    assert outcomes(b"", CRASH, printed=b"OP:a,TIME:1,WS:16") == ()


def test_stdout_counts_only_without_reports():
    printed = b"OP:old,TIME:1,WS:0\n"
    assert [outcome.op for outcome in outcomes(said(result("new", ns=1)), printed=printed)] == ["new"]
    assert [outcome.op for outcome in outcomes(b"", printed=printed)] == ["old"]


def test_a_line_of_an_op_again_is_another_sample_and_a_bad_one_costs_the_op():
    printed = b"OP:a,TIME:1,WS:8\nOP:b,TIME:nan,WS:0\nOP:a,TIME:2,WS:4\nOP:b,TIME:1,WS:0\nOP:c\n"
    a, b = outcomes(b"", printed=printed)
    assert (a.samples, a.workspace) == ((1e6, 2e6), 8)
    assert (b.status, b.message) == ("bad_output", "the time nan is not positive and finite")


def test_a_bad_line_whose_op_is_unknown_is_quoted():
    reading = Reading()
    reading.printed(b"OP:a,1,2\n")
    assert reading.finish() == ()
    assert reading.problem == "OP:a,1,2 is not OP:name,TIME:ms,WS:bytes"


def test_text_that_no_database_takes_is_replaced():
    outcome = only(b'{"v":1,"type":"result","op":"\\ud800","status":"oom","message":"\\udfff"}\n')
    assert (outcome.op, outcome.message) == ("?", "?")
    assert only(b'{"v":1,"type":"result","op":"\xff","ns":1}\n').op == "\N{REPLACEMENT CHARACTER}"
    (outcome,) = outcomes(b"", printed=b"OP:\xff,TIME:1,WS:0\n")
    assert outcome.op == "\N{REPLACEMENT CHARACTER}"


@given(st.lists(st.binary(max_size=40)))
def test_no_garbage_raises(pieces):
    reading = Reading("op")
    for piece in pieces:
        reading.reported(piece)
        reading.printed(b"OP:" + piece)
    reading.finish()
    reading.finish(CRASH)


@pytest.mark.parametrize("line", [b"{}", b"{", b"garbage", b'{"v":1}', b'{"v":1,"type":"start","op":"a"}'])
def test_a_flood_of_reports_is_not_read_to_its_end(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_MOST_LINES", 1000)
    reading = Reading()
    for _ in range(100):
        reading.reported((line + b"\n") * 100)
    reading.reported(said(result("late", ns=1)))
    assert "late" not in [outcome.op for outcome in reading.finish()]


def test_a_flood_of_old_lines_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_MOST_LINES", 1000)
    reading = Reading()
    reading.printed(b"loading\n" * 5000 + b"OP:early,TIME:1,WS:0\n")
    for _ in range(100):
        reading.printed(b"OP:\n" * 100)
    reading.printed(b"OP:late,TIME:1,WS:0\n")
    assert [outcome.op for outcome in reading.finish()] == ["early"]


names = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1)


@given(st.lists(st.tuples(names, st.floats(1e-300, 1e300), st.integers(0, 1 << 59))), st.data())
def test_old_lines_do_not_depend_on_how_they_come(ops, data):
    text = "".join(f"{data.draw(names)}\nOP:{op},TIME:{ms!r},WS:{bytes_}\n" for op, ms, bytes_ in ops)
    whole = text.encode()
    lines, found, at = OldLines(), [], 0
    while at < len(whole):
        size = data.draw(st.integers(1, 30))
        found += lines.feed(whole[at : at + size])
        at += size
    good = [line for line in found if isinstance(line, OldLine)]
    assert good == read_lines(text)[0]
    assert [line for line in good if line in [OldLine(*op) for op in ops]] == [OldLine(*op) for op in ops]


def test_the_part_of_a_line_that_is_kept_is_small():
    lines = OldLines()
    lines.feed(b"x" * (1 << 22))
    assert len(lines._part) <= 1 << 20
    lines.feed(b"\nOP:" + b"x" * (1 << 22))
    assert len(lines._part) <= 1 << 20


@pytest.mark.parametrize("time", ["1,5", "1_0", "0x1p3", "٣", "", "1.2.3", "fast", "1e", " 1"])
def test_what_is_no_number_is_a_bad_line_with_its_name(time):
    assert read_lines(f"OP:a,TIME:{time},WS:0") == (
        [],
        [BadLine(f"OP:a,TIME:{time},WS:0", f"the time {time!r} is no number", "a")],
    )


@pytest.mark.parametrize("workspace", ["-1", "1.5", "", "٣", "9" * 30, "many"])
def test_what_is_no_number_of_bytes_is_a_bad_line(workspace: str) -> None:
    (good, (bad,)) = read_lines(f"OP:a,TIME:1,WS:{workspace}")
    assert (good, bad.op, bad.reason) == ([], "a", f"the workspace {workspace!r} is no number of bytes")


def test_the_name_ends_at_the_first_time():
    assert read_lines("OP:a,TIME:1,WS:2,TIME:3,WS:4") == ([OldLine("a", 1.0, 2)], [])
    (good, (bad,)) = read_lines("OP:a,TIME:1,TIME:3,WS:4")
    assert (good, bad.op) == ([], "a")


records = st.builds(
    OldLine,
    st.sampled_from(["a", "ns::k<128>-1", "k<128, 64>(x) y", "ns::OP::k", "::k", "späť,b=1", "k:1,WS:2"]),
    st.floats(1e-300, 1e300),
    st.integers(0, 1 << 59),
) | st.builds(OldLine, st.just("workspace only"), st.just(0.0), st.integers(1, 1 << 59))
noise = st.text(st.characters(exclude_categories=("Cs",)), max_size=12).filter(
    lambda text: not {"OP:", "TIME:"} & {text[i : i + n] for n in (3, 5) for i in range(len(text))}
)
beside = st.sampled_from(["", "\n", " ", "\t", "\r", "...", "[info] ", "\x1b[32m", "\x1b[0m", " done ", "%", "("])
whole = st.tuples(records, st.just(None))
cut = st.tuples(records, st.integers(0, 30))  # the first bytes of one; what is printed next goes on from there


@given(st.lists(st.tuples(noise, beside, whole | cut, beside), max_size=6), st.data())
def test_every_record_is_found_wherever_it_stands_and_however_it_comes(texts, data):
    text, expected = "", []
    for words, before, (record, bytes_), after in texts:
        printed = f"OP:{record.op},TIME:{record.milliseconds!r},WS:{record.workspace}"
        if bytes_ is not None and bytes_ < len(printed) - len(str(record.workspace)):
            text += f"{words} {before}{printed[:bytes_]}"  # nothing after it: a record may follow in its midst
        else:
            text += f"{words} {before}{printed}{after or ' '}"
            expected.append(record)
        if text.endswith("(") or data.draw(st.booleans()):
            text += "\n"
    lines, found, left = OldLines(), [], text.encode()
    while left:
        size = data.draw(st.integers(1, 40))
        found += lines.feed(left[:size])
        left = left[size:]
    found += lines.rest()
    assert [record for record in found if isinstance(record, OldLine)] == expected
    good, bad = read_lines(text)
    assert (good, [record for record in found if isinstance(record, BadLine)]) == (expected, bad)


def test_a_record_that_follows_a_cut_one_at_any_byte_is_found_and_the_cut_one_is_told():
    first, second = "OP:one,TIME:1.5,WS:64", "OP:two,TIME:2,WS:8"
    for size in range(len(first)):
        good, bad = read_lines(f"{first[:size]}{second} done\n")
        assert good[-1] == OldLine("two", 2.0, 8), size
        assert [line.text for line in bad] == [first[:size]] or len(good) == 2 or size < 3, (size, good, bad)


def test_a_name_that_begins_with_colons_is_found_after_a_cut_record():
    good, bad = read_lines("OP: OP:::k,TIME:1,WS:0")
    assert (good, [line.text for line in bad]) == ([OldLine("::k", 1.0, 0)], ["OP: "])
    assert read_lines("OP:ns::OP::k,TIME:1,WS:0")[0] == [OldLine("ns::OP::k", 1.0, 0)]


def test_records_of_a_line_without_end_are_found():
    lines, found, data = OldLines(), [], b""
    for number in range(60):
        data += b"\rOP:k%d,TIME:1,WS:2 " % number + b"." * 50_000
    for at in range(0, len(data), 65_536):
        found += lines.feed(data[at : at + 65_536])
        assert len(lines._part) <= 1 << 20
    found += lines.rest()
    assert found == [OldLine(f"k{number}", 1.0, 2) for number in range(60)]


def test_a_record_across_the_place_where_a_long_line_is_cut_is_found():
    record = b"OP:ns::OP::k,TIME:1.5,WS:64"
    for size in range(len(record) + 1):
        lines = OldLines()
        found = lines.feed(b"x " * (1 << 19) + record[:size]) + lines.feed(record[size:] + b"\n")
        assert found == [OldLine("ns::OP::k", 1.5, 64)], size


def test_a_workspace_without_a_time():
    assert [(op.status, op.samples, op.workspace) for op in outcomes(b"", printed=b"TIME:0\nWS:512\n", op="topk")] == [
        ("ok", (), 512)
    ]
    a, b = outcomes(b"", printed=b"OP:a,TIME:0,WS:64\nOP:b,TIME:0,WS:0\n")
    assert (a.op, a.status, a.samples, a.workspace, a.message) == (
        "a",
        "ok",
        (),
        64,
        "it reported a workspace and no time",
    )
    assert b.status == "bad_output"  # what profilers print for a kernel that failed
    (a,) = outcomes(b"", printed=b"OP:a,TIME:0,WS:64\nOP:a,TIME:1,WS:8\n")
    assert (a.samples, a.workspace, a.message) == ((1e6,), 64, "")
    for printed in (b"TIME:0\n", b"TIME:0\nWS:0\n", b"WS:9\n", b"TIME:1e-9999 WS:9", b"OP:a,TIME:-0,WS:9"):
        assert [op for op in outcomes(b"", printed=printed, op="topk") if op.status == "ok"] == []


def test_what_was_cut_is_told_beside_what_was_read():
    a, b = outcomes(b"", printed=b"OP:a,TIME:1,WS:0\nOP:b,TIME:1,WS:0\nOP:c,TI\nOP:\n")
    assert (a.message, b.message) == ("left out: OP:c,TI is not OP:name,TIME:ms,WS:bytes, and 1 more", "")


def test_nameless_times_are_not_taken_from_lines_of_ops():
    assert nameless("STOP:a,TIME:1,WS:2") is None
    assert nameless("TIME:0\nTIME:nan\nWS:7 TIME:2ms\nTIME:3 WS:8") == OldLine("", 2.0, 7)
    assert nameless("OVERTIME:1 TIME:1.2.3") is None


def test_messages_need_not_say_their_version():
    reading = Reading()
    reading.reported(
        b'{"type":"sample","op":"a","ns":[5,7,6]}\n{"type":"result","op":"a","status":"ok","workspace":3}\n'
    )
    assert [(outcome.samples, outcome.workspace) for outcome in reading.finish()] == [((5.0, 7.0, 6.0), 3)]
    assert not reading.problem
