"""MPI as this process was started with it: the launcher, and the library that mpi4py has loaded."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from ostinato import _core
from ostinato.text import brief

if TYPE_CHECKING:
    from types import ModuleType, TracebackType

# By launcher, the variables that say how many ranks it started.
_SIZES = (
    ("mpiexec", "OMPI_COMM_WORLD_SIZE"),
    ("mpiexec", "PMI_SIZE"),
    ("mpiexec", "MPI_LOCALNRANKS"),
    ("srun", "SLURM_STEP_NUM_TASKS"),
)
_INSTALL = "pip install 'ostinato[mpi]'"
INSTALL_LIBRARY = "pip install mpich"
"""The command that installs an MPI library and its mpiexec."""


def launched() -> tuple[str, int]:
    """Return the launcher that started this process, and how many ranks it started; ("", 1) if none is known."""
    for name, variable in _SIZES:
        found = os.environ.get(variable, "")
        if found.isdigit():
            return name, int(found)
    return "", 1


def find_mpiexec() -> str | None:
    """Return the path of the mpiexec beside this Python, or else of the first one on the path."""
    beside = os.path.dirname(sys.executable)
    return shutil.which("mpiexec", path=os.pathsep.join((beside, os.environ.get("PATH", os.defpath))))


def find_launcher() -> list[str]:
    """Return the command that starts ranks: the mpiexec beside this Python, or else the first one on the path.

    Raises
    ------
    ImportError
        mpi4py or mpiexec is missing.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise ImportError(f"ranks need mpi4py: {_INSTALL}")
    found = find_mpiexec()
    if found is None:
        raise ImportError(f"there is no mpiexec: install an MPI library, such as by `{INSTALL_LIBRARY}`")
    command = [found]
    if os.geteuid() == 0 and "Open MPI" in subprocess.run([found, "--version"], capture_output=True, text=True).stdout:
        command += ["--allow-run-as-root", "--oversubscribe"]  # in containers, as a rule
    return command


def import_mpi() -> ModuleType:
    """Return the module `MPI` of mpi4py.

    Raises
    ------
    ImportError
        mpi4py is missing, or cannot load an MPI library.
    """
    try:
        from mpi4py import MPI
    except RuntimeError as error:
        raise ImportError(f"mpi4py finds no MPI library: {INSTALL_LIBRARY}") from error
    except ImportError as error:
        raise ImportError(f"mpi4py cannot be imported ({error}): {_INSTALL}") from error
    return MPI


def find_mpi() -> ModuleType | None:
    """Return the module `MPI` of mpi4py; None if it cannot be used, and this process is the only rank.

    Raises
    ------
    ImportError
        A launcher started several ranks, and mpi4py is missing or cannot load an MPI library.
    """
    launcher, size = launched()
    try:
        return import_mpi()
    except ImportError as error:
        if size == 1:
            return None
        raise ImportError(
            f"{launcher} started {size} ranks, which cannot know of each other. Start them with the mpiexec of the MPI "
            f"library that mpi4py loads, as `ostinato run` does: {error}"
        ) from error


def check_communicator(MPI: ModuleType, comm: Any) -> None:
    """Raise if ranks cannot be those of a communicator."""
    if not isinstance(comm, MPI.Intracomm):
        raise TypeError(f"comm must be an intracommunicator of mpi4py, got {brief(comm)}")
    if comm == MPI.COMM_NULL:
        raise ValueError("comm must be a communicator that this rank is in, got MPI.COMM_NULL")
    launcher, size = launched()
    if comm.Get_size() == 1 and size > 1:
        library = MPI.Get_library_version().split("\n")[0].rstrip("\0")
        if MPI.COMM_WORLD.Get_size() > 1:
            raise RuntimeError(
                f"comm must hold all the ranks that work together, but it has 1 of the {size} that {launcher} started; "
                "leave comm out, or pass MPI.COMM_WORLD"
            )
        raise RuntimeError(
            f"{launcher} started {size} ranks, but MPI knows of 1: the launcher belongs to another MPI installation "
            f"than the library that mpi4py has loaded ({library}). Start the ranks with the mpiexec of that library, "
            "as `ostinato run` does"
        )
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RuntimeError(
            "MPI must be initialised for threads: leave mpi4py.rc.thread_level at its default, 'multiple'"
        )


_FORWARD_SECONDS = 1.0
"""What launchers have not forwarded when a job is aborted is lost, and it may be the end of a traceback."""


def abort_on_uncaught(MPI: ModuleType) -> None:
    """Have an exception that nobody catches end the job: other ranks would wait for this one for ever."""
    before = sys.excepthook
    if getattr(before, "aborts", False):
        return

    def tell_and_abort(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        before(kind, error, traceback)
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_FORWARD_SECONDS)
        MPI.COMM_WORLD.Abort(130 if issubclass(kind, KeyboardInterrupt) else 1)

    tell_and_abort.aborts = True  # type: ignore[attr-defined]
    sys.excepthook = tell_and_abort


def lost_rank(MPI: ModuleType, comm: Any, code: int) -> int | None:
    """Return the least rank that has died, given the code of a failed call; if none has, end the job."""
    try:
        failed = comm.Get_failed()  # of ULFM (Bland and others 2013)
        found: list[int] = MPI.Group.Translate_ranks(failed, list(range(failed.Get_size())), comm.Get_group())
    except (MPI.Exception, NotImplementedError):
        found = []
    if found:
        return min(found)
    if MPI.Get_error_class(code) in (MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED):
        return None
    sys.stderr.write(f"ostinato: MPI cannot carry the messages of a program: {MPI.Get_error_string(code)}\n")
    sys.stderr.flush()
    MPI.COMM_WORLD.Abort(1)
    return None


def open_messenger(MPI: ModuleType, comm: Any) -> _core.messages.Messenger:
    """Return what carries messages over a communicator, which is used for nothing else."""
    size = MPI._sizeof(MPI.Comm)

    def handle(of: Any) -> int:
        return int.from_bytes(ctypes.string_at(MPI._addressof(of), size), "little")

    path = MPI.__file__
    assert path is not None
    return _core.messages.messenger_by_mpi(
        rank=comm.Get_rank(),
        size=comm.Get_size(),
        library=path,
        communicator=handle(comm),
        byte=handle(MPI.BYTE),
        any_source=MPI.ANY_SOURCE,
        handle_bytes=size,
        status_bytes=MPI._sizeof(MPI.Status),
    )
