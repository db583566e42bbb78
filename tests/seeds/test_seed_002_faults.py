"""Faults that others reported of write-ahead logs on Kafka, and of their like: what ours does in each case."""

import asyncio

import pytest

from exactlog.core.model.errors import UnavailableError
from exactlog.core.wal.log_entry_format import LogKey, encode_log_key
from exactlog.wal import (
    MemoryBackend,
    RegionDataLostError,
    RegionFenced,
    TableDroppedError,
    UnreadableRecordError,
    Wal,
    WriteOutcomeUnknownError,
)
from tests.unit.wal.failing_backend import FailingBackend

DATA, META = "ts_data_1", "ts_meta_1"


@pytest.fixture
def backend():
    return MemoryBackend()


def opened(backend):
    return Wal.open(backend, namespace="ts", clean_interval_s=None)


async def sequences(region):
    return [entry.sequence async for entry in region.scan()]


async def test_a_region_that_came_back_does_not_know_what_it_knew_before(backend):
    """horaedb 441, 422: a shard moves from A to B and back, and A's stale metadata overwrites B's newer snapshot."""
    async with opened(backend) as a, opened(backend) as b:
        at_a = await a.open_region(1, create=True)
        await at_a.write(3, [b"x"] * 10)
        at_b = await b.open_region(1)
        await at_b.write(3, [b"x"] * 10)
        await at_b.mark_deleted(3, 15, durable=True)

        with pytest.raises(RegionFenced):
            await at_a.write_snapshot()
        again = await a.open_region(1)

        assert await sequences(again) == [16, 17, 18, 19, 20]
        assert await again.write(3, [b"x"]) == 21


async def test_a_fully_flushed_region_opens_at_once(backend):
    """horaedb 1061: opening hangs on a topic that is empty with a high watermark above 0."""
    async with opened(backend) as wal:
        region = await wal.open_region(1, create=True)
        await region.write(3, [b"x"] * 10)
        await region.mark_deleted(3, 10)
        await region.clean()
    bounds = await backend.bounds(DATA)
    assert bounds.start == bounds.end == 10

    async with asyncio.timeout(10), opened(backend) as wal:
        assert await (await wal.open_region(1)).write(3, [b"x"]) == 11


async def test_a_table_that_never_writes_again_does_not_keep_the_log(backend):
    """horaedb 1048: a table that is silent pins the lowest offset, and logs are never cleaned."""
    async with opened(backend) as wal:
        region = await wal.open_region(1, create=True)
        await region.write(1, [b"once"])
        await region.mark_deleted(1, 1)
        for number in range(1, 6):
            await region.write(2, [b"x"] * 10)
            await region.mark_deleted(2, number * 10)
            await region.clean()
            assert (await region.stats()).log_start == 1 + number * 10


async def test_the_metadata_never_points_below_the_log(backend):
    """horaedb 643: records are deleted before the snapshot is durable, and a crash leaves it pointing at nothing."""
    failing = FailingBackend(backend)
    async with opened(failing) as wal:
        region = await wal.open_region(1, create=True)
        await region.write(3, [b"x"] * 10)
        await region.mark_deleted(3, 5)
        failing.fail = "before"  # the snapshot is not written
        with pytest.raises(UnavailableError):
            await region.clean()
        assert (await backend.bounds(DATA)).start == 0
        failing.is_dead = True
        region._is_closed = True

    async with opened(backend) as wal:
        assert await sequences(await wal.open_region(1)) == list(range(1, 11))


async def test_a_flush_whose_mark_was_lost_is_marked_again(backend):
    """horaedb 350: a crash between flush and mark keeps the log long; the mark is set again after recovery."""
    async with opened(backend) as wal:
        region = await wal.open_region(1, create=True)
        await region.write(3, [b"x"] * 10)
        region._is_closed = True  # it dies between the two
    async with opened(backend) as wal:
        region = await wal.open_region(1)
        await region.mark_deleted(3, 10)
        assert (await region.clean()).deleted_before == 10


async def test_retention_that_deleted_what_was_not_flushed_is_told_exactly(backend):
    """horaedb 366, greptimedb 4934 and 6093: retention deletes what is needed; the start fails."""
    async with opened(backend) as wal:
        region = await wal.open_region(1, create=True)
        await region.write(3, [b"x"] * 10)
        await region.mark_deleted(3, 2, durable=True)
    await backend.delete_before(DATA, 6)

    async with opened(backend) as wal:
        with pytest.raises(RegionDataLostError) as refused:
            await wal.open_region(1)
    assert refused.value.lost == {3: (3, 6)}


async def test_replay_passes_over_what_was_flushed_and_not_yet_deleted(backend):
    """horaedb 282: deletion is lazy, so replay has to leave out what is at or below the flushed sequence."""
    async with opened(backend) as wal:
        region = await wal.open_region(1, create=True)
        await region.write(1, [b"pins the log"])
        await region.write(3, [b"x"] * 10)
        await region.mark_deleted(3, 7, durable=True)
        await region.clean()
    async with opened(backend) as wal:
        region = await wal.open_region(1)
        assert [(entry.table, entry.sequence) async for entry in region.scan()] == [(1, 1), (3, 8), (3, 9), (3, 10)]


async def test_updates_of_a_table_that_was_closed_or_moved_are_refused(backend):
    """horaedb 504, 998: writes to a table come through after it was closed, or its shard moved."""
    async with opened(backend) as wal, opened(backend) as other:
        region = await wal.open_region(1, create=True)
        await region.write(3, [b"x"])
        await region.drop_table(3)
        with pytest.raises(TableDroppedError):
            await region.write(3, [b"late"])
        await other.open_region(1)
        with pytest.raises(RegionFenced):
            await region.write(4, [b"late"])


async def test_a_write_that_timed_out_and_was_written_gives_its_sequences_once(backend):
    """A produce that times out and was written leaves the sequence behind; the retry uses it a second time."""
    failing = FailingBackend(backend)
    async with opened(failing) as wal:
        region = await wal.open_region(1, create=True)
        failing.fail, failing.settling_fails = "unknown", 1
        with pytest.raises(WriteOutcomeUnknownError):
            await region.write(3, [b"a"])

        assert await region.write(3, [b"b"]) == 2
        assert [(entry.sequence, entry.payload) async for entry in region.scan()] == [(1, b"a"), (2, b"b")]


async def test_sequences_that_others_gave_twice_are_replayed_once(backend):
    """The same, found in a log that such a writer left; greptimedb 8506: a duplicate breaks recovery."""
    async with opened(backend) as wal:
        await wal.open_region(1, create=True)
    for sequence in (1, 2, 3, 2, 3, 4):
        backend.put(DATA, encode_log_key(LogKey(1, 3, sequence)), b"\x00x")
    told = []

    async with opened(backend) as wal:
        region = await wal.open_region(1)
        assert [entry.sequence async for entry in region.scan(on_progress=told.append)] == [1, 2, 3, 4]
        assert (told[-1].duplicate_count, told[-1].last_duplicate_offset) == (2, 4)
        assert await region.write(3, [b"x"]) == 5


async def test_an_owner_that_was_followed_cannot_append(backend):
    """A guard on the high watermark is no fence: the old owner appends after the new one has opened."""
    async with opened(backend) as wal, opened(backend) as other:
        region = await wal.open_region(1, create=True)
        await region.write(3, [b"x"])
        await other.open_region(1)
        with pytest.raises(RegionFenced):
            await region.write(3, [b"x"])
    assert (await backend.bounds(DATA)).end == 1


async def test_a_foreign_record_is_no_crash_loop(backend):
    """greptimedb 9132: a record without a key lets the program crash at each start."""
    async with opened(backend) as wal:
        await (await wal.open_region(1, create=True)).write(3, [b"x"])
    offset = backend.put(DATA, None, b"foreign")
    async with opened(backend) as wal:
        with pytest.raises(UnreadableRecordError) as refused:
            await wal.open_region(1)
        region = await wal.open_region(1, skip_offsets=[refused.value.offset])
        assert refused.value.offset == offset
        assert await region.write(3, [b"x"]) == 2
        assert await sequences(region) == [1, 2]


async def test_pruning_does_not_pass_a_region_that_is_being_read(backend):
    """greptimedb 5474, 6500: entries are pruned under a region that is opened at that moment."""
    async with opened(backend) as wal:
        region = await wal.open_region(1, create=True)
        await region.write(3, [b"x"] * 10)
        scan = region.scan()
        await anext(scan)
        await region.mark_deleted(3, 10)
        assert (await region.clean()).deleted_before is None
        await scan.aclose()
        assert (await region.clean()).deleted_before == 10


async def test_a_region_that_stalls_does_not_pin_the_others(backend):
    """greptimedb 6722: one stalled region keeps the log of all."""
    async with opened(backend) as wal:
        stalled, other = await wal.open_region(1, create=True), await wal.open_region(2, create=True)
        for region in (stalled, other):
            await region.write(3, [b"x"] * 10)
        await other.mark_deleted(3, 10)

        assert (await other.clean()).deleted_before == 10
        assert (await stalled.clean()).deleted_before is None
