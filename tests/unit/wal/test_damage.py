"""A region of whose bytes some are wrong: it works, or says where that is, and an operator can go on without them."""

import contextlib
import random

import pytest
from msgspec import structs

from exactlog.client.wire.consumer import Reading
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_format import BATCH_OVERHEAD, iter_headers
from exactlog.core.wal.errors import RegionDataLostError, RegionMetaLostError, UnreadableRecordError
from exactlog.core.wal.region_topics import RegionTopics
from exactlog.wal import Wal
from tests.contract.wal_backends import new_namespace

REGION = 1
ROUNDS_MAX = 4  # what an operator has to do to one damage


@pytest.fixture
def topics():
    return RegionTopics(new_namespace(), REGION)


@pytest.fixture
def opened(exactlog_broker, topics):
    url = f"kafka://{exactlog_broker.bootstrap_servers}"
    return lambda: Wal.open(url, namespace=topics.namespace, clean_interval_s=None)


@pytest.fixture
def damage(monkeypatch):
    """Flips bits of stored batches: {(topic, offset of the batch): (byte, bit)}."""
    flips = {}
    fetch = Reading._fetch

    async def damaging(self, connection, places, topics):
        answers = await fetch(self, connection, places, topics)
        for place, answer in list(answers.items()):
            content = bytearray(answer.records or b"")
            for position, header in list(iter_headers(bytes(content), may_be_cut=True)):
                flip = flips.get((place.topic, header.base_offset))
                if flip is not None:
                    content[position + flip[0]] ^= 1 << flip[1]
            answers[place] = structs.replace(answer, records=bytes(content))
        return answers

    monkeypatch.setattr(Reading, "_fetch", damaging)
    return flips


@pytest.fixture
async def written(opened):
    """A region with entries before and behind its snapshots; what lies in each batch of the data topic."""
    async with opened() as wal:
        region = await wal.open_region(REGION, create=True)
        for number in range(6):
            if number == 3:
                await region.write_snapshot()
            await region.write_batch({3: [b"%d" % number] * 3, 4 + number % 2: [b"other"] * 2})
        region._is_closed = True  # as one that is killed: there is no further snapshot
        return await told(region)


async def told(region):
    region._is_closed = False
    entries = [(entry.table, entry.sequence, entry.payload, entry.offset) async for entry in region.scan()]
    region._is_closed = True
    return entries


async def batches(opened, topic):
    """Offset and size of each batch, markers too."""
    async with opened() as wal:
        reader = wal._backend._client
        place = TopicPartition(topic, 0)
        bounds = await wal._backend.bounds(topic)
        found = {}
        async for record in reader.consume({place: bounds.start}, ends={place: bounds.end}, include_control=True):
            found[record.batch.base_offset] = record.batch
    return list(found.values())


async def go_on(opened, expected):
    """Open and scan as an operator does it, told by the errors alone; how often that took, and what was there."""
    skips, is_loss_accepted = [], False
    for round_number in range(ROUNDS_MAX + 1):
        try:
            async with opened() as wal:
                region = await wal.open_region(REGION, read_only=True, skip_offsets=skips, accept_loss=is_loss_accepted)
                return round_number, await told(region)
        except (UnreadableRecordError, RegionDataLostError, RegionMetaLostError) as error:
            if error.region != REGION or error.offset is None:
                raise
            is_loss_accepted |= not isinstance(error, UnreadableRecordError) or "snapshot" in str(error)
            if isinstance(error, UnreadableRecordError) and "snapshot" not in str(error):
                skips.append(error.offset)
    raise AssertionError(f"not open after {ROUNDS_MAX} rounds: {skips}")


def flips_of(batch, seed):
    """Most bits of a header that no checksum covers, and one bit of every third byte else."""
    chance = random.Random(seed)
    for byte in range(17):
        yield from ((byte, bit) for bit in chance.sample(range(8), 3))
    for byte in range(17 + chance.randrange(3), batch.size_bytes, 3):
        yield byte, chance.randrange(8)


@pytest.mark.parametrize("which", range(12))
async def test_a_flipped_bit_of_the_data_topic_is_found_and_takes_its_batch_at_most(
    opened, written, damage, topics, which
):
    all_batches = await batches(opened, topics.data)
    assert len(all_batches) == 12
    batch = all_batches[which]
    others = [entry for entry in written if not batch.base_offset <= entry[3] < batch.next_offset]
    assert batch.size_bytes > BATCH_OVERHEAD
    for flip in flips_of(batch, which):
        damage[topics.data, batch.base_offset] = flip
        rounds, found = await go_on(opened, written)
        untouched = [(table, sequence, payload) for table, sequence, payload, _ in others]
        seen = [(table, sequence, payload) for table, sequence, payload, _ in found]
        if rounds == 0:
            assert found == written, flip
        else:
            assert [entry for entry in seen if entry in untouched] == untouched, flip
            assert set(seen) <= {entry[:3] for entry in written}, flip


async def test_a_flipped_bit_of_the_meta_topic_is_found(opened, written, damage, topics):
    for batch in await batches(opened, topics.meta):
        for flip in flips_of(batch, 0):
            damage[topics.meta, batch.base_offset] = flip
            rounds, found = await go_on(opened, written)
            assert found == written, flip
            assert rounds <= 1
        damage.clear()


async def test_a_batch_that_fails_its_checksum_is_passed_over_as_one_and_for_good(opened, written, damage, topics):
    batch = (await batches(opened, topics.data))[8]
    damage[topics.data, batch.base_offset] = (BATCH_OVERHEAD + 2, 0)
    first, last = batch.base_offset, batch.next_offset - 1
    async with opened() as wal:
        for _ in range(2):
            with pytest.raises(UnreadableRecordError, match=f"region 1: the records from offset {first} to {last}"):
                await wal.open_region(REGION)
        region = await wal.open_region(REGION, skip_offsets=[first])
        assert await region.write(3, [b"behind"]) == 19
    async with opened() as wal:
        region = await wal.open_region(REGION)
        sequences = [entry.sequence async for entry in region.read(3)]
        assert sequences == [*range(1, 13), *range(16, 20)]
        await region.mark_deleted(3, 19)
        await region.drop_table(4)
        await region.drop_table(5)
        assert (await region.clean()).deleted_before > last
        assert region._meta.skipped_offsets == set()


async def test_damage_that_comes_while_a_region_is_open_is_named_and_it_can_be_cleaned_all_the_same(
    opened, damage, topics
):
    async with opened() as wal:
        region = await wal.open_region(REGION, create=True)
        await region.write(3, [b"a"])
        await region.write(3, [b"b"])
        damage[topics.data, 0] = (BATCH_OVERHEAD + 2, 0)
        with pytest.raises(UnreadableRecordError, match="region 1: the records from offset 0 to 0") as refused:
            await told(region)
        assert refused.value.offset == 0
        region._is_closed = False
        with contextlib.suppress(UnreadableRecordError):
            assert [entry.sequence async for entry in region.read(3)] == []
        await region.mark_deleted(3, 1)
        assert (await region.clean()).deleted_before == 2
        assert [entry.sequence async for entry in region.scan()] == [2]
