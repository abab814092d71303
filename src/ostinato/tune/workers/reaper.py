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
from typing import Literal, NamedTuple, Self, get_args

import ostinato
from ostinato.errors import TuningError
from ostinato.tune.leases.processes import children, fields

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
        for child in children(parent):
            waiting.append(child)
            descriptor = open_child(child, parent, pid)
            if descriptor < 0:
                continue
            try:
                found = found or fields(child)[:1] not in ([], ["Z"], ["X"])
                with suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)
    return found


def open_child(pid: int, *parents: int) -> int:
    """Return a descriptor of a process that has one of these parents; -1 if there is none."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return -1
    if fields(pid)[1:2] in ([str(parent)] for parent in parents):  # only now: the number cannot be used again
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


def start_process(control: int) -> tuple[int, int]:
    """Start a reaper; return its process number and a descriptor of its process."""
    path = program()
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        raise TuningError("this kernel does not list the children of processes (CONFIG_PROC_CHILDREN)")
    try:
        us = above_standard(os.pidfd_open(os.getpid()))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise TuningError("this kernel has no descriptors of processes; Linux 5.3 and newer do") from error
        raise
    try:
        # An environment of its own: LD_PRELOAD and the like are meant for commands. A session of its own: so is Ctrl-C.
        actions = [(os.POSIX_SPAWN_DUP2, control, 0), (os.POSIX_SPAWN_DUP2, us, 1)]
        pid = os.posix_spawn(path, [path], {}, file_actions=actions, setsid=True)
    finally:
        os.close(us)
    try:
        return pid, above_standard(os.pidfd_open(pid))
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
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


Stage = Literal["fork", "setup", "chdir", "exec"]  # setup: of its session, cores or descriptors
Cause = Literal["exit", "time", "memory", "killed"]


class NotStarted(NamedTuple):
    """The command could not be started; nothing runs."""

    errno: int
    stage: Stage  # that failed


class Exited(NamedTuple):
    """The command has ended, and so has everything that it had started."""

    status: int  # or minus the number of the signal that ended it
    cause: Cause  # exit: it ended by itself; time, memory: killed at that limit; killed: by `Reaper.kill`
    leftovers: int  # other processes that were still running and were killed
    max_rss: int  # most bytes that one of the processes had resident
    cpu_ns: int  # of all of them
    preemptions: int  # involuntary context switches of all of them
    seconds: float  # from the start of the program to its end


class Stuck(NamedTuple):
    """Processes of the command are still there 5 s after SIGKILL; `Exited` follows if they do end."""

    pids: tuple[int, ...]

    def __str__(self) -> str:
        return f"processes {', '.join(map(str, self.pids))} cannot be killed"


class Lost(NamedTuple):
    """The reaper itself has ended: its exit status, or minus the number of a signal; None if it is not known."""

    status: int | None


class Swept(NamedTuple):
    """`Reaper.sweep` is done: so many processes were killed, and none but the command, if it still runs, is left."""

    killed: int


Event = Started | NotStarted | Exited | Stuck | Swept | Lost

# The messages of src/ostinato/tune/native/messages.h. A message starts with its kind.
_SETUP, _LEASES, _SPAWN, _KILL, _SWEEP, _CLOSE = range(1, 7)
_SETUP_HEADER = struct.Struct("=II")
_SPAWN_HEADER = struct.Struct("=IIIIQQ")
_STAGES: tuple[Stage, ...] = get_args(Stage)
_CAUSES: tuple[Cause, ...] = get_args(Cause)
_EXITED = struct.Struct("=iIIQQQQ")
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

    `leases` are descriptors with ``flock`` locks. The reaper holds duplicates, and unlocks them if this process dies,
    after it has killed the command. Commands run on `cores`, or on those of this process, and if `idle_priority`, only
    while nothing else wants these.

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
        self.running = False
        """Whether a command was spawned whose end `read` has not returned yet."""
        self._command_pid = 0
        self._command = -1  # its descriptor
        self._lost = False
        self._stuck: tuple[int, ...] = ()
        self._status: int | None = None
        mask = _core_mask(cores)
        ours, theirs = (above_standard(end.detach()) for end in socket.socketpair(type=socket.SOCK_SEQPACKET))
        try:
            self.pid, self._pidfd = start_process(theirs)  # everything on its device descends from it
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

        It runs in a session and process group of its own, with default signal dispositions and no signal blocked, in
        the directory `cwd`, else in that of this process. `env` is its whole environment; its program is found along
        ``PATH`` of that unless it has a slash. `fds` are its descriptors: number there -> number here. Of 0, 1 and 2,
        those not given are ``/dev/null``; no other descriptor is open. It is killed when it has not ended `seconds`
        after its program was executed, or when it and its descendants have more than `memory` bytes resident.

        Raises `ValueError` if an argument cannot be given to a process, such as a string with a zero byte.
        """
        self._check_owner()
        if self.running:
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
            with open(words, "wb", closefd=False) as file:
                file.write(_words(argv, env, cwd))
            self._send(header + array.array("i", targets).tobytes(), [words, *targets.values()])
        finally:
            os.close(words)
        self.running = True
        self._know(0)

    def kill(self) -> None:
        """Kill the command and all its descendants; `Exited` follows. Nothing happens if none is running."""
        self._check_owner()
        if self.running:
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
        while kill_descendants(self.pid) and time.monotonic() < end:
            time.sleep(_RESCUE_PAUSE)
        self.resume()

    def close(self, timeout: float = 10) -> None:
        """Kill the command, wait until all of it is gone, and end the reaper. May be called again.

        Raises `TimeoutError` if processes of the command are still there after `timeout` seconds. The reaper goes on
        waiting for them, and holds the leases until then.
        """
        if self._socket.fileno() < 0:
            return
        if os.getpid() == self._owner:
            if not self._lost:
                self._send(struct.pack("=I", _CLOSE), ())
                if not self._ends_within(timeout):
                    for event in self.read():
                        if isinstance(event, Stuck):
                            self._stuck = event.pids
                    left = ", ".join(map(str, self._stuck or [self._command_pid]))
                    raise TimeoutError(f"processes are still there {timeout:g} s after SIGKILL: {left}")
                self._wait()
            self.running = False
        self._socket.close()
        os.close(self._pidfd)
        self._know(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError("a reaper serves the process that made it, not one forked from it")

    def _send(self, message: bytes, descriptors: Iterable[int]) -> None:
        # If the reaper has ended, `read` says so.
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._socket, [message], list(descriptors))

    def _event(self, message: bytes) -> Event:
        kind, number = struct.unpack_from("=Ii", message)
        event: Event
        match kind:
            case 1:
                self._know(number)
                return Started(number)
            case 4:
                return Stuck(tuple(array.array("i", message[4:])))
            case 5:
                return Swept(number)
            case 2:
                event = NotStarted(number, _STAGES[struct.unpack_from("=I", message, 8)[0]])
            case 3:
                status, cause, leftovers, max_rss, cpu_ns, preemptions, ns = _EXITED.unpack_from(message, 4)
                event = Exited(status, _CAUSES[cause], leftovers, max_rss, cpu_ns, preemptions, ns * 1e-9)
            case _:
                raise ValueError(f"no message of a reaper begins with {kind}")
        self.running = False
        self._know(0)
        return event

    def _end(self) -> Lost:
        self._lost = True
        # It has closed its end because it is about to exit; or it was only cut off, and stays.
        if not self._poll(_EXIT_SECONDS):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._wait()
        if self.running and self._command >= 0:
            # The kernel has killed the command; what it had started in its group has nobody else to do it.
            kill_group(self._command, self._command_pid)
        self.running = False
        return Lost(self._status)

    def _know(self, pid: int) -> None:
        """Note the number of the command, 0 as long as there is none, and get a descriptor of it."""
        command, self._command, self._command_pid = self._command, -1, pid
        if command >= 0:
            os.close(command)
        if pid:
            self._command = open_child(pid, self.pid)

    def _ends_within(self, seconds: float) -> bool:
        now = time.monotonic()
        rescue, end = now + seconds / 2, now + seconds
        while not self._poll(max(0, min(_LOOK_SECONDS, end - now))):
            now = time.monotonic()
            if now >= end:
                return False
            if now >= rescue or self.stopped():
                self.rescue()
        return True

    def _poll(self, seconds: float) -> bool:
        """Wait for the end of the reaper; return whether it has ended."""
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        return bool(ended.poll(seconds * 1000))

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
    try:
        here = os.getcwdb()
    except FileNotFoundError:
        here = b"."  # it was removed: then the reaper, which is still in it, stays there
    words.append(here if cwd is None else os.path.join(here, os.fsencode(cwd)))
    for word in words:
        if b"\0" in word:
            raise ValueError(f"the words of a command must not hold null characters, got {word!r}")
    return b"\0".join(words) + b"\0"
