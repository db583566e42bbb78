"""A version that is durable in the commit journal and cannot get its name: it waits, as it is, and nobody else does."""

import asyncio

import pytest

from exactlog.core.deltalog.append_terms import Committed
from exactlog.core.deltalog.journal_format import decode_file_header, print_journal_name
from exactlog.core.model.error_code import ErrorCode
from exactlog.storage.partition_log import AppendRefused
from exactlog.storage.round import NameRefused, StorageRefused, Stored
from exactlog.testing.failing_filesystem import FailingFilesystem
from tests.support.journal_rounds import find_rounds
from tests.support.partitions import DELTA_LOG, JOURNAL, DataDirectory, batch_of, batches_of, values_of

FIRST = f"{DELTA_LOG}/{1:020d}.json"
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def disk():
    with DataDirectory(FailingFilesystem(), is_journaled=True, checkpoint_interval=1) as disk:
        yield disk


def refuse_names(disk, times=1):
    disk.filesystem.fail("link", path_pattern=f"{DELTA_LOG}/*", times=times)


def journaled_documents(disk, version):
    """What the journal says of a version; once, however often it is tried."""
    content = disk.filesystem.after_kill().read_file(f"{JOURNAL}/{print_journal_name(1)}")
    for found in find_rounds(content, decode_file_header(content, number=1)):
        for partition in found.round.partitions:
            for commit in partition.commits:
                if commit.version == version:
                    yield bytes(found.content[-commit.size :])


def left(disk):
    """What a start finds after a power cut."""
    with DataDirectory(disk.filesystem.after_power_cut(), is_journaled=True) as again:
        partition = again.open()
        return values_of(partition), partition.table.next_offset


@pytest.fixture
def parked(disk):
    """A partition with three records, whose version could not get its name."""
    partition = disk.make()
    disk.commit(partition, *batches_of(3))
    refuse_names(disk)
    assert isinstance(disk.publish(partition), NameRefused)
    return partition


VALUES = [b"%020d" % number for number in range(3)]


def test_what_is_committed_is_read_and_survives_and_the_partition_goes_on(disk, parked):
    assert (parked.failure, parked.table.version, parked.has_unpublished) == (None, 0, True)
    assert values_of(parked) == VALUES
    assert left(disk) == (VALUES, 3)

    assert disk.commit(parked, batch_of(b"later")) == 3

    assert left(disk) == ([*VALUES, b"later"], 4)


def test_it_gets_its_name_as_it_was_when_there_is_room(disk, parked):
    disk.clock.time_ms += 1_000
    disk.commit(parked, batch_of(b"later"))

    assert disk.publish(parked) == Stored()

    assert (parked.table.version, parked.table.next_offset, parked.has_unpublished) == (1, 3, True)
    assert disk.publish(parked) == Stored()
    assert (parked.table.version, parked.table.next_offset, parked.has_unpublished) == (2, 4, False)
    document = disk.filesystem.read_file(FIRST)
    assert list(journaled_documents(disk, 1)) == [document]
    assert left(disk) == ([*VALUES, b"later"], 4)
    assert f"{1:020d}.checkpoint.json" in disk.filesystem.list_names(DELTA_LOG)


def test_a_disk_that_goes_on_refusing_changes_nothing_about_it(disk, parked):
    for operation in ("link", "write_at", "link"):
        disk.filesystem.fail(operation, times=1)
        assert isinstance(disk.publish(parked), NameRefused | StorageRefused)
        assert left(disk) == (VALUES, 3)

    assert disk.publish(parked) == Stored()

    assert list(journaled_documents(disk, 1)) == [disk.filesystem.read_file(FIRST)]
    assert values_of(parked) == VALUES


def test_who_needs_a_version_is_refused_meanwhile_and_not_afterwards(disk, parked):
    refused = disk.append_on_terms(parked, batch_of(b"on terms"), txn_id="mine")
    assert isinstance(refused.outcome, AppendRefused)
    assert refused.outcome.error_code is STORAGE_ERROR
    assert "version 1" in refused.outcome.message
    assert parked.move_log_start(1) is STORAGE_ERROR

    disk.publish(parked)

    disk.move_log_start(parked, 1)
    assert isinstance(disk.commit_on_terms(parked, batch_of(b"on terms"), txn_id="mine"), Committed)


def test_who_waits_for_such_a_version_is_told_and_gets_the_first_result_with_the_same_id(disk):
    partition = disk.make()
    refuse_names(disk)
    ask, other = (disk.append_on_terms(partition, batch_of(b"v"), txn_id=name) for name in ("mine", "other"))
    disk.run_round()

    assert (ask.told, other.told) == (STORAGE_ERROR, STORAGE_ERROR)
    assert (partition.failure, partition.high_watermark) == (None, 2)
    assert left(disk) == ([b"v", b"v"], 2)
    assert disk.publish(partition) == Stored()
    assert disk.commit_on_terms(partition, batch_of(b"v"), txn_id="mine") == ask.outcome
    assert partition.high_watermark == 2


def test_what_is_appended_behind_it_in_the_same_moment_is_not_left_without_an_answer(disk):
    partition = disk.make()
    refuse_names(disk)
    first = disk.append_on_terms(partition, batch_of(b"first"), txn_id="first")
    round_ = disk.take_round()
    plain = disk.append(partition, batch_of(b"plain"))
    disk.complete_round(round_, disk.engine.commit([write for _, write in round_]))

    assert (first.told, plain.told) == (STORAGE_ERROR, STORAGE_ERROR)
    assert disk.commit(partition, batch_of(b"again")) == 1
    disk.publish(partition)
    disk.publish(partition)
    assert values_of(partition) == [b"first", b"again"]
    assert (partition.table.version, partition.table.next_offset) == (2, 2)


def test_a_round_that_is_under_way_meanwhile_is_taken_in_first(disk, parked):
    disk.filesystem.fail("link", path_pattern=f"{DELTA_LOG}/*", times=1)
    plain = disk.append(parked, batch_of(b"under way"))
    round_ = disk.take_round()
    told = []
    parked.when_published(told.append)
    assert isinstance(disk.publish(parked), StorageRefused)
    assert told == []
    disk.complete_round(round_, disk.engine.commit([write for _, write in round_]))

    assert (plain.told, told) == (ErrorCode.NONE, [STORAGE_ERROR])
    disk.publish(parked)
    disk.publish(parked)
    assert values_of(parked) == [*VALUES, b"under way"]


async def test_a_topic_can_be_deleted_meanwhile(disk, parked):
    await asyncio.wait_for(parked.retire(), 10)

    assert disk.publish(parked) is None


def test_a_start_gives_it_its_name(disk, parked):
    disk.restart()

    partition = disk.open()

    assert (partition.table.version, values_of(partition)) == (1, VALUES)
    assert list(journaled_documents(disk, 1)) == [disk.filesystem.read_file(FIRST)]
