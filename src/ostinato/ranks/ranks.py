"""The ranks that run a program together, and the messages between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ostinato import _core
from ostinato.arguments import integer
from ostinato.environment import usable_cores, use_cores
from ostinato.errors import GraphError
from ostinato.graph.arrays import as_ndarray
from ostinato.graph.capture import current_graph
from ostinato.graph.messages import message_body
from ostinato.graph.ring import AbstractArray
from ostinato.graph.tracer import untrace
from ostinato.ranks.agreement import Agreement, JudgeFailure
from ostinato.ranks.array import DistributedArray
from ostinato.ranks.channels import Common, End, find_mismatch
from ostinato.ranks.fold import record_fold
from ostinato.ranks.host import Host, Inbox
from ostinato.ranks.launch import abort_on_uncaught, check_communicator, find_mpi, lost_rank, open_messenger
from ostinato.text import brief

if TYPE_CHECKING:
    from ostinato.graph.graph import Graph
    from ostinato.graph.op import Op

TransportName: TypeAlias = Literal["auto", "mpi", "shared"]
Progress: TypeAlias = Literal["workers", "thread"]
Combination: TypeAlias = "Literal['sum', 'prod', 'min', 'max'] | Callable[[Any, Any], Any]"
"""How `Ranks.allreduce` combines two elements."""

_REDUCE = {"sum": "+", "prod": "*", "min": "min", "max": "max"}


class Ranks:
    """The processes that run a program together: the ranks of an MPI communicator, or this process alone.

    Every rank makes one, at the same place of the program. Without mpi4py, and without a launcher that has started
    several processes, there is one rank.

    Parameters
    ----------
    comm
        A communicator of mpi4py; None for ``MPI.COMM_WORLD``. Messages go over a duplicate of it.
    transport
        What carries messages. ``"mpi"``: the MPI library. ``"shared"``: memory that all ranks have in common; they
        must be on one host. ``"auto"``: such memory between ranks of one host, and the MPI library between others.
    progress
        ``"workers"``: threads of the machine that have nothing to do look for messages, and a thread of its own where
        all are busy. ``"thread"``: that thread alone.

    Raises
    ------
    ValueError
        `transport` or `progress` is none of these, or `transport` is ``"shared"`` and ranks are on several hosts.
    RuntimeError
        A launcher started several ranks, but MPI knows of one. Or MPI was initialised without threads.
    ImportError
        A launcher started several ranks, but mpi4py is missing.

    Examples
    --------
    >>> import ostinato as ost
    >>> ranks = ost.Ranks()
    >>> ranks.rank, ranks.size
    (0, 1)
    >>> ranks.beside(1) is None
    True
    """

    def __init__(self, comm: Any = None, *, transport: TransportName = "auto", progress: Progress = "workers") -> None:
        if transport not in ("auto", "mpi", "shared"):
            raise ValueError(f"transport must be 'auto', 'mpi' or 'shared', got {brief(transport)}")
        if progress not in ("workers", "thread"):
            raise ValueError(f"progress must be 'workers' or 'thread', got {brief(progress)}")
        self._comm: Any = None  # kept, since messages go over it
        self._host: Host | None = None
        self._transport = transport
        MPI = find_mpi()
        if MPI is None:
            if comm is not None:
                raise TypeError(f"comm must be None where mpi4py cannot be used, got {brief(comm)}")
        else:
            comm = MPI.COMM_WORLD if comm is None else comm
            check_communicator(MPI, comm)
            if comm.Get_size() > 1:
                self._comm = comm.Dup()
                processes = self._share_host(MPI, transport)
        if self._comm is None:
            self._open(_core.messages.messenger_to_itself(), 0, 1, progress)
        else:
            assert MPI is not None
            messenger = open_messenger(MPI, self._comm)
            for other, descriptor in processes.items():
                messenger.watch_process(other, descriptor)
            most_tag, judge = self._comm.Get_attr(MPI.TAG_UB), partial(lost_rank, MPI, self._comm)
            self._open(messenger, self._comm.Get_rank(), self._comm.Get_size(), progress, judge, most_tag)
            abort_on_uncaught(MPI)

    @classmethod
    def over(
        cls, messenger: _core.messages.Messenger, rank: int, size: int, judge_failure: JudgeFailure = lambda _: None
    ) -> Ranks:
        """Return a rank whose messages something else than MPI carries: for tests."""
        ranks = cls.__new__(cls)
        ranks._comm = ranks._host = None
        ranks._transport = "mpi"
        ranks._open(messenger, rank, size, "workers", judge_failure)
        return ranks

    def _open(
        self,
        messenger: _core.messages.Messenger,
        rank: int,
        size: int,
        progress: Progress,
        judge_failure: JudgeFailure = lambda _: None,
        most_tag: int = 2**15 - 1,
    ) -> None:
        self.messenger, self._rank, self._size = messenger, rank, size
        self.progress = progress
        messenger.by_workers = progress == "workers"
        self.agreement = Agreement(messenger, rank, size, most_tag, judge_failure) if size > 1 else None
        self._tag = 1  # of the next program's first channel; 0 is that of messages between threads

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._size

    def beside(self, offset: int) -> int | None:
        """Return the rank `offset` after this one, or None where there is none.

        Examples
        --------
        >>> import ostinato as ost
        >>> ost.Ranks().beside(0)
        0
        """
        there = self._rank + integer("offset", offset)
        return there if 0 <= there < self._size else None

    def send(self, array: Any, to: int | None) -> Op | None:
        """Record that an array is sent to another rank, in every step.

        The k-th send from a rank s to a rank t, in the program order of a step, matches the k-th `recv` from s on t;
        shape and dtype are the same on both sides. A send only starts the transfer, so the order of sends and receives
        in a step cannot deadlock. The array may be written as soon as the op is done.

        Parameters
        ----------
        array
            An array, an element of a ring, or a view of one. It is read.
        to
            The rank; None: nothing happens.

        Returns
        -------
        Op or None
            The op; None if `to` is None.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> ranks, a, b = ost.Ranks(), np.arange(3.0), np.zeros(3)
        >>> with ost.capture() as graph:
        ...     sent = ranks.send(a, to=0)
        ...     received = ranks.recv(b, source=0)
        >>> with graph.compile() as program:
        ...     program.replay()
        1
        >>> b
        array([0., 1., 2.])
        """
        return self._message(array, "to", to, sends=True)

    def recv(self, array: Any, source: int | None) -> Op | None:
        """Record that an array is received from another rank, in every step; see `send`.

        Parameters
        ----------
        array
            An array, an element of a ring, or a view of one. It is overwritten.
        source
            The rank; None: nothing happens.

        Returns
        -------
        Op or None
            The op, which is done when the array holds the message; None if `source` is None.
        """
        return self._message(array, "source", source, sends=False)

    def bcast(self, array: Any, root: int = 0) -> Op | None:
        """Record that an array of one rank overwrites that of every other rank, in every step.

        All ranks record it, in the same order beside other messages. It consists of sends and receives along a binomial
        tree.

        Parameters
        ----------
        array
            An array, an element of a ring, or a view of one; of the same shape and dtype on all ranks.
        root
            The rank whose array it is.

        Returns
        -------
        Op or None
            The last op that this rank records; None if there is one rank.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> ranks, a = ost.Ranks(), np.ones(3)
        >>> with ost.capture() as graph:
        ...     op = ranks.bcast(a, root=0)
        ...     filled = ost.fill(a, 2.0)
        """
        graph = self._graph("bcast")
        root = self._peer("root", root)
        last = self._bcast(graph, untrace(array), root, "bcast")
        if last is None:  # there is nothing to do, but a wrong argument is wrong all the same
            _check_array(array, "bcast")
        return last

    def allreduce(self, part: Any, out: Any, op: Combination) -> Op:
        """Record that arrays of all ranks are combined, element by element, into an array on each, in every step.

        All ranks record it, in the same order beside other messages. Elements are combined along a tree, whose form
        depends on the number of ranks, and so do the last bits of floating-point results. They are the same on all
        ranks.

        Parameters
        ----------
        part
            This rank's array. It is read.
        out
            An array of the same shape. It is overwritten.
        op
            ``"sum"``, ``"prod"``, ``"min"``, ``"max"``, or an associative function of two elements.

        Returns
        -------
        Op
            The last op that this rank records.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> ranks, part, total = ost.Ranks(), np.full(1, 2.0), np.zeros(1)
        >>> with ost.capture() as graph:
        ...     op = ranks.allreduce(part, total, "sum")
        >>> with graph.compile() as program:
        ...     program.replay()
        1
        >>> total
        array([2.])
        """
        graph = self._graph("allreduce")
        if isinstance(op, str) and op not in _REDUCE:
            raise ValueError(
                f"op of allreduce() must be one of {', '.join(map(repr, _REDUCE))} or a function, got {op!r}"
            )
        if not isinstance(op, str) and not callable(op):
            raise TypeError(
                f"op of allreduce() must be one of {', '.join(map(repr, _REDUCE))} or a function, got {brief(op)}"
            )
        part, out = untrace(part), untrace(out)
        mine, shared = _check_array(part, "allreduce"), _check_array(out, "allreduce")
        if mine.shape != shared.shape:
            raise GraphError(f"allreduce() needs arrays of one shape, but part is {mine.shape} and out {shared.shape}")
        last: Op = graph.copy(part, out, name="allreduce")
        reduce = _REDUCE[op] if isinstance(op, str) else op
        distance = 1  # between ranks that combine what those between them have combined
        while distance < self._size:
            if self._rank % (2 * distance):
                self._add(graph, out, self._rank - distance, "allreduce", sends=True)
                break
            if self._rank + distance < self._size:
                theirs = np.empty(shared.shape, shared.dtype)
                self._add(graph, theirs, self._rank + distance, "allreduce", sends=False)
                last = graph.copy(theirs, out, name="allreduce", reduce=cast(Any, reduce))
            distance *= 2
        sent = self._bcast(graph, out, 0, "allreduce")
        return last if sent is None else sent

    def array(
        self,
        shape: int | Sequence[int],
        dtype: npt.DTypeLike = float,
        *,
        tiles: int | Sequence[int] | None = None,
        owner: Callable[[tuple[int, ...]], int] | None = None,
    ) -> DistributedArray:
        """Return a new array of zeros that is spread over the ranks. All ranks call it, in the same order.

        A task may read all of it, and gets what it reads by messages. It writes what one rank owns, and runs there.

        Parameters
        ----------
        shape, dtype
            As for `numpy.zeros`.
        tiles
            How many tiles each axis is cut into; None for as many as there are elements.
        owner
            A function from the index of a tile, a tuple, to the rank that owns it. None: each rank owns a block of
            tiles.

        Raises
        ------
        ValueError
            There are more tiles than elements along an axis, or `owner` returns no rank.
        TypeError
            The elements are Python objects.

        Examples
        --------
        >>> import ostinato as ost
        >>> a = ost.Ranks().array((6, 6), tiles=(3, 2))
        >>> [tile.index for tile in a.tiles()]
        [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
        """
        return DistributedArray(self, shape, dtype, tiles, owner)

    def fold(self, parts: Any, out: Any, op: Combination) -> Op:
        """Record that the elements of a distributed array are combined to one, which all ranks get, in every step.

        They are combined in row-major order, from the first one on, so the result is the same bit for bit on any number
        of ranks; `numpy.sum` adds in another order. All ranks record it.

        Parameters
        ----------
        parts
            A distributed array, an element of a ring of such, or a slice; it may also be a NumPy array. It is read.
        out
            A NumPy array of one element. It is overwritten.
        op
            ``"sum"``, ``"prod"``, ``"min"``, ``"max"``, or a function of two elements.

        Returns
        -------
        Op
            The op that combines.

        Examples
        --------
        >>> import numpy as np, ostinato as ost
        >>> ranks = ost.Ranks()
        >>> parts, total = ranks.array(4), np.zeros(1)
        >>> parts.set([1.0, 2.0, 3.0, 4.0])
        >>> with ost.capture() as graph:
        ...     op = ranks.fold(parts, total, "sum")
        >>> with graph.compile() as program:
        ...     program.replay()
        1
        >>> total
        array([10.])
        """
        graph = self._graph("fold")
        return record_fold(graph, untrace(parts), untrace(out), op)

    def part(self) -> AbstractContextManager[None]:
        """Do this rank's part in what all ranks do: if it raises, the other ranks do not wait for it."""
        return nullcontext() if self.agreement is None else self.agreement.part()

    def open_channels(self, ends: Sequence[End], common: Common, traffic: _core.messages.Traffic) -> None:
        """Open a program's channels; raise `GraphError` if ranks' programs do not fit together."""
        if self.agreement is None:
            mismatch = find_mismatch([ends])
            if mismatch:
                raise GraphError(mismatch)
            traffic.first_tag, self._tag = self._tag, self._tag + len(ends)
            return
        inbox = self._prepare(traffic)
        try:
            agreed = self.agreement.compile(ends, common, None if inbox is None else inbox.slots)
            traffic.first_tag = agreed.tag
            if agreed.opens:
                if self._host is not None:
                    self._host.open(traffic.channels(), self._rank, agreed.slots)
                self.agreement.open()
        finally:
            if inbox is not None:
                inbox.close()

    def _prepare(self, traffic: _core.messages.Traffic) -> Inbox | None:
        if self._host is None:
            return None
        return self._host.prepare(traffic.channels(), self._transport == "shared")

    def _share_host(self, MPI: Any, transport: TransportName) -> dict[int, int]:
        """Find the ranks of this host, and share out its cores; return descriptors of the other ranks' processes."""
        host = Host(MPI, self._comm, transport != "mpi")
        share = host.split_cores(usable_cores())
        host.leave()
        try:
            self._check_transport(transport, host)
        except BaseException:
            for descriptor in host.processes.values():
                os.close(descriptor)
            raise
        if host.ranks:
            self._host = host
        if share is not None:
            use_cores(*share)
        return host.processes

    def _check_transport(self, transport: TransportName, host: Host) -> None:
        told = self._comm.allgather((transport, len(host.ranks)))
        names, near = [name for name, _ in told], [count for _, count in told]
        other = next((rank for rank, name in enumerate(names) if name != names[0]), None)
        if other is not None:
            raise ValueError(
                f"transport must be the same on all ranks, got {names[0]!r} on rank 0 and {names[other]!r} on rank "
                f"{other}"
            )
        if transport == "shared" and min(near) < len(near) - 1:
            raise ValueError(
                f"transport='shared' must be used where all ranks can share memory, but rank {near.index(min(near))} "
                f"can with {min(near)} of {len(near) - 1} others; leave it at 'auto'"
            )

    def __repr__(self) -> str:
        return f"<Ranks: rank {self._rank} of {self._size}>"

    def _message(self, array: Any, argument: str, value: int | None, *, sends: bool) -> Op | None:
        method = "send" if sends else "recv"
        graph = self._graph(method)
        if value is None:
            _check_array(array, method)
            return None
        return self._add(graph, untrace(array), self._peer(argument, value), method, sends=sends)

    def _add(self, graph: Graph, array: Any, peer: int, name: str, *, sends: bool) -> Op:
        return graph.add_op(partial(message_body, array=array, peer=peer, group=self, sends=sends), name)

    def _bcast(self, graph: Graph, array: Any, root: int, name: str) -> Op | None:
        """Record a binomial tree, in which ranks are counted from the root on."""
        place = (self._rank - root) % self._size
        last, distance = None, 1
        while distance < self._size:
            distance *= 2
        while distance > 1:
            distance //= 2
            if place % (2 * distance) == distance:
                last = self._add(graph, array, (self._rank - distance) % self._size, name, sends=False)
            elif place % (2 * distance) == 0 and place + distance < self._size:
                last = self._add(graph, array, (self._rank + distance) % self._size, name, sends=True)
        return last

    def _graph(self, method: str) -> Graph:
        try:
            graph: Graph = current_graph()
        except RuntimeError:
            raise RuntimeError(
                f"{method}() records a message of every step: call it inside capture(), or in a function given to "
                "ostinato.compile"
            ) from None
        graph.join(self)
        return graph

    def _peer(self, argument: str, value: object) -> int:
        return integer(argument, value, 0, self._size - 1)


def _check_array(array: Any, method: str) -> Any:
    """Return what has the shape and the dtype of an array; raise `TypeError` if it is none."""
    found = array if isinstance(array, AbstractArray) else as_ndarray(array)
    if found is None:
        raise TypeError(f"the array of {method}() must be an array or an element of a ring, got {brief(array)}")
    return found
