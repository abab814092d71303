"""The colours of all pictures. A task has the same colour in every picture, program and process: that of its name."""

from __future__ import annotations

import hashlib
from math import cos, radians, sin

INK, DIM, GRID = "ink", "dim", "grid"
"""Text and lines, less important ones, and faint ones: light or dark, as the reader's page is. See `view.svg`."""

ON_LIGHT = {INK: "#2b2d33", DIM: "#6b707b", GRID: "#d9dce2"}
"""What these are on white."""

COPY = "#6c707a"
"""Copies of arrays, by the user or between memories."""
WAIT = "#e9b5b0"
"""A thread that waits for another."""
MIXED = "#c9ccd3"
"""Operations of several tasks in one bar; what is left of earlier steps."""
STEP = "#9db4ce"
"""From the begin to the end of a step; neither glaring on a dark page nor lost on a light one."""

STEPS = ("#2a6f97", "#f4a259", "#5b8e7d", "#bc4b51", "#8d6a9f", "#e0c14c")
"""Things that are counted, such as steps or variants, one after the other."""

HEAT = ("#fde725", "#5ec962", "#21918c", "#3b528b", "#440154")
"""From fast to slow."""

FAILED, BAND = "#bc4b51", "#f4f5f7"

REPORT = {
    "ground": ("#fbfbfc", "#14171b"),
    "card": ("#fff", "#1c2026"),
    "ink": ("#1f2328", "#e4e7eb"),
    "dim": ("#5f6773", "#9aa3af"),
    "line": ("#dcdfe4", "#333a43"),
    "grid": ("#e8eaee", "#2a3038"),
    "ok": ("#2a78b8", "#5aa7e0"),
    "raced": ("#9cb3c7", "#5d7286"),
    "winner": ("#1d9a5b", "#3ecf8e"),
    "tie": ("#6cc495", "#2f8f68"),
    "default": ("#d97706", "#f0a53a"),
    "invalid": ("#8b7355", "#8b7355"),
    "compile_error": ("#b7791f", "#b7791f"),
    "compile_timeout": ("#d6a32e", "#d6a32e"),
    "crash": ("#cf3a3a", "#cf3a3a"),
    "hang_killed": ("#8a4fc4", "#8a4fc4"),
    "oom": ("#c2387f", "#c2387f"),
    "wrong_result": ("#e0682b", "#e0682b"),
    "bad_output": ("#94601f", "#94601f"),
    "contended": ("#71808f", "#71808f"),
    "device_lost": ("#3f4a58", "#8592a3"),
    "cancelled": ("#b9bfc8", "#565d68"),
    "build": ("#7d8aa0", "#7d8aa0"),
    "check": ("#4fa3a5", "#4fa3a5"),
    "start": ("#c4c9d1", "#4a515c"),
    "anchor": ("#a98bd0", "#a98bd0"),
    "final": ("#1d9a5b", "#3ecf8e"),
    "measure": ("#2a78b8", "#5aa7e0"),
}
"""What a report of the tuner shows on a light and on a dark page: surfaces, how candidates ended, what was going on."""

_LIGHTNESS = (0.64, 0.73, 0.82)
_CHROMA = 0.115


def task_colour(name: str) -> str:
    """Return the colour of a task: a hash of its name chooses the hue, of 360, and one of three shades.

    Two names may get colours that look alike. Pictures have names beside the colours.

    >>> task_colour("relax"), task_colour("relax") == task_colour("blur")
    ('#98a0ef', False)
    """
    number = int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).digest(), "big")
    return _from_oklch(_LIGHTNESS[number // 360 % 3], _CHROMA, number % 360)


def ink_on(colour: str) -> str:
    """Return the colour of words on a colour: nearly black, or white.

    >>> ink_on("#ffffff"), ink_on(COPY)
    ('#1b1d21', '#ffffff')
    """
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return "#1b1d21" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.2 else "#ffffff"


def _from_oklch(lightness: float, chroma: float, hue: float) -> str:
    """Return an sRGB colour of the OKLCH space (Ottosson 2020), where equal lightness looks equally light."""
    a, b = chroma * cos(radians(hue)), chroma * sin(radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    parts = (min(max(part, 0.0), 1.0) for part in linear)
    encoded = (12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055 for part in parts)
    return "#" + "".join(f"{round(255 * part):02x}" for part in encoded)
