"""The rules of compiler/native/replay/replay_model.cpp once more, as plainly as possible: for small schedules."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ostinato.compiler.pipeline.arrangement import AWAY, GIL, Arrangement
from ostinato.compiler.target import MachineModel

POLL, ALONE, TURN = 40e-6, 50e-6, 100e-6


@dataclass
class Stretch:
    ops: list[int]
    manner: int
    waits: list[tuple[int, int, float]]  # op, distance, delay
    publishes: bool = False


@dataclass
class Lane:
    number: int
    affinity: int
    pinned: bool
    stretches: list[Stretch]
    served: int
    at: int = 0
    step: int = 0
    seen: float = 0.0  # when all that was found to have happened can be seen
    found: int = 0  # how much of it has been found
    listed: bool = False
    running: tuple[float, float] | None = None
    published: int = 0
    far: bool = False  # what it sees last comes from another node
    blocked_on: object = None

    @property
    def ops(self) -> int:
        return sum(len(stretch.ops) for stretch in self.stretches)

    @property
    def head(self) -> Stretch:
        return self.stretches[self.at]


@dataclass
class Thread:
    number: int
    own: list[int]
    state: str = "idle"
    lane: int = -1
    since: float = 0.0
    took_up: float = 0.0
    free_from: float = 0.0
    next: int = 0
    idle_order: int = 0

    def polls(self, now: float) -> bool:
        return now - self.since <= (ALONE + POLL if len(self.own) == 1 else POLL)


@dataclass
class Oracle:
    given: Arrangement
    model: MachineModel
    times: dict[tuple[int, int], float] = field(default_factory=dict)  # by step and op: when it ended
    by: dict[int, int] = field(default_factory=dict)  # by op: the thread that published it last
    began: dict[tuple[int, int], tuple[float, float, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = self.given
        waited = {int(op) for op in given.wait_op} | ({given.until_op} if given.until_op >= 0 else set())
        self.lanes = []
        self.place: dict[int, tuple[int, int]] = {}
        for number, home in enumerate(given.affinity.tolist()):
            stretches: list[Stretch] = []
            ops = given.lane_ops[given.lane_begin[number] : given.lane_begin[number + 1]].tolist()
            for position, op in enumerate(ops):
                self.place[op] = (number, position)
                waits = [
                    (int(given.wait_op[w]), int(given.wait_distance[w]), float(given.wait_delay[w]))
                    for w in range(given.wait_begin[op], given.wait_begin[op + 1])
                ]
                manner = int(given.manner[op])
                last = stretches[-1] if stretches else None
                if last and not waits and not last.publishes and last.manner == manner and manner != AWAY:
                    last.ops.append(op)
                else:
                    stretches.append(Stretch([op], manner, waits))
                stretches[-1].publishes = op in waited
            self.lanes.append(Lane(number, home, bool(given.pinned[number]), stretches, home))
        self.threads = [
            Thread(number, [lane.number for lane in self.lanes if lane.affinity == number])
            for number in range(given.threads)
        ]
        for thread in self.threads:
            thread.next = thread.own[0] if thread.own else 0
        self.events: list[tuple[float, int, int]] = []
        self.waiting: dict[object, list[int]] = {}  # lanes, by what they wait for
        self.known: dict[tuple[int, int], int] = {}  # by pair of lanes: how far one has seen the other
        self.gil: dict[int, tuple[bool, list[int]]] = {}
        self.ended: dict[int, dict[int, float]] = {}  # by step, by lane
        self.now = 0.0
        self.turns = 0

    def node(self, thread: int) -> int:
        return thread // self.given.threads_a_node

    # --- what lanes wait for ---

    def wants(self, lane: Lane) -> list[object]:
        """Everything the head waits for, in order."""
        wanted: list[object] = []
        first = lane.at == 0
        if self.given.until_op >= 0 and first and self.place[self.given.until_op][0] != lane.number:
            judged = lane.step // self.given.until_every * self.given.until_every - 1
            if judged >= 0:
                wanted.append(("until", judged))
        period = self.given.window_period
        if first and len(self.lanes) > 1 and lane.step % period == 0 and lane.step >= 2 * period:
            wanted.append(("window", lane.step - period))
        wanted += [("op", *wait) for wait in lane.head.waits]
        return wanted

    def seen(self, lane: Lane, thread: int) -> float:
        for want in self.wants(lane)[lane.found :]:
            if want[0] == "window":
                if any(lane_.step < want[1] for lane_ in self.lanes):
                    lane.blocked_on = "window"
                    return math.inf
                far = self.given.threads > self.given.threads_a_node
                time, by = max(self.ended[want[1] - 1].values()), None
                time += self.model.link_latency if far else self.model.transfer
            else:
                op, step = (self.given.until_op, want[1]) if want[0] == "until" else (want[1], lane.step - want[2])
                if step < 0:
                    lane.found += 1
                    continue
                if (step, op) not in self.times:
                    lane.blocked_on = op
                    return math.inf
                by = self.by[op]
                if by == thread:
                    delay = 0.0
                elif want[0] == "op":
                    delay = want[3]
                else:
                    delay = self.model.transfer if self.node(by) == self.node(thread) else self.model.link_latency
                time = self.times[step, op] + delay
            lane.found += 1
            if time > lane.seen:
                lane.seen = time
                lane.far = far if by is None else self.node(by) != self.node(thread)
        return lane.seen

    def looks(self, lane: Lane, thread: int, looked: bool) -> float:
        news = 0
        for want in self.wants(lane):
            if want[0] == "until":
                news += 1
            elif want[0] == "window":
                node = self.node(lane.affinity)
                news += sum(self.node(other.affinity) == node for other in self.lanes) - 1
            else:
                other = self.lanes[self.place[want[1]][0]]
                target = (lane.step - want[2]) * other.ops + self.place[want[1]][1] + 1
                if self.known.get((lane.number, other.number), 0) >= target:
                    continue
                near = self.node(other.affinity) == self.node(thread)
                self.known[lane.number, other.number] = other.published if near else target
                news += other.served != thread
        if not news:
            return 0.0
        return (news - 1) * self.model.poll + (0.0 if looked else self.model.transfer / 2)

    # --- threads ---

    def push(self, time: float, kind: int, which: int) -> None:
        self.events.append((time, kind, which))

    def choose(self, thread: Thread, now: float) -> None:
        ready = [number for number in thread.own if self.lanes[number].listed]
        ready = [n for n in ready if n >= thread.next] + [n for n in ready if n < thread.next]
        if ready:
            after = ready[0] + 1
            thread.next = after if after in thread.own else thread.own[0]
        else:
            node = self.node(thread.number)
            ready = [
                lane.number
                for lane in self.lanes
                if lane.listed and not lane.pinned and self.node(lane.affinity) == node
            ]
        if not ready:
            thread.state, thread.lane, thread.since = "idle", -1, now
            self.turns += 1
            thread.idle_order = self.turns
            return
        self.lanes[ready[0]].listed = False
        self.serve(thread, self.lanes[ready[0]], now)

    def serve(self, thread: Thread, lane: Lane, now: float, looked: bool = False) -> None:
        now = max(now, thread.free_from)
        if lane.served != thread.number:
            now += self.model.transfer
        lane.served = thread.number
        thread.lane, thread.state, thread.took_up = lane.number, "busy", now
        self.go_on(thread, now, looked)

    def make_ready(self, lane: Lane, now: float) -> None:
        home = self.threads[lane.affinity]
        idle = [t for t in self.threads if t.state == "idle" and self.node(t.number) == self.node(lane.affinity)]
        latest = max(idle, key=lambda t: t.idle_order, default=None)
        if lane.pinned:
            latest = None
        if home.state == "idle" and home.polls(now):
            self.serve(home, lane, now, True)
        elif latest and latest.polls(now):
            self.serve(latest, lane, now, True)
        else:
            lane.listed = True
            if home.state == "idle":
                self.ring(home)
            elif home.state == "busy" and latest:
                self.ring(latest)

    def ring(self, thread: Thread) -> None:
        thread.state = "waking"
        self.push(self.now + self.model.wake, 3, thread.number)

    # --- lanes ---

    def go_on(self, thread: Thread, now: float, looked: bool = False) -> None:
        lane = self.lanes[thread.lane]
        seen = self.seen(lane, thread.number)
        if seen > now:
            if len(thread.own) > 1 or seen == math.inf or lane.far:
                self.leave(lane, seen)
                if len(thread.own) > 1:
                    thread.free_from = now + self.model.switch
                self.choose(thread, now)
                return
            now, looked = seen, True
        now += self.looks(lane, thread.number, looked)
        if lane.head.manner == AWAY:
            self.push(self.begin(lane, thread, now), 1, lane.number)
            self.choose(thread, now)
            return
        if lane.head.manner == GIL:
            held, queue = self.gil.setdefault(self.node(thread.number), (False, []))
            if held:
                queue.append(thread.number)
                return
            self.gil[self.node(thread.number)] = (True, queue)
        self.push(self.begin(lane, thread, now), 0, thread.number)

    def begin(self, lane: Lane, thread: Thread, now: float) -> float:
        for op in lane.head.ops:
            end = now + float(self.given.seconds[op])
            self.began[lane.step, op] = (now, end, thread.number)
            now = end
        return now

    def leave(self, lane: Lane, seen: float) -> None:
        if seen == math.inf:
            self.waiting.setdefault(lane.blocked_on, []).append(lane.number)
        else:
            self.push(seen, 2, lane.number)

    def look_again(self, lane: Lane) -> None:
        seen = self.seen(lane, lane.served)
        if seen > self.now:
            self.leave(lane, seen)
        else:
            self.make_ready(lane, self.now)

    def complete(self, lane: Lane, thread: int) -> tuple[bool, int]:
        stretch, step = lane.head, lane.step
        lane.seen, lane.found = 0.0, 0
        lane.at += 1
        over = lane.at == len(lane.stretches)
        if over:
            lane.at, lane.step = 0, step + 1
            self.ended.setdefault(step, {})[lane.number] = self.now
        woken: list[int] = []
        if stretch.publishes or (over and lane.step % self.given.window_period == 0):
            lane.published = step * lane.ops + self.place[stretch.ops[-1]][1] + 1
        if stretch.publishes:
            self.times[step, stretch.ops[-1]] = self.now
            self.by[stretch.ops[-1]] = thread
            woken += reversed(self.waiting.pop(stretch.ops[-1], []))
        if over and lane.step % self.given.window_period == 0 and len(self.ended[step]) == len(self.lanes):
            woken += reversed(self.waiting.pop("window", []))
        rings = 0
        for number in woken:
            home = self.threads[self.lanes[number].affinity]
            if self.node(home.number) == self.node(thread) and home.state == "idle" and not home.polls(self.now):
                self.ring(home)
                rings += 1
            self.look_again(self.lanes[number])
        return over, rings

    def end(self, thread: Thread) -> None:
        lane = self.lanes[thread.lane]
        gil = lane.head.manner == GIL
        over, rings = self.complete(lane, thread.number)
        now = self.now + rings * self.model.notify
        if gil:
            _, queue = self.gil[self.node(thread.number)]
            self.gil[self.node(thread.number)] = (bool(queue), queue)
            if queue:
                other = self.threads[queue.pop(0)]
                self.push(self.begin(self.lanes[other.lane], other, self.now), 0, other.number)
        if over and len(thread.own) > 1 and self.now - thread.took_up >= TURN:
            if any(self.lanes[number].listed for number in thread.own):
                lane.listed = True
                thread.free_from = now + self.model.switch
                self.choose(thread, self.now)
                return
            thread.took_up = self.now
        self.go_on(thread, now)

    def run(self, steps: int) -> None:
        for lane in self.lanes:
            lane.listed = True
        for thread in self.threads:
            thread.state = "busy"
        for owns in (True, False):
            for thread in self.threads:
                if bool(thread.own) == owns:
                    self.choose(thread, 0.0)
        while len(self.ended.get(steps - 1, {})) < len(self.lanes):
            event = min(self.events)
            self.events.remove(event)
            self.now, kind, which = event
            if kind == 0:
                self.end(self.threads[which])
            elif kind == 1:
                self.complete(self.lanes[which], self.lanes[which].served)
                self.look_again(self.lanes[which])
            elif kind == 2:
                self.look_again(self.lanes[which])
            else:
                self.choose(self.threads[which], self.now)
