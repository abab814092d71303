"""The replay core. Private: its names change without notice."""

from collections.abc import Sequence
import enum
import types
from typing import Annotated, Any

import numpy
from numpy.typing import NDArray

from ostinato._core import (
    devices as devices,
    messages as messages,
    passes as passes
)


class Kind(enum.IntEnum):
    """How lanes run an operation."""

    NOTHING = 0

    NATIVE = 1

    PYTHON = 2

    UNTIL = 3

    EXTERNAL = 4
    """Another thread or a device does it."""

    PRECONDITION = 5
    """External, in a run's first step only."""

    POSTCONDITION = 6
    """External, in a run's last step only."""

    DEVICE = 7
    """The lane enqueues it on its stream."""

class Schedule:
    """Lanes, their order and their waits."""

    @staticmethod
    def build(lane_begin: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], lane_ops: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], affinity: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], pinned: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], kind: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], wait_begin: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], wait_op: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], wait_distance: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], published: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], pred_begin: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], pred_op: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], pred_distance: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], periods: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], until_op: int, until_every: int, largest_distance: int, n_posts: int, n_holdings: int, unrolled: int = 1) -> Schedule: ...

    @property
    def window(self) -> int:
        """No lane gets so many steps ahead of another."""

def call_native(address: int, user: int, arrays: Sequence, scalars: Sequence, step: int = 0) -> int:
    """Call a native task now, without the GIL, and return its code."""

class KernelCalls:
    """The compiled functions of a kernel, by the types of its arguments."""

    def __init__(self, kinds: tuple) -> None: ...

    def add(self, types: tuple, address: int) -> None: ...

def prepare_calls(recording: object, ndarray: object, plain: tuple) -> None:
    """Say what calls outside captures look for; before the first of them."""

call_task: types.MethodDescriptorType = ...

call_native_task: types.MethodDescriptorType = ...

call_kernel: types.MethodDescriptorType = ...

def prepare_recording(operand: object, op: object, native_call: object, python_call: object, plain: tuple, site_of: object) -> None:
    """
    Say which classes recorded calls are made of; before the first of them.
    """

class CallRecorder:
    """Records calls of tasks as ops of one graph."""

    def __init__(self, graph: object, ops: list) -> None: ...

    def find(self, value: object, mode: int) -> Any:
        """
        The operand that exists for what the user passed, with this access; None where there is none.
        """

    def keep(self, value: object | None, mode: int, operand: object) -> None:
        """Let `find` find an operand."""

    def begin(self, held: dict, views: list) -> None:
        """
        Record the calls of this thread, in a capture whose guard has these tables.
        """

    def end(self) -> None:
        """End what `begin` began, and forget all operands."""

    def record(self, task: object, args: tuple, frame: object) -> Any:
        """
        The op that records a call made in `frame`; None where Python must look at the call.
        """

    def bind(self, args: tuple, kinds: tuple, native: bool) -> tuple[tuple, tuple] | None:
        """
        The arguments and the operands of a call, or None where Python must look at them.

        By argument, `kinds` has the access of an array, 0 for a plain value, or the type of a number. A `native` call needs arrays that C code can read.
        """

    def site_of(self, frame: object) -> Any:
        """Where the call that runs in `frame` is in the user's code."""

def make_writable(arrays: object) -> None:
    """Make arrays writable; leave those that NumPy refuses to make so."""

def issues_for(low: int, high: int) -> bool:
    """
    Whether this thread is in a task that puts work on a stream, of a program that works on memory of devices that some of these addresses stand for.
    """

class Plan:
    """What the operations of a schedule call, on which arrays."""

    @staticmethod
    def build(schedule: Schedule, function: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], user: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], table_begin: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], table: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], n_arrays: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], period_class: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], views: list, scalar_begin: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], n_scalars: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], scalars: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], value_op: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value_slot: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], value_index: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], step_op: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], step_slot: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], python: list, external: list, device: list = [], write_back: list = [], fenced: bool = False, memory: list = []) -> Plan: ...

    def copy(self) -> Plan:
        """Another, to be used at the same time, on the same arrays."""

    @property
    def segments(self) -> list:
        """
        What of its work for devices can be captured: device, operations, how often, how often it was, why it was not, and the operation of which that is told, or -1.
        """

def builtin_task(name: str) -> int:
    """
    The address of a native task of the compiler's own: 'copy', 'fill' or 'until'.
    """

class Event:
    """Something that happens once, or is poisoned."""

    def __init__(self) -> None: ...

    @property
    def done(self) -> bool: ...

    @property
    def poisoned(self) -> bool: ...

    def trigger(self) -> bool: ...

    def poison(self, reason: object | None) -> bool: ...

    def wait(self, timeout: float) -> bool:
        """Whether it has happened within so many seconds; negative: no limit."""

    @staticmethod
    def check_wait() -> None: ...

    def call_back(self, function: object) -> bool:
        """Have it called when the event happens; false when it has."""

    def withdraw(self, function: object) -> None:
        """Do not have it called after all."""

    def retrieve(self) -> None:
        """The user is told of its poison."""

    @property
    def reason(self) -> object:
        """The exception it was poisoned with, or None."""

    @property
    def origin(self) -> object:
        """
        A function that returns the exception that what it stands for ended with, or None.
        """

    @staticmethod
    def merge(events: Sequence[Event], ignore_poison: bool) -> Event: ...

class Barrier:
    """Phases, each complete when so many arrivals have been made."""

    def __init__(self, arrivals: int, combine: object | None) -> None: ...

    @property
    def arrivals(self) -> int: ...

    @property
    def phase(self) -> int: ...

    def left(self, phase: int) -> int: ...

    def promise(self, count: int) -> int | None:
        """
        So many arrivals in the present phase, which is returned; None when they are too many.
        """

    def keep(self, phase: int, count: int) -> None: ...

    def keep_with_value(self, phase: int, count: int, value: object | None) -> None: ...

    def withdraw(self, phase: int, count: int) -> None: ...

    def arrive_after(self, after: Event, count: int) -> bool: ...

    def event(self, phase: int) -> Event: ...

class Reservation:
    """A lock that is granted by events."""

    def __init__(self) -> None: ...

    def acquire(self, exclusive: bool, after: Event | None) -> Event: ...

    def release(self, after: Event | None) -> bool: ...

    @property
    def holders(self) -> int: ...

    @property
    def waiting(self) -> int: ...

class Run:
    """Some steps of a program, submitted together."""

    def wait(self, timeout: float) -> bool: ...

    def cancel(self) -> bool: ...

    def interrupt(self) -> None:
        """
        Raise KeyboardInterrupt inside its Python tasks that run on other threads.
        """

    def halt(self, cancels: bool) -> int:
        """
        Let no further step begin until `settle`; return how many have begun on this rank.
        """

    def settle(self, steps: int) -> None:
        """All ranks run so many steps."""

    def agree(self, failed_elsewhere: bool) -> None:
        """All ranks have left it."""

    @property
    def sequence(self) -> int:
        """
        Which of the things that all ranks do together it is; 0: it is this rank's alone.
        """

    @sequence.setter
    def sequence(self, arg: int, /) -> None: ...

    @property
    def limit(self) -> int:
        """The number of steps, or the most that there will be."""

    @property
    def cut(self) -> int:
        """
        The number of steps that were run to their end, once all lanes have left it.
        """

    @property
    def disagreed(self) -> bool:
        """Whether until() would have ended it before other ranks did."""

    def failures(self) -> tuple: ...

    def deliver(self) -> None: ...

    def retrieve(self) -> None: ...

    @property
    def settled(self) -> bool:
        """Whether it has ended, and nobody need be told how."""

    @property
    def unretrieved(self) -> bool:
        """Whether it has failed and the user was not told."""

    def forget(self) -> None: ...

    def set_callback(self, function: object) -> bool: ...

    def trace_records(self) -> list: ...

    @property
    def submitted(self) -> int: ...

    @property
    def written_back(self) -> int: ...

    def stuck(self) -> list: ...

    @property
    def done(self) -> bool: ...

    @property
    def begun(self) -> bool: ...

    @property
    def cancelled(self) -> bool: ...

    @property
    def poisoned(self) -> bool: ...

    @property
    def good(self) -> bool:
        """Whether it has ended as it should."""

    @property
    def met(self) -> bool:
        """Whether until() has ended it, be it after all the steps asked for."""

    @property
    def affinities(self) -> list[int]:
        """The slot that each lane of its program is with affinity on."""

    @property
    def steps(self) -> int: ...

    @property
    def requested(self) -> int: ...

    @property
    def poisoned_by(self) -> Event | None: ...

    def end(self, origin: object) -> Event:
        """
        The event of its end; `origin` is called to explain it if it is poisoned.
        """

    def post(self, index: int, origin: object) -> Event:
        """The event of a postcondition, by number."""

    @property
    def skipped_for(self) -> Run | None:
        """The earlier run whose failure is why operations of this were skipped."""

class Machine:
    """Slots and their threads."""

    def __init__(self, cores: Sequence[int], crowded: bool, init: object | None, watched: bool = False) -> None: ...

    def close(self) -> None: ...

    def in_flight(self) -> list: ...

    def activity(self) -> tuple:
        """
        Of one that is watched: the time now, how long each slot has been idle, both in ns, how many steps it has run, and how many runs and spawned calls are in flight.
        """

    @property
    def forked(self) -> bool: ...

    @property
    def lanes_looked_at(self) -> int:
        """
        How many lanes threads have looked at to know which programs have work.
        """

class Caller:
    """A thread that takes part in several runs; used by no other."""

    def __init__(self, machine: Machine) -> None: ...

    def leave(self) -> None: ...

class Program:
    """A schedule with its lanes and its queue of runs."""

    def __init__(self, machine: Machine, schedule: Schedule, plan: Plan, runs: str) -> None: ...

    @property
    def in_own_task(self) -> bool:
        """
        Whether the calling thread is in a task of this program that may block.
        """

    @property
    def idle(self) -> bool: ...

    def join(self, traffic: messages.Traffic) -> None:
        """Let other ranks take part in its runs."""

    def follow(self, run: Run) -> object:
        """Take part until a run is done; as replay, of a run that was submitted."""

    def make_passive(self) -> None:
        """Take no runs until it takes over."""

    def switch_from(self, other: Program) -> bool:
        """
        Go on where another program of the same operations stands, if both are idle.
        """

    def hold(self) -> bool:
        """Let all but the parts of one run wait; false while runs are in flight."""

    def release(self) -> None:
        """End that."""

    def advance(self, step: int) -> None:
        """While it is held: another program has run the steps up to this one."""

    def skip_held(self, failed: Run) -> None:
        """
        End what is held without a step, since a run of such a program has failed.
        """

    def begin_turn(self, steps: int, timed: bool) -> None:
        """Let threads wait for runs of so many steps in all."""

    @property
    def turn(self) -> tuple:
        """
        Of the present turn: steps left, steps done, ns that they took, whether other runs came between.
        """

    @property
    def takes_runs(self) -> bool: ...

    @property
    def steps_run(self) -> int: ...

    def number_from(self, step: int) -> bool:
        """Give the next step this number; false while runs are in flight."""

    def rebind(self, plan: Plan) -> None: ...

    def refuse_runs(self) -> None: ...

    def in_flight(self) -> list: ...

    def close(self) -> None: ...

    def statistics(self) -> dict: ...

    def replay(self, steps: int, priority: int, stop_on_error: bool, values: object | None, objects: object | None, given: object | None, traced: bool) -> object:
        """
        Take part until the run is done; None where another program has taken over, or the turn is too short.
        """

    def replay_as_run(self, steps: int, priority: int, stop_on_error: bool, values: object | None, objects: object | None, given: object | None, traced: bool) -> object:
        """As replay, but the run however it ends."""

    def submit(self, steps: int, priority: int, stop_on_error: bool, values: object | None, objects: object | None, given: object | None, traced: bool) -> Run | None:
        """The run; None where another program has taken over."""

    def replay_plainly(self, steps: object | None) -> object:
        """As replay, of so many steps and with no options; or None."""

    def submit_given(self, steps: int, priority: int, stop_on_error: bool, form: tuple, after: object | None, params: dict, first: int = -1) -> object:
        """
        As submit, of plain arguments; `NotImplemented` where they are not, or are wrong.
        """

    def replay_part(self, steps: int, priority: int, values: object | None, objects: object | None, traced: bool, before: Run | None, last: bool, caller: Caller) -> Run:
        """As replay_as_run, of a part of what is held."""

def all_happened(after: object | None) -> bool:
    """
    Whether a run need not wait for any of these events; false where that takes a closer look.
    """

def end_all() -> None:
    """
    Before the interpreter ends: cancels what still runs, and waits until no thread of ours is left.
    """

def leave_all() -> None:
    """
    Instead, when that would take for ever: threads that are left do not come back into Python.
    """

def waits_may_end() -> bool:
    """Whether waits of the calling thread end when its task is cancelled."""

def waits_are_over() -> bool:
    """Whether they do now."""

def serving() -> bool:
    """
    Whether the calling thread is serving lanes, so that its Python code is part of a task.
    """

class Spawned:
    """A single task outside programs."""

    def wait(self, timeout: float) -> bool:
        """Whether it has ended within so many seconds; negative: no limit."""

    def cancel(self) -> bool: ...

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt inside it, if it runs on another thread."""

    def set_callback(self, function: object) -> bool:
        """Have it called when the task has ended; false when it has."""

    def event(self, origin: object) -> Event:
        """
        An event for its end; `origin` is called for the exception that it ended with.
        """

    @property
    def done(self) -> bool: ...

    def retrieve(self) -> None:
        """The user is told how it ended."""

    @property
    def unretrieved(self) -> bool:
        """Whether it has failed and the user was not told."""

    @property
    def state(self) -> str: ...

    @property
    def cancelled(self) -> bool: ...

    @property
    def result(self) -> object: ...

    @property
    def exception(self) -> object: ...

    @property
    def poisoned_by(self) -> Event | None:
        """The event that it came after, if that was poisoned."""

def spawn(machine: Machine, function: object, arguments: tuple, after: Event | None, priority: int, slot: int, blocking: bool) -> Spawned:
    """`slot`: its number, or -1."""

def spawned(machine: Machine) -> list[Spawned]:
    """The spawned tasks that have not ended."""

def refuse_spawns(machine: Machine) -> None: ...

def on_own_thread(machine: Machine) -> bool:
    """Whether this is a thread of the machine's for tasks that may block."""

def measure_machine(machine: Machine, first_core: int, second_core: int) -> tuple[float, float, float, float, float]:
    """
    Seconds of a transfer, a look, taking up a lane, a wake and a ring; less than 0 where it could not be measured.
    """

def nothing_address() -> int:
    """Address of a native task that does nothing."""

def return_memory() -> None:
    """Give free memory back to the system, where the C library keeps it."""
