"""A partition's head, committed and published ends, and what its producers are told when."""

import asyncio
import errno
import json

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.deltalog.commit_format import decode_commit, encode_commit
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_format import crc_is_valid, decode_header
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.partition_log import Appended, AppendRefused
from exactlog.storage.round import ForeignVersion, StorageRefused, Stored, SyncFailed
from exactlog.storage.settings import FlushMode
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    FIRST_MS,
    DataDirectory,
    batch_of,
    batches_of,
    sequenced,
    state_of,
    values_of,
)

REFUSED = StorageRefused("the disk is full", 0)
OTHERS = TopicPartition("others", 0)


@pytest.fixture
def disk():
    with DataDirectory() as directory:
        yield directory


@pytest.fixture
def partition(disk):
    return disk.make()


def refuse_round(disk):
    """A round whose every partition is refused, nothing of it written."""
    round_ = disk.take_round()
    disk.complete_round(round_, [REFUSED] * len(round_))


def operations_of(disk, version):
    document = json.loads(disk.filesystem.read_file(f"{DELTA_LOG}/{version:020d}.json"))
    return [
        (operation["segment"], operation["offset_start"], operation["offset_end"])
        for operation in document["operations"]
    ]


# --- what is decided and what is committed -----------------------------------------------------------------------


def test_a_batch_is_neither_answered_nor_seen_before_its_round_is_stored(disk, partition):
    ask = disk.append(partition, batch_of(b"a", b"b"))
    round_ = disk.take_round()
    outcomes = disk.engine.commit([write for _, write in round_])

    assert ask.outcome == Appended(0, -1)
    assert (ask.told, partition.high_watermark, partition.last_stable_offset) == (None, 0, 0)
    assert partition.committed.read(0, end_offset=10, bytes_max=1_000, at_least_one_batch=True) == b""

    disk.complete_round(round_, outcomes)

    assert (ask.offset, partition.high_watermark, partition.last_stable_offset) == (0, 2, 2)
    assert values_of(partition) == [b"a", b"b"]


def test_what_arrives_while_a_round_is_in_flight_is_the_next_one(disk, partition):
    first = disk.append(partition, batch_of(b"a"))
    round_ = disk.take_round()
    second = disk.append(partition, batch_of(b"b"))
    disk.complete_round(round_, disk.engine.commit([write for _, write in round_]))

    assert (first.offset, second.told) == (0, None)
    assert values_of(partition) == [b"a"]

    disk.run_round()

    assert second.offset == 1
    assert values_of(partition) == [b"a", b"b"]


def test_all_batches_of_a_round_are_one_version(disk, partition):
    for batch in batches_of(5):
        disk.append(partition, batch)
    disk.run_round()

    assert partition.table.version == 1
    assert operations_of(disk, 1) == [("00000000000000000000.log", 0, 4)]


def test_batches_carry_their_offsets_and_the_leader_epoch_in_their_bytes(disk):
    disk.restart(leader_epoch=7)
    partition = disk.make()
    disk.commit(partition, *batches_of(3))

    content = partition.committed.read(1, end_offset=3, bytes_max=1_000, at_least_one_batch=True)

    header = decode_header(content)
    assert (header.base_offset, header.leader_epoch) == (1, 7)
    assert crc_is_valid(content)


def test_nothing_in_flight_is_told_at_once(partition):
    told = []
    partition.when_committed(told.append)

    assert told == [ErrorCode.NONE]


def test_answers_are_given_in_the_order_of_their_appends(disk, partition):
    told = []
    for name, batch in zip("abc", batches_of(3), strict=True):
        partition.append(decode_header(batch), memoryview(batch), now_ms=FIRST_MS)
        partition.when_committed(lambda error, name=name: told.append((name, error)))
    disk.run_round()

    assert told == [("a", ErrorCode.NONE), ("b", ErrorCode.NONE), ("c", ErrorCode.NONE)]


# --- resends and refusals wait for what they rest on -------------------------------------------------------------


def test_the_resend_of_a_batch_in_flight_is_not_acknowledged_early(disk, partition):
    first = disk.append(partition, sequenced(1, 0, b"a", b"b"))
    round_ = disk.take_round()

    again = disk.append(partition, sequenced(1, 0, b"a", b"b"))

    assert again.outcome.base_offset == 0
    assert again.told is None
    disk.complete_round(round_, disk.engine.commit([write for _, write in round_]))
    assert (first.offset, again.offset) == (0, 0)
    assert values_of(partition) == [b"a", b"b"]
    assert disk.take_round() == []


def test_the_resend_of_a_batch_whose_round_fails_fails_with_it_and_may_be_sent_again(disk, partition):
    first = disk.append(partition, sequenced(1, 0, b"a"))
    again = disk.append(partition, sequenced(1, 0, b"a"))
    refuse_round(disk)

    assert first.error == again.error == ErrorCode.KAFKA_STORAGE_ERROR

    third = disk.append(partition, sequenced(1, 0, b"a"))
    disk.run_round()
    assert third.offset == 0
    assert values_of(partition) == [b"a"]


def test_five_batches_in_flight_whose_answers_were_lost_keep_their_offsets(disk, partition):
    sent = [disk.append(partition, sequenced(1, number * 2, b"%d" % number, b"x")) for number in range(5)]
    disk.run_round()

    again = [disk.append(partition, sequenced(1, number * 2, b"%d" % number, b"x")) for number in range(5)]
    disk.run_round()

    assert [ask.offset for ask in sent] == [ask.offset for ask in again] == [0, 2, 4, 6, 8]
    assert partition.high_watermark == 10


def test_a_refusal_that_rests_on_what_is_in_flight_waits_for_it(disk, partition):
    disk.append(partition, sequenced(1, 0, b"a"))
    round_ = disk.take_round()

    gap = disk.append(partition, sequenced(1, 5, b"gap"))

    assert isinstance(gap.outcome, AppendRefused)
    assert gap.told is None
    disk.complete_round(round_, disk.engine.commit([write for _, write in round_]))
    assert gap.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_refusal_that_rests_on_what_then_fails_is_never_told(disk, partition):
    """It would say that the batch before it is there."""
    disk.append(partition, sequenced(1, 0, b"a", epoch=3))
    zombie = disk.append(partition, sequenced(1, 0, b"z", epoch=2))
    assert zombie.outcome.error_code == ErrorCode.INVALID_PRODUCER_EPOCH

    refuse_round(disk)

    assert zombie.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.append(partition, sequenced(1, 0, b"z", epoch=2)).outcome == Appended(0, -1)


def test_a_refusal_with_nothing_in_flight_is_told_at_once(disk, partition):
    refused = disk.append(partition, sequenced(1, 3, b"gap"))

    assert refused.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused.outcome.message
    assert disk.take_round() == []


def test_a_producer_unknown_to_a_log_that_has_held_records_may_begin_anywhere(disk, partition):
    disk.append(partition, batch_of(b"a"))

    assert disk.append(partition, sequenced(1, 7, b"b")).outcome == Appended(1, -1)


# --- rounds that fail --------------------------------------------------------------------------------------------


def test_a_failed_round_fails_everything_after_it_and_head_goes_back(disk, partition):
    disk.commit(partition, sequenced(1, 0, b"a"))
    before = state_of(partition)
    in_flight = disk.append(partition, sequenced(1, 1, b"b"))
    round_ = disk.take_round()
    forming = disk.append(partition, sequenced(1, 2, b"c"))
    duplicate = disk.append(partition, sequenced(1, 0, b"a"))

    disk.complete_round(round_, [REFUSED])

    assert [ask.error for ask in (in_flight, forming, duplicate)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert state_of(partition) == before
    assert partition.failure is None
    assert disk.run_round() == []
    assert disk.append(partition, sequenced(1, 1, b"b")).outcome == Appended(1, -1)


def test_a_full_disk_leaves_no_trace_and_appends_work_again_when_there_is_room():
    filesystem = CountingFilesystem(MemoryFilesystem())
    with DataDirectory(filesystem) as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(3))

        def is_full(operation):
            if operation.name == "write_at" and operation.path.endswith(".log"):
                raise OSError(errno.ENOSPC, "No space left on device")

        filesystem.before = is_full
        refused = disk.append(partition, batch_of(b"no room"))
        (outcome,) = disk.run_round()
        filesystem.before = lambda operation: None

        assert isinstance(outcome, StorageRefused)
        assert refused.error == ErrorCode.KAFKA_STORAGE_ERROR
        assert values_of(partition) == [b"%020d" % number for number in range(3)], "reads go on"
        assert disk.commit(partition, batch_of(b"room")) == 3
        before = state_of(partition)
        disk.restart()
        assert state_of(disk.open()) == before


def test_of_a_round_that_is_refused_half_way_the_first_groups_are_committed():
    with DataDirectory(config=TopicConfig(segment_bytes=200)) as disk:
        partition = disk.make()
        asks = []
        for batch in batches_of(6, size=40):
            asks.append(disk.append(partition, batch))
            disk.append_on_terms(partition, batch_of(b"a conflict, which closes the version"), expected_version=99)
        ((_, write),) = round_ = disk.take_round()
        assert len(write.groups) >= 3
        disk.engine.commit([type(write)(write.name, write.directory, write.groups[:1], write.size_bytes, durable=True)])

        disk.complete_round(round_, [StorageRefused("the disk is full", 1)])

        stored = partition.high_watermark
        assert 0 < stored < 6
        assert [ask.offset for ask in asks] == [*range(stored), *[None] * (6 - stored)]
        assert {ask.error for ask in asks[stored:]} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert disk.commit(partition, batch_of(b"next")) == stored
        before = state_of(partition)
        disk.restart()
        assert state_of(disk.open()) == before


@pytest.mark.parametrize("flush_mode", FlushMode)
def test_bytes_on_their_way_are_accounted_for_whatever_becomes_of_them(flush_mode):
    with DataDirectory(flush_mode=flush_mode) as disk:
        partition = disk.make()
        disk.append(partition, batch_of(b"stored"))
        assert disk.uncommitted_bytes > 0
        disk.run_round()
        assert disk.uncommitted_bytes == 0

        disk.append(partition, batch_of(b"refused"))
        round_ = disk.take_round()
        disk.append(partition, batch_of(b"forming behind it"))
        disk.complete_round(round_, [REFUSED])
        assert disk.uncommitted_bytes == 0

        disk.append(partition, batch_of(b"forming"))
        partition.fail("for a test")
        assert disk.uncommitted_bytes == 0


def test_a_failed_sync_never_reaches_a_partition(disk, partition):
    disk.append(partition, batch_of(b"a"))
    disk.take_round()

    with pytest.raises(InvariantError, match="the disk is gone"):
        partition.complete_write(SyncFailed("the disk is gone"), now_ms=FIRST_MS)


def test_a_foreign_version_stops_its_partition_alone_and_both_are_named(disk, partition, caplog):
    other = disk.make(OTHERS)
    disk.commit(partition, batch_of(b"a"))
    stranger = decode_commit(disk.filesystem.read_file(f"{DELTA_LOG}/{1:020d}.json"), path_hint="x").commit
    forged = encode_commit(type(stranger)(**_fields(stranger) | {"version": 2, "txn_id": "broker-7:1:1"})).document
    disk.filesystem.open(f"{DELTA_LOG}/{2:020d}.json", create=True).write_at((forged,), 0)

    ours = disk.append(partition, batch_of(b"b"))
    theirs = disk.append(other, batch_of(b"c"))
    outcomes = disk.run_round()

    (foreign,) = (outcome for outcome in outcomes if isinstance(outcome, ForeignVersion))
    assert ours.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert "broker-7:1:1" in partition.failure
    assert foreign.our_txn_id in partition.failure
    assert partition.failure in caplog.text
    assert theirs.offset == 0
    assert other.failure is None
    refused = disk.append(partition, batch_of(b"d"))
    assert (refused.error, refused.outcome.message) == (ErrorCode.KAFKA_STORAGE_ERROR, partition.failure)
    assert disk.filesystem.read_file(f"{DELTA_LOG}/{2:020d}.json") == forged


def _fields(commit):
    return {name: getattr(commit, name) for name in commit.__struct_fields__}


def test_our_own_version_under_the_name_is_our_earlier_success(disk, partition):
    """The name was linked, and its success was not seen."""
    ask = disk.append(partition, batch_of(b"a"))
    ((_, write),) = round_ = disk.take_round()
    disk.engine.commit([write])

    disk.complete_round(round_, disk.engine.commit([write]))

    assert ask.offset == 0
    assert values_of(partition) == [b"a"]


# --- segments ----------------------------------------------------------------------------------------------------


def test_a_batch_that_does_not_fit_begins_a_segment():
    with DataDirectory(config=TopicConfig(segment_bytes=250)) as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(7, size=40))

        sizes = {segment.name: segment.size for segment in partition.segments}
        assert len(sizes) == 4
        assert all(size <= 250 for size in sizes.values())
        assert list(sizes) == [f"{offset:020d}.log" for offset in (0, 2, 4, 6)]
        assert values_of(partition) == [b"%040d" % number for number in range(7)]
        assert values_of(partition, 3) == [b"%040d" % number for number in range(3, 7)]


def test_a_batch_larger_than_a_segment_gets_one_for_itself():
    with DataDirectory(config=TopicConfig(segment_bytes=250)) as disk:
        partition = disk.make()
        disk.commit(partition, batch_of(b"small"), batch_of(b"x" * 1_000), batch_of(b"small"))

        assert [segment.base_offset for segment in partition.segments] == [0, 1, 2]
        assert values_of(partition) == [b"small", b"x" * 1_000, b"small"]


def test_a_round_over_several_segments_is_one_version_with_an_add_for_each():
    with DataDirectory(config=TopicConfig(segment_bytes=250)) as disk:
        partition = disk.make()
        for batch in batches_of(5, size=40):
            disk.append(partition, batch)
        (outcome,) = disk.run_round()

        assert outcome == Stored()
        assert partition.table.version == 1
        assert operations_of(disk, 1) == [
            ("00000000000000000000.log", 0, 1),
            ("00000000000000000002.log", 2, 3),
            ("00000000000000000004.log", 4, 4),
        ]
        before = state_of(partition)
        disk.restart()
        assert state_of(disk.open()) == before


def test_a_segment_whose_first_round_was_refused_is_not_there():
    filesystem = CountingFilesystem(MemoryFilesystem())
    with DataDirectory(filesystem, config=TopicConfig(segment_bytes=250)) as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(2, size=40))

        def refuse(operation):
            if operation.name == "link":
                raise OSError(errno.ENOSPC, "No space left on device")

        filesystem.before = refuse
        disk.append(partition, batch_of(b"y" * 50))
        disk.run_round()
        filesystem.before = lambda operation: None

        assert [name for name in filesystem.list_names(DIRECTORY) if name.endswith(".log")] == [f"{0:020d}.log"]
        assert disk.commit(partition, batch_of(b"y" * 50)) == 2
        assert values_of(partition)[-1] == b"y" * 50


# --- interval and none: published later --------------------------------------------------------------------------


@pytest.fixture(params=[FlushMode.INTERVAL, FlushMode.NONE])
def loose(request):
    with DataDirectory(flush_mode=request.param) as directory:
        yield directory


def test_without_syncs_a_batch_is_committed_when_it_is_written_and_its_version_follows(loose):
    partition = loose.make()
    asks = [loose.append(partition, batch) for batch in batches_of(3)]
    loose.run_round()

    assert [ask.offset for ask in asks] == [0, 1, 2]
    assert partition.table.version == 0
    assert len(values_of(partition)) == 3

    assert loose.publish(partition) == Stored()

    assert partition.table.version == 1
    assert operations_of(loose, 1) == [("00000000000000000000.log", 0, 2)]
    assert loose.publish(partition) is None


def test_a_version_holds_all_that_was_committed_since_the_last_one():
    with DataDirectory(flush_mode=FlushMode.NONE, config=TopicConfig(segment_bytes=250)) as disk:
        partition = disk.make()
        for batch in batches_of(5, size=40):
            disk.append(partition, batch)
            disk.run_round()
        disk.publish(partition)

        assert operations_of(disk, 1) == [
            ("00000000000000000000.log", 0, 1),
            ("00000000000000000002.log", 2, 3),
            ("00000000000000000004.log", 4, 4),
        ]
        before = state_of(partition)
        disk.restart()
        assert state_of(disk.open()) == before, "data_crc, too, is that of all the bytes"


def test_what_is_committed_while_a_version_is_published_is_the_next_one(loose):
    partition = loose.make()
    loose.commit(partition, batch_of(b"a"))
    write = partition.take_publication(now_ms=FIRST_MS)
    loose.commit(partition, batch_of(b"b"), batch_of(b"c"))
    partition.complete_publication(loose.engine.commit([write])[0], now_ms=FIRST_MS)
    assert partition.table.next_offset == 1

    loose.publish(partition)

    assert operations_of(loose, 2) == [("00000000000000000000.log", 1, 2)]
    assert values_of(partition) == [b"a", b"b", b"c"]


def test_a_checkpoint_is_of_its_version_even_when_more_is_committed_meanwhile():
    with DataDirectory(flush_mode=FlushMode.NONE, checkpoint_interval=1) as disk:
        partition = disk.make()
        disk.commit(partition, sequenced(1, 0, b"a"))
        write = partition.take_publication(now_ms=FIRST_MS)
        disk.commit(partition, sequenced(1, 1, b"b"), sequenced(2, 0, b"c"))
        partition.complete_publication(disk.engine.commit([write])[0], now_ms=FIRST_MS)

        checkpoint = json.loads(disk.filesystem.read_file(f"{DELTA_LOG}/{1:020d}.checkpoint.json"))

        assert checkpoint["next_offset"] == 1
        assert [(entry["producer_id"], entry["batches"][-1]["last_sequence"]) for entry in checkpoint["producers"]] == [
            (1, 0)
        ]


@pytest.mark.parametrize(("min_interval_ms", "written"), [(0, [1, 2, 3]), (1, [1])])
def test_a_checkpoint_under_way_keeps_no_due_one_from_being_written_where_all_are_asked_for(min_interval_ms, written):
    with DataDirectory(checkpoint_interval=1, checkpoint_min_interval_ms=min_interval_ms) as disk:
        partition = disk.make()
        disk.background.is_held = True
        for value in (b"a", b"b", b"c"):
            disk.commit(partition, batch_of(value))
        disk.background.run()

        names = disk.filesystem.list_names(DELTA_LOG)
        assert [n for n in range(4) if f"{n:020d}.checkpoint.json" in names] == written


def test_a_round_refused_while_a_version_is_published_leaves_the_version_alone(loose):
    partition = loose.make()
    loose.commit(partition, batch_of(b"a"))
    write = partition.take_publication(now_ms=FIRST_MS)
    loose.append(partition, batch_of(b"no room"))
    refuse_round(loose)
    partition.complete_publication(loose.engine.commit([write])[0], now_ms=FIRST_MS)
    loose.commit(partition, batch_of(b"b"))
    loose.publish(partition)

    assert partition.table.version == 2
    before = state_of(partition)
    loose.restart()
    assert state_of(loose.open()) == before


def test_a_version_that_cannot_be_published_yet_is_handed_out_again_while_work_goes_on(loose):
    partition = loose.make()
    loose.commit(partition, batch_of(b"a"))
    partition.take_publication(now_ms=FIRST_MS)

    partition.complete_publication(REFUSED, now_ms=FIRST_MS)
    loose.commit(partition, batch_of(b"b"))

    assert partition.has_unpublished
    assert values_of(partition) == [b"a", b"b"]
    again = partition.take_publication(now_ms=FIRST_MS + 1)
    partition.complete_publication(loose.engine.commit([again])[0], now_ms=FIRST_MS + 1)
    assert not partition.has_unpublished
    assert operations_of(loose, 1) == [("00000000000000000000.log", 0, 0)]
    assert operations_of(loose, 2) == [("00000000000000000000.log", 1, 1)]


def test_what_was_committed_and_never_published_survives_a_crash(loose):
    partition = loose.make()
    loose.commit(partition, batch_of(b"a"))
    partition.take_publication(now_ms=FIRST_MS)
    partition.complete_publication(REFUSED, now_ms=FIRST_MS)

    loose.restart()

    assert values_of(loose.open()) == [b"a"]


def test_a_foreign_version_is_met_at_publication_too(loose):
    partition = loose.make()
    loose.commit(partition, batch_of(b"a"))
    partition.take_publication(now_ms=FIRST_MS)
    foreign = ForeignVersion(1, "broker-1:1:1", "broker-7:1:1", "it exists")

    partition.complete_publication(foreign, now_ms=FIRST_MS)

    assert "broker-7:1:1" in partition.failure
    assert loose.publish(partition) is None


def test_interval_syncs_every_segment_written_since_the_last_time_and_new_names():
    with DataDirectory(flush_mode=FlushMode.INTERVAL, config=TopicConfig(segment_bytes=250)) as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(3, size=40))

        write = partition.take_sync()
        partition.complete_sync()

        assert [(part.path[-8:], part.is_new, part.buffers) for part in write.groups[0].segments] == [
            ("0000.log", True, []),
            ("0002.log", True, []),
        ]
        assert write.durable
        assert disk.engine.commit([write]) == [Stored()]
        assert partition.take_sync() is None
        disk.commit(partition, batch_of(b"more"))
        assert [(part.path[-8:], part.is_new) for part in partition.take_sync().groups[0].segments] == [
            ("0002.log", False)
        ]


@pytest.mark.parametrize("flush_mode", [FlushMode.COMMIT, FlushMode.NONE])
def test_other_modes_have_nothing_to_sync_later(flush_mode):
    with DataDirectory(flush_mode=flush_mode) as disk:
        partition = disk.make()
        disk.commit(partition, *batches_of(3))

        assert partition.take_sync() is None


# --- the end of a topic ------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def polls_every_turn(monkeypatch):
    monkeypatch.setattr("exactlog.storage.partition_log._RETIRE_POLL_S", 0)


async def some_turns():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_retired_partition_lets_rounds_in_flight_end_and_takes_no_more(disk, partition):
    in_flight = disk.append(partition, batch_of(b"a"))
    round_ = disk.take_round()
    forming = disk.append(partition, batch_of(b"b"))
    retiring = asyncio.ensure_future(partition.retire())
    await some_turns()
    assert not retiring.done()
    late = disk.append(partition, batch_of(b"c"))
    assert isinstance(late.outcome, AppendRefused)

    disk.complete_round(round_, disk.engine.commit([write for _, write in round_]))
    await some_turns()
    assert not retiring.done(), "what was decided before is still to be written"
    disk.run_round()
    await retiring

    assert [in_flight.offset, forming.offset] == [0, 1]
    assert disk.run_round() == []


async def test_a_retired_partition_waits_for_its_publication_and_its_sync():
    with DataDirectory(flush_mode=FlushMode.INTERVAL) as disk:
        partition = disk.make()
        disk.commit(partition, batch_of(b"a"))
        write = partition.take_publication(now_ms=FIRST_MS)
        sync = partition.take_sync()
        disk.commit(partition, batch_of(b"b"))
        retiring = asyncio.ensure_future(partition.retire())
        await some_turns()
        assert not retiring.done()

        partition.complete_publication(disk.engine.commit([write])[0], now_ms=FIRST_MS)
        await some_turns()
        assert not retiring.done()
        disk.engine.commit([sync])
        partition.complete_sync()
        await retiring

        assert partition.take_publication(now_ms=FIRST_MS) is None
        assert partition.take_sync() is None, "its files are about to go: a sync of them would fail, which is final"


async def test_a_retired_partition_refuses_what_still_comes(disk, partition):
    await partition.retire()

    refused = disk.append(partition, batch_of(b"a"))

    assert refused.outcome.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "deleted" in partition.failure


# --- the rest ----------------------------------------------------------------------------------------------------


def test_append_time_is_stamped_and_a_resend_gets_the_first_one():
    with DataDirectory(config=TopicConfig(message_timestamp_type="LogAppendTime")) as disk:
        partition = disk.make()
        disk.clock.time_ms = FIRST_MS + 500
        first = disk.append(partition, sequenced(1, 0, b"a", timestamp_ms=77))
        disk.run_round()
        disk.clock.time_ms += 1_000
        again = disk.append(partition, sequenced(1, 0, b"a", timestamp_ms=77))

        assert first.outcome.log_append_time_ms == again.outcome.log_append_time_ms == FIRST_MS + 500
        content = partition.committed.read(0, end_offset=1, bytes_max=1_000, at_least_one_batch=True)
        header = decode_header(content)
        assert (header.max_timestamp, header.is_log_append_time) == (FIRST_MS + 500, True)
        assert crc_is_valid(content)


def test_watchers_are_called_when_the_committed_end_moves_or_the_partition_stops(disk, partition):
    calls = []

    def watcher():
        calls.append(partition.high_watermark)

    partition.committed.watch(watcher)
    disk.append(partition, batch_of(b"a"))
    assert calls == []
    disk.run_round()
    assert calls == [1]
    partition.fail("for a test")
    assert calls == [1, 1]
    partition.committed.unwatch(watcher)
    partition.committed.unwatch(watcher)
    partition.fail("again")
    assert calls == [1, 1]


def test_committed_bytes_only_grow(disk, partition):
    disk.commit(partition, batch_of(b"a"))
    first = partition.committed.size_bytes
    disk.append(partition, batch_of(b"b"))
    refuse_round(disk)

    assert partition.committed.size_bytes == first == partition.segments[0].size


def test_a_silent_producer_is_forgotten_and_one_that_writes_is_not(disk, partition):
    disk.commit(partition, sequenced(1, 0, b"old", timestamp_ms=FIRST_MS), sequenced(2, 0, b"x", timestamp_ms=FIRST_MS))
    disk.commit(partition, sequenced(2, 1, b"y", timestamp_ms=FIRST_MS + 900))

    partition.expire_producers(now_ms=FIRST_MS + 1_000, expiration_ms=500)

    assert disk.append(partition, sequenced(1, 9, b"new life")).outcome == Appended(3, -1)
    assert disk.append(partition, sequenced(2, 9, b"gap")).outcome.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("limit", [1, 100, 150, 200, 100_000])
def test_a_read_gives_whole_batches_within_its_limit_and_at_least_one_if_asked(disk, partition, limit):
    disk.commit(partition, *batches_of(10))
    size = partition.segments[0].size // 10

    content = partition.committed.read(4, end_offset=10, bytes_max=limit, at_least_one_batch=False)
    assert len(content) == min(limit // size, 6) * size
    content = partition.committed.read(4, end_offset=10, bytes_max=limit, at_least_one_batch=True)
    assert len(content) == max(1, min(limit // size, 6)) * size
    assert decode_header(content).base_offset == 4


def test_a_read_ends_before_the_offset_it_is_told(disk, partition):
    disk.commit(partition, *batches_of(10))

    content = partition.committed.read(2, end_offset=5, bytes_max=100_000, at_least_one_batch=True)

    assert len(content) == 3 * partition.segments[0].size // 10
    assert partition.committed.read(5, end_offset=5, bytes_max=100_000, at_least_one_batch=True) == b""
