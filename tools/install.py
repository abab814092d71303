"""Build Ostinato in place, install it into a virtual environment, and print what happens meanwhile.

Usage: VENV/bin/python tools/install.py VENV WHAT [OPTION...]
WHAT is ``.`` or ``.[extra]``; the options are pip's.
"""

import re
import subprocess
import sys
from pathlib import Path

# In what pip prints: a package that it fetches, a stage of the build, a file that was compiled.
_PROGRESS = re.compile(r"Collecting ([\w.-]+)|\s*\*\*\* (.+)|\s*(\[\d+/\d+\]) (?:.*/)?(.+)")


def progress(line: str) -> str | None:
    """Return the short form of a line of pip's that says how far it is; None for others."""
    found = _PROGRESS.match(line)
    return " ".join(filter(None, found.groups())) if found else None


def main(venv: str, what: str, *options: str) -> int:
    """Install ``what``; return pip's exit status."""
    log = Path(venv, "install.log")
    print(f"== installing {what} into {venv}; the whole output is in {log}", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--verbose", "--progress-bar=off", "--no-build-isolation"]
    command = [*pip, f"-Cbuild-dir={venv}/cmake", *options, "-e", what]
    with log.open("w") as file, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        assert child.stdout is not None
        for raw in child.stdout:
            line = raw.decode(errors="replace")
            file.write(line)
            if step := progress(line):
                print("  ", step, flush=True)
    if child.returncode:
        print(log.read_text())
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
