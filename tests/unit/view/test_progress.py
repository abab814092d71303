"""The progress bar: silent unless somebody looks."""

import io
import sys

import pytest

from ostinato.view.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_silent_when_not_a_terminal(capsys):
    with progress_bar(10) as show:
        show(5)
    assert capsys.readouterr() == ("", "")


def test_shows_label_and_count_on_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar(1000, "diffusion") as show:
        show(500)
    assert "diffusion" in terminal.getvalue()
    assert "500/1000" in terminal.getvalue()


def test_the_terminal_is_restored_when_the_block_raises(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(KeyboardInterrupt), progress_bar(10):
        raise KeyboardInterrupt
    show_cursor = "\x1b[?25h"
    assert show_cursor in terminal.getvalue()
