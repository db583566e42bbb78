"""A data directory whose partitions are opened, written to and crashed by hand: no event loop, no threads that wait."""

from collections import deque
from uuid import UUID

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.append_terms import AppendTerms
from exactlog.core.deltalog.journal_format import JOURNAL_DIRECTORY
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.metrics import Registry
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import decode_header, iter_headers
from exactlog.core.record.control_record_format import TransactionMarker
from exactlog.core.record.record_format import decode_records
from exactlog.storage.files_engine import FilesEngine
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.journal import Journal
from exactlog.storage.journal_engine import JournalEngine
from exactlog.storage.journal_redo import redo_journal, remove_redone
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.partition_log import AppendRefused
from exactlog.storage.partition_store import NodeSettings, PartitionStore
from exactlog.storage.round import SyncFailed
from exactlog.storage.settings import FlushMode
from exactlog.storage.whole_files import SyncFailedError

TOPIC_ID = UUID("0b2f6c1e-6a3f-4f0e-9f57-3c1d2e4a5b60")
ORDERS = TopicPartition("orders", 0)
FIRST_MS = 1_762_539_302_883
ROOT = "/data"
DIRECTORY = f"{ROOT}/topic=orders-part=0"
DELTA_LOG = f"{DIRECTORY}/_delta_log"
JOURNAL = f"{ROOT}/{JOURNAL_DIRECTORY}"


class ManualClock:
    """A clock that only a test moves."""

    def __init__(self):
        self.time_ms = FIRST_MS

    def now_ms(self):
        return self.time_ms

    def monotonic_ms(self):
        return self.time_ms


class BackgroundByHand:
    """Carries background work out at once; while `is_held`, only when told to."""

    def __init__(self):
        self.is_held = False
        self.failed_sync = None
        self.pending = deque()

    def lane(self):
        return self

    def submit(self, work, then):
        self.pending.append((work, then))
        if not self.is_held:
            self.run()

    def run(self):
        while self.pending:
            work, then = self.pending.popleft()
            try:
                result = work()
            except SyncFailedError as error:
                self.failed_sync = str(error)
            except OSError:
                then(None)
            else:
                then(result)

    async def wait(self):
        self.run()


class Ask:
    """A batch that was appended, and what its producer has been told so far."""

    def __init__(self, outcome):
        self.outcome = outcome
        self.told: ErrorCode | None = None

    def tell(self, error):
        assert self.told is None, "told twice"
        self.told = error

    @property
    def offset(self):
        """The base offset its producer was told; None while nothing, or an error, was."""
        if self.told is not ErrorCode.NONE or isinstance(self.outcome, AppendRefused):
            return None
        return self.outcome.base_offset

    @property
    def error(self):
        """The error its producer was told; None while nothing, or success, was."""
        if self.told is ErrorCode.NONE:
            return self.outcome.error_code if isinstance(self.outcome, AppendRefused) else None
        return self.told


class DataDirectory:
    """The storage layer over one file system. `restart` is what a crash does: nothing is flushed, nobody is told.

    With `is_journaled` its rounds go through a commit journal; one that an earlier start has left is put back anyway.
    """

    def __init__(self, filesystem=None, *, config=None, root=ROOT, **settings):
        self.filesystem = MemoryFilesystem() if filesystem is None else filesystem
        self.clock = ManualClock()
        self.config = TopicConfig() if config is None else config
        self.settings = {
            "node_id": 1,
            "leader_epoch": 0,
            "flush_mode": FlushMode.COMMIT,
            "checkpoint_interval": 10,
            "checkpoint_min_interval_ms": 0,
        } | settings
        self.root = root
        self.metrics = Registry()
        self.engine = None
        self.filesystem.make_directories(root)
        self.restart()

    def restart(self, **settings):
        self.close()
        self.settings |= settings
        self.background = BackgroundByHand()
        self.dirty = {}
        self.opened = {}
        self.ended = deque()
        self.uncommitted_bytes = 0
        self.open_files = OpenFiles(self.filesystem, files_max=100)
        self.redone = redo_journal(self.filesystem, self.root)
        self.engine = self._make_engine()
        self.store = PartitionStore(
            self.filesystem,
            self.root,
            open_files=self.open_files,
            clock=self.clock,
            settings=NodeSettings(**self.settings),
            background=self.background,
            mark_dirty=self._mark_dirty,
            metrics=self.metrics,
            journal=self.redone,
        )
        self.store.prepare()

    def _make_engine(self):
        if not self.settings.get("is_journaled"):
            return FilesEngine(self.filesystem, self.open_files)
        self.filesystem.make_directories(f"{self.root}/{JOURNAL_DIRECTORY}")
        number, sequence = self.redone.next_number, self.redone.next_sequence
        return JournalEngine(
            self.filesystem, self.open_files, Journal(self.filesystem, self.root, number=number, sequence=sequence)
        )

    def close(self):
        if self.engine is not None:
            self.engine.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def _mark_dirty(self, partition, size_bytes):
        self.dirty[partition] = None
        self.uncommitted_bytes += size_bytes

    # --- partitions -------------------------------------------------------------------------------------------

    def create(self, key=ORDERS, topic_id=TOPIC_ID):
        self.store.create(key, topic_id, config=self.config, created_ms=self.clock.now_ms())
        self.store.sync_root()

    def open(self, key=ORDERS, topic_id=TOPIC_ID):
        self.opened[key] = self.store.open(key, topic_id, self.config)
        return self.opened[key]

    def make(self, key=ORDERS, topic_id=TOPIC_ID):
        self.create(key, topic_id)
        return self.open(key, topic_id)

    def remove(self, key=ORDERS, topic_id=TOPIC_ID):
        """Deletes a partition, with all its files."""
        self.opened.pop(key, None)
        deleted = self.store.remove(key, topic_id)
        if deleted is not None:
            self.store.remove_deleted(deleted)

    def append(self, partition, batch, **options):
        outcome = partition.append(decode_header(batch), memoryview(batch), now_ms=self.clock.now_ms(), **options)
        ask = Ask(outcome)
        partition.when_committed(ask.tell)
        return ask

    def append_marker(
        self, partition, producer_id, *, epoch=0, is_commit=True, coordinator_epoch=0, transaction_version=1
    ):
        """The end of a producer's transaction."""
        outcome = partition.append_marker(
            TransactionMarker(is_commit=is_commit, coordinator_epoch=coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_version=transaction_version,
            now_ms=self.clock.now_ms(),
        )
        ask = Ask(outcome)
        partition.when_committed(ask.tell)
        return ask

    def append_on_terms(self, partition, batch, *, payload_crc="00000000", **terms):
        """An append on terms; told when its version is published."""
        outcome = partition.append_on_terms(
            decode_header(batch),
            memoryview(batch),
            AppendTerms(payload_crc=payload_crc, **terms),
            now_ms=self.clock.now_ms(),
        )
        ask = Ask(outcome)
        partition.when_published(ask.tell)
        return ask

    def commit_on_terms(self, partition, batch, **terms):
        """An append on terms in a round of its own; its outcome."""
        ask = self.append_on_terms(partition, batch, **terms)
        self.run_round()
        assert ask.told is ErrorCode.NONE
        return ask.outcome

    def move_log_start(self, partition, offset):
        """DeleteRecords, carried out."""
        code = partition.move_log_start(offset)
        told = []
        partition.when_published(told.append)
        self.run_round()
        assert told == [ErrorCode.NONE]
        return code

    # --- rounds -----------------------------------------------------------------------------------------------

    def take_round(self):
        """What the next round would write."""
        dirty, self.dirty = self.dirty, {}
        taken = [(partition, partition.take_write(now_ms=self.clock.now_ms())) for partition in dirty]
        return [(partition, write) for partition, write in taken if write is not None]

    def complete_round(self, round_, outcomes):
        for (partition, write), outcome in zip(round_, outcomes, strict=True):
            self.uncommitted_bytes -= write.size_bytes
            if isinstance(outcome, SyncFailed):
                return outcomes
            partition.complete_write(outcome, now_ms=self.clock.now_ms())
        return outcomes

    def run_round(self):
        """One round, whole; its outcomes."""
        round_ = self.take_round()
        return self.complete_round(round_, self.engine.commit([write for _, write in round_]))

    def publish(self, partition):
        """Publishes what is committed (`interval` and `none`); the outcome, None when there was nothing."""
        write = partition.take_publication(now_ms=self.clock.now_ms())
        if write is None:
            return None
        (outcome,) = self.engine.commit([write])
        partition.complete_publication(outcome, now_ms=self.clock.now_ms())
        return outcome

    def settle(self):
        """Lets the journal go, as upkeep does: all is published, synced where it stands, and the files are removed."""
        if not self.redone.tails:
            remove_redone(self.filesystem, self.root, self.redone)
        if not isinstance(self.engine, JournalEngine):
            return
        part = self.engine.end_file()
        if part is not None:
            self.ended.append(part)
        for partition in self.opened.values():
            self.publish(partition)
        while self.ended and not self.redone.files:
            self.engine.settle(self.ended[0])
            self.ended.popleft()

    def close_cleanly(self):
        """Ends as a broker does that is told to."""
        self.run_round()
        self.settle()
        self.settle()  # the versions that were published for the first time
        self.close()

    def commit(self, partition, *batches):
        """Each batch in a round, so in a version, of its own; the offset of the last."""
        ask = None
        for batch in batches:
            ask = self.append(partition, batch)
            self.run_round()
        return None if ask is None else ask.offset


# --- batches ---------------------------------------------------------------------------------------------------


def batch_of(*values, timestamp_ms=FIRST_MS, **fields):
    """A batch with a record for each value."""
    return build_batch([NewRecord(value, timestamp_ms=timestamp_ms) for value in values], **fields)


def batches_of(count, *, size=20):
    """So many batches of one record each; the values are their numbers."""
    return [batch_of(b"%0*d" % (size, number)) for number in range(count)]


def sequenced(producer_id, sequence, *values, epoch=0, **fields):
    """A batch of an idempotent producer."""
    return batch_of(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


# --- what is there ---------------------------------------------------------------------------------------------


def values_of(partition, offset=0, *, bytes_max=1 << 20):
    """All committed records from an offset on, as a consumer that fetches again and again finds them."""
    found = []
    while offset < partition.high_watermark:
        content = partition.committed.read(
            offset, end_offset=partition.high_watermark, bytes_max=bytes_max, at_least_one_batch=True
        )
        assert content, f"nothing at offset {offset}"
        records = [
            record
            for position, header in iter_headers(content)
            for record in decode_records(content, position, header=header)
        ]
        assert any(record.offset == offset for record in records), f"offset {offset} is not in what was read for it"
        found += [record.value for record in records if record.offset >= offset]
        offset = records[-1].offset + 1
    return found


def state_of(partition):
    """All that recovery must find again."""
    return (
        partition.table.freeze(),
        partition.committed.producers.snapshot(),
        [
            (segment.name, segment.base_offset, segment.next_offset, segment.size, segment.max_timestamp)
            for segment in partition.segments
        ],
        partition.high_watermark,
        partition.last_stable_offset,
        partition.committed.aborted_transactions(partition.log_start_offset, partition.high_watermark),
    )


def copy_of(filesystem):
    """A second file system with the same content."""
    copy = MemoryFilesystem()
    for directory in filesystem._directories:
        copy.make_directories(directory)
    for path, file in filesystem._files.items():
        copy.open(path, create=True).write_at((file.read_at(file.size(), 0),), 0)
    return copy


def remove_checkpoints(filesystem, delta_log=DELTA_LOG):
    for name in filesystem.list_names(delta_log):
        if name.endswith(".checkpoint.json"):
            filesystem.remove(f"{delta_log}/{name}")


def replace_file(filesystem, path, content):
    file = filesystem.open(path, create=True)
    file.truncate(0)
    file.write_at((content,), 0)
