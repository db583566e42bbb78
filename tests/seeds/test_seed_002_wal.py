"""Seed 002, the write-ahead log on Kafka: a test for each of its sentences, in its order.

Where ours is otherwise than the seed, docs/differences.md says why. Backends other than memory do the same in
tests/contract/test_wal_regions.py.
"""

import asyncio
import itertools

import pytest

from exactlog.core.wal.log_entry_format import LogKey, decode_log_key, encode_log_key
from exactlog.core.wal.region_meta import RegionMeta
from exactlog.core.wal.region_snapshot_format import (
    RegionSnapshot,
    TableSnapshot,
    decode_snapshot,
    encode_meta_key,
    encode_snapshot,
)
from exactlog.core.wal.sequence_offsets import Run
from exactlog.wal import MemoryBackend, RegionNotFoundError, Wal

DATA, META = "ts_data_1", "ts_meta_1"
TABLE = 3


@pytest.fixture
def backend():
    return MemoryBackend()


@pytest.fixture
async def wal(backend):
    async with Wal.open(backend, namespace="ts", clean_interval_s=None) as found:
        yield found


@pytest.fixture
async def region(wal):
    return await wal.open_region(1, create=True)


def table_of(region, table=TABLE):
    return region._meta.tables[table]


async def snapshots(backend):
    bounds = await backend.bounds(META)
    return [decode_snapshot(record.value) async for record in backend.read(META, bounds.start, bounds.end)]


# --- architecture ------------------------------------------------------------------------------------------------


async def test_logs_of_tables_are_kept_by_region_which_is_a_log_that_tables_share(region):
    """The logs of tables are managed at the level of the region: a log file shared by many tables."""
    await region.write(1, [b"a"])
    await region.write(2, [b"b"])

    assert [(entry.table, entry.offset) async for entry in region.scan()] == [(1, 0), (2, 1)]


async def test_a_region_is_two_topics_of_one_partition(backend, region):
    """A region maps to topics with one partition: one stores the logs, the other the metadata."""
    assert await backend.list_topics() == [DATA, META]


def test_over_kafka_they_have_one_partition_each(exactlog_broker):
    """Likewise, asked of a broker."""
    with Wal.open_sync(f"kafka://{exactlog_broker.bootstrap_servers}", namespace="seed2") as wal:
        wal.open_region(1, create=True)

        topics = exactlog_broker.describe()
        assert "seed2_data_1" in topics
        assert "seed2_meta_1" in topics


# --- data model --------------------------------------------------------------------------------------------------


async def test_an_entry_has_the_common_log_format(backend, region):
    """The log format is the common one of the logs on RocksDB."""
    await region.write(TABLE, [b"payload"])

    (record,) = [record async for record in backend.read(DATA, 0, 1)]

    assert decode_log_key(record.key) == LogKey(1, TABLE, 1)
    assert record.value == b"\x00payload"


async def test_metadata_is_kept_in_memory_and_in_kafka(backend, region):
    """Each region keeps its metadata both in memory and in Kafka."""
    await region.write(TABLE, [b"a"])
    await region.write_snapshot()

    assert await snapshots(backend) == [region._meta.snapshot()]


async def test_metadata_is_a_map_from_table_to_its_metadata(region):
    """RegionMeta is a map with the table as the key and TableMeta as the value."""
    await region.write(1, [b"a"])
    await region.write(2, [b"b"])

    assert set(region._meta.tables) == {1, 2}


async def test_next_seq_num_is_what_the_next_entry_gets(region):
    """next_seq_num: the sequence number for the next log entry."""
    await region.write(TABLE, [b"a", b"b"])
    assert table_of(region).next_seq_num == 3
    assert await region.write(TABLE, [b"c"]) == 3


async def test_latest_mark_deleted_is_below_what_must_stay(region):
    """latest_mark_deleted: entries below it are marked to be deleted; it is that of the last flush."""
    await region.write(TABLE, [b"a", b"b", b"c"])
    await region.mark_deleted(TABLE, 2)

    assert table_of(region).latest_mark_deleted == 3
    assert [entry.sequence async for entry in region.scan()] == [3]


async def test_current_high_watermark_is_that_after_the_last_write_of_the_table(region):
    """current_high_watermark: the high watermark of the topic after the table's last write."""
    await region.write(TABLE, [b"a", b"b"])
    await region.write(9, [b"x"])

    assert table_of(region).current_high_watermark == 2
    assert table_of(region, 9).current_high_watermark == 3


async def test_the_mapping_is_pruned_at_each_flush(region):
    """seq_offset_mapping: from sequences to offsets; entries before latest_mark_deleted are cleaned at each flush."""
    await region.write(9, [b"x"])
    await region.write(TABLE, [b"a", b"b", b"c"])
    assert list(table_of(region).seq_offset_mapping) == [(1, 1), (2, 2), (3, 3)]

    await region.mark_deleted(TABLE, 1)

    assert list(table_of(region).seq_offset_mapping) == [(2, 2), (3, 3)]


# --- open or create ----------------------------------------------------------------------------------------------


async def test_a_region_is_searched_for_in_the_opened_namespace(backend, region):
    """Search for the region in the opened namespace."""
    async with Wal.open(backend, namespace="other") as other:
        assert await other.regions() == []
        with pytest.raises(RegionNotFoundError):
            await other.open_region(1)


async def test_a_region_that_is_there_has_its_metadata_recovered(backend, region):
    """If it is there, the most important thing is to recover its metadata."""
    await region.write(TABLE, [b"a", b"b"])
    async with Wal.open(backend, namespace="ts") as other:
        assert await (await other.open_region(1)).sequence_num(TABLE) == 2


async def test_a_region_that_is_not_there_is_created_if_asked_for(backend, wal):
    """If it is not there and is to be created, its topics are created."""
    with pytest.raises(RegionNotFoundError):
        await wal.open_region(1)
    assert await backend.list_topics() == []

    await wal.open_region(1, create=True)

    assert await backend.list_topics() == [DATA, META]


async def test_a_region_that_was_opened_is_cached(wal, region):
    """Put the region into the cache and return it."""
    assert await wal.open_region(1) is region


# --- recovery: the worked example --------------------------------------------------------------------------------

MAPPING = {2: 16, 3: 16, 4: 31}
SNAPSHOT = RegionSnapshot(
    (TableSnapshot(TABLE, 5, 2, 32, 16, (Run(2, 16, 1), Run(3, 16, 1), Run(4, 31, 1))),), high_watermark=64
)
BEHIND = {5: 72, 6: 81, 7: 90}


def test_the_worked_example_of_recovery():
    """From the snapshot at high watermark 64 and the data behind it: next 8, marked 2, all six mappings."""
    meta = RegionMeta.of_snapshot(1, decode_snapshot(encode_snapshot(SNAPSHOT)))
    assert dict(meta.table(TABLE).seq_offset_mapping) == MAPPING

    for sequence, offset in BEHIND.items():
        meta.replay(TABLE, sequence, offset)

    table = meta.table(TABLE)
    assert (table.next_seq_num, table.latest_mark_deleted) == (8, 2)
    assert dict(table.seq_offset_mapping) == MAPPING | BEHIND
    assert table.current_high_watermark == 91  # the drawing leaves 32


async def test_the_worked_example_over_a_log(backend, wal):
    """The same, read from topics: only what lies behind the snapshot is looked at."""
    filler = await wal.open_region(1, create=True)
    sequences = {offset: sequence for sequence, offset in BEHIND.items()}
    keys = {offset: LogKey(1, TABLE, sequence) for offset, sequence in sequences.items()}
    others = itertools.count(1)
    for offset in range(101):
        key = keys.get(offset) or LogKey(1, 9, next(others) if offset >= 64 else 1)
        # Before the snapshot nothing is an entry: whoever read it there would fail.
        record = (encode_log_key(key), b"\x00") if offset >= 64 else (None, None)
        assert backend.put(DATA, *record) == offset
    backend.put(META, encode_meta_key(1), encode_snapshot(SNAPSHOT))
    filler._is_closed = True  # without a snapshot of its own
    async with Wal.open(backend, namespace="ts") as again:
        region = await again.open_region(1)

        table = table_of(region)
        assert (table.next_seq_num, table.latest_mark_deleted) == (8, 2)
        assert dict(table.seq_offset_mapping) == MAPPING | BEHIND
        assert region._meta.high_watermark == 101
        assert (await region.stats()).replay_count == 101 - 64


async def test_snapshots_are_made_when_marking_and_when_cleaning(backend, region):
    """Snapshots are made in some situations, as when logs are marked, and when they are really cleaned."""
    await region.write(TABLE, [b"a", b"b", b"c"])
    await region.mark_deleted(TABLE, 1, durable=True)
    (marked,) = await snapshots(backend)
    assert marked.tables[0].latest_mark_deleted == 2

    await region.mark_deleted(TABLE, 2)
    await region.clean()

    (cleaned,) = await snapshots(backend)
    assert cleaned.tables[0].latest_mark_deleted == 3


# --- read and write ----------------------------------------------------------------------------------------------


async def test_a_write_updates_the_metadata(region):
    """After the write next_seq_num, current_high_watermark and seq_offset_mapping are updated."""
    await region.write(TABLE, [b"a"])
    await region.write(TABLE, [b"b"])

    table = table_of(region)
    assert (table.next_seq_num, table.current_high_watermark) == (3, 2)
    assert dict(table.seq_offset_mapping) == {1: 0, 2: 1}


async def test_a_read_is_of_all_data_of_the_region(region):
    """Read all the data of the region; to split it by table and to replay it is up to the caller."""
    await region.write(1, [b"a"])
    await region.write(2, [b"b"])
    await region.write(1, [b"c"])

    assert [(entry.table, entry.payload) async for entry in region.scan()] == [(1, b"a"), (2, b"b"), (1, b"c")]


# --- delete ------------------------------------------------------------------------------------------------------


async def test_a_mark_keeps_every_sequence_from_it_on(region):
    """latest_mark_deleted and the mapping are updated so that each sequence is at or above the new mark."""
    await region.write(TABLE, [b"x"] * 10)

    await region.mark_deleted(TABLE, 6)

    assert [sequence for sequence, _ in table_of(region).seq_offset_mapping] == [7, 8, 9, 10]


async def test_a_drop_of_a_table_makes_a_snapshot_durable_at_once(backend, region):
    """When a table is dropped, a snapshot may have to be made and synced to Kafka in time."""
    await region.write(TABLE, [b"a"])
    assert await snapshots(backend) == []

    await region.drop_table(TABLE)

    (snapshot,) = await snapshots(backend)
    assert snapshot.tables[0].latest_mark_deleted == snapshot.tables[0].next_seq_num


async def test_cleaning_is_decided_by_a_snapshot_that_is_durable_before_anything_goes(backend, region):
    """Make a snapshot; decide by it whether to clean; if so, sync it to Kafka first, and then delete the logs."""
    await region.write(1, [b"a"] * 5)
    await region.write(2, [b"b"] * 5)
    await region.mark_deleted(1, 5)

    cleaned = await region.clean()

    (snapshot,) = await snapshots(backend)
    safe = min(table.safe_delete_offset for table in snapshot.tables if table.safe_delete_offset is not None)
    assert (await backend.bounds(DATA)).start == cleaned.deleted_before == safe == 5


async def test_where_nothing_is_to_be_cleaned_nothing_is_done(backend, region):
    """The snapshot tells whether a clean-up is needed."""
    await region.write(1, [b"a"])

    cleaned = await region.clean()

    assert cleaned.deleted_before is None
    assert await snapshots(backend) == []
    assert (await backend.bounds(DATA)).start == 0


async def test_cleaning_is_done_in_the_background(backend):
    """The clean-up runs in a background thread."""
    async with Wal.open(backend, namespace="ts", clean_interval_s=0.01) as wal:
        region = await wal.open_region(1, create=True)
        await region.write(1, [b"a"])
        await region.mark_deleted(1, 1)
        async with asyncio.timeout(30):
            while (await backend.bounds(DATA)).start == 0:  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0.01)


# --- HoraeDB's own figures, on a log without markers -------------------------------------------------------------


async def test_marks_and_offsets_are_those_of_horaedbs_tests(backend, region):
    """Five tables, each written twice: next 11, mark 6, high watermark 10 i + 10, safe offset 10 i + 5."""
    for table in range(5):
        assert await region.write(table, [b"x"] * 5) == 5
        assert await region.write(table, [b"x"] * 5) == 10
        await region.mark_deleted(table, 5, durable=True)

        meta = table_of(region, table)
        assert (meta.next_seq_num, meta.latest_mark_deleted) == (11, 6)
        assert meta.current_high_watermark == 10 * table + 10
        assert meta.safe_delete_offset == 10 * table + 5
        assert await snapshots(backend) == [region._meta.snapshot()]
        bounds = await backend.bounds(META)
        assert bounds.start + 1 == bounds.end

    await region.clean()

    assert (await backend.bounds(DATA)).start == 5
