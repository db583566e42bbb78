"""Transactions of a partition's log: markers, the last stable offset, what is told when."""

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.log import producer_state
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import crc_is_valid, decode_header
from exactlog.core.record.control_record_format import TransactionMarker, decode_marker_batch
from exactlog.storage.partition_log import Appended, AppendRefused
from exactlog.storage.round import StorageRefused
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_reader import TableReader
from tests.support.audits import put_version
from tests.support.partitions import DIRECTORY, FIRST_MS, DataDirectory, batch_of, sequenced


@pytest.fixture
def disk():
    with DataDirectory() as directory:
        yield directory


@pytest.fixture
def partition(disk):
    return disk.make()


def write(disk, partition, producer_id, sequence=0, *values, epoch=0, **options):
    """A batch of a transaction, verified; to be committed by the next round."""
    batch = sequenced(producer_id, sequence, *(values or (b"v",)), epoch=epoch, is_transactional=True)
    return disk.append(partition, batch, is_verified=True, **options)


def refused(ask):
    assert isinstance(ask.outcome, AppendRefused)
    return ask.outcome.error_code


def last_batch(partition):
    """The bytes of the last committed batch."""
    segment = partition.segments[-1]
    *_, (position, header) = segment.headers_from(0)
    return segment.read_batch(position, header)


# --- markers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_is_a_control_batch_as_kafka_writes_it(disk, partition, is_commit):
    write(disk, partition, 7, epoch=3)
    disk.run_round()
    disk.clock.time_ms += 5

    ask = disk.append_marker(partition, 7, epoch=3, is_commit=is_commit, coordinator_epoch=12)
    disk.run_round()

    assert ask.offset == 1
    batch = last_batch(partition)
    header = decode_header(batch)
    assert crc_is_valid(batch)
    assert (header.is_control, header.is_transactional, header.base_offset, header.record_count) == (True, True, 1, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert header.max_timestamp == FIRST_MS + 5
    assert decode_marker_batch(batch) == TransactionMarker(is_commit=is_commit, coordinator_epoch=12)


def test_a_marker_shares_the_round_and_the_version_of_what_comes_with_it(disk, partition):
    asks = [write(disk, partition, 7), disk.append(partition, batch_of(b"plain")), disk.append_marker(partition, 7)]
    assert [ask.told for ask in asks] == [None, None, None]

    disk.run_round()

    assert [ask.offset for ask in asks] == [0, 1, 2]
    assert (partition.table.version, partition.last_stable_offset) == (1, 3)


def test_a_marker_of_a_log_that_stamps_its_time_is_stamped_too():
    config = TopicConfig(message_timestamp_type="LogAppendTime")
    with DataDirectory(config=config) as disk:
        partition = disk.make()
        write(disk, partition, 7)
        ask = disk.append_marker(partition, 7)
        disk.run_round()

        assert ask.outcome == Appended(1, FIRST_MS)
        assert crc_is_valid(last_batch(partition))
        assert decode_header(last_batch(partition)).is_log_append_time


def test_a_marker_that_is_refused_is_told_so_once_what_it_was_judged_by_is_committed(disk, partition):
    write(disk, partition, 7, epoch=3)
    late = disk.append_marker(partition, 7, epoch=2)
    equal = disk.append_marker(partition, 7, epoch=3, transaction_version=2)

    assert [refused(late), refused(equal), late.told] == [ErrorCode.INVALID_PRODUCER_EPOCH] * 2 + [None]
    disk.run_round()
    assert (late.error, equal.error, partition.high_watermark) == (*[ErrorCode.INVALID_PRODUCER_EPOCH] * 2, 1)


def test_a_marker_of_a_replaced_coordinator_is_refused_by_what_is_decided(disk, partition):
    write(disk, partition, 7)
    disk.append_marker(partition, 7, coordinator_epoch=5)

    assert refused(disk.append_marker(partition, 7, coordinator_epoch=4)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_partition_that_has_failed_takes_no_marker(disk, partition):
    partition.fail("broken")

    assert refused(disk.append_marker(partition, 7)) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_marker_with_a_raised_epoch_fences_what_the_producer_sends_late(disk, partition):
    write(disk, partition, 7, 0)
    disk.append_marker(partition, 7, epoch=1, is_commit=False, transaction_version=2)

    assert refused(write(disk, partition, 7, 1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(write(disk, partition, 7, 5, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert isinstance(write(disk, partition, 7, 0, epoch=1).outcome, Appended)


# --- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_of_no_open_transaction_needs_the_word_of_its_coordinator(disk, partition):
    batch = sequenced(7, 0, b"v", is_transactional=True)

    assert refused(disk.append(partition, batch)) is ErrorCode.INVALID_TXN_STATE
    assert isinstance(disk.append(partition, batch, is_verified=True).outcome, Appended)
    following = sequenced(7, 1, b"w", is_transactional=True)
    assert isinstance(disk.append(partition, following).outcome, Appended)


def test_what_a_coordinator_writes_has_no_sequence(disk, partition):
    batch = sequenced(7, -1, b"offset", is_transactional=True)

    ask = disk.append(partition, batch, is_client=False, is_verified=True)
    disk.run_round()

    assert (ask.offset, partition.last_stable_offset) == (0, 0)


def test_whose_epoch_is_raised_each_time_begins_at_zero(disk, partition):
    disk.commit(partition, batch_of(b"there was something before"))

    late = write(disk, partition, 7, 5, first_sequence_max=0)

    assert refused(late) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_open_transactions_are_known_as_soon_as_they_are_decided(disk, partition):
    write(disk, partition, 7, epoch=3)
    write(disk, partition, 8)

    assert partition.has_open_transaction(7, 3)
    assert not partition.has_open_transaction(7, 4)
    assert [(entry.producer_id, entry.txn_start_offset) for entry in partition.open_transactions()] == [(7, 0), (8, 1)]
    disk.append_marker(partition, 7, epoch=3)
    assert not partition.has_open_transaction(7, 3)
    assert [entry.producer_id for entry in partition.open_transactions()] == [8]
    assert partition.committed.producers.open_transactions() == []


def test_a_refused_round_takes_back_what_it_began_and_what_it_ended(disk, partition):
    write(disk, partition, 7)
    disk.run_round()
    write(disk, partition, 8)
    disk.append_marker(partition, 7, is_commit=False)
    round_ = disk.take_round()

    disk.complete_round(round_, [StorageRefused("no room", 0)])

    assert [entry.producer_id for entry in partition.open_transactions()] == [7]
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
    disk.append_marker(partition, 7)
    disk.run_round()
    assert (partition.last_stable_offset, partition.committed.aborted_transactions(0, 2)) == (2, ())


def test_too_many_open_transactions_are_refused(disk, partition, monkeypatch):
    monkeypatch.setattr(producer_state, "OPEN_TRANSACTIONS_PER_PARTITION_MAX", 1)
    write(disk, partition, 7)

    assert refused(write(disk, partition, 8)) is ErrorCode.POLICY_VIOLATION


# --- the last stable offset -------------------------------------------------------------------------------------------


def test_it_is_where_the_oldest_open_transaction_begins_and_else_the_high_watermark(disk, partition):
    seen = []
    for append in (
        lambda: disk.append(partition, batch_of(b"plain")),
        lambda: write(disk, partition, 7),
        lambda: write(disk, partition, 8),
        lambda: disk.append_marker(partition, 8),
        lambda: disk.append(partition, batch_of(b"plain")),
        lambda: disk.append_marker(partition, 7, is_commit=False),
    ):
        append()
        disk.run_round()
        seen.append((partition.last_stable_offset, partition.high_watermark, partition.table.last_stable_offset))

    assert seen == [(1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 4, 1), (1, 5, 1), (6, 6, 6)]


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
def test_a_version_has_that_of_its_own_end(flush_mode):
    with DataDirectory(flush_mode=flush_mode) as disk:
        partition = disk.make()
        write(disk, partition, 7)
        disk.run_round()
        write_ = partition.take_publication(now_ms=FIRST_MS)
        disk.append_marker(partition, 7)
        disk.run_round()
        assert partition.last_stable_offset == 2
        partition.complete_publication(*disk.engine.commit([write_]), now_ms=FIRST_MS)
        assert (partition.table.next_offset, partition.table.last_stable_offset) == (1, 0)

        disk.publish(partition)

        assert (partition.table.next_offset, partition.table.last_stable_offset) == (2, 2)


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
def test_several_versions_published_together_have_each_their_own(flush_mode):
    with DataDirectory(flush_mode=flush_mode) as disk:
        partition = disk.make()
        write(disk, partition, 7)
        disk.append_on_terms(partition, batch_of(b"x"), expected_version=17)  # a conflict: the version ends here
        disk.append_marker(partition, 7)
        disk.run_round()
        disk.publish(partition)

        commits = TableReader(disk.filesystem, DIRECTORY).versions()
        assert [(commit.end_offset, commit.last_stable_offset) for commit in commits] == [(0, 0), (1, 0), (2, 2)]


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_who_watches_is_called_when_only_it_moves(flush_mode):
    with DataDirectory(flush_mode=flush_mode) as disk:
        partition = disk.make()
        write(disk, partition, 7)
        disk.append(partition, batch_of(b"plain"))
        disk.run_round()
        disk.publish(partition)
        seen = []
        partition.committed.watch(lambda: seen.append((partition.last_stable_offset, partition.high_watermark)))

        assert partition.move_log_start(1) is ErrorCode.NONE
        disk.run_round()
        disk.publish(partition)

        assert (1, 2) in seen


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_it_never_lies_below_the_log_start(flush_mode):
    with DataDirectory(flush_mode=flush_mode) as disk:
        partition = disk.make()
        write(disk, partition, 7)
        disk.append(partition, batch_of(b"plain"))
        disk.append(partition, batch_of(b"plain"))
        disk.run_round()
        disk.move_log_start(partition, 2)
        disk.publish(partition)
        assert (partition.last_stable_offset, partition.table.last_stable_offset) == (2, 2)

        disk.append(partition, batch_of(b"plain"))
        disk.run_round()
        disk.publish(partition)
        assert (partition.last_stable_offset, partition.table.last_stable_offset) == (2, 2)
        disk.restart()
        partition = disk.open()
        assert (partition.last_stable_offset, partition.high_watermark) == (2, 4)
        assert [entry.producer_id for entry in partition.open_transactions()] == [7]
        disk.append_marker(partition, 7)
        disk.run_round()
        assert partition.last_stable_offset == 5


@pytest.mark.parametrize("checkpoint_interval", [1, 100])
@pytest.mark.parametrize("flush_mode", FlushMode)
def test_a_start_finds_open_transactions_and_goes_on_with_them(flush_mode, checkpoint_interval):
    with DataDirectory(flush_mode=flush_mode, checkpoint_interval=checkpoint_interval) as disk:
        partition = disk.make()
        disk.append(partition, batch_of(b"plain"))
        write(disk, partition, 7, 0, b"a", b"b", epoch=2)
        disk.run_round()
        disk.publish(partition)
        before = partition.open_transactions()
        disk.restart()

        partition = disk.open()

        assert partition.open_transactions() == before
        assert (partition.last_stable_offset, partition.high_watermark) == (1, 3)
        resent = write(disk, partition, 7, 0, b"a", b"b", epoch=2)
        assert resent.outcome.base_offset == 1
        following = disk.append(partition, sequenced(7, 2, b"c", epoch=2, is_transactional=True))
        disk.append_marker(partition, 7, epoch=2, is_commit=False)
        disk.run_round()
        assert (following.offset, partition.last_stable_offset) == (3, 5)
        (aborted,) = partition.committed.aborted_transactions(0, 5)
        assert (aborted.first_offset, aborted.last_offset) == (1, 4)


# --- control batches that somebody else has written -------------------------------------------------------------------


def control_batch(key, *, producer_id=7, value=b"\x00\x00\x00\x00\x00\x00", base_offset):
    batch = build_batch(
        [NewRecord(key=key, value=value, timestamp_ms=FIRST_MS)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
        is_control=True,
        leader_epoch=0,
    )
    return bytes(batch)


def put_behind(disk, partition, batch):
    segment = partition.segments[-1]
    disk.filesystem.open(segment.path).write_at((batch,), segment.size)


@pytest.mark.parametrize("flush_mode", [FlushMode.INTERVAL, FlushMode.NONE])
def test_a_tail_ends_before_a_marker_that_cannot_be_read(flush_mode, caplog):
    with DataDirectory(flush_mode=flush_mode) as disk:
        partition = disk.make()
        write(disk, partition, 7)
        disk.run_round()
        disk.publish(partition)
        good, bad = control_batch(b"\0\0\0\0", base_offset=1), control_batch(b"\0", base_offset=2)
        put_behind(disk, partition, good + bad)
        disk.restart()

        partition = disk.open()

        assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)
        assert partition.committed.aborted_transactions(0, 2)[0].last_offset == 1
        assert "offsets 1 to 1 had no delta version yet" in caplog.text


def test_a_version_with_a_marker_that_cannot_be_read_is_refused():
    with DataDirectory() as disk:
        partition = disk.make()
        write(disk, partition, 7)
        disk.run_round()
        put_version(disk.filesystem, control_batch(b"\0", base_offset=1), segment=partition.segments[0].name)
        disk.restart()

        with pytest.raises(DamageError, match=r"version 2: .*the batch at byte .* key of a control record"):
            disk.open()


def test_a_control_batch_that_says_something_else_ends_no_transaction():
    with DataDirectory() as disk:
        partition = disk.make()
        write(disk, partition, 7)
        disk.run_round()
        leader_change = control_batch(b"\0\0\0\2", base_offset=1, producer_id=-1)
        put_version(disk.filesystem, leader_change, segment=partition.segments[0].name, last_stable_offset=0)
        disk.restart()

        partition = disk.open()

        assert (partition.high_watermark, partition.last_stable_offset) == (2, 0)
        assert len(partition.committed.producers) == 1


# --- what is settled --------------------------------------------------------------------------------------------------


def test_a_producer_is_settled_once_its_own_batches_are_committed_whatever_others_write(disk, partition):
    assert partition.is_settled(7)
    write(disk, partition, 7)
    assert not partition.is_settled(7)
    assert partition.is_settled(8)
    disk.run_round()

    write(disk, partition, 8)
    assert partition.is_settled(7)
    assert not partition.is_settled(8)
    disk.append_marker(partition, 7, epoch=1, is_commit=True)
    assert not partition.is_settled(7)
    disk.run_round()

    assert partition.is_settled(7)
    assert partition.is_settled(8)


def test_a_producer_whose_batch_the_disk_refused_is_settled(disk, partition):
    write(disk, partition, 7)
    disk.run_round()
    write(disk, partition, 7, 1)
    disk.complete_round(disk.take_round(), [StorageRefused("full", 0)])

    assert partition.is_settled(7)
