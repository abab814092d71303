"""What explain says of the copies between memories."""

from __future__ import annotations

from typing import Any

import numpy as np

import ostinato as ost
from support import fake_device as fake


@ost.task
def decode(image: ost.Write) -> None: ...


@ost.task
def blur(weights: ost.Read, image: ost.Read, out: ost.Write, total: ost.ReadWrite, stream: ost.Stream) -> None: ...


@ost.task
def encode(out: ost.Read) -> None: ...


def test_what_is_copied_how_often_and_what_for() -> None:
    raw, out = (ost.ring(*(np.zeros(1000) for _ in range(3))) for _ in range(2))
    with ost.capture() as graph:
        decode(raw[0])
        blur(np.zeros(10), raw[0], out[0], np.zeros(5))
        encode(out[0])
    text = explained(graph)
    site = graph.ops[1].call_site
    assert (
        f"Copies between memories: 16 kB a step, and 120 bytes once a run\n"
        f"  8 kB a step, the host to fake:0, for 'blur' at {site}\n"
        f"  8 kB a step, fake:0 to the host, for 'encode' at {graph.ops[2].call_site}\n"
        f"  80 bytes in a run's first step, the host to fake:0, for 'blur' at {site}\n"
        f"  40 bytes in a run's first step, the host to fake:0, for 'blur' at {site}\n"
        f"  at most 40 bytes when a run ends, fake:0 to the host: what was written last on fake:0\n"
    ) in text
    assert ", a stream of fake:0): " in text
    assert ", waits for fake:0): " in text


def test_what_later_steps_need_and_the_first_does_not() -> None:
    a, b = np.zeros(100), np.zeros(100)
    with ost.capture() as graph:
        encode(a)
        blur(b, b[:50], b[50:50], a)
    text = explained(graph)
    assert (
        f"800 bytes a step after a run's first step, fake:0 to the host, for 'encode' at {graph.ops[0].call_site}"
        in text
    )


def test_elements_of_a_ring_that_are_copied_once_each() -> None:
    a = ost.ring(*(np.zeros(100) for _ in range(2)))
    with ost.capture() as graph:
        blur(a[0], a[0], a[0][:0], np.zeros(0))
    text = explained(graph)
    assert "Copies between memories: 0 bytes a step, and 1.6 kB once a run\n" in text
    assert "1.6 kB in a run's first 2 steps, the host to fake:0, for 'blur'" in text


def test_nothing_is_copied() -> None:
    with fake.install(1), ost.Machine(cpus=1) as machine:
        a: Any = machine.processor("fake:0").memory.empty(4)
        with ost.capture() as graph:
            blur(a, a, a[:0], a[:0])
        assert "Copies between memories: none\n" in graph.compile(machine).explain()


def explained(graph: ost.Graph) -> str:
    with fake.install(1), ost.Machine(cpus=2) as machine:
        return graph.compile(machine).explain()
