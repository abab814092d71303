"""The process in which callables are measured; started by its path, as the tuner's sys.path is not known before."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Move the descriptors out of the candidates' reach, learn the tuner's sys.path, and answer until it goes away."""
    # This file's directory would hide modules of its names; the package's is needed until the tuner's are known.
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    sys.path[:] = [root, *(entry for entry in sys.path if os.path.abspath(entry) != here)]
    from ostinato.tune.worker.channel import Channel
    from ostinato.tune.worker.worker import Worker

    channel = Channel(3, int(os.environ.pop("OSTINATO_REPORT_FD", "4")))
    sys.argv[:] = [""]
    Worker(channel).serve()


if __name__ == "__main__":
    main()
