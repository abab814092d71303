"""The process in which callables are measured; started by its path, as the tuner's sys.path is not known before."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Move the descriptors out of the candidates' reach, learn the tuner's sys.path, and answer until it goes away."""
    # This file's directory would hide modules of its names; the package's is needed until sys.path is known.
    root = os.path.dirname(os.path.abspath(__file__))
    for _ in range(3):
        root = os.path.dirname(root)
    sys.path[0] = root
    # A candidate must not be able to import the worker as __main__.
    from ostinato.tune.worker.channel import Channel
    from ostinato.tune.worker.worker import Worker

    channel = Channel(3, int(os.environ.pop("OSTINATO_REPORT_FD", "4")))
    sys.argv[:] = [""]
    Worker(channel).serve()


if __name__ == "__main__":
    main()
