"""Opening a region: what is created, what is recovered, what is refused and what an operator can do about it."""

import logging

import pytest

from exactlog.core.model.errors import ConfigError
from exactlog.core.wal.log_entry_format import LogKey, encode_log_key
from exactlog.core.wal.region_snapshot_format import RegionSnapshot, TableSnapshot, encode_meta_key, encode_snapshot
from exactlog.wal import (
    MemoryBackend,
    RegionClosedError,
    RegionDataLostError,
    RegionMetaLostError,
    RegionNotFoundError,
    RegionReadOnlyError,
    RegionTopicsError,
    RegionTrimmedError,
    UnreadableRecordError,
    Wal,
)

DATA, META = "ts_data_1", "ts_meta_1"


@pytest.fixture
def backend():
    return MemoryBackend()


def opened(backend, **options):
    return Wal.open(backend, namespace="ts", clean_interval_s=None, **options)


async def written(backend, *, last=5, mark=None):
    """A region with entries of table 3, closed again."""
    async with opened(backend) as wal:
        region = await wal.open_region(1, create=True)
        await region.write(3, [b"%d" % number for number in range(1, last + 1)])
        if mark is not None:
            await region.mark_deleted(3, mark, durable=True)


async def entries(region):
    return [(entry.table, entry.sequence) async for entry in region.scan()]


# --- finding -----------------------------------------------------------------------------------------------------


async def test_a_region_that_is_not_there_is_not_found_and_not_created(backend):
    async with opened(backend) as wal:
        with pytest.raises(RegionNotFoundError, match="namespace ts has no region 1") as refused:
            await wal.open_region(1)
        assert refused.value.region == 1
        assert await wal.regions() == []


async def test_a_region_is_in_one_namespace(backend):
    await written(backend)
    async with Wal.open(backend, namespace="other") as wal:
        assert await wal.regions() == []
        with pytest.raises(RegionNotFoundError):
            await wal.open_region(1)


async def test_a_region_that_is_open_is_given_again(backend):
    async with opened(backend) as wal:
        region = await wal.open_region(1, create=True)

        assert await wal.open_region(1) is region
        assert await wal.open_region(1, read_only=True) is not region


async def test_topics_are_created_so_that_nobody_else_deletes_from_them(backend):
    await written(backend)

    for topic in (DATA, META):
        configs = await backend.topic_configs(topic)
        assert (configs["retention.ms"], configs["retention.bytes"], configs["cleanup.policy"]) == (
            "-1",
            "-1",
            "delete",
        )


async def test_finite_retention_of_a_topic_is_reported(backend, caplog):
    await written(backend)
    backend._topics[DATA].configs["retention.ms"] = "604800000"

    async with opened(backend) as wal:
        with caplog.at_level(logging.WARNING):
            region = await wal.open_region(1)

        (finding,) = (await region.stats()).findings
        assert finding.startswith("topic ts_data_1 has retention.ms=604800000: the broker may delete")
        assert "exactlog topic alter ts_data_1 -c retention.ms=-1" in caplog.text


async def test_a_creation_that_did_not_come_to_its_end_is_finished(backend):
    await backend.create_topic(META, {})
    async with opened(backend) as wal:
        region = await wal.open_region(1)
        assert await region.write(3, [b"a"]) == 1


@pytest.mark.parametrize("namespace", ["", "a b", "ü", "x" * 201])
def test_a_namespace_is_the_beginning_of_a_topics_name(namespace):
    with pytest.raises(ConfigError):
        Wal.open("memory:", namespace=namespace)


# --- recovering --------------------------------------------------------------------------------------------------


async def test_a_snapshot_of_horaedbs_shape_is_recovered_from(backend):
    await written(backend, mark=2)
    snapshot = RegionSnapshot((TableSnapshot(3, 6, 3, 5, 2),))
    backend.put(META, encode_meta_key(1), encode_snapshot(snapshot))

    async with opened(backend) as wal:
        region = await wal.open_region(1)

        assert await entries(region) == [(3, 3), (3, 4), (3, 5)]
        assert await region.write(3, [b"f"]) == 6


async def test_the_newest_snapshot_counts(backend):
    await written(backend, mark=2)
    stale = RegionSnapshot((TableSnapshot(3, 6, 6, 5, None),), high_watermark=5)
    backend.put(META, encode_meta_key(1), encode_snapshot(stale))

    async with opened(backend) as wal:
        assert await entries(await wal.open_region(1)) == []


async def test_an_exact_copy_of_an_entry_is_passed_over_and_told(backend):
    await written(backend)
    backend.put(DATA, encode_log_key(LogKey(1, 3, 4)), b"\x004")
    told = []

    async with opened(backend) as wal:
        region = await wal.open_region(1)
        assert await region.write(3, [b"f"]) == 6
        seen = [(entry.sequence, entry.offset) async for entry in region.scan(on_progress=told.append)]

    assert seen == [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (6, 6)]
    assert (told[-1].duplicate_count, told[-1].last_duplicate_offset) == (1, 5)
    assert (told[-1].offset, told[-1].end, told[-1].entry_count) == (7, 7, 6)


# --- what cannot be read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"order"),
        (b"order-17", b"x"),
        (encode_log_key(LogKey(2, 3, 6)), b"\x00"),
        (encode_log_key(LogKey(1, 3, 6)), b"\x09"),
    ],
    ids=["keyless", "foreign", "of another region", "of another version"],
)
async def test_a_record_that_is_no_entry_is_named_and_can_be_passed_over(backend, key, value):
    await written(backend)
    offset = backend.put(DATA, key, value)

    async with opened(backend) as wal:
        for _ in range(2):
            with pytest.raises(UnreadableRecordError, match=f"region 1: the record at offset {offset}") as refused:
                await wal.open_region(1)
            assert refused.value.offset == offset

        region = await wal.open_region(1, skip_offsets=[offset])
        assert await region.write(3, [b"f"]) == 6
        assert len(await entries(region)) == 6

    async with opened(backend) as wal:  # once is enough
        region = await wal.open_region(1)
        assert len(await entries(region)) == 6
        assert [entry.sequence async for entry in region.read(3)] == [1, 2, 3, 4, 5, 6]


async def test_a_record_that_came_while_the_region_was_open_is_named_by_the_scan(backend):
    async with opened(backend) as wal:
        region = await wal.open_region(1, create=True)
        await region.write(3, [b"a"])
        offset = backend.put(DATA, None, b"foreign")
        await region.write(3, [b"b"])

        with pytest.raises(UnreadableRecordError) as refused:
            await entries(region)
        assert refused.value.offset == offset
        assert (await region.stats()).reader_offsets == ()


async def test_a_damaged_snapshot_is_named_and_the_one_before_it_can_be_taken(backend):
    await written(backend, mark=2)
    offset = backend.put(META, encode_meta_key(1), b"\x00\x12\x7f")

    async with opened(backend) as wal:
        with pytest.raises(UnreadableRecordError, match=f"snapshot at offset {offset} of the meta topic"):
            await wal.open_region(1)

        region = await wal.open_region(1, accept_loss=True)

        assert region.findings[0].startswith("accepted: region 1: the snapshot at offset")
        assert await entries(region) == [(3, 3), (3, 4), (3, 5)]


@pytest.mark.parametrize(
    ("key", "value"),
    [(encode_meta_key(2), b"\x00"), (None, b"\x00"), (encode_meta_key(1), None), (encode_meta_key(1), b"\x07")],
)
async def test_a_foreign_record_in_the_meta_topic_is_no_snapshot(backend, key, value):
    await written(backend)
    backend.put(META, key, value)

    async with opened(backend) as wal:
        with pytest.raises(UnreadableRecordError):
            await wal.open_region(1)


async def test_a_meta_topic_that_was_emptied_is_noticed(backend):
    await written(backend, mark=2)
    await backend.delete_before(META, (await backend.bounds(META)).end)

    async with opened(backend) as wal:
        with pytest.raises(RegionMetaLostError, match="ts_meta_1 holds no snapshot any more"):
            await wal.open_region(1)

        region = await wal.open_region(1, accept_loss=True)
        assert await region.sequence_num(3) == 5
        assert len(await entries(region)) == 5


async def test_a_meta_topic_that_is_gone_is_noticed(backend):
    await written(backend)
    del backend._topics[META]

    async with opened(backend) as wal:
        with pytest.raises(RegionMetaLostError):
            await wal.open_region(1, create=True)


async def test_data_that_was_trimmed_below_the_snapshot_is_told_exactly(backend):
    await written(backend, mark=1)
    await backend.delete_before(DATA, 3)

    async with opened(backend) as wal:
        with pytest.raises(RegionDataLostError, match=r"offset 1 to 2 are gone.*table 3: 2\.\.3") as refused:
            await wal.open_region(1)
        assert refused.value.lost == {3: (2, 3)}
        assert (refused.value.region, refused.value.first_offset, refused.value.log_start) == (1, 1, 3)

        region = await wal.open_region(1, accept_loss=True)
        assert region.findings == ("accepted: region 1, table 3: entries 2 to 3 are lost",)
        assert await entries(region) == [(3, 4), (3, 5)]

    async with opened(backend) as wal:
        assert (await wal.open_region(1)).findings == ()


async def test_data_that_was_trimmed_behind_the_snapshot_is_told_exactly(backend):
    await written(backend, last=2)
    async with opened(backend) as wal:
        region = await wal.open_region(1)
        await region.write(3, [b"c", b"d", b"e"])
        region._is_closed = True  # it dies: no snapshot
    await backend.delete_before(DATA, 4)

    async with opened(backend) as wal:
        with pytest.raises(RegionDataLostError) as refused:
            await wal.open_region(1)
        assert refused.value.lost == {3: (1, 4)}


async def test_a_data_topic_that_was_made_anew_is_noticed(backend):
    await written(backend)
    del backend._topics[DATA]

    async with opened(backend) as wal:
        with pytest.raises(RegionDataLostError, match=r"table 3: 1\.\.5"):
            await wal.open_region(1, create=True)

        region = await wal.open_region(1, accept_loss=True)
        assert await region.sequence_num(3) == 5
        assert await region.write(3, [b"f"]) == 6
        assert await entries(region) == [(3, 6)]


async def test_a_data_topic_that_is_made_anew_under_its_owner_is_noticed_by_the_next_write(backend):
    async with opened(backend) as wal:
        region = await wal.open_region(1, create=True)
        await region.write(3, [b"a", b"b"])
        await region.write_snapshot()
        del backend._topics[DATA]
        await backend.create_topic(DATA, {})

        for _ in range(2):
            with pytest.raises(RegionTopicsError, match="gave offset 0, and had come to 2 before"):
                await region.write(3, [b"c"])
        assert not region.is_usable
        with pytest.raises(RegionDataLostError):
            await wal.open_region(1)


# --- closing, looking --------------------------------------------------------------------------------------------


async def test_a_region_that_was_closed_is_not_used(backend):
    async with opened(backend) as wal:
        region = await wal.open_region(1, create=True)
        await wal.close_region(1)
        await wal.close_region(1)
        await region.close()

        for use in (region.write(3, [b"a"]), region.sequence_num(3), region.clean(), region.stats()):
            with pytest.raises(RegionClosedError):
                await use
        with pytest.raises(RegionClosedError):
            region.scan()
    with pytest.raises(RegionClosedError):
        await wal.open_region(1)


async def test_a_region_that_is_only_looked_at_is_not_changed(backend):
    await written(backend)
    async with opened(backend) as wal:
        region = await wal.open_region(1, read_only=True)

        assert region.is_read_only
        for use in (
            region.write(3, [b"a"]),
            region.mark_deleted(3, 1),
            region.drop_table(3),
            region.clean(),
            region.write_snapshot(),
        ):
            with pytest.raises(RegionReadOnlyError):
                await use
        await region.close()


async def test_a_reader_whose_entries_the_owner_deletes_is_told(backend):
    await written(backend)
    async with opened(backend) as looking, opened(backend) as owning:
        seen = await looking.open_region(1, read_only=True)
        owner = await owning.open_region(1)
        await owner.mark_deleted(3, 5)
        await owner.clean()

        with pytest.raises(RegionTrimmedError) as refused:
            await entries(seen)
        assert refused.value.retryable


async def test_what_was_not_marked_durably_is_durable_once_the_region_is_closed(backend):
    async with opened(backend) as wal:
        region = await wal.open_region(1, create=True)
        await region.write(3, [b"a", b"b"])
        await region.mark_deleted(3, 1)

    async with opened(backend) as wal:
        assert await entries(await wal.open_region(1)) == [(3, 2)]
