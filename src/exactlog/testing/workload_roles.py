"""What the workers of a workload do, round after round: write, in transactions or not; copy exactly once; read."""

from collections.abc import Sequence

from exactlog.testing.history import Recorder
from exactlog.testing.history_format import NOT_SAID, Place, PlaceOffset
from exactlog.testing.workload_calls import NOBODY
from exactlog.testing.workload_workers import PAUSE, Steps, Worker, Writer

SMALL_FETCH_BYTES = (1, 200, 500, 1000, 100_000)
"""What a fetch may take: one batch, some, all."""
_TRIES_TO_TAKE_OVER = 5


class TransactionalWriter(Writer):
    """Writes transactions over several partitions and ends them in every way.

    It commits, aborts, forgets them, goes on after it was fenced, or wants back what it has committed.
    """

    def __init__(
        self, name: str, recorder: Recorder, *, seed: int, version: int, places: Sequence[Place], patience: float = 0.7
    ) -> None:
        super().__init__(name, recorder, seed=seed, version=version, patience=patience)
        self._places = places
        self.transactional_id = name

    def rounds(self, count: int) -> Steps[None]:
        """So many transactions."""
        for _ in range(count):
            if self._producer is NOBODY and not (yield from self.init(self.transactional_id)):
                continue
            yield from self._round()

    def _round(self) -> Steps[None]:
        transaction = self.begin()
        is_whole = yield from self._write(transaction)
        if not is_whole:
            if self.choose.random() < 0.5:
                yield from self.end(transaction, is_commit=False)
            self.give_up_producer()  # with a new epoch, what is under way cannot come any more
            return
        chance = self.choose.random()
        if chance < 0.55:
            yield from self.end(transaction, is_commit=True)
        elif chance < 0.6:
            yield from self._contradict(transaction)
        elif chance < 0.85:
            yield from self.end(transaction, is_commit=False)
        elif chance < 0.93:
            yield from self._be_fenced(transaction)
        else:
            self.give_up_producer()  # forgotten: its successor ends it

    def _write(self, transaction: str) -> Steps[bool]:
        for _ in range(self.choose.randint(1, 4)):
            values = self.new_values(self.choose.randint(1, 3))
            if not (yield from self.send(self.choose.choice(self._places), values, transaction=transaction)):
                return False
        return True

    def _contradict(self, transaction: str) -> Steps[None]:
        """Commits, and then wants to abort what it has committed, as the producer that it was."""
        old = self._producer
        if not (yield from self.end(transaction, is_commit=True)):
            return
        successor, sequences = self._producer, self._sequences
        self._producer = old
        yield from self.end(transaction, is_commit=False)
        if self._version >= 2:
            self._producer, self._sequences = successor, sequences

    def _be_fenced(self, transaction: str) -> Steps[None]:
        """Its successor takes over and writes; then the old producer tries to go on."""
        old = self._producer
        if not (yield from self.init(self.transactional_id)):
            return
        between = self.begin()
        is_whole = yield from self._write(between)
        successor, sequences = self._producer, self._sequences
        self._producer, self._sequences = old, {}
        yield from self.send(self._places[0], self.new_values(1), transaction=transaction)
        yield from self.end(transaction, is_commit=True)
        self._producer, self._sequences = successor, sequences
        if not is_whole or not (yield from self.end(between, is_commit=True)):
            self.give_up_producer()


class PlainWriter(Writer):
    """Writes outside of transactions, with an id or without."""

    def __init__(
        self,
        name: str,
        recorder: Recorder,
        *,
        seed: int,
        version: int,
        places: Sequence[Place],
        is_idempotent: bool,
        patience: float = 0.7,
    ) -> None:
        super().__init__(name, recorder, seed=seed, version=version, patience=patience)
        self._places = places
        self._is_idempotent = is_idempotent

    def rounds(self, count: int) -> Steps[None]:
        """So many batches."""
        for _ in range(count):
            if self._is_idempotent and self._producer is NOBODY and not (yield from self.init(None)):
                continue
            values = self.new_values(self.choose.randint(1, 3))
            if not (yield from self.send(self.choose.choice(self._places), values)):
                self.give_up_producer()


class Copier(Writer):
    """Copies from one topic to another; what it copies and how far it has come commit together."""

    def __init__(
        self,
        name: str,
        recorder: Recorder,
        *,
        seed: int,
        version: int,
        group: str,
        source: Sequence[Place],
        target: Sequence[Place],
        patience: float = 0.7,
    ) -> None:
        super().__init__(name, recorder, seed=seed, version=version, patience=patience)
        self._group = group
        self._source = source
        self._target = target
        self._positions: dict[Place, int] | None = None
        self.transactional_id = name

    def rounds(self, count: int) -> Steps[None]:
        """So many transactions, or tries where there was nothing to copy."""
        for number in range(count):
            if self._producer is NOBODY:
                self._positions = None  # what was under way may have committed or not
                if not (yield from self.init(self.transactional_id)):
                    continue
            if self._positions is None:
                self._positions = yield from self.read_offsets(self._group, self._source, is_stable=True)
                if self._positions is None:
                    continue
            yield from self._copy(number)

    def _copy(self, number: int) -> Steps[None]:
        assert self._positions is not None
        place = self.choose.choice(self._source)
        position = max(self._positions[place], 0)
        session = f"{self.name}/{number}"
        bytes_max = self.choose.choice(SMALL_FETCH_BYTES)
        polled = yield from self.poll(session, place, position, is_committed=True, bytes_max=bytes_max)
        self._positions[place] = polled.next_position
        if not polled.records:
            return
        transaction = self.begin()
        is_whole = yield from self._write(transaction, place, [offset for offset, _ in polled.records])
        reached = (PlaceOffset(place.topic, place.partition, polled.next_position),)
        if is_whole:
            is_whole = yield from self.send_offsets(self._group, reached, transaction=transaction)
        is_commit = is_whole and self.choose.random() < 0.8
        has_ended = yield from self.end(transaction, is_commit=is_commit)
        if not is_whole or not has_ended:
            self.give_up_producer()
        elif not is_commit:
            self._positions = None

    def _write(self, transaction: str, place: Place, offsets: Sequence[int]) -> Steps[bool]:
        for first in range(0, len(offsets), 2):
            some = offsets[first : first + 2]
            sources = tuple(PlaceOffset(place.topic, place.partition, offset) for offset in some)
            target = self.choose.choice(self._target)
            values = self.new_values(len(some))
            if not (yield from self.send(target, values, transaction=transaction, sources=sources)):
                return False
        return True


class Reader(Worker):
    """Reads on in some partition, looks at its ends, and starts somewhere else now and then."""

    def __init__(
        self, name: str, recorder: Recorder, *, seed: int, places: Sequence[Place], is_committed: bool
    ) -> None:
        super().__init__(name, recorder, seed=seed)
        self._places = places
        self._is_committed = is_committed

    def rounds(self, count: int) -> Steps[None]:
        """So many polls."""
        sessions: dict[Place, tuple[str, int]] = {}
        for number in range(count):
            place = self.choose.choice(self._places)
            session, position = sessions.get(place, (f"{self.name}/{number}", 0))
            if self.choose.random() < 0.15:
                session, position = f"{self.name}/{number}", self.choose.randint(0, position)
            bytes_max = self.choose.choice(SMALL_FETCH_BYTES)
            polled = yield from self.poll(
                session, place, position, is_committed=self._is_committed, bytes_max=bytes_max
            )
            sessions[place] = (session, polled.next_position)
            if self.choose.random() < 0.3:
                yield from self.find_end(place, is_committed=self._is_committed)


class Auditor(Worker):
    """Reads everything, at the end and in between."""

    def __init__(
        self, name: str, recorder: Recorder, *, seed: int, places: Sequence[Place], groups: Sequence[str]
    ) -> None:
        super().__init__(name, recorder, seed=seed, patience=1)
        self._places = places
        self._groups = groups

    def read_logs(self, places: Sequence[Place]) -> Steps[None]:
        """Every log as it is."""
        for place in places:
            yield from self.read_log(place)

    def wait_for_stable_ends(self, *, tries_max: int) -> Steps[None]:
        """Waits until every last stable offset is the high watermark; whoever reads the logs then sees if it is not."""
        for place in self._places:
            for _ in range(tries_max):
                stable = yield from self.find_end(place, is_committed=True)
                high = yield from self.find_end(place, is_committed=False)
                if stable == high != NOT_SAID:
                    break

    def read_all(self, sources: Sequence[Place], internal: Sequence[Place]) -> Steps[None]:
        """The offsets of all groups, every log, and every partition as consumers see it, from each batch on."""
        for group in self._groups:
            yield from self.read_offsets(group, sources, is_stable=True)
        for place in (*self._places, *internal):
            yield from self.read_log(place, is_final=True)
        for place in self._places:
            yield from self._read_through(place, is_committed=False)
            yield from self._read_through(place, is_committed=True)
            yield from self._read_from_everywhere(place)

    def _read_through(self, place: Place, *, is_committed: bool) -> Steps[None]:
        session, position = f"{self.name}/{place}/{is_committed}/{self._recorder.next_op()}", 0
        while True:
            polled = yield from self.poll(session, place, position, is_committed=is_committed, bytes_max=300)
            if polled.next_position == position:
                return
            position = polled.next_position

    def _read_from_everywhere(self, place: Place) -> Steps[None]:
        position = 0
        while True:
            session = f"{self.name}/{place}/{self._recorder.next_op()}"
            polled = yield from self.poll(session, place, position, is_committed=True, bytes_max=10_000)
            if polled.next_position == position:
                return
            position = min(position + self.choose.randint(1, 3), polled.next_position)


def take_over(names: Sequence[str], recorder: Recorder, *, seed: int, version: int) -> Steps[None]:
    """Asks once more for each transactional id, which ends what is still open under it."""
    for name in names:
        writer = Writer(f"{name}/end", recorder, seed=seed, version=version, patience=1)
        for _ in range(_TRIES_TO_TAKE_OVER):  # the broker may be about to die
            if (yield from writer.init(name)):
                break
    yield PAUSE
