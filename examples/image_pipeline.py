"""A pipeline over image files: decode, filter, encode, several images in flight.

A step takes one image through all three stages. The buffers between the stages are rings: while image k is encoded
from one buffer, image k + 1 is filtered into the next, and image k + 2 decoded. Objects that are not arrays can be
passed as well: the list of results is a token, which orders the tasks that use it as an array does. Without Ostinato,
one would pass each image to a thread pool.
"""

import argparse
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from comparison import Way, compare
from PIL import Image, ImageOps

import ostinato as ost

BUFFERS = 3


@ost.task(releases_gil=True)
def decode(inputs: ost.Read, k: int, picture: ost.Write) -> None:
    """Read the k-th file, cropped to the size of the buffer."""
    height, width, _ = picture.shape
    with Image.open(inputs[k]) as image:
        picture[...] = np.asarray(ImageOps.fit(image.convert("RGB"), (width, height)))


@ost.task(releases_gil=True)
def sharpen(picture: ost.Read, sharp: ost.Write) -> None:
    """Add to each pixel what sets it apart from its neighbours."""
    values = np.pad(picture.astype(np.float32), ((1, 1), (1, 1), (0, 0)), mode="edge")
    around = values[:-2, 1:-1] + values[2:, 1:-1] + values[1:-1, :-2] + values[1:-1, 2:]
    sharp[...] = np.clip(2 * values[1:-1, 1:-1] - around / 4, 0, 255).round()


@ost.task(releases_gil=True)
def encode(sharp: ost.Read, inputs: ost.Read, k: int, folder: Path, written: ost.ReadWrite) -> None:
    """Write the k-th result, and note that it is written."""
    target = folder / f"{k:04}-{Path(inputs[k]).stem}.png"
    Image.fromarray(sharp).save(target)
    written.append(target)


def step(inputs: list[Path], k: Any, picture: Any, sharp: Any, folder: Path, written: list[Path]) -> None:
    """One image; `picture[0]` and `sharp[0]` are the buffers that it uses."""
    decode(inputs, k, picture[0])
    sharpen(picture[0], sharp[0])
    encode(sharp[0], inputs, k, folder, written)


def buffers(count: int, size: int) -> list[np.ndarray]:
    return [np.zeros((size, size, 3), dtype=np.uint8) for _ in range(count)]


def contents(paths: list[Path]) -> list[bytes]:
    return [path.read_bytes() for path in paths]


def plain_loop(inputs: list[Path], size: int, folder: Path) -> list[bytes]:
    picture, sharp, written = buffers(1, size), buffers(1, size), list[Path]()
    for k in range(len(inputs)):
        step(inputs, k, picture, sharp, folder, written)
    return contents(written)


def by_pool(inputs: list[Path], size: int, folder: Path, pool: ThreadPoolExecutor) -> list[bytes]:
    """An image is one call on a thread of the pool."""

    def process(k: int) -> Path:
        written: list[Path] = []
        step(inputs, k, buffers(1, size), buffers(1, size), folder, written)
        return written[0]

    return contents(list(pool.map(process, range(len(inputs)))))


def replayed(inputs: list[Path], size: int, folder: Path, machine: ost.Machine) -> list[bytes]:
    picture, sharp = ost.ring(*buffers(BUFFERS, size)), ost.ring(*buffers(BUFFERS, size))
    written: list[Path] = []
    with ost.compile(step, inputs, ost.step, picture, sharp, folder, written, machine=machine) as program:
        program.replay(len(inputs))
    return contents(written)


def draw_inputs(count: int, folder: Path) -> list[Path]:
    """Make some images, for those who have none at hand."""
    y, x = np.mgrid[0:480, 0:640] / 100.0
    paths = [folder / f"waves-{k}.jpg" for k in range(count)]
    for k, path in enumerate(paths):
        waves = [np.sin(x * (1 + 0.1 * k) + phase) * np.cos(y + 0.3 * k) for phase in (0, 1, 2)]
        Image.fromarray((127 * (1 + np.stack(waves, axis=-1))).astype(np.uint8)).save(path)
    return paths


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="images (default: some that are drawn)")
    parser.add_argument("--size", type=int, default=256, help="pixels on a side of the results (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="where the results go (default: nowhere, they are only compared)")
    options = parser.parse_args(argv)

    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch, name) for name in ("compared", "results", "drawn")]
        if options.output:
            folders[1] = options.output
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        inputs = options.files or draw_inputs(12, folders[2])

        print(f"{len(inputs)} images")
        with ost.Machine() as machine, ThreadPoolExecutor(len(machine.processors)) as pool:
            return compare(
                [
                    Way("Ostinato", lambda: replayed(inputs, options.size, folders[1], machine)),
                    Way(
                        "plain loop",
                        lambda: plain_loop(inputs, options.size, folders[0]),
                        why_faster="it needs one core only, which matters where other processes use the rest",
                    ),
                    Way(
                        "thread pool",
                        lambda: by_pool(inputs, options.size, folders[0], pool),
                        why_faster="images are independent, so all threads can encode; encoding, one stage of the "
                        "pipeline, is done in order",
                    ),
                ],
                turns=3,
            )


if __name__ == "__main__":
    raise SystemExit(main())
