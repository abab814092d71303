"""Files that are either written whole or left alone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a path beside `path` to write to, and move it into place when the block ends.

    When the block raises, nothing is left behind and what was at `path` stays. An `OSError` names `path`, not
    the path in its place. A device or pipe at `path` is written directly.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        yield target
        return
    # A name that is nobody's: the draft is overwritten and removed. The suffix tells libraries the format.
    draft = target.with_name(f".{os.urandom(8).hex()}-{target.name}")
    try:
        yield draft
        os.replace(draft, target)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (str(draft), draft):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise
