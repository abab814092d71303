"""The benchmarks' command: ``python benchmarks/run.py --help``."""

import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Run benchmarks as the command line says."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from benchmarks import suite

    return suite.main(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
