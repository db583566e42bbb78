"""A region in use: what is refused, how it is cleaned, what it tells, payloads of one's own, the synchronous twin."""

import asyncio
import json
import threading

import pytest

from exactlog.client import ClientUrlError
from exactlog.core.model.errors import DirectoryLockedError
from exactlog.core.wal.cleaning import KeptBy
from exactlog.core.wal.limits import ENTRY_BYTES_MAX
from exactlog.core.wal.region_meta import Pin
from exactlog.wal import (
    EmptyBatchError,
    EntryTooLargeError,
    Excluded,
    Included,
    InvalidBoundsError,
    MarkOutOfRangeError,
    MemoryBackend,
    RegionClosedError,
    SequenceConflictError,
    TableDroppedError,
    TableNotFoundError,
    UnreadableRecordError,
    Wal,
    WalEntry,
)


async def wait_until(condition):
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0.01)


@pytest.fixture
def backend():
    return MemoryBackend()


@pytest.fixture
async def region(backend):
    async with Wal.open(backend, namespace="ts", clean_interval_s=None) as wal:
        yield await wal.open_region(1, create=True)


# --- what is refused ---------------------------------------------------------------------------------------------


async def test_a_write_without_an_entry_is_refused(region):
    with pytest.raises(EmptyBatchError, match="region 1, table 3") as refused:
        await region.write(3, [])
    assert (refused.value.region, refused.value.table) == (1, 3)
    with pytest.raises(EmptyBatchError):
        await region.write_batch({})
    with pytest.raises(EmptyBatchError):
        await region.write_batch({3: [b"a"], 4: []})
    assert await region.sequence_num(3) == 0


async def test_an_entry_that_is_too_large_is_refused(region):
    with pytest.raises(EntryTooLargeError, match=f"an entry of {ENTRY_BYTES_MAX + 1} bytes"):
        await region.write(3, [b"a", bytes(ENTRY_BYTES_MAX + 1)])
    assert await region.write(3, [bytes(ENTRY_BYTES_MAX)]) == 1


async def test_an_unknown_table_is_refused(region):
    with pytest.raises(TableNotFoundError, match="region 1 has no table 9"):
        await region.mark_deleted(9, 1)
    with pytest.raises(TableNotFoundError):
        await region.drop_table(9)
    with pytest.raises(TableNotFoundError):
        region.read(9)
    assert await region.sequence_num(9) == 0


async def test_a_mark_beyond_the_last_entry_or_below_the_present_one_is_refused(region):
    await region.write(3, [b"a", b"b", b"c"])
    await region.mark_deleted(3, 2)

    with pytest.raises(MarkOutOfRangeError, match="the last entry is 3"):
        await region.mark_deleted(3, 4)
    with pytest.raises(MarkOutOfRangeError, match="up to 2 is marked already"):
        await region.mark_deleted(3, 1)
    await region.mark_deleted(3, 2)


async def test_bounds_that_are_the_wrong_way_round_are_refused(region):
    await region.write(3, [b"a"])

    with pytest.raises(InvalidBoundsError, match=r"Included\(sequence=5\) to Excluded\(sequence=2\)"):
        region.read(3, Included(5), Excluded(2))


async def test_a_table_that_was_dropped_takes_no_late_writes(region):
    await region.write(3, [b"a"])
    await region.drop_table(3)

    with pytest.raises(TableDroppedError):
        await region.write(3, [b"late"])
    with pytest.raises(TableDroppedError):
        await region.drop_table(3)
    assert [entry async for entry in region.scan()] == []


async def test_a_write_that_expects_another_sequence_is_refused(region):
    assert await region.write(3, [b"a"], expected_last=0) == 1

    with pytest.raises(SequenceConflictError, match="the last sequence is 1, not 0") as refused:
        await region.write(3, [b"a"], expected_last=0)
    assert refused.value.sequence == 1


@pytest.mark.parametrize("offsets", [[-1], [3, -2]])
async def test_an_offset_that_cannot_be_is_not_skipped(backend, offsets):
    async with Wal.open(backend) as wal:
        with pytest.raises(ValueError, match="there is no offset"):
            await wal.open_region(1, create=True, skip_offsets=offsets)


async def test_a_batch_of_a_scan_has_an_entry(region):
    with pytest.raises(ValueError, match="at least 1"):
        region.scan(batch_size=0)


@pytest.mark.parametrize("url", ["", "memory", "memory:x", "embedded:", "file:/x", "kafka:/x"])
async def test_a_url_that_leads_nowhere_is_refused(url):
    with pytest.raises(ClientUrlError):
        async with Wal.open(url):
            pass


# --- cleaning ----------------------------------------------------------------------------------------------------


async def test_stats_name_the_table_that_pins_the_log(region):
    await region.write(3, [b"a"] * 3)
    await region.write(4, [b"b"] * 2)
    await region.write(5, [b"c"] * 5)
    await region.mark_deleted(3, 3)

    stats = await region.stats()

    assert stats.pin == Pin(4, 1, 3)
    assert stats.pinned_offsets == 7
    assert (stats.log_start, stats.end, stats.replay_count) == (0, 10, 10)
    assert [(table.table, table.last_sequence, table.marked_up_to, table.kept_count) for table in stats.tables] == [
        (3, 3, 3, 0),
        (4, 2, 0, 2),
        (5, 5, 0, 5),
    ]


async def test_a_clean_up_says_what_it_kept_and_why(region):
    await region.write(3, [b"a"] * 3)
    await region.write(4, [b"b"] * 2)
    await region.mark_deleted(3, 3)

    first = await region.clean()
    again = await region.clean()

    assert (first.deleted_before, first.log_start, first.kept_by, first.pin) == (3, 3, KeptBy.TABLE, Pin(4, 1, 3))
    assert (again.deleted_before, again.log_start, again.has_snapshot) == (None, 3, False)


async def test_a_silent_table_that_is_flushed_does_not_pin(region):
    await region.write(3, [b"a"])
    await region.mark_deleted(3, 1)
    await region.write(4, [b"b"] * 5)
    await region.mark_deleted(4, 5)

    cleaned = await region.clean()

    assert (cleaned.deleted_before, cleaned.kept_by, cleaned.pin) == (6, KeptBy.NOTHING, None)


async def test_a_drop_is_durable_and_lets_the_log_go(backend, region):
    await region.write(3, [b"a"])
    await region.drop_table(3)

    async with Wal.open(backend, namespace="ts") as other:
        seen = await other.open_region(1, read_only=True)
        assert (await seen.stats()).tables[0].is_dropped
    assert (await region.clean()).deleted_before == 1


async def test_regions_are_cleaned_in_the_background_each_on_its_own(backend):
    async with Wal.open(backend, clean_interval_s=0.01) as wal:
        good = await wal.open_region(1, create=True)
        fenced = await wal.open_region(2, create=True)
        for region in (good, fenced):
            await region.write(3, [b"a", b"b"])
            await region.mark_deleted(3, 1)
        async with Wal.open(backend) as other:
            await other.open_region(2)
            await wait_until(lambda: fenced.is_fenced)
        await wait_until(lambda: backend._topics["wal_data_1"].start == 1)


async def test_a_mark_that_is_not_durable_writes_nothing(backend, region):
    await region.write(3, [b"a", b"b"])
    before = await backend.bounds("ts_meta_1")

    await region.mark_deleted(3, 1)

    assert await backend.bounds("ts_meta_1") == before


# --- scans -------------------------------------------------------------------------------------------------------


async def test_a_scan_tells_how_far_it_is(region):
    await region.write(3, [b"a"] * 10)
    told = []

    _ = [entry async for entry in region.scan(batch_size=4, on_progress=told.append)]

    assert [(progress.offset, progress.end, progress.entry_count) for progress in told] == [
        (4, 10, 4),
        (8, 10, 8),
        (10, 10, 10),
    ]


async def test_a_scan_that_is_left_lets_go(region):
    await region.write(3, [b"a"] * 10)
    scan = region.scan()
    await anext(scan)
    assert (await region.stats()).reader_offsets == (0,)

    await scan.aclose()

    assert (await region.stats()).reader_offsets == ()


async def test_a_scan_ends_at_what_was_there_when_it_began(region):
    await region.write(3, [b"a"] * 3)
    scan = region.scan()
    await anext(scan)
    await region.write(3, [b"b"])

    assert [entry.sequence async for entry in scan] == [2, 3]


async def test_what_is_marked_during_a_scan_is_passed_over(region):
    await region.write(3, [b"a"] * 5)
    scan = region.scan()
    await anext(scan)
    await region.mark_deleted(3, 4)

    assert [entry.sequence async for entry in scan] == [5]


# --- payloads ----------------------------------------------------------------------------------------------------


class JsonCodec:
    def encode(self, payload):
        return json.dumps(payload).encode()

    def decode(self, data):
        return json.loads(data)


@pytest.mark.parametrize(
    "payload", [b"a", bytearray(b"a"), memoryview(b"a")], ids=lambda payload: type(payload).__name__
)
async def test_payloads_are_buffers(region, payload):
    await region.write(3, [payload])

    assert [entry async for entry in region.read(3)] == [WalEntry(3, 1, b"a", 0)]


async def test_payloads_of_ones_own(backend):
    async with Wal.open(backend, codec=JsonCodec()) as wal:
        region = await wal.open_region(1, create=True)
        await region.write(3, [{"a": 1}, [2]])

        assert [entry.payload async for entry in region.scan()] == [{"a": 1}, [2]]


async def test_a_payload_that_cannot_be_decoded_is_named(backend, region):
    await region.write(3, [b"1", b"no json"])
    async with Wal.open(backend, namespace="ts", codec=JsonCodec()) as wal:
        seen = await wal.open_region(1, read_only=True)

        with pytest.raises(UnreadableRecordError, match="table 3: the payload of entry 2 at offset 1") as refused:
            _ = [entry async for entry in seen.scan()]
    assert (refused.value.table, refused.value.sequence, refused.value.offset) == (3, 2, 1)


async def test_a_directory_has_one_broker(tmp_path):
    async with Wal.open(f"embedded:{tmp_path}"):
        with pytest.raises(DirectoryLockedError):
            async with Wal.open(f"embedded:{tmp_path}"):
                pass


# --- the synchronous twin ----------------------------------------------------------------------------------------


def test_the_synchronous_twin_does_the_same(tmp_path):
    with Wal.open_sync(f"embedded:{tmp_path / 'wal'}", namespace="ts") as wal:
        region = wal.open_region(1, create=True)
        assert region.write(3, [b"a", b"b"]) == 2
        assert region.write_batch({3: [b"c"], 4: [b"x"]}) == {3: 3, 4: 1}
        assert region.sequence_num(3) == 3
        assert [entry.payload for entry in region.read(3, Excluded(1))] == [b"b", b"c"]
        region.mark_deleted(3, 1)
        region.mark_deleted(3, 2, durable=True)
        assert [entry.payload for entry in region.scan()] == [b"c", b"x"]
        assert [len(batch) for batch in region.scan_batches(batch_size=1)] == [1, 1]
        assert (region.is_usable, region.is_fenced, region.is_read_only) == (True, False, False)
        assert region.plan_clean().deleted_count > 0
        assert region.clean().pin.table == 3
        region.drop_table(4)
        region.write_snapshot()
        assert region.stats().pin.sequence == 3
        assert wal.regions() == [1]
        assert [stats.region for stats in wal.stats()] == [1]
        wal.close_region(1)
        assert not region.is_usable
    with pytest.raises(RegionClosedError):
        region.write(3, [b"late"])
    with pytest.raises(RegionClosedError):
        wal.regions()

    with Wal.open_sync(f"embedded:{tmp_path / 'wal'}", namespace="ts") as wal:
        assert [entry.payload for entry in wal.open_region(1).scan()] == [b"c"]


def test_the_synchronous_twin_serves_many_threads(backend):
    with Wal.open_sync(backend) as wal:
        region = wal.open_region(1, create=True)
        threads = [threading.Thread(target=region.write, args=(3, [b"a"] * 10)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert region.sequence_num(3) == 80
        assert [entry.sequence for entry in region.read(3)] == list(range(1, 81))


def test_a_synchronous_scan_that_is_left_lets_go(backend):
    with Wal.open_sync(backend) as wal:
        region = wal.open_region(1, create=True)
        region.write(3, [b"a"] * 2_000)
        for entry in region.scan():
            if entry.sequence == 3:
                break

        assert region.stats().reader_offsets == ()


def test_a_synchronous_log_that_cannot_be_opened_leaves_no_thread():
    before = threading.active_count()

    with pytest.raises(ClientUrlError), Wal.open_sync("nowhere:"):
        pass

    assert threading.active_count() == before
