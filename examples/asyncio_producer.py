"""Packets arrive in an asyncio program, which has a spectrum made of each without blocking its event loop.

A packet is bytes, given to a run as a parameter. The consumer submits a run for each packet and awaits the oldest one
once a few are in flight: channels are transformed in parallel, and the next packet is decoded meanwhile. The sums of
the spectra depend on the order of the packets, and Ostinato keeps it. Without Ostinato, one would pass one packet after
the other to a thread with `asyncio.to_thread`.
"""

import argparse
import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
from comparison import Way, compare

import ostinato as ost

CHANNELS, SAMPLES = 4, 16_384
WINDOW = np.hanning(SAMPLES)
IN_FLIGHT = 4


def samples_of(packet: bytes) -> np.ndarray:
    return np.frombuffer(packet, np.int16).reshape(CHANNELS, SAMPLES)


def power_of(channel: np.ndarray) -> np.ndarray:
    power: np.ndarray = np.abs(np.fft.rfft(channel * WINDOW)) ** 2
    return power


@ost.task(releases_gil=True)
def decode(packet: bytes, block: ost.Write) -> None:
    block[...] = samples_of(packet)


@ost.task(releases_gil=True)
def transform(channel: ost.Read, total: ost.ReadWrite) -> None:
    total += power_of(channel)


def step(packet: Any, block: Any, totals: Any) -> None:
    """What is done with one packet; the blocks are a ring, so that the next one can be decoded meanwhile."""
    decode(packet, block[0])
    for channel in range(CHANNELS):
        transform(block[0][channel], totals[channel])


Queue = asyncio.Queue["bytes | None"]


async def produce(packets: list[bytes], queue: Queue) -> None:
    """Stands for a network connection."""
    for packet in packets:
        await queue.put(packet)
    await queue.put(None)


async def consume_by_runs(queue: Queue, program: ost.Program) -> None:
    runs: deque[ost.Run] = deque()
    while (packet := await queue.get()) is not None:
        runs.append(program.submit(packet=packet))
        if len(runs) == IN_FLIGHT:
            await runs.popleft()
    for run in runs:
        await run


async def consume_by_threads(queue: Queue, totals: np.ndarray) -> None:
    def process(packet: bytes) -> None:
        block = samples_of(packet).astype(float)
        for channel in range(CHANNELS):
            totals[channel] += power_of(block[channel])

    while (packet := await queue.get()) is not None:
        await asyncio.to_thread(process, packet)


async def both(packets: list[bytes], consume: Callable[[Queue], Coroutine[Any, Any, None]]) -> None:
    queue: Queue = asyncio.Queue(IN_FLIGHT)
    await asyncio.gather(produce(packets, queue), consume(queue))


def record(count: int) -> list[bytes]:
    """Noise with a tone in it, higher in each channel."""
    rng, times = np.random.default_rng(5), np.arange(SAMPLES)
    tones = np.stack([np.sin(0.1 * (channel + 1) * times) for channel in range(CHANNELS)])
    noisy = [3000 * tones + rng.normal(0, 1000, tones.shape) for _ in range(count)]
    return [packet.astype(np.int16).tobytes() for packet in noisy]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packets", type=int, default=100, help="default: %(default)s")
    options = parser.parse_args(argv)

    packets = record(options.packets)
    blocks = ost.ring(*np.zeros((2, CHANNELS, SAMPLES)))
    totals = np.zeros((CHANNELS, SAMPLES // 2 + 1))

    with ost.compile(step, ost.param("packet"), blocks, totals) as program:

        def by_runs() -> np.ndarray:
            totals[...] = 0.0
            asyncio.run(both(packets, lambda queue: consume_by_runs(queue, program)))
            return totals.copy()

        def by_threads() -> np.ndarray:
            sums = np.zeros_like(totals)
            asyncio.run(both(packets, lambda queue: consume_by_threads(queue, sums)))
            return sums

        print(f"{len(packets)} packets of {CHANNELS} channels; loudest in bins {by_runs().argmax(axis=1).tolist()}")
        return compare(
            [
                Way("Ostinato", by_runs),
                Way(
                    "asyncio.to_thread",
                    by_threads,
                    why_faster="it wakes one thread for a packet: with the cores busy, waking two takes longer",
                ),
            ]
        )


if __name__ == "__main__":
    raise SystemExit(main())
