"""Whether a candidate's product is that of NumPy."""

import functools

import numpy as np

from ostinato.tune.checking import CommandOutputs, equal_within


def product(outputs: CommandOutputs, key: dict[str, int]) -> None:
    n = key["n"]
    equal_within(np.fromfile(outputs.scratch / "product", np.float32).reshape(n, n), expected(n), atol=1e-3)


@functools.cache
def expected(n: int) -> np.ndarray:
    """The product of the matrices that matmul.cpp fills."""
    a, b = (matrix(n, seed).astype(np.float64) for seed in (1, 2))
    return a @ b


def matrix(n: int, seed: int) -> np.ndarray:
    numbers = np.arange(seed, n * n + seed, dtype=np.uint32) * np.uint32(2654435761)
    return ((numbers >> 8).astype(np.float32) / np.float32(1 << 24) - np.float32(0.5)).reshape(n, n)
