"""``python -m ostinato`` is the command ``ostinato``."""

from ostinato.cli import main

main(prog_name="ostinato")
