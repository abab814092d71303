"""A pass: of the operations of a step, those that this rank runs, and the messages that these and other ranks need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ostinato.compiler.flatten import Flat, Inference, Triple
from ostinato.compiler.ir import Node
from ostinato.compiler.ranks.plan import EVERYWHERE, Plan, Transfer, plan
from ostinato.errors import GraphError
from ostinato.graph.arrays import READ, WRITE, Array, Operand
from ostinato.graph.body import Body, Copy
from ostinato.graph.messages import Message, Receive, Send

if TYPE_CHECKING:
    from ostinato.graph.messages import Group
    from ostinato.graph.op import Op

_ALIGNMENT = 16  # bytes; of pieces in a message


def distribute(flat: Flat, group: Group | None) -> Flat:
    """Return what one rank does in a step; a step without ranks as it is."""
    if group is None:
        return flat
    found = plan(flat.ops, group.rank, group.size)
    bound = any(isinstance(op.on, str) and op.on.startswith("rank:") for op in flat.ops)
    if not bound and not found.transfers and all(map(found.runs, range(len(flat.ops)))):
        return flat._replace(common=found.common)
    if found.transfers and not flat.inferences:
        raise GraphError(
            "messages between ranks follow from what operations access, so a graph with distributed arrays must be "
            "made with infer=True"
        )
    return _Rewriting(flat, group, found).flat()


class _Rewriting:
    """Makes the nodes of one rank, and gives edges and ranges their new indices."""

    def __init__(self, flat: Flat, group: Group, found: Plan) -> None:
        self._flat, self._group, self._plan = flat, group, found
        self._nodes: list[Op] = []
        self._edges: list[Triple] = []
        self._begin: list[int] = []  # by op, the first node that is made for it
        self._own: list[int] = []  # the node that it is itself; -1 if another rank runs it
        self._outer: list[int] = []

    def flat(self) -> Flat:
        """Return the step."""
        flat, transfers, n = self._flat, list(self._plan.transfers), len(self._flat.ops)
        leaving, coming = self._far_edges()
        for index, op in enumerate(flat.ops):
            self._begin.append(len(self._nodes))
            while transfers and (transfers[0].at, transfers[0].behind) <= (index, False):
                self._add_transfer(transfers.pop(0), op)
            tokens = [self._add_token(op, source, self._group.rank) for source, _ in coming.get(index, ())]
            self._own.append(-1)
            if self._plan.runs(index):
                self._own[index] = len(self._nodes)
                node = Node(op, len(self._nodes))
                if self._plan.where[index] != EVERYWHERE and isinstance(op.on, str) and op.on.startswith("rank:"):
                    node.on = None
                self._nodes.append(node)
                pairs = zip(tokens, coming.get(index, ()), strict=True)
                self._edges += [(token, node.index, distance) for token, (_, distance) in pairs]
            for target in leaving.get(index, ()):
                self._edges.append((self._own[index], self._add_token(op, self._group.rank, target), 0))
            while transfers and transfers[0].at == index:
                self._add_transfer(transfers.pop(0), op)
            self._outer += [index if flat.outer is None else flat.outer[index]] * (len(self._nodes) - len(self._outer))
        self._begin.append(len(self._nodes))
        return Flat(
            tuple(self._nodes),
            self._edges + list(self._moved(flat.explicit_edges)),
            flat.params,
            flat.serial,
            tuple(map(self._moved_inference, flat.inferences)),
            list(self._moved(flat.step_order)),
            self._outer if flat.outer is not None or len(self._nodes) != n else None,
            self._plan.common,
        )

    def _add(self, op: Op, name: str, body: Body, operands: tuple[Operand, ...]) -> int:
        node = Node.added(op, len(self._nodes), name, body)
        node.operands = operands
        self._nodes.append(node)
        return node.index

    def _add_message(self, op: Op, source: int, target: int, operand: Operand) -> int:
        if source == self._group.rank:
            return self._add(op, f"send to rank {target}", Send(operand, target, self._group), (operand,))
        return self._add(op, f"receive from rank {source}", Receive(operand, source, self._group), (operand,))

    def _add_transfer(self, transfer: Transfer, op: Op) -> None:
        sends = transfer.source == self._group.rank
        operands = [piece.operand(READ if sends else WRITE) for piece in transfer.pieces]
        if len(operands) == 1:
            self._add_message(op, transfer.source, transfer.target, operands[0])
            return
        message, parts = _packed([each.arrays[0] for each in operands])
        modes = (WRITE, READ) if sends else (READ, WRITE)
        staged = [Operand(part, part, None, modes[0]) for part in parts]
        if not sends:
            self._add_message(op, transfer.source, transfer.target, Operand(message, message, None, WRITE))
        for here, there in zip(operands, staged, strict=True):
            source, target = (here, there) if sends else (there, here)
            self._add(op, "pack" if sends else "unpack", Copy(source, target), (source, target))
        if sends:
            self._add_message(op, transfer.source, transfer.target, Operand(message, message, None, READ))

    def _add_token(self, op: Op, source: int, target: int) -> int:
        """Add a message that says nothing but that an operation is done."""
        token = np.zeros(1, np.uint8)
        mode = READ if source == self._group.rank else WRITE
        return self._add_message(op, source, target, Operand(token, token, None, mode))

    def _far_edges(self) -> tuple[dict[int, list[int]], dict[int, list[tuple[int, int]]]]:
        """Return edges that were given between ranks: by operation, where they go; and where they come from, and their
        distance. Those between operations that all ranks run are edges on each rank.
        """
        where, here = self._plan.where, self._group.rank
        leaving: dict[int, list[int]] = {}
        coming: dict[int, list[tuple[int, int]]] = {}
        for src, dst, distance in sorted(self._flat.explicit_edges):
            source, target = where[src], where[dst]
            if source in (EVERYWHERE, target) or isinstance(self._flat.ops[src].body, Message):
                continue
            targets = range(self._group.size) if target == EVERYWHERE else (target,)
            for each in targets:
                if each == source:
                    continue
                if distance == 0 and dst < src:
                    raise GraphError(
                        f"{self._flat.ops[dst].name!r} comes after {self._flat.ops[src].name!r}, which is recorded "
                        "later and runs on another rank; record them in the order in which they run"
                    )
                if source == here:
                    leaving.setdefault(src, []).append(each)
                elif each == here:
                    coming.setdefault(dst, []).append((source, distance))
        return leaving, coming

    def _moved(self, edges: Sequence[Triple]) -> Iterator[Triple]:
        """Yield the edges between operations that this rank runs."""
        for src, dst, distance in edges:
            if self._own[src] >= 0 and self._own[dst] >= 0:
                yield self._own[src], self._own[dst], distance

    def _moved_inference(self, inference: Inference) -> Inference:
        apart = tuple([(self._begin[low], self._begin[high]) for low, high in inference.apart])
        for low, high in inference.apart:
            for transfer in self._plan.transfers:
                if low <= transfer.at < high:
                    op = self._flat.ops[transfer.at]
                    raise GraphError(
                        f"{op.name!r} at {op.call_site} is in a nested graph made with infer=False, and needs what "
                        "another rank has; messages between ranks follow from accesses: make that graph with infer=True"
                    )
        return Inference(self._begin[inference.low], self._begin[inference.high], apart)


def _packed(arrays: Sequence[Array]) -> tuple[Array, list[Array]]:
    """Return memory for a message, and in it an array of the shape and dtype of each piece."""
    offsets, end = [], 0
    for array in arrays:
        offsets.append(end)
        end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    message = np.zeros(end, np.uint8)
    parts = [
        message[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)
        for offset, array in zip(offsets, arrays, strict=True)
    ]
    return message, parts
