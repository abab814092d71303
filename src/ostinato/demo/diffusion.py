"""The diffusion that denoises: one step of one tile, as a native kernel and in NumPy.

Every pixel takes something from its four neighbours and from the noisy photograph. What flows between two pixels
grows less than their difference does (Charbonnier's diffusivity), so noise is levelled and edges stay. The steps
must be small to be stable; after about a thousand nothing changes any more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np

import ostinato as ost
from ostinato.demo.photograph import Picture

RATE = np.float32(0.2)
FIDELITY = np.float32(0.02)
SHARPNESS = np.float32(1 / 0.004**2)  # a difference well above 0.004 is an edge
ONE = np.float32(1)


def diffuse_native(source: ost.Read, noisy: ost.Read, target: ost.Write) -> None:
    """Take one step of one tile; `source` is a pixel wider than the others on each side."""
    _, height, width = target.shape
    for y in range(height):
        for x in range(width):
            red, green, blue = source[0, y + 1, x + 1], source[1, y + 1, x + 1], source[2, y + 1, x + 1]
            to_red = FIDELITY * (noisy[0, y, x] - red)
            to_green = FIDELITY * (noisy[1, y, x] - green)
            to_blue = FIDELITY * (noisy[2, y, x] - blue)
            for dy, dx in ((0, 1), (2, 1), (1, 0), (1, 2)):
                d_red = source[0, y + dy, x + dx] - red
                d_green = source[1, y + dy, x + dx] - green
                d_blue = source[2, y + dy, x + dx] - blue
                flow = ONE / np.sqrt(ONE + SHARPNESS * (d_red * d_red + d_green * d_green + d_blue * d_blue))
                to_red += flow * d_red
                to_green += flow * d_green
                to_blue += flow * d_blue
            target[0, y, x] = red + RATE * to_red
            target[1, y, x] = green + RATE * to_green
            target[2, y, x] = blue + RATE * to_blue


def diffuse_numpy(source: ost.Read, noisy: ost.Read, target: ost.Write) -> None:
    """Take the same step with NumPy."""
    centre = source[:, 1:-1, 1:-1]
    change = FIDELITY * (noisy - centre)
    for neighbour in (source[:, :-2, 1:-1], source[:, 2:, 1:-1], source[:, 1:-1, :-2], source[:, 1:-1, 2:]):
        difference = neighbour - centre
        change += difference / np.sqrt(ONE + SHARPNESS * (difference * difference).sum(axis=0))
    target[...] = centre + RATE * change


class Method(NamedTuple):
    """A way to take a step: the task that is captured, and what a plain loop does best to call instead."""

    name: str
    task: Callable[..., Any]
    function: Callable[..., Any]


NATIVE = Method("native kernels", ost.kernel(diffuse_native), numba.njit(nogil=True)(diffuse_native))
NUMPY = Method("NumPy tasks", ost.task(diffuse_numpy), diffuse_numpy)


class Tile(NamedTuple):
    """Where a tile lies in the photograph and, framed by one more pixel, in the fields."""

    picture: tuple[slice, ...]
    inner: tuple[slice, ...]
    halo: tuple[slice, ...]


def tiles(picture: Picture, across: int) -> list[Tile]:
    """Cut a picture into `across` times `across` tiles."""
    rows, columns = (
        np.linspace(0, length, min(across, length) + 1).astype(int).tolist() for length in picture.shape[1:]
    )
    return [
        Tile(*((slice(None), slice(y0 + a, y1 + b), slice(x0 + a, x1 + b)) for a, b in ((0, 0), (1, 1), (0, 2))))
        for y0, y1 in itertools.pairwise(rows)
        for x0, x1 in itertools.pairwise(columns)
    ]


class Diffusion:
    """A noisy photograph and the two fields that take turns; their one-pixel frames stay as they are."""

    def __init__(self, noisy: Picture, across: int) -> None:
        self.noisy = noisy
        self.tiles = tiles(noisy, across)
        self.fields = tuple(np.pad(noisy, ((0, 0), (1, 1), (1, 1)), mode="edge") for _ in range(2))

    def calls(self, source: Any, target: Any) -> list[tuple[Any, Any, Any]]:
        """List the arguments of one step, tile by tile: arrays, or inside a capture elements of a ring."""
        return [(source[tile.halo], self.noisy[tile.picture], target[tile.inner]) for tile in self.tiles]

    def capture(self, task: Callable[..., Any]) -> ost.Graph:
        """Record one step."""
        with ost.capture() as graph:
            field = ost.ring(*self.fields)
            for arguments in self.calls(field[0], field[1]):
                task(*arguments)
        return graph

    def result(self, steps: int) -> Picture:
        """Return the picture as it is after `steps` steps."""
        return self.fields[steps % 2][:, 1:-1, 1:-1].copy()
