"""Whichever engine carried the rounds out: a data directory that was closed holds the same."""

from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.append_terms import Committed
from exactlog.core.model.ids import TopicPartition
from exactlog.storage import journal_engine
from exactlog.storage.table_audit import audit_table
from exactlog.storage.table_reader import TableReader
from tests.support.partitions import JOURNAL, ROOT, DataDirectory, batch_of, sequenced, values_of

CONFIG = TopicConfig(segment_bytes=500, file_delete_delay_ms=0)
KEYS = [TopicPartition("orders", index) for index in range(2)]
DIRECTORIES = [f"{ROOT}/topic=orders-part={index}" for index in range(2)]
PRODUCERS = (1, 2)
LONG_FROM = 200

places = st.integers(0, len(KEYS) - 1)
producers = st.sampled_from(PRODUCERS)
steps = st.one_of(
    st.tuples(st.just("plain"), places, st.integers(1, 200)),
    st.tuples(st.just("transactional"), places, producers),
    st.tuples(st.just("marker"), places, producers, st.booleans()),
    st.tuples(st.just("on_terms"), places, st.integers(0, 99)),
    st.tuples(st.just("remove"), places, st.integers(0, 10)),
    st.tuples(st.just("round")),
    st.tuples(st.just("publish"), places),
    st.tuples(st.just("settle")),
    st.tuples(st.just("sweep"), places),
    st.tuples(st.just("restart")),
)


class Run:
    """What happens to two partitions, carried out on one of the engines."""

    def __init__(self, *, is_journaled):
        self.disk = DataDirectory(config=CONFIG, is_journaled=is_journaled, checkpoint_interval=3, leader_epoch=1)
        self.partitions = [self.disk.make(key) for key in KEYS]
        self.sequences = {}
        self.told = []

    def plain(self, place, size):
        self.disk.append(self.partitions[place], batch_of(b"p" * size))

    def transactional(self, place, producer):
        sequence = self.sequences.get((place, producer), 0)
        batch = sequenced(producer, sequence, b"t" * 30, is_transactional=True)
        self.sequences[place, producer] = sequence + 1
        self.disk.append(self.partitions[place], batch, is_verified=True)

    def marker(self, place, producer, is_commit):
        if self.partitions[place].has_open_transaction(producer, 0):
            self.disk.append_marker(self.partitions[place], producer, is_commit=is_commit)

    def on_terms(self, place, number):
        self.round()
        self.disk.publish(self.partitions[place])
        outcome = self.disk.append_on_terms(self.partitions[place], batch_of(b"on terms"), txn_id=f"id-{number}")
        self.round()
        assert isinstance(outcome.outcome, Committed)
        self.told.append((outcome.outcome.offset_start, outcome.outcome.offset_end))

    def remove(self, place, offset):
        self.round()
        self.disk.move_log_start(self.partitions[place], min(offset, self.partitions[place].high_watermark))

    def round(self):
        self.disk.run_round()

    def publish(self, place):
        self.disk.publish(self.partitions[place])

    def settle(self):
        self.disk.settle()

    def sweep(self, place):
        self.partitions[place].sweep_removed(now_ms=self.disk.clock.time_ms)
        self.disk.run_round()

    def restart(self):
        self.disk.run_round()
        self.disk.restart()
        self.partitions = [self.disk.open(key) for key in KEYS]

    def end(self):
        self.disk.close_cleanly()
        return self.disk.filesystem


def carried_out(script, *, is_journaled):
    run = Run(is_journaled=is_journaled)
    for step, *arguments in script:
        getattr(run, step)(*arguments)
    return run, run.end()


def table_of(filesystem, place):
    """What a table holds, however its versions are cut."""
    with DataDirectory(filesystem, config=CONFIG, leader_epoch=1) as disk:
        partition = disk.open(KEYS[place])
        assert partition.table.next_offset == partition.high_watermark, "all of it has a version"
        table = partition.table.freeze()
        start, end = partition.log_start_offset, partition.high_watermark
        return (
            [(segment.name, segment.base, segment.next_offset, segment.size) for segment in table.segments],
            (table.next_offset, table.log_start_offset, table.last_stable_offset, table.leader_epoch),
            dict(table.metadata.config),
            partition.committed.producers.snapshot(),
            partition.committed.aborted_transactions(start, end),
            values_of(partition, start),
        )


def segments_of(filesystem, directory):
    """The bytes of those that are in the table: when the others go depends on checkpoints, which depend on versions."""
    names = [segment.name for segment in TableReader(filesystem, directory).snapshot().segments]
    return {name: filesystem.read_file(f"{directory}/{name}") for name in names}


@given(st.lists(steps, max_size=40))
def test_segments_are_the_same_bytes_and_tables_have_the_same_content(script):
    try:
        journal_engine.DIRECT_BYTES_MIN, before = LONG_FROM, journal_engine.DIRECT_BYTES_MIN
        on_files, files = carried_out(script, is_journaled=False)
        on_journal, journaled = carried_out(script, is_journaled=True)
    finally:
        journal_engine.DIRECT_BYTES_MIN = before

    assert on_files.told == on_journal.told
    assert journaled.list_names(JOURNAL) == []
    for place, directory in enumerate(DIRECTORIES):
        assert segments_of(files, directory) == segments_of(journaled, directory)
        assert [finding for finding in audit_table(journaled, directory).findings if finding.is_damage] == []
        assert table_of(files, place) == table_of(journaled, place)


def test_a_run_with_all_of_it_leaves_the_same():
    script = [("plain", place, 100) for place in (0, 1, 0, 1, 0)]
    script += [("round",), ("transactional", 0, 1), ("transactional", 1, 1), ("transactional", 0, 2), ("round",)]
    script += [("marker", 0, 1, False), ("marker", 1, 1, True), ("publish", 0), ("plain", 0, 200), ("round",)]
    script += [("settle",), ("on_terms", 0, 7), ("plain", 1, 300), ("restart",), ("remove", 0, 4), ("plain", 0, 150)]
    script += [("round",), ("on_terms", 1, 7), ("marker", 0, 2, True), ("sweep", 0), ("sweep", 0), ("plain", 1, 10)]

    on_files, files = carried_out(script, is_journaled=False)
    on_journal, journaled = carried_out(script, is_journaled=True)

    assert on_files.told == on_journal.told
    for place, directory in enumerate(DIRECTORIES):
        assert len(segments_of(files, directory)) > 1
        assert segments_of(files, directory) == segments_of(journaled, directory)
        assert table_of(files, place) == table_of(journaled, place)
    assert table_of(files, 0)[4], "a transaction was aborted"
    assert table_of(files, 0)[1][1] == 4, "records were removed"
