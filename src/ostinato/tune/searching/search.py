"""A search: candidates on their way from a strategy to devices, and to a verdict."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence

from ostinato.tune.candidate import Call, Command
from ostinato.tune.outcome import OF_BUILDS, Outcome, Status
from ostinato.tune.progress import Progress
from ostinato.tune.racing.race import EntryKey, Race
from ostinato.tune.result import Result, Span
from ostinato.tune.searching.queue import Queue
from ostinato.tune.searching.results import Known, Results
from ostinato.tune.trial import Event, State, Task, Trial, Trials
from ostinato.tune.workers.loop import Loop
from ostinato.tune.workers.scratch import NoRoomError, Scratch, says_full
from ostinato.tune.workers.slot import LeasedWorker, Slot
from ostinato.tune.workers.tasks import Tasks

_EVERY = 64  # measurements on a device between two of the reference


class ReferenceCandidate:
    """The candidate that every device measures from time to time, which tells how fast each is, and when it changes."""

    def __init__(self, candidate: str | None, devices: Iterable[str], alike: bool, race: Race) -> None:
        self._candidate = candidate
        self._alike = alike
        self._race = race
        self._trial: Trial | None = None
        self._op = ""
        self._since = dict.fromkeys(devices, 0)  # measurements of others

    def due(self, device: str) -> Trial | None:
        """Return the reference if it is to be measured next on a device."""
        return self._trial if self._since[device] >= _EVERY else None

    def join(self, devices: Iterable[str]) -> None:
        """Have devices that join measure the reference first, also those that come back: they may be slower now."""
        self._since |= dict.fromkeys(devices, _EVERY if self._trial is not None else 0)

    def began(self, device: str, *, reference: bool) -> None:
        """Note that a device measures the reference, or another candidate."""
        self._since[device] = 0 if reference else self._since[device] + 1

    def measured(self, device: str, outcome: Outcome) -> None:
        """Tell the race what the reference took."""
        for op in outcome.ops:
            if op.op == self._op and op.status is Status.OK and op.samples:
                self._race.add_reference(device, op.samples)

    def offer(self, trial: Trial, device: str, outcome: Outcome) -> None:
        """Take what was measured well as the reference, if there is none yet and it may be."""
        if self._trial is not None or self._candidate not in (None, trial.candidate.id):
            return
        op = next((op for op in outcome.ops if op.status is Status.OK and op.samples), None)
        if op is None:  # it told a workspace only
            return
        self._trial, self._op = trial, op.op
        self._race.add_reference(device, op.samples)
        if not self._alike:  # they are compared by the reference, so it is the next on each
            self._since = {name: _EVERY * (name != device) for name in self._since}


_REPEATS = 3  # of turns that say nothing, one after the other on one device


class Rounds:
    """Measures the finalists in turns.

    One device serves all of a round, and nothing is built meanwhile: what is left of the noise hits the finalists
    alike. Devices that are alike and do not disturb each other play a round each at the same time.
    """

    def __init__(self, search: Search, race: Race, results: Results) -> None:
        self._search = search
        self._race = race
        self._results = results
        self._workers: list[LeasedWorker] = []
        self._due: dict[LeasedWorker, list[EntryKey]] = {}  # of each whose first is playing: who was due in its round
        self._silent: dict[LeasedWorker, int] = {}

    def play(self) -> bool:
        """Play until all is decided; return whether nothing is left to be."""
        search, race = self._search, self._race
        if not race.finalists() or search.spent:
            return not race.finalists()
        # Once its result can be read, it goes on no longer than all before it took, or than one candidate may.
        end = search.seconds + max(search.seconds, race.policy.max_seconds)
        while True:
            over = search.spent or (search.seconds > end and race.decided)
            if not self._due and (over or not self._ready()):
                break
            if not over and race.started:  # else a finalist has failed: the final begins again when no turn is left
                self._begin()
            if not self._due:
                break
            if all(worker.busy for worker in self._due):
                search.wait()
            self._end()
        for worker in self._silent:
            worker.forget()
        return bool(self._workers or not race.finalists()) and not search.spent

    def _ready(self) -> bool:
        """Have built what is due, and lease devices; return whether there is anything to play, and where."""
        built: list[EntryKey] = []
        while (due := self._race.finalists()) and due != built:  # in place of one that cannot be built another comes in
            self._search.build([self._results.trial(candidate) for candidate, _ in due])
            built = due
        if due and not self._workers and _REPEATS not in self._silent.values():
            self._workers = self._search.lease()
            self._silent |= dict.fromkeys(self._workers, 0)
        return bool(due and self._workers)

    def _begin(self) -> None:
        for worker in self._workers:
            if worker not in self._due and (due := self._race.finalists(worker.name)):
                self._due[worker] = due
                self._search.final(self._results.trial(due[0][0]), worker)

    def _end(self) -> None:
        for worker in [worker for worker in self._due if not worker.busy]:
            due = self._due.pop(worker)
            silent = self._race.started and self._race.finalists(worker.name) == due
            self._silent[worker] = self._silent[worker] + 1 if silent else 0
            if worker.lost or self._silent[worker] == _REPEATS:
                self._workers.remove(worker)
                self._race.leave(worker.name)


_TRIES = 3  # of a candidate whose worker went away before it began
_AHEAD = 32  # candidates that wait for each device, so that quick ones never wait for the loop
_PULLS, _PULLS_EACH = 256, 8  # candidates that are taken up between two looks at what has arrived; for each device
_LEASE_SECONDS = 0.05  # between two tries to lease a device that somebody else has
_WARN_SECONDS = 2.0  # without any device
_COMMIT_SECONDS = 0.02


class Search:
    """Measures every candidate that it takes in, once."""

    def __init__(
        self,
        *,
        loop: Loop,
        workers: Sequence[LeasedWorker],
        builders: Sequence[Slot],
        queue: Queue,
        tasks: Tasks,
        known: Known,
        results: Results,
        race: Race,
        checked: bool,
        reference: ReferenceCandidate,
        seconds: float | None,
        progress: Progress,
        patience: float,
    ) -> None:
        """`patience`: seconds for which it waits for devices to join when all are lost."""
        self.spans: list[Span] = []
        self.measured = 0
        """Number of candidates that the store did not answer."""
        self._loop = loop
        self._workers = list(workers)
        self._builders = builders
        self._queue = queue
        self._tasks = tasks
        self._known = known
        self._results = results
        self._race = race
        self._checked = checked
        self._progress = progress
        self._begin = loop.now()
        self._end = math.inf if seconds is None else self._begin + seconds
        self._stopped = ""  # why no more is measured
        self._left = Status.CANCELLED  # how those end that are left then
        self._trials = Trials()
        self._running = 0  # tasks that a builder or a device has
        self._reference = reference
        self._next_lease = 0.0
        self._warned = False
        self._next_commit = 0.0
        self._scratch = Scratch()
        self._patience, self._patient_until = patience, math.inf
        for slot in (*workers, *builders):
            slot.serve(self._finished, self._returned, self.stop)

    @property
    def workers(self) -> Sequence[LeasedWorker]:
        """The devices, also those that have joined."""
        return self._workers

    def join(self, workers: Sequence[LeasedWorker]) -> None:
        """Take devices into the search that were none of it, or that were lost."""
        for worker in workers:
            if worker not in self._workers:
                self._workers.append(worker)
                self._known.join(worker.name)
            worker.serve(self._finished, self._returned, self.stop)
        self._reference.join(worker.name for worker in workers)
        self._next_lease = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the search began."""
        return self._loop.now() - self._begin

    @property
    def spent(self) -> bool:
        """Whether no more may be measured."""
        return bool(self._stopped) or self._loop.now() >= self._end

    def run(self) -> None:
        """Measure until there are no more candidates, or the budget is spent."""
        while True:
            self._stop_if_due()
            self._pull()
            self._dispatch()
            waiting = (State.UNBUILT, State.UNCHECKED, State.READY)
            if self._running or any(map(self._trials.count, waiting)):
                self._turn()
            elif not self._queue.open and not self._once_more():
                return

    def build(self, trials: Sequence[Trial]) -> None:
        """Build what is needed to measure these once more, as those that the store answered."""
        for trial in dict.fromkeys(trials):  # of a candidate with several ops, each may be a finalist
            self._take_up(trial)
        self._drop_ready()
        while self._trials.count(State.UNBUILT) or self._running:
            self._stop_if_due()
            self._dispatch()
            self._turn()
            self._drop_ready()

    def _drop_ready(self) -> None:
        for trial in self._trials.waiting(State.READY):
            self._trials.move(trial, Event.DROP)

    def final(self, trial: Trial, worker: LeasedWorker) -> None:
        """Begin a turn of the final."""
        self._start(worker, self._tasks.measure(trial, worker, None, "final"))

    def wait(self) -> None:
        """Wait until something has happened."""
        self._stop_if_due()
        self._turn()

    def lease(self) -> list[LeasedWorker]:
        """Return leased devices on which the same is measured in the same way, at once without disturbing each other.

        None, if every device is lost or the budget is spent before one is free.
        """
        while not self.spent and not self._all_lost():
            self._lease()
            leased = [worker for worker in self._workers if worker.leased and not worker.lost]
            if leased:
                return [worker for worker in leased if worker.device.apart(leased[0].device)] or leased[:1]
            self._turn(leasing=True)
        return []

    def close(self) -> None:
        """Remove what the candidates wrote to their directories."""
        self._scratch.remove()

    def _stop_if_due(self) -> None:
        if self._stopped:
            return
        if self.spent:
            self.stop("the budget of time was spent")
        elif why := self._all_lost():
            self.stop(f"nothing is left to run on: {why}", Status.DEVICE_LOST)

    def _all_lost(self) -> str:
        """Return why nothing is left to measure on, and nothing has joined for a while, or to build on."""
        if self._builders and all(slot.lost for slot in self._builders):
            return self._builders[0].lost
        if not all(worker.lost for worker in self._workers):
            self._patient_until = math.inf
            return ""
        self._patient_until = min(self._patient_until, self._loop.now() + self._patience)
        return self._workers[0].lost if self._loop.now() >= self._patient_until else ""

    def _once_more(self) -> bool:
        """Have those measured again whose first result cannot stand; return whether there are any."""
        verdict = None if self._stopped or self.measured else self._known.verdict(self._race.default)
        if self._stopped or self._results.ties(verdict) is not None:
            return False
        trials = [*self._trials.waiting(State.DISTURBED), *self._results.revived()]
        again = [trial for trial in trials if not trial.again]
        for trial in again:
            trial.again = True
            self._take_up(trial)
        return bool(again)

    def _pull(self) -> None:
        most, unbuilt = _AHEAD * len(self._workers), 2 * len(self._builders)
        for _ in range(max(_PULLS, _PULLS_EACH * len(self._workers))):
            if self._trials.count(State.READY) + self._trials.count(State.UNBUILT) >= most:
                return
            if self._builders and self._trials.count(State.UNBUILT) >= unbuilt:
                return
            if self._queue.open and self._queue.full:
                self.stop("the budget of candidates was spent", running=False)
            trial = self._queue.next()
            if trial is None:
                return
            try:
                stored = self._known.find(trial)
            except OSError as error:  # a file that it stands for cannot be read
                self._end_trial(trial, Outcome(Status.INVALID, (), str(error)), None)
                continue
            if stored is not None:
                self._end_trial(trial, stored[1], stored[0], cached=True)
                continue
            self.measured += 1
            self._take_up(trial)

    def _take_up(self, trial: Trial) -> None:
        candidate = trial.candidate
        called = isinstance(candidate, Call) and candidate.prepare is None
        if trial.scratch is not None or called or not self._builders:  # then whoever measures it builds it
            self._trials.move(trial, Event.ADMIT)
            return
        try:
            trial.scratch = self._scratch.directory(candidate.id)
        except NoRoomError as error:
            self._end_trial(trial, Outcome(Status.CANCELLED, (), str(error)), None)
            return
        needs_build = isinstance(candidate, Call) or (isinstance(candidate, Command) and candidate.build is not None)
        self._trials.move(trial, Event.NEED_BUILD if needs_build else Event.ADMIT)

    def _dispatch(self) -> None:
        for builder in self._builders:
            if builder.busy or builder.lost:
                continue
            # What is built and not measured yet is bounded: it takes room on the disk.
            most = 2 * len(self._workers) + len(self._builders)
            if self._trials.count(State.UNCHECKED):
                trial = self._trials.start(State.UNCHECKED)
                assert trial.measured is not None
                self._start(builder, self._tasks.check(trial, trial.measured[0].stdout))
            elif self._trials.count(State.UNBUILT) and self._trials.count(State.READY) < most:
                self._start(builder, self._tasks.build(self._trials.start(State.UNBUILT)))
        if not self._trials.count(State.READY):
            return
        self._lease()
        usable = [worker for worker in self._workers if not worker.lost]
        for worker in usable:
            if not worker.leased:  # it may be soon: its share is kept for it
                continue
            # No worker has so many candidates ahead that others have none, now or at the end of the search.
            left = self._trials.count(State.READY) + self._running
            fair, half = -(-left // len(usable)), 5 * left // (8 * len(self._workers))
            self._feed(worker, min(fair, max(half, worker.least_ahead)))

    def _feed(self, worker: LeasedWorker, share: int) -> None:
        """Give a device candidates as long as it takes more, and has fewer than `share`."""
        bound = self._race.bound(worker.name)
        while self._trials.count(State.READY):
            reference = self._reference.due(worker.name)
            # The reference may be a command where the next is a call, which could be sent ahead.
            following = reference or self._trials.first(State.READY)
            if not worker.room(isinstance(following.candidate, Call), share):
                return
            self._reference.began(worker.name, reference=reference is not None)
            if reference is not None:
                self._start(worker, self._tasks.measure(reference, worker, None, "anchor"))
            else:
                self._trials.move(following, Event.START)
                self._start(worker, self._tasks.measure(following, worker, bound, "measure"))

    def _start(self, slot: Slot, task: Task) -> None:
        self._running += 1
        if isinstance(slot, LeasedWorker):
            self._progress.running(slot.name, task.trial.candidate, task.what)
        else:
            self._progress.building(slot.name, task.trial.candidate)
        slot.start(task)

    def _lease(self) -> None:
        now = self._loop.now()
        if now < self._next_lease:
            return
        waiting = [worker for worker in self._workers if not worker.leased and not worker.lost]
        holders = {worker.name: holder for worker in waiting if (holder := worker.take_lease())}
        self._next_lease = now + _LEASE_SECONDS if holders else 0.0
        for name, holder in holders.items():
            self._progress.waiting(name, holder)
        if len(holders) == len(self._workers) and not self._warned and now > self._begin + _WARN_SECONDS:
            self._warned = True
            names = "; ".join(f"{name} is leased by {holder}" for name, holder in holders.items())
            logging.getLogger("ostinato").warning("tuning waits for a device: %s", names)

    def _turn(self, *, leasing: bool = False) -> None:
        """Wait for the next thing that happens, and see to limits of time."""
        now = self._loop.now()
        moment = self._end if not self._stopped else math.inf
        if self._next_lease and (
            self._trials.count(State.READY) or leasing
        ):  # also if that moment has passed since the last try
            moment = min(moment, self._next_lease)
        moment = min(moment, self._patient_until)
        if self._known.pending:
            if now >= self._next_commit:
                self._known.commit()
                self._next_commit = now + _COMMIT_SECONDS
            else:
                moment = min(moment, self._next_commit)
        slots = [slot for slot in (*self._workers, *self._builders) if slot.busy]
        moment = min([moment, *(slot.deadline() for slot in slots)])
        self._loop.turn(None if moment == math.inf else max(0.0, moment - now))
        now = self._loop.now()
        for slot in slots if now >= moment else ():
            if slot.deadline() <= now:
                slot.expire()

    def _finished(self, slot: Slot, task: Task, outcome: Outcome, began: float, ended: float) -> None:
        self._running -= 1
        trial = task.trial
        status = OF_BUILDS.get(outcome.status, outcome.status) if task.what == "build" else outcome.status
        self.spans.append(Span(slot.name, task.what, trial.candidate, began - self._begin, ended - self._begin, status))
        if not slot.busy:
            self._progress.idle(slot.name)
        if task.what == "final":
            self._turned(trial, outcome, slot.name)
        elif task.what == "anchor":
            self._reference.measured(slot.name, outcome)
        elif self._stopped and (task.what == "build" or outcome.status is not Status.OK):
            self._cancel(trial)
        elif task.what == "build":
            if outcome.status is Status.OK:
                trial.built()
                self._trials.move(trial, Event.BUILD)
            else:
                self._keep(trial, Outcome(status, (), outcome.message), None)
        elif task.what == "check":
            assert trial.measured is not None
            measured, device = trial.measured
            self._keep(trial, measured if outcome.status is Status.OK else measured.refuted(outcome), device)
        else:
            self._measured(trial, outcome, slot.name)

    def _measured(self, trial: Trial, outcome: Outcome, device: str) -> None:
        status = outcome.status
        if status is Status.CONTENDED and not trial.again:
            self._trials.move(trial, Event.DISTURB)
        elif status is Status.CONTENDED and self._results.knows(trial):
            self._trials.move(trial, Event.CANCEL)  # what was found before stands
        elif self._checked and isinstance(trial.candidate, Command) and status is Status.OK:
            if self._stopped:  # nobody checks it any more
                self._cancel(trial)
            else:
                trial.measured = outcome, device
                self._trials.move(trial, Event.NEED_CHECK)
        else:
            self._keep(trial, outcome, device)

    def _returned(self, slot: Slot, tasks: list[Task], blamed: bool) -> None:
        """Take back tasks that had not begun; if `blamed`, the first of them may be why their worker ended."""
        self._running -= len(tasks)
        tasks[0].trial.tries += blamed
        for task in reversed(tasks):
            trial = task.trial
            if task.what in ("final", "anchor"):
                continue
            if self._stopped:
                self._cancel(trial)
            elif trial.tries > _TRIES:
                device = slot.name if isinstance(slot, LeasedWorker) else None
                self._keep(
                    trial, Outcome(Status.CRASH, (), "its worker died before it could begin, again and again"), device
                )
            else:
                self._trials.move(trial, Event.RETURN)

    def _turned(self, trial: Trial, outcome: Outcome, device: str) -> None:
        """Tell the race about a turn of the final."""
        if outcome.status in (Status.CONTENDED, Status.CANCELLED, Status.DEVICE_LOST):
            return
        timed = any(op.samples for op in outcome.ops if op.status is Status.OK)
        if outcome.status is not Status.OK or not timed:
            self._keep(trial, outcome, device)
        for op in outcome.ops:
            if op.status is Status.OK and op.samples:
                self._results.turned(trial.candidate.id, op, device)

    def _keep(self, trial: Trial, outcome: Outcome, device: str | None) -> None:
        """Remember and enter what a trial came to."""
        failed = outcome.status not in (Status.OK, Status.RACED)
        if outcome.whole and not (
            failed and (says_full(outcome.message) or self._scratch.full)
        ):  # which may be another's doing
            self._known.add(trial, outcome, device)
        self._end_trial(trial, outcome, device)
        if trial.scratch is not None and outcome.status is not Status.OK:
            self._scratch.empty(trial.scratch)
            trial.scratch = trial.prepared = None

    def _end_trial(
        self,
        trial: Trial,
        outcome: Outcome,
        device: str | None,
        *,
        cached: bool = False,
        event: Event = Event.END,
    ) -> None:
        """Enter what a trial came to, and tell the strategy."""
        trial.measured = None
        self._trials.move(trial, event)
        for result in self._results.record(trial, outcome, device, cached=cached):
            self._queue.tell(result)
        if outcome.status is Status.OK and device is not None and not cached:
            self._reference.offer(trial, device, outcome)

    def _cancel(self, trial: Trial) -> None:
        if self._results.knows(trial):  # what was found before stands
            self._trials.move(trial, Event.CANCEL)
        else:
            self._end_trial(trial, Outcome(self._left, (), self._stopped), None, event=Event.CANCEL)

    def stop(self, why: str, status: Status = Status.CANCELLED, *, running: bool = True) -> None:
        """Take in no more candidates, and end what runs; what is left ends with this status."""
        for trial in self._queue.rest():
            self._end_trial(trial, Outcome(status, (), why), None, event=Event.CANCEL)
        if not running:
            return
        self._stopped, self._left = why, status
        for trial in self._trials.waiting(State.UNBUILT, State.READY, State.UNCHECKED, State.DISTURBED):
            self._cancel(trial)
        for slot in (*self._workers, *self._builders):
            slot.cancel()


def confirm(search: Search, race: Race, results: Results, known: Known) -> tuple[Result | None, tuple[Result, ...]]:
    """Return the winner and its ties: from the store, if it holds the verdict over exactly these results."""
    about = race.default
    stored = results.ties(known.verdict(about)) if not search.measured else None
    if stored is not None:
        return (stored[0] if stored else None), stored
    decided = Rounds(search, race, results).play()
    entries = list(race.verdict().ties) or results.timeless()
    measured = list(results.confirmed())
    if decided:
        for each in measured:
            known.add(each.trial, each.outcome, each.device, first=each.first)
        known.set_verdict([list(entry) for entry in entries], about)
    ties = tuple(results.result(*entry) for entry in entries)
    return (ties[0] if ties else None), ties
