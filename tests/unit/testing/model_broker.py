"""A naive Kafka in one class: what is right about transactions, and, by name, what can be wrong about them.

It carries out one call at a time. Markers are written one partition after the other, between calls, so that there are
moments at which a transaction is decided and not everywhere ended.
"""

from random import Random

from exactlog.core.model.error_code import ErrorCode
from exactlog.testing.history_format import Batch, Place, PlaceOffset
from exactlog.testing.workload_calls import (
    AddOffsets,
    AddPartitions,
    Answer,
    CommitOffsets,
    EndFound,
    EndTransaction,
    Fetch,
    Fetched,
    FetchOffsets,
    FindEnd,
    Identified,
    InitProducer,
    OffsetsFetched,
    Produce,
    Produced,
)
from tests.unit.testing.model_mutations import MUTATIONS
from tests.unit.testing.model_session import ModelSession

OFFSETS = Place("__consumer_offsets", 0)
BATCH_BYTES = 100
NONE = ErrorCode.NONE


class Log:
    """One partition."""

    def __init__(self):
        self.batches = []
        self.producers = {}  # id -> (epoch, next sequence, {(first, count): base offset})
        self.open = {}  # id -> first offset
        self.aborted = []  # (producer id, first offset, marker offset)
        self.stable_before = 0

    @property
    def end(self):
        return self.batches[-1].next_offset if self.batches else 0

    @property
    def stable(self):
        return min(self.open.values(), default=self.end)


class Entry:
    """A transactional id."""

    def __init__(self, producer_id):
        self.producer_id = producer_id
        self.epoch = 0
        self.state = "empty"
        self.places = set()
        self.to_mark = []
        self.is_commit = None
        self.ended_by = -1  # the epoch of the producer whose transaction was last


class ModelBroker:
    """A `System`. Each mutation happens with that likelihood where it can."""

    def __init__(self, *, transaction_version=2, mutation=None, seed=0, likelihood=0.5):
        assert mutation is None or mutation in MUTATIONS
        self.transaction_version = transaction_version
        self.mutation = mutation
        self.has_mutated = 0
        self.likelihood = likelihood
        self.chance = Random(f"model {seed}")
        self.logs = {OFFSETS: Log()}
        self.entries = {}
        self.offsets = {}  # (group, place) -> (offset, position in the log of offsets)
        self.pending = {}  # producer id -> {(group, place): (offset, position)}
        self.next_producer_id = 1000
        self.life = 0
        self.held = {}  # place -> batch that is to be overtaken

    # --- the port ---------------------------------------------------------------------------------------------------

    def create_topic(self, name, partition_count):
        for index in range(partition_count):
            self.logs[Place(name, index)] = Log()

    def connect(self):
        return ModelSession(self)

    def close(self):
        pass

    def crash(self):
        self.life += 1
        for log in self.logs.values():
            if log.open and self.goes_wrong("replay forgets open transactions"):
                log.open.clear()
            if log.producers and self.goes_wrong("replay forgets producers"):
                log.producers.clear()
        for entry in self.entries.values():
            if entry.to_mark and self.goes_wrong("replay forgets prepared transactions"):
                entry.to_mark, entry.state = [], "complete"
        if self.offsets and self.goes_wrong("replay loses an offset"):
            self.offsets.popitem()
        self._lose_the_tail()

    def _lose_the_tail(self):
        for log in self.logs.values():
            markers = [at for at, batch in enumerate(log.batches) if batch.marker == "commit"]
            if markers and self.goes_wrong("replay loses the last transaction"):
                producer_id = log.batches[markers[-1]].producer_id
                first = max(at for at in range(markers[-1]) if log.batches[at].producer_id == producer_id)
                del log.batches[first:]
                return
            data = [at for at, batch in enumerate(log.batches) if batch.values]
            if data and self.goes_wrong("replay changes a batch"):
                batch = log.batches[data[-1]]
                log.batches[data[-1]] = changed(batch, values=tuple(f"{value}?" for value in batch.values))
                return

    def carry_out(self, call):
        self.work_on_markers()
        match call:
            case InitProducer():
                return self.init(call)
            case AddPartitions(producer=producer, place=place):
                return Answer(self.add(producer, place))
            case AddOffsets(producer=producer):
                return Answer(self.add(producer, OFFSETS))
            case Produce():
                return self.produce(call)
            case CommitOffsets():
                return self.commit_offsets(call)
            case EndTransaction():
                return self.end(call)
            case Fetch():
                return self.fetch(call)
            case FetchOffsets():
                return self.fetch_offsets(call)
            case FindEnd(place=place, is_committed=is_committed):
                log = self.logs[place]
                return EndFound(NONE, self.stable(log) if is_committed else self.high(log))

    def goes_wrong(self, mutation):
        if self.mutation == mutation and self.chance.random() < self.likelihood:
            self.has_mutated += 1
            return True
        return False

    # --- the coordinator --------------------------------------------------------------------------------------------

    def work_on_markers(self, *, all_of=None):
        """Writes some of the markers that are due; all of them, of one."""
        for entry in self.entries.values():
            while entry.to_mark and (entry is all_of or self.chance.random() < 0.4):
                self.mark(entry, entry.to_mark.pop())
                if not entry.to_mark:
                    entry.state = "complete"
                    entry.places = set()

    def mark(self, entry, place):
        log = self.logs[place]
        is_commit, epoch = entry.is_commit, entry.epoch
        if self.goes_wrong("a marker is lost"):
            return
        if self.goes_wrong("a marker has the wrong type"):
            is_commit = not is_commit
        if is_commit and self.goes_wrong("a commit reaches some of the partitions"):
            is_commit = False
        if self.goes_wrong("a marker is of an older epoch"):
            epoch = max(0, epoch - 2)
        times = 2 if self.goes_wrong("a marker is written twice") else 1
        for _ in range(times):
            self.append_marker(log, entry.producer_id, epoch, is_commit=is_commit)
        if place == OFFSETS:
            self.resolve_offsets(entry.producer_id, is_commit=is_commit)

    def append_marker(self, log, producer_id, epoch, *, is_commit):
        offset = log.end
        log.batches.append(
            Batch(
                base_offset=offset,
                last_offset=offset,
                leader_epoch=self.life,
                producer_id=producer_id,
                producer_epoch=epoch,
                is_transactional=True,
                marker="commit" if is_commit else "abort",
                coordinator_epoch=self.life,
            )
        )
        first = log.open.pop(producer_id, None)
        if first is not None and not is_commit:
            log.aborted.append((producer_id, first, offset))
        known_epoch, sequence, known = log.producers.get(producer_id, (-1, 0, {}))
        if epoch > known_epoch:
            sequence, known = 0, {}
        log.producers[producer_id] = (max(epoch, known_epoch), sequence, known)

    def resolve_offsets(self, producer_id, *, is_commit):
        for key, (offset, position) in self.pending.pop(producer_id, {}).items():
            holds = is_commit
            if is_commit and self.goes_wrong("offsets of a committed transaction are lost"):
                holds = False
            if not is_commit and self.goes_wrong("offsets of an aborted transaction hold"):
                holds = True
            if holds and position > self.offsets.get(key, (-1, -1))[1]:
                self.offsets[key] = (offset, position)

    def prepare(self, entry, *, is_commit, is_fence=False):
        entry.is_commit = is_commit
        entry.ended_by = entry.epoch
        if self.transaction_version >= 2 or is_fence:
            entry.epoch += 1
        entry.state = "prepared"
        entry.to_mark = sorted(entry.places, key=str)
        if not entry.to_mark:
            entry.state = "complete"

    def init(self, call):
        if call.transactional_id is None:
            self.next_producer_id += 1
            return Identified(NONE, self.next_producer_id, 0)
        entry = self.entries.get(call.transactional_id)
        if entry is None:
            self.next_producer_id += 1
            self.entries[call.transactional_id] = entry = Entry(self.next_producer_id)
            return Identified(NONE, entry.producer_id, 0)
        if entry.state == "ongoing" and self.goes_wrong("init leaves the transaction open"):
            entry.epoch += 1
            return Identified(NONE, entry.producer_id, entry.epoch)
        if entry.state == "ongoing":
            self.prepare(entry, is_commit=False, is_fence=True)
        if entry.state == "prepared":
            return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        entry.epoch += 1
        entry.state = "empty"
        entry.ended_by = -1
        return Identified(NONE, entry.producer_id, entry.epoch)

    def check_producer(self, producer):
        entry = self.entries.get(producer.transactional_id)
        if entry is None or entry.producer_id != producer.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if entry.state == "prepared":
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if entry.epoch != producer.producer_epoch and not self.goes_wrong("a fenced epoch may write"):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return NONE

    def add(self, producer, place):
        error = self.check_producer(producer)
        if not error:
            entry = self.entries[producer.transactional_id]
            entry.state = "ongoing"
            entry.places.add(place)
        return error

    def end(self, call):
        entry = self.entries.get(call.producer.transactional_id)
        if entry is None or entry.producer_id != call.producer.producer_id:
            return Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        is_old = self.transaction_version >= 2 and call.producer.producer_epoch == entry.epoch - 1
        is_retry = entry.ended_by == call.producer.producer_epoch and (
            is_old or (self.transaction_version < 2 and entry.epoch == call.producer.producer_epoch)
        )
        if entry.state == "prepared":
            return Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        if entry.state == "complete" and is_retry:
            if entry.is_commit == call.is_commit:
                return self.next_identity(entry)
            if entry.is_commit and self.goes_wrong("an abort after a commit succeeds"):
                return self.next_identity(entry)
            return Answer(ErrorCode.INVALID_TXN_STATE if entry.is_commit else ErrorCode.PRODUCER_FENCED)
        if entry.epoch != call.producer.producer_epoch and not (
            call.is_commit and self.goes_wrong("a fenced epoch may commit")
        ):
            return Answer(ErrorCode.PRODUCER_FENCED)
        if entry.state != "ongoing":
            return Answer(ErrorCode.INVALID_TXN_STATE) if call.is_commit else self.next_identity(entry)
        self.prepare(entry, is_commit=call.is_commit)
        return self.next_identity(entry)

    def next_identity(self, entry):
        if self.transaction_version < 2:
            return Identified(NONE)
        return Identified(NONE, entry.producer_id, entry.epoch)

    # --- a partition ------------------------------------------------------------------------------------------------

    def produce(self, call):
        log, producer = self.logs[call.place], call.producer
        key = (call.base_sequence, len(call.values))
        epoch, expected, known = log.producers.get(producer.producer_id, (-1, 0, {}))
        is_idempotent = producer.producer_id >= 0
        if is_idempotent and epoch == producer.producer_epoch and key in known:
            if self.goes_wrong("a duplicate batch has a new offset"):
                return Produced(NONE, log.end)
            if not self.goes_wrong("a duplicate batch is appended"):
                return Produced(NONE, known[key])
        elif is_idempotent:
            error = self.check_batch(log, call, epoch, expected)
            if error:
                if error != ErrorCode.CONCURRENT_TRANSACTIONS and self.goes_wrong("a refused batch is appended"):
                    self.append(log, call)
                return Produced(error)
        if self.goes_wrong("a batch is dropped and acknowledged"):
            return Produced(NONE, log.end)
        return Produced(NONE, self.append_perhaps_later(log, call))

    def check_batch(self, log, call, epoch, expected):
        producer = call.producer
        if producer.transactional_id is not None:
            if self.transaction_version >= 2:
                error = self.add(producer, call.place)
            else:
                error = self.check_producer(producer)
                entry = self.entries.get(producer.transactional_id)
                if not error and (entry.state != "ongoing" or call.place not in entry.places):
                    error = ErrorCode.INVALID_TXN_STATE
            if error:
                return error
        if producer.producer_epoch < epoch and self.mutation != "a fenced epoch may write":
            return ErrorCode.INVALID_PRODUCER_EPOCH
        wanted = expected if producer.producer_epoch == epoch else 0
        if call.base_sequence != wanted and self.mutation not in {
            "replay forgets producers",
            "a fenced epoch may write",
        }:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return NONE

    def append_perhaps_later(self, log, call):
        """Mostly at once; where records are reordered, a batch waits for its successor of the same producer."""
        held = self.held.pop(call.place, None)
        if held is None:
            if call.producer.producer_id >= 0 and self.goes_wrong("records are reordered"):
                self.held[call.place] = call
                self.note_producer(log, call, log.end)
                if call.producer.transactional_id is not None:
                    log.open.setdefault(call.producer.producer_id, log.end)
                return -1
            return self.append(log, call)
        offset = self.append(log, call)
        self.append(log, held)
        return offset

    def append(self, log, call):
        producer, offset = call.producer, log.end
        is_transactional = producer.transactional_id is not None
        log.batches.append(
            Batch(
                base_offset=offset,
                last_offset=offset + len(call.values) - 1,
                leader_epoch=self.life,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=call.base_sequence,
                is_transactional=is_transactional,
                values=call.values,
            )
        )
        if is_transactional:
            log.open.setdefault(producer.producer_id, offset)
        self.note_producer(log, call, offset)
        return offset

    def note_producer(self, log, call, offset):
        producer = call.producer
        if producer.producer_id < 0:
            return
        epoch, _, known = log.producers.get(producer.producer_id, (-1, 0, {}))
        known = dict(list(known.items())[-4:]) if epoch == producer.producer_epoch else {}
        known[call.base_sequence, len(call.values)] = offset
        following = (call.base_sequence + len(call.values)) % 2**31
        log.producers[producer.producer_id] = (producer.producer_epoch, following, known)

    def stable(self, log):
        stable = log.stable
        if self.goes_wrong("the stable offset is the high watermark"):
            stable = log.end
        elif log.open and self.goes_wrong("the stable offset takes in the first open record"):
            stable += 1
        elif log.stable_before and self.goes_wrong("the stable offset goes back"):
            stable = log.stable_before - 1
        elif self.mutation == "the stable offset stays behind" and log.end > 3:
            self.has_mutated += 1
            stable = min(stable, log.end - 1)
        log.stable_before = max(log.stable_before, min(stable, log.stable))
        return stable

    def high(self, log):
        if log.end and not log.open and self.goes_wrong("the high watermark goes back"):
            return log.end - 1
        return log.end

    def fetch(self, call):
        log = self.logs[call.place]
        stable, high = self.stable(log), self.high(log)
        end = stable if call.is_committed else high
        wanted = [batch for batch in log.batches if batch.last_offset >= call.offset and batch.base_offset < end]
        batches = wanted[: max(1, call.bytes_max // BATCH_BYTES)]
        if len(batches) > 1 and batches[0].values and self.goes_wrong("a fetch leaves out a batch"):
            batches = batches[1:]
        if len(batches) > 1 and batches[0].values and batches[1].values and self.goes_wrong("a fetch is out of order"):
            batches[:2] = reversed(batches[:2])
        aborted = self.aborted_list(log, call, batches)
        return Fetched(NONE, tuple(batches), high, stable, 0, aborted)

    def aborted_list(self, log, call, batches):
        if not call.is_committed and not self.goes_wrong("the aborted list comes to everybody"):
            return None
        if not batches:
            return ()
        end = batches[-1].next_offset
        found = sorted(
            (first, producer_id) for producer_id, first, marker in log.aborted if marker >= call.offset and first < end
        )
        found = [(producer_id, first) for first, producer_id in found]
        if len(found) > 1 and self.goes_wrong("the aborted list is unsorted"):
            found.reverse()
        if found and self.goes_wrong("the aborted list leaves one out"):
            found.pop()
        if found and found[0][1] < call.offset and self.goes_wrong("the aborted list leaves out what began before"):
            found.pop(0)
        over = [(producer_id, first) for producer_id, first, marker in log.aborted if marker < call.offset]
        if over and self.goes_wrong("the aborted list names what is over"):
            found.insert(0, over[-1])
        return tuple(found)

    # --- offsets of groups ------------------------------------------------------------------------------------------

    def commit_offsets(self, call):
        producer, log = call.producer, self.logs[OFFSETS]
        keys = {(call.group, offset.place): offset.offset for offset in call.offsets}
        if producer.transactional_id is None:
            position = log.end
            log.batches.append(Batch(base_offset=position, last_offset=position, leader_epoch=self.life))
            self.offsets |= {key: (offset, position) for key, offset in keys.items()}
            return Answer(NONE)
        if self.transaction_version >= 2:
            error = self.add(producer, OFFSETS)
        else:
            error = self.check_producer(producer)
            if not error and OFFSETS not in self.entries[producer.transactional_id].places:
                error = ErrorCode.INVALID_TXN_STATE
        if error:
            return Answer(error)
        position = log.end
        log.batches.append(
            Batch(
                base_offset=position,
                last_offset=position,
                leader_epoch=self.life,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                is_transactional=True,
            )
        )
        log.open.setdefault(producer.producer_id, position)
        written = {key: (offset, position) for key, offset in keys.items()}
        self.pending.setdefault(producer.producer_id, {}).update(written)
        if self.goes_wrong("offsets hold before the commit"):
            self.offsets |= written
        return Answer(NONE)

    def fetch_offsets(self, call):
        pending = {key for of_producer in self.pending.values() for key in of_producer}
        if call.is_stable and any((call.group, place) in pending for place in call.places):
            return Answer(ErrorCode.UNSTABLE_OFFSET_COMMIT)
        found = {place: self.offsets.get((call.group, place), (-1, -1))[0] for place in call.places}
        return OffsetsFetched(
            NONE, tuple(PlaceOffset(place.topic, place.partition, offset) for place, offset in found.items())
        )


def changed(batch, **fields):
    return Batch(**{name: getattr(batch, name) for name in Batch.__struct_fields__} | fields)
