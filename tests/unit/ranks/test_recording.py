"""Messages as operations: what is recorded, what is refused, and what one rank does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ostinato as ost
from ostinato.graph.messages import Receive, Send


@ost.task
def advance(source: ost.Read, target: ost.Write) -> None:
    target[1:-1] = source[:-2] + 2 * source[1:-1] - source[2:]


@pytest.fixture
def ranks() -> ost.Ranks:
    return ost.Ranks()


def test_one_process_is_one_rank(ranks: ost.Ranks) -> None:
    assert (ranks.rank, ranks.size) == (0, 1)
    assert (ranks.beside(0), ranks.beside(1), ranks.beside(-1)) == (0, None, None)
    assert repr(ranks) == "<Ranks: rank 0 of 1>"


def test_send_reads_and_recv_writes(ranks: ost.Ranks) -> None:
    a, b = np.arange(4.0), np.zeros(4)
    with ost.capture() as graph:
        filled = ost.fill(a, 1.0)
        sent = ranks.send(a, to=0)
        received = ranks.recv(b, source=0)
        copied = ost.copy(b, a)
    assert sent is not None
    assert received is not None
    assert (sent.name, received.name) == ("send", "recv")
    assert isinstance(sent.body, Send)
    assert isinstance(received.body, Receive)
    assert __file__.endswith(str(sent.call_site).split(":")[0])
    edges = {(x.name, y.name) for x, y, distance in graph.edges if distance == 0}
    assert {("fill", "send"), ("send", "copy"), ("recv", "copy")} <= edges
    assert ("send", "recv") not in edges
    assert copied in graph.ops
    assert filled in graph.ops


def test_nothing_happens_without_a_peer(ranks: ost.Ranks) -> None:
    a = np.zeros(3)
    with ost.capture() as graph:
        assert ranks.send(a, to=None) is None
        assert ranks.recv(a, source=None) is None
        assert ranks.bcast(a) is None
        ost.fill(a, 1.0)
    assert len(graph) == 1
    assert graph.group is ranks


@pytest.mark.parametrize("steps", [1, 2, 7, 100])
def test_a_rank_may_send_to_itself(ranks: ost.Ranks, steps: int) -> None:
    """A periodic border, by messages, is bit for bit that of a loop."""
    a, b = (np.linspace(0.0, 1.0, 34) ** 2 for _ in range(2))
    expected = [a.copy(), b.copy()]
    for step in range(steps):
        source, target = expected[step % 2], expected[(step + 1) % 2]
        source[0], source[-1] = source[-2], source[1]
        advance(source, target)
    u = ost.ring(a, b)
    with ost.capture() as graph:
        ranks.send(u[0][1:2], to=0)
        ranks.send(u[0][-2:-1], to=0)
        ranks.recv(u[0][-1:], source=0)
        ranks.recv(u[0][:1], source=0)
        advance(u[0], u[1])
    with graph.compile() as program:
        assert program.replay(steps) == steps
    assert a.tobytes() == expected[0].tobytes()
    assert b.tobytes() == expected[1].tobytes()


@pytest.mark.parametrize("dtype", ["f8", "i2", "c16", "S3", "M8[s]", [("x", "i1"), ("y", "f4")]])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x[1::2, ::-1],
        lambda x: x.T[2:0:-1],
        lambda x: x[2, 1:1],
        lambda x: x[3, 2],
        lambda x: np.broadcast_to(x[0], (3, 5)),
    ],
)
def test_views_of_every_kind_are_sent(
    ranks: ost.Ranks, dtype: object, view: Callable[[np.ndarray], np.ndarray]
) -> None:
    a = np.frombuffer(np.random.default_rng(1).bytes(4096), np.uint8)[: 20 * np.dtype(dtype).itemsize]
    a = a.view(dtype).reshape(4, 5).copy()
    sent = view(a)
    if not isinstance(sent, np.ndarray):  # a scalar: its array has no axes
        sent = a[3:, 2:].reshape(-1)[:1].reshape(())
    received = np.zeros(tuple(2 * n for n in sent.shape), dtype)[tuple(slice(None, None, 2) for _ in sent.shape)]
    received = received if isinstance(received, np.ndarray) else np.zeros((), dtype)
    with ost.capture() as graph:
        ranks.send(sent, to=0)
        ranks.recv(received, source=0)
    with graph.compile() as program:
        program.replay(3)
    assert received.tobytes() == sent.tobytes()


def test_allreduce_of_one_rank_is_a_copy(ranks: ost.Ranks) -> None:
    part, total = np.array([1.5, 2.5]), np.zeros(2)
    for op in ("sum", "prod", "min", "max", np.add, lambda a, b: a + b):
        total[:] = 0
        with ost.capture() as graph:
            ranks.allreduce(part, total, op)
        with graph.compile() as program:
            program.replay()
        assert total.tolist() == [1.5, 2.5]


def test_messages_of_a_traced_function(ranks: ost.Ranks) -> None:
    a, b, total = np.arange(3.0), np.zeros(3), np.zeros(1)

    def step(x: ost.Read, y: ost.Write, total: ost.Write) -> None:
        ranks.send(x[1:], to=0)
        ranks.recv(y[:2], source=0)
        ranks.allreduce(y[:1], total, "max")

    with ost.compile(step, a, b, total) as program:
        program.replay()
    assert b.tolist() == [1, 2, 0]
    assert total.tolist() == [1]


def test_arrays_may_be_rebound(ranks: ost.Ranks) -> None:
    a, b = np.arange(3.0), np.zeros(3)
    with ost.capture() as graph:
        ranks.send(a, to=0)
        ranks.recv(b, source=0)
    with graph.compile() as program:
        program.replay(3)
        other = np.full(3, 5.0)
        program.rebind([(a, other)])
        program.replay(2)
    assert b.tolist() == [5, 5, 5]


def test_several_programs_and_runs_in_flight(ranks: ost.Ranks) -> None:
    arrays = [(np.full(1000, float(i)), np.zeros(1000)) for i in range(4)]
    programs = []
    for a, b in arrays:
        with ost.capture() as graph:
            ranks.send(a, to=0)
            ranks.recv(b, source=0)
        programs.append(graph.compile())
    runs = [program.submit(20) for _ in range(5) for program in programs]
    assert [run.result(30) for run in runs] == [20] * 20
    for program in programs:
        program.close()
    assert all((a == b).all() for a, b in arrays)


def test_nested_graphs_have_messages(ranks: ost.Ranks) -> None:
    a, b = np.arange(3.0), np.zeros(3)
    with ost.capture() as inner:
        ranks.send(a, to=0)
        ranks.recv(b, source=0)
    graph = ost.Graph()
    graph.subgraph(inner)
    assert graph.group is ranks
    with graph.compile() as program:
        program.replay(2)
    assert b.tolist() == [0, 1, 2]


def test_a_failure_poisons_what_receives_it(ranks: ost.Ranks) -> None:
    a, b, c, d = (np.zeros(2) for _ in range(4))

    @ost.task
    def fail_in_step_2(x: ost.Write, step: int) -> None:
        x[:] = step
        if step == 2:
            raise ValueError("two")

    with ost.capture() as graph:
        fail_in_step_2(a, ost.step)
        ranks.send(a, to=0)
        ranks.recv(b, source=0)
        ost.copy(b, c)
        ost.copy(d, d[::-1])
    with graph.compile() as program:
        with pytest.raises(ost.TaskError, match="two") as error:
            program.replay(10)
        assert error.value.step == 2
        assert c.tolist() == [1, 1]
        assert program.replay(1) == 1  # and the channel still fits together
    assert b[0] == c[0] > 2


class TestBadInput:
    def test_of_ranks(self) -> None:
        with pytest.raises(ValueError, match=r"transport must be 'auto', 'mpi' or 'shared', got 'tcp'"):
            ost.Ranks(transport="tcp")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"progress must be 'workers' or 'thread', got None"):
            ost.Ranks(progress=None)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"comm must be .*, got 3"):
            ost.Ranks(3)

    def test_of_beside(self, ranks: ost.Ranks) -> None:
        with pytest.raises(TypeError, match=r"offset must be an integer, got 0\.5"):
            ranks.beside(0.5)  # type: ignore[arg-type]

    @pytest.mark.parametrize("method", ["send", "recv", "bcast"])
    def test_of_messages(self, ranks: ost.Ranks, method: str) -> None:
        argument = {"send": "to", "recv": "source", "bcast": "root"}[method]
        call = getattr(ranks, method)
        with pytest.raises(RuntimeError, match=rf"{method}\(\) records a message"):
            call(np.zeros(1), 0)
        with ost.capture():
            for wrong in (1, -1):
                with pytest.raises(ValueError, match=rf"{argument} must be at (most|least) 0, got {wrong}"):
                    call(np.zeros(1), wrong)
            with pytest.raises(TypeError, match=rf"{argument} must be an integer, got 'x'"):
                call(np.zeros(1), "x")
            with pytest.raises(TypeError, match=r"array"):
                call(3.0, 0)
            ost.fill(np.zeros(1), 0.0)

    def test_without_a_peer_arguments_are_checked_too(self, ranks: ost.Ranks) -> None:
        with pytest.raises(TypeError, match=r"send\(\) must be an array or an element of a ring, got 3"), ost.capture():
            ranks.send(3, to=None)

    def test_of_objects(self, ranks: ost.Ranks) -> None:
        with pytest.raises(ost.GraphError, match="Python objects have no meaning on another rank"), ost.capture():
            ranks.send(np.array([None]), to=0)

    def test_of_read_only_arrays(self, ranks: ost.Ranks) -> None:
        array = np.zeros(3)
        array.flags.writeable = False
        with pytest.raises(ost.GraphError, match=r"recv\(\) is written, but"), ost.capture():
            ranks.recv(array, source=0)

    def test_of_allreduce(self, ranks: ost.Ranks) -> None:
        a, b = np.zeros(3), np.zeros(4)
        with ost.capture():
            with pytest.raises(ValueError, match=r"op of allreduce\(\) must be one of 'sum', .*, got 'mean'"):
                ranks.allreduce(a, a, "mean")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"op of allreduce\(\) must be one of .*, got 3"):
                ranks.allreduce(a, a, 3)  # type: ignore[arg-type]
            with pytest.raises(ost.GraphError, match=r"one shape, but part is \(3,\) and out \(4,\)"):
                ranks.allreduce(a, b, "sum")
            ost.fill(a, 0.0)

    def test_of_two_ranks_in_one_graph(self, ranks: ost.Ranks) -> None:
        with ost.capture():
            ranks.send(np.zeros(1), to=0)
            with pytest.raises(ost.GraphError, match=r"one ostinato\.Ranks, but was given two"):
                ost.Ranks().send(np.zeros(1), to=0)

    def test_of_channels(self, ranks: ost.Ranks) -> None:
        a, b = np.zeros(3), np.zeros(4)
        with ost.capture() as alone:
            ranks.send(a, to=0)
        with pytest.raises(ost.GraphError, match=r"rank 0 sends shape \(3,\), float64, .* receives nothing"):
            alone.compile()
        with ost.capture() as other:
            ranks.send(a, to=0)
            ranks.recv(b, source=0)
        with pytest.raises(
            ost.GraphError, match=r"test_recording.py:\d+ .*, but rank 0 receives shape \(4,\).* test_recording.py:\d+"
        ):
            other.compile()

    def test_of_messages_that_wait_for_each_other(self, ranks: ost.Ranks) -> None:
        a = np.zeros(3)
        with ost.capture() as graph:
            ranks.recv(a, source=0)
            ranks.send(a, to=0)
        with pytest.raises(ost.GraphError, match="these messages of one step wait for each other"):
            graph.compile()

    @pytest.mark.parametrize("runs", ["serial", "concurrent"])
    def test_of_runs(self, ranks: ost.Ranks, runs: str) -> None:
        with ost.capture() as graph:
            ranks.send(np.zeros(3), to=0)
            ranks.recv(np.zeros(3), source=0)
        with pytest.raises(ValueError, match="runs must be 'pipelined' or 'once' for a program of ranks, got"):
            graph.compile(runs=runs)  # type: ignore[arg-type]
