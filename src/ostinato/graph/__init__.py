"""What the user writes: tasks, what they access, and the graph of one step."""

from ostinato.graph.access import Read, ReadWrite, Write
from ostinato.graph.capture import capture, copy, current_graph, fill, param, until
from ostinato.graph.containers import token
from ostinato.graph.graph import Graph
from ostinato.graph.kernel import kernel
from ostinato.graph.native import native
from ostinato.graph.op import Op, previous
from ostinato.graph.param import STEP as step
from ostinato.graph.ring import ring
from ostinato.graph.task import task

__all__ = [
    "Graph",
    "Op",
    "Read",
    "ReadWrite",
    "Write",
    "capture",
    "copy",
    "current_graph",
    "fill",
    "kernel",
    "native",
    "param",
    "previous",
    "ring",
    "step",
    "task",
    "token",
    "until",
]
