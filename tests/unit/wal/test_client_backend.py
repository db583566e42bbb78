"""A region over a real broker whose answers go wrong: each write counts once, or not, and the region knows which."""

import asyncio

import pytest

from exactlog.client import ClientSettings, connect
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError, KafkaError, UnavailableError
from exactlog.core.record.batch_builder import NewRecord
from exactlog.core.wal.region_topics import RegionTopics
from exactlog.core.wal.write_batches import WriteBatch
from exactlog.wal import RegionTopicsError, Wal, WriteOutcomeUnknownError, region_opening
from tests.contract.wal_backends import new_namespace

IMPATIENT = ClientSettings(deadline_ms=300, backoff_ms=20)


@pytest.fixture
def faults(exactlog_faults):
    return exactlog_faults


@pytest.fixture
def namespace():
    return new_namespace()


@pytest.fixture
async def wal(exactlog_broker, namespace):
    url = f"kafka://{exactlog_broker.bootstrap_servers}"
    async with Wal.open(url, namespace=namespace, settings=IMPATIENT, clean_interval_s=None) as found:
        yield found


@pytest.fixture
async def region(wal):
    found = await wal.open_region(1, create=True)
    await found.write(3, [b"first"])
    return found


async def payloads(region):
    return [(entry.sequence, entry.payload) async for entry in region.scan()]


async def is_stable(wal, namespace):
    """Whether readers come up to the end: nothing is open."""
    bounds = await wal._open_backend().bounds(RegionTopics(namespace, 1).data)
    return bounds.stable_end == bounds.end


async def test_an_answer_to_produce_that_is_lost_lets_the_entries_count_once(faults, region):
    faults.drop_answer("Produce", times=1)

    assert await region.write(3, [b"second"]) == 2
    assert await payloads(region) == [(1, b"first"), (2, b"second")]


async def test_an_answer_to_the_commit_that_is_lost_lets_the_entries_count_once(faults, region):
    faults.drop_answer("EndTxn", times=1)

    assert await region.write(3, [b"second"]) == 2
    assert await payloads(region) == [(1, b"first"), (2, b"second")]


@pytest.mark.parametrize("way", ["drop", "drop_answer"])
async def test_a_commit_that_is_not_answered_is_found_out_about_later(faults, region, way):
    getattr(faults, way)("EndTxn")
    with pytest.raises(WriteOutcomeUnknownError):
        await region.write(3, [b"second"])
    with pytest.raises(ExactlogError):
        await region.write(3, [b"third"])
    faults.clear()

    assert await region.sequence_num(3) == 2
    assert await region.write(3, [b"third"]) == 3
    assert await payloads(region) == [(1, b"first"), (2, b"second"), (3, b"third")]


async def test_a_write_that_does_not_reach_the_broker_takes_no_sequence_and_holds_no_reader(
    faults, wal, namespace, region
):
    faults.drop("Produce")
    with pytest.raises(UnavailableError):
        await region.write(3, [b"lost"])
    faults.clear()

    assert await is_stable(wal, namespace)
    assert await region.write(3, [b"second"]) == 2
    assert await payloads(region) == [(1, b"first"), (2, b"second")]


async def test_a_write_whose_answers_are_all_lost_is_aborted(faults, wal, namespace, region):
    faults.drop_answer("Produce")
    with pytest.raises(UnavailableError):
        await region.write(3, [b"lost"])
    faults.clear()

    assert await region.write(3, [b"second"]) == 2
    assert await is_stable(wal, namespace)
    assert await payloads(region) == [(1, b"first"), (2, b"second")]


async def test_a_write_that_is_refused_is_told_and_the_next_one_goes_on(faults, region):
    faults.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=1)
    with pytest.raises(KafkaError) as refused:
        await region.write(3, [b"refused"])
    assert refused.value.error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    assert await region.write(3, [b"second"]) == 2


async def test_a_refused_write_in_a_group_is_tried_alone(faults, region):
    faults.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=1)
    first = asyncio.create_task(region.write(3, [b"x"]))
    await asyncio.sleep(0)

    results = await asyncio.gather(first, *(region.write(4, [b"y"]) for _ in range(3)), return_exceptions=True)

    assert sum(isinstance(result, KafkaError) for result in results) <= 1
    assert await region.sequence_num(4) + await region.sequence_num(3) == 1 + 4 - sum(
        isinstance(result, KafkaError) for result in results
    )


async def test_a_commit_that_is_refused_leaves_nothing_open(faults, wal, namespace, region):
    faults.fail("EndTxn", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError):
        await region.write(3, [b"refused"])
    faults.clear()

    assert await region.write(3, [b"second"]) == 2
    assert await is_stable(wal, namespace)
    assert await payloads(region) == [(1, b"first"), (2, b"second")]


@pytest.mark.parametrize("api", ["Produce", "EndTxn"])
async def test_an_append_that_is_given_up_counts_once_or_not_at_all(faults, region, api):
    with faults.delay(api, 500, times=1) as delayed:
        writing = asyncio.create_task(region._writer.write([WriteBatch(((3, (b"second",)),))]))
        await asyncio.to_thread(delayed.wait_for_hits)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing

    last = await region.sequence_num(3)
    assert last == (1 if api == "Produce" else 2)
    assert await region.write(3, [b"third"]) == last + 1
    assert [payload for _, payload in await payloads(region)][-1] == b"third"


async def test_a_clean_up_whose_deletion_fails_is_done_by_the_next_one(faults, region):
    await region.write(3, [b"second"])
    await region.mark_deleted(3, 1)
    faults.fail("DeleteRecords", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError):
        await region.clean()
    faults.clear()

    assert (await region.clean()).deleted_before is not None
    assert await payloads(region) == [(2, b"second")]


async def test_a_transaction_of_somebody_else_that_hides_entries_keeps_a_region_closed(
    exactlog_broker, monkeypatch, wal, namespace, region
):
    monkeypatch.setattr(region_opening, "_STABLE_TRIES", 1)
    topic = RegionTopics(namespace, 1).data
    await wal.close_region(1)
    async with (
        connect(f"kafka://{exactlog_broker.bootstrap_servers}") as stranger,
        stranger.transactional_producer(f"stranger of {namespace}") as producer,
    ):
        await producer.begin()
        await producer.produce(topic, [NewRecord(b"foreign")], partition=0)

        with pytest.raises(UnavailableError, match="a transaction of somebody else is open from offset"):
            await wal.open_region(1)
        assert len(await payloads(await wal.open_region(1, read_only=True))) == 1
        await producer.abort()

    assert await (await wal.open_region(1)).write(3, [b"second"]) == 2


async def test_a_topic_with_two_partitions_is_no_region(exactlog_broker, namespace, wal):
    exactlog_broker.create_topic(f"{namespace}_data_1", partitions=2)
    exactlog_broker.create_topic(f"{namespace}_meta_1")

    with pytest.raises(RegionTopicsError, match="has 2 partitions"):
        await wal.open_region(1)


async def test_retention_of_a_topic_that_was_there_is_told(exactlog_broker, namespace, wal):
    exactlog_broker.create_topic(f"{namespace}_data_1", config={"retention.ms": 1_000})
    exactlog_broker.create_topic(f"{namespace}_meta_1", config={"retention.ms": -1})

    region = await wal.open_region(1)

    assert [finding.split(":")[0] for finding in region.findings] == [f"topic {namespace}_data_1 has retention.ms=1000"]
