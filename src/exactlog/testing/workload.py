"""A workload for a broker, recorded as a history: writers, copiers and readers that take turns by a seed.

    run(Workload(seed=1), system, "history.jsonl")
    report = check.history("history.jsonl")

`system` is the broker: `WireSystem` for one behind a socket. Everything the workers do follows from the seed; what they
are answered is the broker's. In each turn some of them send a call each, and only then the answers are read: so the
broker has several under way, and a crash or a lost answer finds some that are.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from exactlog.testing.history import Recorder
from exactlog.testing.history_format import Place
from exactlog.testing.workload_calls import Answer, Call, Session, System
from exactlog.testing.workload_roles import Auditor, Copier, PlainWriter, Reader, TransactionalWriter, take_over
from exactlog.testing.workload_workers import Pause, Steps

GROUP = "copiers"
INTERNAL = (Place("__consumer_offsets", 0),)


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What is done.

    Attributes:
        seed: of every choice.
        partition_count: of the topic that is written and the one that is copied to.
        rounds: of each worker: transactions, batches or polls.
        transactional_writers: how many; each has a transactional id of its own.
        idempotent_writers: how many write outside of transactions.
        plain_writers: how many write without a producer id.
        copiers: how many copy exactly once; they share the partitions.
        readers: how many read; every second one reads committed records alone.
        lost_answers: how likely it is that an answer is lost.
        patience: how likely a worker sends again what had no answer.
        crashes: how often the broker dies.
        reads_internal: whether the partition of the groups' offsets is read too.
        topic: what is written; the copies go to the topic of that name and "-copy".
    """

    seed: int
    partition_count: int = 3
    rounds: int = 12
    transactional_writers: int = 3
    idempotent_writers: int = 1
    plain_writers: int = 1
    copiers: int = 1
    readers: int = 2
    lost_answers: float = 0.04
    patience: float = 0.7
    crashes: int = 0
    reads_internal: bool = True
    topic: str = "written"


def run(workload: Workload, system: System, path: str | Path) -> None:
    """Run a workload and write its history. The topics are created; they must not be there yet."""
    with Recorder(path) as recorder:
        _Run(workload, system, recorder).run()


class _Turn:
    """A worker, its connection, and the call it is about to make."""

    def __init__(self, steps: Steps[None], session: Session) -> None:
        self.steps = steps
        self.session = session
        self.call: Call | None = None
        self.is_done = False

    def begin(self) -> None:
        """Let it come to its next call, and send it."""
        if self.call is None:
            self._go_on(None)
        if self.call is not None:
            self.session.start(self.call)

    def finish(self, *, is_lost: bool) -> None:
        """Hand it the answer."""
        if self.call is not None:
            if is_lost:
                self.session.drop()
            self._go_on(self.session.finish())

    def _go_on(self, answer: Answer | None) -> None:
        try:
            step = next(self.steps) if self.call is None else self.steps.send(answer)
        except StopIteration:
            self.is_done, self.call = True, None
            return
        self.call = None if isinstance(step, Pause) else step


class _Run:
    def __init__(self, workload: Workload, system: System, recorder: Recorder) -> None:
        self._workload = workload
        self._system = system
        self._recorder = recorder
        self._choose = Random(f"{workload.seed} turns")  # noqa: S311  a choice, not a secret
        count = workload.partition_count
        self._source = [Place(workload.topic, index) for index in range(count)]
        self._target = [Place(f"{workload.topic}-copy", index) for index in range(count)]
        self._auditor = Auditor(
            "auditor", recorder, seed=workload.seed, places=[*self._source, *self._target], groups=[GROUP]
        )
        self._transactional_ids: list[str] = []

    def run(self) -> None:
        for topic in (self._workload.topic, f"{self._workload.topic}-copy"):
            self._system.create_topic(topic, self._workload.partition_count)
        self._take_turns(self._workers(), crashes=self._workload.crashes)
        self._alone(
            take_over(
                self._transactional_ids,
                self._recorder,
                seed=self._workload.seed,
                version=self._system.transaction_version,
            )
        )
        self._read_all()
        if self._workload.crashes:
            self._crash()
            self._read_all()

    def _read_all(self) -> None:
        internal = INTERNAL if self._workload.reads_internal and self._workload.copiers else ()
        self._alone(self._auditor.wait_for_stable_ends(tries_max=100))
        self._alone(self._auditor.read_all(self._source, internal))

    def _workers(self) -> list[Steps[None]]:
        workload, recorder = self._workload, self._recorder
        seed, version, patience = workload.seed, self._system.transaction_version, workload.patience
        writers = [
            TransactionalWriter(f"t{n}", recorder, seed=seed, version=version, places=self._source, patience=patience)
            for n in range(workload.transactional_writers)
        ]
        plain = [
            PlainWriter(
                f"{'i' if is_idempotent else 'p'}{n}",
                recorder,
                seed=seed,
                version=version,
                places=self._source,
                is_idempotent=is_idempotent,
                patience=patience,
            )
            for is_idempotent, count in ((True, workload.idempotent_writers), (False, workload.plain_writers))
            for n in range(count)
        ]
        copiers = [
            Copier(
                f"c{n}",
                recorder,
                seed=seed,
                version=version,
                group=GROUP,
                source=self._source[n :: workload.copiers],
                target=self._target,
                patience=patience,
            )
            for n in range(min(workload.copiers, len(self._source)))
        ]
        readers = [
            Reader(f"r{n}", recorder, seed=seed, places=[*self._source, *self._target], is_committed=n % 2 == 0)
            for n in range(workload.readers)
        ]
        committers: list[TransactionalWriter | Copier] = [*writers, *copiers]
        self._transactional_ids = [worker.transactional_id for worker in committers]
        return [
            *(writer.rounds(workload.rounds) for writer in writers),
            *(writer.rounds(workload.rounds) for writer in plain),
            *(copier.rounds(3 * workload.rounds) for copier in copiers),
            *(reader.rounds(3 * workload.rounds) for reader in readers),
        ]

    def _take_turns(self, workers: Sequence[Steps[None]], *, crashes: int) -> None:
        turns = [_Turn(steps, self._system.connect()) for steps in workers]
        crash_in = self._crash_turns(crashes)
        number = 0
        while left := [turn for turn in turns if not turn.is_done]:
            number += 1
            chosen = self._choose.sample(left, self._choose.randint(1, len(left)))
            for turn in chosen:
                turn.begin()
            if number in crash_in:
                self._crash()
                self._alone(self._auditor.read_logs([*self._source, *self._target]))
            self._choose.shuffle(chosen)
            for turn in chosen:
                turn.finish(is_lost=self._choose.random() < self._workload.lost_answers)
        for turn in turns:
            turn.session.drop()

    def _crash_turns(self, crashes: int) -> set[int]:
        # A worker takes some five turns a round, and is chosen in every second one.
        span = max(10, 8 * self._workload.rounds)
        return {self._choose.randint(5, span) for _ in range(crashes)}

    def _alone(self, steps: Steps[None]) -> None:
        turn = _Turn(steps, self._system.connect())
        while not turn.is_done:
            turn.begin()
            turn.finish(is_lost=False)
        turn.session.drop()

    def _crash(self) -> None:
        self._recorder.note("the broker dies and starts again")
        self._system.crash()
