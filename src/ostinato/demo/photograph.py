"""Photographs: read, made noisy, and shown beside what became of them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps

from ostinato.demo import DemoError
from ostinato.view.svg import replacing

Picture = NDArray[np.float32]  # three planes of values from 0 to 1: (3, height, width)

LARGEST_SIDE = 512
NOISE = 0.15


def standard() -> Path:
    """Return the photograph that matplotlib brings along: Rear Admiral Grace Hopper, 1984."""
    import matplotlib

    return Path(matplotlib.get_data_path(), "sample_data", "grace_hopper.jpg")


def load(path: str | os.PathLike[str]) -> Picture:
    """Read an image file, upright and no larger than the demo has time for."""
    try:
        with Image.open(path) as file:
            image = ImageOps.exif_transpose(file).convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DemoError(f"cannot read {os.fspath(path)} as an image: {error}") from error
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE), Image.Resampling.LANCZOS)
    planes = np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 255
    return np.ascontiguousarray(planes)


def with_noise(picture: Picture) -> Picture:
    """Add the noise of a bad night, the same in every run."""
    noise = np.random.default_rng(1984).normal(0, NOISE, picture.shape)
    return np.clip(picture + noise, 0, 1).astype(np.float32)


def save_before_after(before: Picture, after: Picture, captions: tuple[str, str], path: Path) -> None:
    """Write two pictures side by side, each with its caption below."""
    _, height, width = before.shape
    gap, band = 8, 30
    canvas = Image.new("RGB", (2 * width + gap, height + band), "white")
    text, font = ImageDraw.Draw(canvas), ImageFont.load_default(size=16)
    for left, picture, caption in zip((0, width + gap), (before, after), captions, strict=True):
        canvas.paste(_image(picture), (left, 0))
        text.text(
            (left + width / 2, height + band / 2),
            caption,
            fill="#2b2d33",
            anchor="mm",
            font=font,
        )
    # Noise does not compress: 256 colours, chosen for the smooth half and dithered, need a third of the bytes.
    palette = canvas.crop((width + gap, 0, *canvas.size)).quantize(256, Image.Quantize.MEDIANCUT, kmeans=3)
    with replacing(path) as draft:
        canvas.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(draft, format="PNG", optimize=True)


def _image(picture: Picture) -> Image.Image:
    return Image.fromarray((picture.clip(0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0))
