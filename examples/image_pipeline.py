"""A pipeline over image files: decode, filter, encode, several images in flight.

A step takes one image through all three stages, and the buffers between the stages are rings: while image k is
encoded from one buffer, image k + 1 is filtered into the next, and image k + 2 decoded. What is no array can be
passed too: the lists of files are tokens, which order the tasks that use them as arrays do.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
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


def pipeline(inputs: list[Path], k: Any, picture: Any, sharp: Any, folder: Path, written: list[Path]) -> None:
    """One image: runs on arrays, and is recorded inside a capture."""
    decode(inputs, k, picture)
    sharpen(picture, sharp)
    encode(sharp, inputs, k, folder, written)


def buffers(count: int, size: int) -> list[np.ndarray]:
    return [np.zeros((size, size, 3), dtype=np.uint8) for _ in range(count)]


def plain_loop(inputs: list[Path], size: int, folder: Path) -> list[Path]:
    picture, sharp = buffers(2, size)
    written: list[Path] = []
    for k in range(len(inputs)):
        pipeline(inputs, k, picture, sharp, folder, written)
    return written


def replayed(inputs: list[Path], size: int, folder: Path) -> list[Path]:
    written: list[Path] = []
    with ost.capture() as graph:
        picture, sharp = ost.ring(*buffers(BUFFERS, size)), ost.ring(*buffers(BUFFERS, size))
        pipeline(inputs, ost.step, picture[0], sharp[0], folder, written)
    with ost.Machine() as machine, graph.compile(machine) as program:
        program.replay(len(inputs), progress=True)
    return written


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
    parser.add_argument("--size", type=int, default=400, help="pixels on a side of the results (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="where the results go (default: nowhere, they are only compared)")
    options = parser.parse_args(argv)

    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch, name) for name in ("drawn", "plain", "replay")]
        if options.output:
            folders[2] = options.output
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        inputs = options.files or draw_inputs(24, folders[0])

        start = time.perf_counter()
        expected = plain_loop(inputs, options.size, folders[1])
        between = time.perf_counter()
        results = replayed(inputs, options.size, folders[2])
        end = time.perf_counter()
        equal = [path.read_bytes() for path in expected] == [path.read_bytes() for path in results]

    print(f"plain loop {between - start:.2f} s, replay {end - between:.2f} s, {len(inputs)} images")
    print(f"files equal byte for byte: {'yes' if equal else 'NO'}")
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
