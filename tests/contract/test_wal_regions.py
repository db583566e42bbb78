"""HoraeDB's shared scenarios of its write-ahead logs, on every backend: sequences and counts are exact everywhere."""

import asyncio

import pytest

from exactlog.core.wal.region_snapshot_format import decode_snapshot
from exactlog.core.wal.region_topics import RegionTopics
from exactlog.wal import Excluded, Included, Max, Min, RegionFenced, Wal
from tests.contract.wal_backends import BACKENDS, backend_of, new_namespace

REGION = 42


@pytest.fixture(params=BACKENDS)
async def backend(request, tmp_path):
    async with backend_of(request.param, tmp_path, request) as found:
        yield found


@pytest.fixture
def namespace():
    return new_namespace()


@pytest.fixture
async def wal(backend, namespace):
    async with Wal.open(backend, namespace=namespace) as found:
        yield found


@pytest.fixture
async def region(wal):
    return await wal.open_region(REGION, create=True)


def payloads(count, start=0):
    return [str(start + number).encode() for number in range(count)]


async def told(entries):
    return [(entry.sequence, entry.payload) async for entry in entries]


async def sequences(entries):
    return [entry.sequence async for entry in entries]


# --- the region --------------------------------------------------------------------------------------------------


async def test_five_tables_are_written_and_scanned_in_order(region):
    values = [str(number).encode() for number in range(42, 47)]
    for table in range(5):
        assert await region.write(table, values) == 5

    entries = [(entry.table, entry.sequence, entry.payload) async for entry in region.scan()]

    assert entries == [(table, number, values[number - 1]) for table in range(5) for number in range(1, 6)]


async def test_a_mark_is_in_the_one_snapshot_of_the_meta_topic(backend, namespace, wal, region):
    for table in range(5):
        assert await region.write(table, payloads(5)) == 5
        assert await region.write(table, payloads(5)) == 10
        await region.mark_deleted(table, 5, durable=True)

    topics = RegionTopics(namespace, REGION)
    bounds = await backend.bounds(topics.meta)
    snapshots = [record async for record in backend.read(topics.meta, bounds.start, bounds.end)]
    assert len(snapshots) == 1
    assert snapshots[0].offset == bounds.start
    stored = decode_snapshot(snapshots[0].value)
    assert [(table.next_seq_num, table.latest_mark_deleted) for table in stored.tables] == [(11, 6)] * 5
    assert stored == region._meta.snapshot()

    cleaned = await region.clean()

    assert (await backend.bounds(topics.data)).start == cleaned.log_start == cleaned.pin.offset
    assert [entry.sequence async for entry in region.scan([0])] == [6, 7, 8, 9, 10]


async def test_a_region_that_is_opened_again_knows_what_it_knew(wal, region):
    for table in range(5):
        await region.write(table, payloads(5))
    await region.mark_deleted(1, 3)
    before = region._meta.snapshot()
    await wal.close_region(REGION)

    again = await wal.open_region(REGION)

    assert again._meta.snapshot() == before
    assert again is not region


# --- read and write ----------------------------------------------------------------------------------------------


async def test_what_was_written_is_read(region):
    assert await region.write(3, payloads(10)) == 10

    assert await told(region.read(3)) == list(enumerate(payloads(10), start=1))
    assert await region.sequence_num(3) == 10


@pytest.mark.parametrize("size", [1, 2, 4, 10, 100])
async def test_batches_of_any_size_are_scanned(region, size):
    await region.write(3, payloads(10))

    batches = [batch async for batch in region.scan_batches(batch_size=size)]

    assert [len(batch) for batch in batches] == [min(size, 10 - at) for at in range(0, 10, size)]
    assert [entry.payload for batch in batches for entry in batch] == payloads(10)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (Min, Max, range(1, 11)),
        (Included(1), Included(10), range(1, 11)),
        (Excluded(1), Included(10), range(2, 11)),
        (Included(1), Excluded(10), range(1, 10)),
        (Excluded(1), Excluded(10), range(2, 10)),
        (Included(4), Included(4), range(4, 5)),
        (Included(11), Max, range(0)),
    ],
)
async def test_a_read_keeps_to_its_bounds(region, start, end, expected):
    await region.write(2, payloads(3))
    await region.write(3, payloads(4))
    await region.write(2, payloads(3))
    await region.write(3, payloads(6))

    assert await sequences(region.read(3, start, end)) == list(expected)


async def test_ten_writers_in_parallel_on_five_tables(region):
    async def write(writer):
        return await region.write(writer % 5, [f"{writer}-{number}".encode() for number in range(10)])

    last = await asyncio.gather(*map(write, range(10)))

    assert sorted(last) == [10] * 5 + [20] * 5
    for table in range(5):
        entries = await told(region.read(table))
        assert [sequence for sequence, _ in entries] == list(range(1, 21))
        first, second = (
            {payload.split(b"-")[0] for _, payload in entries[:10]},
            {payload.split(b"-")[0] for _, payload in entries[10:]},
        )
        assert len(first) == len(second) == 1


async def test_two_batches_and_reads_that_overlap(region):
    await region.write(3, payloads(10))
    await region.write(3, payloads(40, start=10))

    assert await told(region.read(3, Min, Included(10))) == list(enumerate(payloads(10), start=1))
    assert await sequences(region.read(3, Included(11))) == list(range(11, 51))
    assert await told(region.read(3, Included(5), Included(30))) == list(enumerate(payloads(26, start=4), start=5))
    assert await sequences(region.read(3)) == list(range(1, 51))


async def test_a_batch_of_several_tables_is_one_append(region):
    assert await region.write_batch({1: payloads(2), 2: payloads(3)}) == {1: 2, 2: 3}
    assert await region.write_batch({2: payloads(1), 1: payloads(1)}) == {1: 3, 2: 4}

    assert [(entry.table, entry.sequence) async for entry in region.scan()] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
        (2, 3),
        (2, 4),
        (1, 3),
    ]


async def test_a_scan_of_some_tables_is_of_those(region):
    for table in range(4):
        await region.write(table, payloads(2))

    assert {entry.table async for entry in region.scan([1, 3])} == {1, 3}


async def test_many_regions_side_by_side(wal):
    opened = await asyncio.gather(*(wal.open_region(number, create=True) for number in range(4)))
    await asyncio.gather(*(region.write(1, payloads(number + 1)) for number, region in enumerate(opened)))

    assert await wal.regions() == [0, 1, 2, 3]
    for number, region in enumerate(opened):
        assert await told(region.read(1)) == list(enumerate(payloads(number + 1), start=1))
    assert [stats.region for stats in await wal.stats()] == [0, 1, 2, 3]


# --- delete ------------------------------------------------------------------------------------------------------


async def test_after_everything_is_deleted_nothing_is_read_and_the_sequence_stays(wal, region):
    await region.write(3, payloads(10))
    await region.mark_deleted(3, 10)
    await region.clean()

    assert await told(region.read(3)) == []
    assert await told(region.scan()) == []
    assert await region.sequence_num(3) == 10


async def test_after_half_is_deleted_the_other_half_is_read(region):
    last = await region.write(3, payloads(10))

    await region.mark_deleted(3, last // 2)

    assert await sequences(region.read(3)) == [6, 7, 8, 9, 10]
    assert [entry.sequence async for entry in region.scan()] == [6, 7, 8, 9, 10]


async def test_to_delete_in_one_table_leaves_the_other(region):
    await region.write(3, payloads(10))
    await region.write(4, payloads(10))
    await region.mark_deleted(3, 10)
    await region.clean()

    assert await told(region.read(3)) == []
    assert await told(region.read(4)) == list(enumerate(payloads(10), start=1))


async def test_sequences_rise_over_writes_deletions_and_openings(wal, region):
    assert await region.write(3, payloads(10)) == 10
    assert await region.write(3, payloads(10)) == 20
    await region.mark_deleted(3, 20)
    assert await region.write(3, payloads(10)) == 30
    await region.mark_deleted(3, 30)
    await region.clean()
    await wal.close_region(REGION)

    again = await wal.open_region(REGION)

    assert await again.sequence_num(3) == 30
    assert await again.write(3, payloads(10)) == 40
    assert await sequences(again.read(3)) == list(range(31, 41))


async def test_a_region_that_was_flushed_and_cleaned_opens_with_its_sequences(wal, region):
    await region.write(3, payloads(10))
    await region.mark_deleted(3, 10)
    await region.clean()
    await wal.close_region(REGION)

    again = await wal.open_region(REGION)

    assert await told(again.scan()) == []
    assert await again.write(3, payloads(1)) == 11


async def test_an_empty_region_opens_again(wal, region):
    await wal.close_region(REGION)

    again = await wal.open_region(REGION)

    assert await again.sequence_num(3) == 0
    assert await told(again.scan()) == []


# --- owners ------------------------------------------------------------------------------------------------------


async def test_a_region_moves_from_a_to_b_and_back(backend, namespace, wal):
    async with Wal.open(backend, namespace=namespace) as other:
        a = await wal.open_region(REGION, create=True)
        assert await a.write(3, payloads(10)) == 10
        await wal.close_region(REGION)

        b = await other.open_region(REGION)
        assert await b.write(3, payloads(10)) == 20
        await b.mark_deleted(3, 15, durable=True)
        await other.close_region(REGION)

        a = await wal.open_region(REGION)
        assert await a.write(3, payloads(10)) == 30
        assert await sequences(a.read(3)) == list(range(16, 31))


async def test_an_owner_that_was_followed_writes_no_more(backend, namespace, wal, region):
    await region.write(3, payloads(10))
    async with Wal.open(backend, namespace=namespace) as other:
        b = await other.open_region(REGION)
        await b.write(3, payloads(1))
        await b.mark_deleted(3, 5, durable=True)

        with pytest.raises(RegionFenced, match=f"region {REGION} .* has another owner now") as refused:
            await region.write(3, payloads(1))
        with pytest.raises(RegionFenced):
            await region.clean()
        with pytest.raises(RegionFenced):
            await region.mark_deleted(3, 10)
        assert refused.value.region == REGION

        assert await b.write(3, payloads(1)) == 12
        assert await sequences(b.read(3)) == list(range(6, 13))


async def test_an_owner_that_was_followed_deletes_nothing_of_what_the_other_needs(backend, namespace, wal, region):
    await region.write(3, payloads(10))
    await region.mark_deleted(3, 8)
    async with Wal.open(backend, namespace=namespace) as other:
        b = await other.open_region(REGION)  # the mark was not durable: b has all ten
        with pytest.raises(RegionFenced):
            await region.clean()
        await wal.close_region(REGION)

        assert await sequences(b.read(3)) == list(range(1, 11))


async def test_a_region_that_was_lost_is_opened_again_in_the_same_log(backend, namespace, wal, region):
    await region.write(3, payloads(1))
    async with Wal.open(backend, namespace=namespace) as other:
        await (await other.open_region(REGION)).write(3, payloads(1))
        with pytest.raises(RegionFenced):
            await region.write(3, payloads(1))

        again = await wal.open_region(REGION)

        assert await again.write(3, payloads(1)) == 3


async def test_to_look_at_a_region_leaves_it_with_its_owner(backend, namespace, wal, region):
    await region.write(3, payloads(3))
    async with Wal.open(backend, namespace=namespace) as other:
        seen = await other.open_region(REGION, read_only=True)

        assert await told(seen.scan()) == list(enumerate(payloads(3), start=1))
        assert await region.write(3, payloads(1)) == 4


async def test_nothing_is_deleted_before_an_open_reader(wal, region):
    await region.write(3, payloads(1_000))
    scan = region.scan()
    first = await anext(scan)
    await region.mark_deleted(3, 1_000)

    kept = await region.clean()
    assert kept.log_start <= first.offset

    await scan.aclose()
    assert (await region.clean()).log_start > first.offset
