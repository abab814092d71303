"""A report as a page."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from ostinato.tune.report import Report

__all__ = ["write_page"]


def write_page(report: Report, out: IO[str]) -> None:
    """Write a report as one file of HTML that needs nothing else."""
    out.write("x")
