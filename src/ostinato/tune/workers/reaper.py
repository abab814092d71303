"""A small process that runs one command at a time and lets nothing of it remain.

The reaper (`tune/native/`) is the parent of the command and, as a child subreaper, of every process that the command
leaves behind. What it promises:

* `Exited` is said only when the command and all its descendants are gone: whatever they held is free.
* When this process ends, however it ends, the reaper kills them all, waits until they are gone, only then unlocks the
  leases that it was given, and ends.
* When the reaper itself is killed, the kernel kills the command, and `Lost` is said.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

import ostinato
from ostinato.errors import TuningError

__all__ = [
    "Exited",
    "Lost",
    "NotStarted",
    "Reaper",
    "Started",
    "Stuck",
    "Swept",
    "above_standard",
    "kill_descendants",
    "kill_group",
    "open_child",
    "program",
    "start_process",
]


_PROCESS_GROUP = 1 << 2  # PIDFD_SIGNAL_PROCESS_GROUP, since Linux 6.9
_LEADER_SECONDS = 0.5


def kill_descendants(pid: int) -> bool:
    """Kill all that descend from a child of this process, but not the child; return whether any were alive.

    Orphans must come back to the child as their subreaper, or they are missed.
    """
    found = False
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for child in _children(parent):
            waiting.append(child)
            try:
                descriptor = os.pidfd_open(child)
            except OSError:  # it has ended
                continue
            try:
                state, now = _state(child)
                if now in (parent, pid) and state not in "ZX":
                    found = True
                    with suppress(ProcessLookupError, PermissionError):
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)
    return found


def open_child(pid: int, parent: int) -> int:
    """Return a descriptor of a process that has this parent; -1 if there is none."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return -1
    if _state(pid)[1] == parent:
        return descriptor
    os.close(descriptor)
    return -1


def kill_group(leader: int, pid: int) -> None:
    """Kill the process group of a leader, which may have ended: `leader` is its descriptor, and `pid` its number."""
    try:
        signal.pidfd_send_signal(leader, signal.SIGKILL, None, _PROCESS_GROUP)
    except (ProcessLookupError, PermissionError):
        return
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # A group keeps its number from being used again, and so does its leader until it is waited for.
        end = time.monotonic() + _LEADER_SECONDS
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
            if not select.select([leader], [], [], 0)[0]:  # it is alive, and so the number is its own
                break
            time.sleep(0.001)
        else:
            if os.path.exists(f"/proc/{pid}"):
                return  # another process has the number
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, thread.read_text().split())
    return found


def _state(pid: int) -> tuple[str, int]:
    """Return the letter of a process's state, and its parent; X if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[1])
    except (OSError, IndexError, ValueError):
        return "X", 0


def start_process(control: int) -> tuple[int, int]:
    """Start a reaper; return its process number and a descriptor of its process."""
    path = program()
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        raise TuningError("this kernel does not list the children of processes (CONFIG_PROC_CHILDREN)")
    us = above_standard(_process_descriptor(os.getpid()))
    try:
        # An environment of its own: LD_PRELOAD and the like are meant for commands. A session of its own: so is Ctrl-C.
        actions = [(os.POSIX_SPAWN_DUP2, control, 0), (os.POSIX_SPAWN_DUP2, us, 1)]
        pid = os.posix_spawn(path, [path], {}, file_actions=actions, setsid=True)
    finally:
        os.close(us)
    try:
        return pid, above_standard(_process_descriptor(pid))
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _process_descriptor(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise TuningError("this kernel has no descriptors of processes; Linux 5.3 and newer do") from error
        raise


def above_standard(fd: int) -> int:
    """Move a descriptor to a number that no program takes for its standard input, output or error."""
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def program() -> str:
    """Return the path of the reaper's program."""
    # An editable installation keeps it beside the compiled module, not beside the Python files.
    for directory in ostinato.__path__:
        path = Path(directory, "bin", "ostinato-reaper")
        if path.is_file():
            return str(path)
    raise TuningError("bin/ostinato-reaper is not installed beside the package; install Ostinato again")


class Started(NamedTuple):
    """The command is running: the program was found and executed."""

    pid: int


class NotStarted(NamedTuple):
    """The command could not be started; nothing runs.

    ``stage`` is what failed: ``"fork"``, ``"setup"`` (its session, cores or descriptors), ``"chdir"`` or ``"exec"``.
    """

    errno: int
    stage: Literal["fork", "setup", "chdir", "exec"]


class Exited(NamedTuple):
    """The command has ended, and so has everything that it had started.

    Attributes
    ----------
    status
        Exit status, or minus the number of the signal that ended it.
    cause
        ``"exit"``: it ended by itself; ``"time"``, ``"memory"``: killed at that limit; ``"killed"``: by `kill`.
    leftovers
        How many other processes, still running when the command ended or was killed, were killed.
    max_rss
        Most memory that one of the processes had resident, in bytes.
    cpu_ns, preemptions
        Time on processors, and involuntary context switches, of all of them.
    seconds
        From the start of the program to its end.
    """

    status: int
    cause: Literal["exit", "time", "memory", "killed"]
    leftovers: int
    max_rss: int
    cpu_ns: int
    preemptions: int
    seconds: float


class Stuck(NamedTuple):
    """Processes of the command are still there 5 s after SIGKILL; `Exited` follows if they do end."""

    pids: tuple[int, ...]


class Lost(NamedTuple):
    """The reaper itself has ended: its exit status, or minus the number of a signal; None if it is not known."""

    status: int | None


class Swept(NamedTuple):
    """`Reaper.sweep` is done: so many processes were killed, and none but the command, if it still runs, is left."""

    killed: int


Event = Started | NotStarted | Exited | Stuck | Swept | Lost

# The messages of src/ostinato/tune/native/messages.h. A message starts with its kind.
_SETUP, _LEASES, _SPAWN, _KILL, _SWEEP, _CLOSE = range(1, 7)
_STARTED, _NOT_STARTED, _EXITED, _STUCK, _SWEPT = range(1, 6)
_SETUP_HEADER = struct.Struct("=II")
_SPAWN_HEADER = struct.Struct("=IIIIQQ")
_STAGES: tuple[Literal["fork", "setup", "chdir", "exec"], ...] = ("fork", "setup", "chdir", "exec")
_CAUSES: tuple[Literal["exit", "time", "memory", "killed"], ...] = ("exit", "time", "memory", "killed")
_EXITED_FIELDS = struct.Struct("=iIIQQQQ")
_LONGEST_MESSAGE = 4096
# The kernel passes at most 253 descriptors with one message.
_MOST_DESCRIPTORS = 250
_LOOK_SECONDS = 0.1
_EXIT_SECONDS = 0.5
_RESCUE_SECONDS = 1.0
_RESCUE_PAUSE = 0.01


class Reaper:
    """Runs one command at a time, and lets nothing of it remain.

    Every method but `close` raises `RuntimeError` in a process forked from the one that made the reaper; there, `close`
    leaves the reaper and its command alone.

    Parameters
    ----------
    leases
        Descriptors with ``flock`` locks. The reaper holds duplicates, and unlocks them if this process dies, after it
        has killed the command.
    cores
        The cores that commands run on; None: those of this process.
    idle_priority
        Whether commands run only while nothing else wants their cores.

    Raises
    ------
    TuningError
        If the reaper's program is missing or the kernel lacks what it needs.

    Examples
    --------
    >>> import select
    >>> with Reaper() as reaper:
    ...     reaper.spawn(["sh", "-c", "exit 3"], env={"PATH": "/bin:/usr/bin"})
    ...     events = []
    ...     while not events or isinstance(events[-1], Started):
    ...         _ = select.select([reaper], [], [], 60)
    ...         events += reaper.read()
    >>> events[-1].status, events[-1].cause, events[-1].leftovers
    (3, 'exit', 0)
    """

    def __init__(
        self, *, leases: Sequence[int] = (), cores: frozenset[int] | None = None, idle_priority: bool = False
    ) -> None:
        self._owner = os.getpid()
        self._running = False
        self._command_pid = 0
        self._command = -1  # its descriptor
        self._lost = False
        self._stuck: tuple[int, ...] = ()
        self._status: int | None = None
        mask = _core_mask(cores)
        ours, theirs = (above_standard(end.detach()) for end in socket.socketpair(type=socket.SOCK_SEQPACKET))
        try:
            self._pid, self._pidfd = start_process(theirs)
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self._socket = socket.socket(fileno=ours)
        self._send(_SETUP_HEADER.pack(_SETUP, idle_priority) + mask, ())
        self.hold(leases)

    def hold(self, leases: Sequence[int]) -> None:
        """Hold these locked files from now on, in place of those held before."""
        self._check_owner()
        for start in (None, *range(0, len(leases), _MOST_DESCRIPTORS)):
            descriptors = () if start is None else leases[start : start + _MOST_DESCRIPTORS]
            self._send(struct.pack("=I", _LEASES), descriptors)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when `read` has something to return."""
        return self._socket.fileno()

    @property
    def pid(self) -> int:
        """Process number of the reaper: everything on its device descends from it."""
        return self._pid

    @property
    def running(self) -> bool:
        """Whether a command was spawned whose end `read` has not returned yet."""
        return self._running

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        fds: Mapping[int, int] | None = None,
        seconds: float | None = None,
        memory: int | None = None,
    ) -> None:
        """Start a command; `read` says what becomes of it.

        It runs in a session and process group of its own, with default signal dispositions and no signal blocked.

        Parameters
        ----------
        argv
            The program, found along ``PATH`` of `env` unless it has a slash, and its arguments.
        env
            The whole environment.
        cwd
            Working directory; None: that of this process.
        fds
            Its descriptors: number there -> number here. Of 0, 1 and 2, those not given are ``/dev/null``; no other
            descriptor is open.
        seconds
            It is killed when it has not ended so long after its program was executed.
        memory
            It is killed when it and its descendants have more bytes resident.

        Raises
        ------
        RuntimeError
            If the last command has not ended, or the reaper is closed or lost.
        ValueError
            If an argument cannot be given to a process, such as a string with a zero byte.
        """
        self._check_owner()
        if self._running:
            raise RuntimeError("the reaper runs one command at a time; wait until the last one has ended")
        if self._lost or self._socket.fileno() < 0:
            raise RuntimeError("the reaper is closed or was lost")
        if not argv:
            raise ValueError("argv must hold a program at least")
        for name, limit in (("seconds", seconds), ("memory", memory)):
            if limit is not None and not limit > 0:
                raise ValueError(f"{name} must be positive, or None for no limit, got {limit!r}")
        targets = fds or {}
        if len(targets) > _MOST_DESCRIPTORS:
            raise ValueError(f"a command must have at most {_MOST_DESCRIPTORS} descriptors, got {len(targets)}")
        nanoseconds = 0 if seconds is None else min(max(1, int(min(seconds, 1e9) * 1e9)), 2**62)
        header = _SPAWN_HEADER.pack(_SPAWN, len(argv), len(env), len(targets), nanoseconds, min(memory or 0, 2**63))
        # A memory file, because arguments and environment may be longer than a message.
        words = os.memfd_create("ostinato-command")
        try:
            _write(words, _words(argv, env, cwd))
            self._send(header + array.array("i", targets).tobytes(), [words, *targets.values()])
        finally:
            os.close(words)
        self._running = True
        self._know(0)

    def kill(self) -> None:
        """Kill the command and all its descendants; `Exited` follows. Nothing happens if none is running."""
        self._check_owner()
        if self._running:
            self._send(struct.pack("=I", _KILL), ())

    def sweep(self) -> None:
        """Kill all that the command has started, and let itself run on; `Swept` follows, before any `Exited`."""
        self._check_owner()
        self._send(struct.pack("=I", _SWEEP), ())

    def read(self) -> list[Event]:
        """Return what has happened since the last call, in order; never waits."""
        self._check_owner()
        events: list[Event] = []
        while not self._lost and self._socket.fileno() >= 0:
            try:
                message = self._socket.recv(_LONGEST_MESSAGE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionResetError:
                continue  # told once when the reaper is gone; what it had said before is still to be read
            if not message:
                events.append(self._end())
                continue
            # A candidate may have written to the reaper's descriptor: what makes no sense counts for nothing.
            with suppress(struct.error, ValueError, IndexError):
                events.append(self._event(message))
        return events

    def stopped(self) -> bool:
        """Whether something has stopped the reaper: then the command has no limits, and cannot be killed."""
        with suppress(ChildProcessError):
            return os.waitid(os.P_PIDFD, self._pidfd, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        return False

    def resume(self) -> None:
        """Let the reaper run on, if something has stopped it."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGCONT)

    def rescue(self) -> None:
        """Kill the command and all its descendants without the reaper, and let the reaper run on to see to the rest."""
        self._check_owner()
        end = time.monotonic() + _RESCUE_SECONDS
        while kill_descendants(self._pid) and time.monotonic() < end:
            time.sleep(_RESCUE_PAUSE)
        self.resume()

    def close(self, timeout: float = 10) -> None:
        """Kill the command, wait until all of it is gone, and end the reaper. May be called again.

        Raises
        ------
        TimeoutError
            If processes of the command are still there after `timeout` seconds; it names them. The reaper goes on
            waiting for them, and holds the leases until then.
        """
        if self._socket.fileno() < 0:
            return
        if os.getpid() != self._owner:
            self._socket.close()
            os.close(self._pidfd)
            self._know(0)
            return
        if not self._lost:
            self._send(struct.pack("=I", _CLOSE), ())
            if not self._ends_within(timeout):
                raise TimeoutError(f"processes are still there {timeout:g} s after SIGKILL: {self._remaining()}")
            self._wait()
        self._socket.close()
        os.close(self._pidfd)
        self._know(0)
        self._running = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError("a reaper serves the process that made it, not one forked from it")

    def _send(self, message: bytes, descriptors: Iterable[int]) -> None:
        # If the reaper has ended, `read` says so.
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._socket, [message], list(descriptors))

    def _event(self, message: bytes) -> Event:
        kind, *fields = struct.unpack_from("=Ii", message)
        event: Event
        if kind == _STARTED:
            self._know(fields[0])
            return Started(fields[0])
        if kind == _STUCK:
            return Stuck(tuple(array.array("i", message[4:])))
        if kind == _SWEPT:
            return Swept(fields[0])
        if kind == _NOT_STARTED:
            code, stage = struct.unpack_from("=iI", message, 4)
            event = NotStarted(code, _STAGES[stage])
        elif kind == _EXITED:
            status, cause, leftovers, max_rss, cpu_ns, preemptions, ns = _EXITED_FIELDS.unpack_from(message, 4)
            event = Exited(status, _CAUSES[cause], leftovers, max_rss, cpu_ns, preemptions, ns * 1e-9)
        else:
            raise ValueError(f"no message of a reaper begins with {kind}")
        self._running = False
        self._know(0)
        return event

    def _end(self) -> Lost:
        self._lost = True
        # It has closed its end because it is about to exit; or it was only cut off, and stays.
        exited = select.poll()
        exited.register(self._pidfd, select.POLLIN)
        if not exited.poll(_EXIT_SECONDS * 1000):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._wait()
        if self._running and self._command >= 0:
            # The kernel has killed the command; what it had started in its group has nobody else to do it.
            kill_group(self._command, self._command_pid)
        self._running = False
        return Lost(self._status)

    def _know(self, pid: int) -> None:
        """Note the number of the command, 0 as long as there is none, and get a descriptor of it."""
        command, self._command, self._command_pid = self._command, -1, pid
        if command >= 0:
            os.close(command)
        if pid:
            self._command = open_child(pid, self._pid)

    def _ends_within(self, seconds: float) -> bool:
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        now = time.monotonic()
        rescue, end = now + seconds / 2, now + seconds
        while not ended.poll(max(0, min(_LOOK_SECONDS, end - now)) * 1000):
            now = time.monotonic()
            if now >= end:
                return False
            if now >= rescue or self.stopped():
                self.rescue()
        return True

    def _remaining(self) -> str:
        for event in self.read():
            if isinstance(event, Stuck):
                self._stuck = event.pids
        return ", ".join(map(str, self._stuck or [self._command_pid]))

    def _wait(self) -> None:
        # Somebody may have waited for all children of this process, and another child may have the number by now.
        with suppress(ChildProcessError):
            ended = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
            if ended is not None:
                self._status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _core_mask(cores: frozenset[int] | None) -> bytes:
    if cores is None:
        return b""
    if not cores:
        raise ValueError("cores must hold one core at least, or be None for no binding")
    mask = sum(1 << core for core in cores)
    return mask.to_bytes(-(-mask.bit_length() // 64) * 8, "little")


def _words(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> bytes:
    words = [os.fsencode(word) for word in argv]
    for name, value in env.items():
        if not name or "=" in name:
            raise ValueError(f"env must hold names of environment variables, got {name!r}")
        words.append(os.fsencode(name) + b"=" + os.fsencode(value))
    words.append(_directory(cwd))
    for word in words:
        if b"\0" in word:
            raise ValueError(f"the words of a command must not hold null characters, got {word!r}")
    return b"\0".join(words) + b"\0"


def _directory(cwd: str | None) -> bytes:
    try:
        here = os.getcwdb()
    except FileNotFoundError:
        here = b"."  # it was removed: then the reaper, which is still in it, stays there
    return here if cwd is None else os.path.join(here, os.fsencode(cwd))


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
