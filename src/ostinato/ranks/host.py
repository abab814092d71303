"""The ranks of one host: the memory through which they exchange messages, and the cores that they share out."""

from __future__ import annotations

import logging
import os
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ostinato.environment import spare_memory
from ostinato.text import counted

if TYPE_CHECKING:
    from types import ModuleType

    from ostinato import _core

_log = logging.getLogger("ostinato")
_TOKEN_BYTES = 16

_MOST_CHANNELS = 2**14
"""At most so many channels of a program on one rank share memory: each is a mapping, and a process may have 65530."""


class Slots(NamedTuple):
    """Memory for the messages that a rank receives from others of its host, in one program."""

    path: str
    """Of a file without a name, as the process that made it has it open."""
    inode: int
    """Of that file, since the process may have closed it and opened another one."""
    offsets: Mapping[int, int]
    """Where the channels from a rank begin; they follow each other in program order."""


class Inbox:
    """The file that a rank has for the messages it receives, until the senders have opened it."""

    def __init__(self, size: int, offsets: Mapping[int, int]) -> None:
        self.file = os.memfd_create("ostinato-messages", os.MFD_CLOEXEC)
        self.slots = Slots(f"/proc/{os.getpid()}/fd/{self.file}", os.fstat(self.file).st_ino, offsets)
        try:
            available = spare_memory()
            if available is not None and size > available:
                raise MemoryError(f"{available} bytes are available")
            os.posix_fallocate(self.file, 0, size)  # pages that come to lack later would end the process
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file; what is mapped stays."""
        os.close(self.file)


class Host:
    """The ranks of this host. All ranks of a communicator make one, and all methods but `prepare` and `open`, together.

    Parameters
    ----------
    comm
        A communicator of mpi4py.
    shares
        Whether this rank exchanges messages through memory.
    """

    def __init__(self, MPI: ModuleType, comm: Any, shares: bool) -> None:
        self._node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        rank, pid, token = comm.Get_rank(), os.getpid(), os.urandom(_TOKEN_BYTES)
        file = -1
        self.processes: dict[int, int] = {}
        """By rank, descriptors of the processes of other ranks, where the kernel gives them."""
        try:
            with suppress(OSError):  # refused, or too many files are open: MPI carries the messages
                file = os.memfd_create("ostinato-token", os.MFD_CLOEXEC)
                os.write(file, token)
            told = self._node.allgather((rank, pid, file, token))
            # A number can mean another process here, if ranks are in containers of their own.
            read = {
                other: number
                for other, number, theirs, wanted in told
                if file >= 0 and other != rank and _read(f"/proc/{number}/fd/{theirs}") == wanted
            }
            with suppress(OSError):
                for other, number in read.items():
                    self.processes[other] = os.pidfd_open(number)  # it runs: its part in the next call is to come
            readers = self._node.allgather(set(read))  # after that, no rank reads this token any more
        finally:
            if file >= 0:
                os.close(file)
        self.ranks = frozenset(
            other
            for (other, *_), theirs in zip(told, readers, strict=True)
            if shares and other in read and rank in theirs
        )
        """The other ranks with which this one can share memory."""

    def split_cores(self, cores: Sequence[int]) -> tuple[list[int], bool] | None:
        """Return the cores that this rank should use, and whether another rank uses them too.

        It shares out its cores with the ranks that may use the same ones. None if there is no other.
        """
        masks, own = self._node.allgather(tuple(cores)), self._node.Get_rank()
        same = [rank for rank, mask in enumerate(masks) if mask == masks[own]]
        count, place = len(same), same.index(own)
        if count == 1:
            return None
        if len(cores) < count:
            return [cores[place % len(cores)]], True
        return list(cores[place * len(cores) // count : (place + 1) * len(cores) // count]), False

    def leave(self) -> None:
        """Free the communicator."""
        self._node.Free()

    def prepare(self, channels: Sequence[_core.messages.Channel], must: bool) -> Inbox | None:
        """Have the channels from ranks of this host in new memory.

        Returns None if there are none. If there is not enough memory, raises `MemoryError` if it `must` be so, and else
        returns None: the transport carries these messages.
        """
        sizes: Counter[int] = Counter()
        for each in channels:
            if not each.sends and each.peer in self.ranks:
                sizes[each.peer] += each.shared_bytes
        if not sizes:
            return None
        near = sum(each.peer in self.ranks for each in channels)
        if near > _MOST_CHANNELS:
            told = f"a rank can share memory for at most {_MOST_CHANNELS} channels of a program, got {near}"
            if must:
                raise MemoryError(f"{told}; use transport='auto', or fewer, larger messages")
            _log.warning("%s: MPI carries the messages", told)
            return None
        offsets, size = {}, 0
        for peer in sorted(sizes):
            offsets[peer], size = size, size + sizes[peer]
        try:
            inbox = Inbox(size, offsets)
        except (OSError, MemoryError) as error:
            told = f"{counted(size, 'byte')} of memory for the messages of a program cannot be shared between ranks"
            if must:
                raise MemoryError(f"{told}: {error}; use transport='auto', or smaller messages") from error
            _log.warning("%s: %s; MPI carries them", told, error)
            return None
        try:
            _share(channels, False, inbox.file, offsets)
        except BaseException:
            inbox.close()
            raise
        return inbox

    def open(self, channels: Sequence[_core.messages.Channel], rank: int, others: Mapping[int, Slots]) -> None:
        """Have the channels to ranks of this host, those of `others`, in their memory; this is `rank`."""
        for peer, slots in others.items():
            file = os.open(slots.path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                if os.fstat(file).st_ino != slots.inode:
                    raise RuntimeError(f"rank {peer} does not open the channels of this program any more")
                _share(channels, True, file, {peer: slots.offsets[rank]})
            finally:
                os.close(file)


def _share(channels: Sequence[_core.messages.Channel], sends: bool, file: int, offsets: Mapping[int, int]) -> None:
    ends = dict(offsets)
    for each in sorted(channels, key=lambda each: each.number):
        if each.sends == sends and each.peer in ends:
            each.share(file, ends[each.peer])
            ends[each.peer] += each.shared_bytes


def _read(path: str) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # another process's pipe: to read would wait, and take from it
            return b""
        with open(path, "rb") as file:
            return file.read(_TOKEN_BYTES)
    except OSError:  # the process is in another container, or belongs to another user
        return b""
