"""Variants that can be imported: whatever they do, they do it to a worker process."""

from __future__ import annotations

import dataclasses
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato.tune.graphs import payload
from ostinato.tune.graphs.executor import Session
from ostinato.tune.graphs.signature import Signature, signatures_of
from ostinato.tune.graphs.workload import Workload
from ostinato.tune.leases.devices import devices
from ostinato.tune.leases.lease import Lease
from ostinato.tune.leases.processes import descendants
from ostinato.tune.progress import Progress
from tune.graphs import misbehaving, tasks
from tune.graphs.faking import measure

QUICK = ost.Policy(max_seconds=0.02, rel_ci=0.2)
DEVICE = "sim:measured"
"""Where no sample counts as disturbed, whoever else computes here."""

SECONDS = 5.0
"""That a variant may take, with what its worker imports."""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OSTINATO_LEASE_DIR", str(tmp_path_factory.mktemp("leases")))
        with Session([DEVICE], policy=QUICK, progress=False) as session:
            session._tuner = ost.Tuner([DEVICE], store=False, policy=QUICK, timeout=SECONDS, progress=False)
            yield session


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where files are sent, of which none is left."""
    path = tmp_path / "scratch"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    yield path
    assert list(path.iterdir()) == []


def signature_of(record: Callable[[], object], *variants: str) -> Signature:
    """Return the signature of the ops that are recorded, with the default and these of its variants; by default all."""
    with ost.capture() as graph:
        record()
    (signature,) = signatures_of(graph.ops)
    if not variants:
        return signature
    declared = [variant for variant in signature.declared[1:] if variant.name in variants]
    return dataclasses.replace(signature, declared=(signature.declared[0], *declared))


def doubling(*variants: str) -> Signature:
    a, b = np.arange(1.0, 9.0), np.zeros(8)
    return signature_of(lambda: misbehaving.double(a, b), *variants)


def statuses(report: ost.Report) -> dict[str, str]:
    return {str(result.candidate.config["variant"]): str(result.status) for result in report.results}


def only(report: ost.Report, variant: str) -> ost.Result:
    (result,) = (result for result in report.results if result.candidate.config["variant"] == variant)
    assert report.default is not None
    assert report.default.status == "ok"
    return result


def test_every_variant_has_a_result_in_its_place(session: Session) -> None:
    a, b = np.arange(64.0), np.zeros(64)
    signature = signature_of(lambda: tasks.relax(a, b, 0.5))
    report = measure(signature, session=session)
    configs = [dict(result.candidate.config) for result in report.results]
    assert configs == [{"variant": variant.name, **variant.config} for variant in signature.variants]
    assert any(report.best is result for result in report.results)  # who is faster is told by the contract tests
    assert report.default is report.results[0]
    assert (report.op, report.key) == ("relax", signature.key)
    assert {result.message for result in report.results} == {"measured in a worker process"}
    assert b.tolist() == [0.0] * 64


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "status", "message"),
    [
        ("dies", "crash", "killed by SIGSEGV"),
        ("kills", "crash", "killed by SIGKILL"),
        ("exits", "crash", "exit status 3"),
        ("leaves", "crash", "SystemExit: 0"),
        ("raises", "crash", "ValueError: boom"),
        ("interrupts", "crash", "KeyboardInterrupt"),
        ("takes_memory", "oom", "MemoryError"),
        ("changes_its_input", "wrong_result", "it writes to what it should only read"),
        ("writes_nothing", "wrong_result", "argument 2 'dst' (shape (8,), float64): at index (0,) it gives nan"),
        ("adds", "wrong_result", "argument 2 'dst'"),
        ("writes_beside", "wrong_result", "it writes beyond the ends of its arguments"),
        ("writes_before", "wrong_result", "it writes beyond the ends of its arguments"),
        ("only_once", "wrong_result", "argument 2 'dst'"),
    ],
)
def test_what_a_variant_does_costs_nobody_else(session: Session, variant: str, status: str, message: str) -> None:
    report = measure(doubling(variant, "right"), session=session)
    result = only(report, variant)
    assert result.status == status
    assert result.message.startswith(message)
    assert only(report, "right").status in ("ok", "raced")
    assert report.best is not result


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["hangs", "leases"])
def test_what_hangs_is_killed(session: Session, variant: str) -> None:
    with Lease(devices("cpu:0")[0]):
        report = measure(doubling(variant), session=session)
    assert only(report, variant).status == "hang_killed"
    assert report.best is report.default


def test_what_leaves_children_or_other_surroundings_behind_is_tidied_up(session: Session) -> None:
    report = measure(doubling("forks", "moves_away"), session=session)
    assert set(statuses(report).values()) <= {"ok", "raced", "contended"}
    assert measure(doubling("right"), session=session).best is not None


def test_a_default_that_ends_the_process(session: Session) -> None:
    a, b = np.zeros(2), np.zeros(2)
    report = measure(signature_of(lambda: misbehaving.fails(a, b)), session=session)
    assert statuses(report) == {"fails": "crash", "does_not": "invalid"}
    assert (report.best, report.ties) == (None, ())
    assert report.results[1].message.startswith("there is nothing to compare with: the default failed")


def test_a_default_that_is_never_the_same_is_timed_and_kept(session: Session) -> None:
    report = measure(signature_of(lambda: misbehaving.never_the_same(np.zeros(2))), session=session)
    assert statuses(report) == {"never_the_same": "ok", "always_the_same": "invalid"}
    assert report.best is report.default


def test_what_cannot_be_copied_is_not_touched(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "file"
    report = measure(signature_of(lambda: misbehaving.writes_a_file(ost.token(str(path)))), session=session)
    assert (statuses(report), report.best) == ({"writes_a_file": "invalid"}, None)
    assert "changes an argument, a str, that cannot be copied" in report.results[0].message
    assert not path.exists()


def test_rtol_reaches_the_worker(session: Session) -> None:
    signature = doubling("nearly")
    assert only(measure(signature, session=session), "nearly").status == "wrong_result"
    assert only(measure(signature, session=session, rtol=1e-3), "nearly").status in ("ok", "raced")


def test_a_budget_leaves_the_rest_cancelled(session: Session) -> None:
    report = measure(doubling("right", "raises"), session=session, budget=ost.Budget(candidates=1))
    assert statuses(report) == {"double": "ok", "right": "cancelled", "raises": "cancelled"}


def test_an_interrupt_leaves_nothing_behind(scratch: Path) -> None:
    class Interrupting(Progress):
        def running(self, device: str, candidate: object, what: str) -> None:
            if what == "final":
                raise KeyboardInterrupt

    before = descendants(os.getpid())
    with Session([DEVICE], policy=QUICK, progress=Interrupting()) as session:
        with pytest.raises(KeyboardInterrupt):
            measure(doubling("right"), session=session)
        assert list(scratch.iterdir()) == []
        with Lease(devices(DEVICE)[0]):
            pass
    assert descendants(os.getpid()) == before


# What is sent


class Token:
    """An object that tasks change."""

    def __init__(self, array: np.ndarray | None = None) -> None:
        self.values: list[float] = []
        self.array = array


def sent(signature: Signature, path: Path, rtol: float = 0.0) -> payload.Received:
    """Send a signature to this process."""
    path.mkdir()
    payload.Payload(signature, rtol).write(str(path))
    received = payload.receive(str(path))
    for file in path.iterdir():
        file.unlink()
    return received


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12.0).reshape(3, 4)[::2, ::-1],
        np.arange(12).reshape(3, 4).T,
        np.zeros((0, 3)),
        np.array(3.0),
        np.zeros(3, [("a", "f8"), ("b", "i1", 2)]),
        np.arange(3, dtype=">i4"),
        np.array(["a", "bc"]),
        np.array(["NaT"], "M8[s]"),
    ],
    ids=lambda array: f"{array.shape} {array.dtype} {array.strides}",
)
def test_arrays_arrive_as_they_are(array: np.ndarray, tmp_path: Path) -> None:
    received = sent(signature_of(lambda: tasks.add(array, array)), tmp_path / "sent")
    for operand in received.ops[0].operands:
        got = operand.arrays[0]
        assert (got.dtype, got.shape, got.strides) == (array.dtype, array.shape, array.strides)
        assert got.tobytes() == array.tobytes()
        if array.size:
            assert (got.ctypes.data - array.ctypes.data) % 4096 == 0
            got[...] = got  # it may be written


def test_overlaps_arrive_as_they_are(tmp_path: Path) -> None:
    base = np.arange(10.0)
    received = sent(signature_of(lambda: tasks.add(base[:6], base[4:])), tmp_path / "sent")
    first, second = (operand.arrays[0] for operand in received.ops[0].operands)
    assert second.ctypes.data - first.ctypes.data == 32


def test_arguments_arrive_as_they_are(tmp_path: Path) -> None:
    a = np.ones(3)
    token = Token(a)

    def record() -> None:
        tasks_with_arguments(a, token, ost.step, ost.param("p", 2.5), name="x", values=[1, None])

    op, *_ = sent(signature_of(record), tmp_path / "sent").ops
    values = op.body.args  # type: ignore[union-attr]
    assert values[2] is ost.step
    assert (values[3].name, values[3].default) == ("p", 2.5)
    assert (values[4], values[5]) == ("x", [1, None])
    assert op.body.keywords == ("name", "values")  # type: ignore[union-attr]
    found = op.operands[1].value
    assert isinstance(found, Token)
    assert found.array is op.operands[0].array
    assert Workload(op).op.name == "tasks_with_arguments"


@ost.task
def tasks_with_arguments(
    a: ost.Read, token: ost.ReadWrite, step: int, p: float, *, name: str, values: list[object]
) -> None:
    token.values.append(step + p)


def test_what_is_done_to_an_object_is_compared(session: Session) -> None:
    log = misbehaving.Log()
    report = measure(signature_of(lambda: misbehaving.note(log, ost.step)), session=session)
    assert only(report, "note_twice").status == "wrong_result"
    assert only(report, "note_twice").message.startswith("it leaves an argument that is no array in another state")
    assert only(report, "note_otherwise").status in ("ok", "raced")
    assert log.values == []


def test_of_a_ring_it_is_the_element_of_step_0(tmp_path: Path) -> None:
    ring = ost.ring(*(np.full(2, float(number)) for number in range(3)))
    received = sent(signature_of(lambda: tasks.add(ring[-1], ring[1])), tmp_path / "sent")
    assert [operand.arrays[0].tolist() for operand in received.ops[0].operands] == [[2, 2], [1, 1]]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (lambda: tasks.add(np.array([1, "a"], object), np.zeros(2)), "an array holds Python objects"),
        (lambda: tasks.add(memoryview(bytearray(2)), np.zeros(2)), "an array of another library, a memoryview"),
        (lambda: tasks.relax(np.zeros(2), np.zeros(2), lambda: 1), "an argument cannot be pickled: "),
        (lambda: in_this_test(np.zeros(2)), "in_this_test is defined inside a function"),
    ],
)
def test_what_cannot_be_sent_is_told(record: Callable[[], object], why: str, tmp_path: Path) -> None:
    with pytest.raises(payload.Unsendable, match=why):
        payload.Payload(signature_of(record), 0.0).write(str(tmp_path))


def _inside() -> ost.Task[[np.ndarray], None]:
    @ost.task
    def in_this_test(x: ost.Read) -> None:
        pass

    return in_this_test


in_this_test = _inside()


def test_too_much_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "_MOST_BYTES", 1000)
    with pytest.raises(payload.Unsendable, match="its arrays take 1600 bytes, more than"):
        payload.Payload(signature_of(lambda: tasks.add(np.zeros(100), np.zeros(100))), 0.0)


MODULE = """
import numpy as np
import ostinato as ost

FACTOR = {factor}

@ost.task
def double(src: ost.Read, dst: ost.Write) -> None:
    np.multiply(src, 2, out=dst)

@double.variant
def quick(src: ost.Read, dst: ost.Write) -> None:
    np.multiply(src, {written}, out=dst)
"""


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_another_process_would_import_otherwise_is_measured_here(
    by_hand: bool, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"measured_module_{by_hand}"
    path = tmp_path / f"{name}.py"
    path.write_text(MODULE.format(factor=2, written="FACTOR" if by_hand else 3))
    module = importlib.import_module(name)
    if by_hand:
        module.FACTOR = 3
    else:
        path.write_text(MODULE.format(factor=2, written="2.0"))  # of another size: its bytecode may be as young
    report = measure(signature_of(lambda: module.double(np.ones(2), np.zeros(2))), session=session)
    result = only(report, "quick")
    assert result.status == "wrong_result"
    assert f"measured in this process: {name} is not what another process imports" in result.message
    monkeypatch.delitem(sys.modules, name)


SCRIPT = """
import numpy as np, ostinato as ost
from ostinato.tune.graphs.signature import signatures_of
from ostinato.tune.graphs.executor import Session
from tune.graphs.faking import measure
from tune.graphs.tasks import relax

@ost.task
def here(x: ost.ReadWrite):
    x += 1

class Local:
    pass

def report(task, *args):
    with ost.capture() as graph:
        task(*args)
    with Session(["cpu:0"], policy=ost.Policy(max_seconds=0.01, rel_ci=0.5), progress=False) as session:
        print(measure(signatures_of(graph.ops)[0], session=session).results[0].message)

report(here, np.zeros(3))
report(relax, np.zeros(3), np.zeros(3), Local())
"""


def test_what_is_defined_in_main_is_measured_here(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    environment = dict(os.environ)
    ran = subprocess.run(
        [sys.executable, path], env=environment, capture_output=True, text=True, check=True, timeout=100
    )
    first, second = ran.stdout.splitlines()
    assert first == "measured in this process: here is defined in __main__"
    assert second.endswith("(measured in this process: an argument needs Local, which is defined in __main__)")
