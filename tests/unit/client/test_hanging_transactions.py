"""Which transactions hang, against a toy cluster."""

import pytest

from exactlog.client.hanging_transactions import (
    HeldPartition,
    find_hanging,
    held_partitions,
    open_transactions,
    started_at,
)
from exactlog.client.ports import ClientSettings
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.describe_producers import ActiveProducer, DescribeProducersRequest
from exactlog.core.protocol.messages.list_transactions import ListTransactionsResponse
from exactlog.core.record.batch_builder import NewRecord
from tests.unit.client.toy_broker import running
from tests.unit.client.toy_transactions import ToyTransaction, TransactionCluster

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def open_at(offset, *, producer_id):
    return ActiveProducer(producer_id=producer_id, current_txn_start_offset=offset)


def cluster_with(*active: tuple[TopicPartition, ActiveProducer]) -> TransactionCluster:
    cluster = TransactionCluster(broker_count=2)
    cluster.add_topic("orders", leaders=(1, 2))
    for place, producer in active:
        cluster.active[place].append(producer)
    return cluster


async def starts_of_hanging(cluster):
    async with running(cluster) as client:
        return [(found.place, found.start_offset) for found in await find_hanging(client, [A, B])]


async def test_a_transaction_that_no_coordinator_knows_hangs():
    cluster = cluster_with((B, open_at(4, producer_id=7)), (A, open_at(2, producer_id=6)))
    assert await starts_of_hanging(cluster) == [(A, 2), (B, 4)]


async def test_a_transaction_of_which_its_coordinator_knows_the_partition_does_not_hang():
    cluster = cluster_with((A, open_at(2, producer_id=7)))
    cluster.transactions["pay"] = ToyTransaction(7, 3, "Ongoing", {A})
    assert await starts_of_hanging(cluster) == []


async def test_a_transaction_of_which_its_coordinator_knows_other_partitions_hangs_there():
    cluster = cluster_with((A, open_at(2, producer_id=7)), (B, open_at(5, producer_id=7)))
    cluster.transactions["pay"] = ToyTransaction(7, 3, "Ongoing", {A})
    assert await starts_of_hanging(cluster) == [(B, 5)]


async def test_producers_without_an_open_transaction_are_no_affair_of_the_coordinator():
    cluster = cluster_with((A, ActiveProducer(producer_id=7)))
    assert await starts_of_hanging(cluster) == []
    assert len(cluster.requests_of(DescribeProducersRequest)) == 2


async def test_what_ended_while_others_were_asked_does_not_hang():
    cluster = cluster_with((A, open_at(2, producer_id=7)))
    usual = cluster.answer_list_transactions

    def end_and_answer(*question):
        cluster.active[A] = [ActiveProducer(producer_id=7)]
        return usual(*question)

    cluster.scripts[ApiKey.LIST_TRANSACTIONS].append(end_and_answer)
    assert await starts_of_hanging(cluster) == []


async def test_one_that_began_after_another_had_ended_is_another_one():
    cluster = cluster_with((A, open_at(2, producer_id=7)))
    usual = cluster.answer_list_transactions

    def go_on_and_answer(*question):
        cluster.active[A] = [open_at(9, producer_id=7)]
        return usual(*question)

    cluster.scripts[ApiKey.LIST_TRANSACTIONS].append(go_on_and_answer)
    assert await starts_of_hanging(cluster) == []


async def test_the_coordinator_is_told_with_an_open_transaction():
    cluster = cluster_with((A, open_at(2, producer_id=7)))
    cluster.transactions["pay"] = ToyTransaction(7, 3, "Ongoing", {A})
    async with running(cluster) as client:
        (found,) = await open_transactions(client, [A])
    assert (found.coordinated.transactional_id, found.hangs) == ("pay", False)


@pytest.mark.parametrize(
    "refusal", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
)
async def test_while_no_coordinator_can_be_asked_nothing_is_said_to_hang_and_all_is_shown(refusal):
    cluster = cluster_with((A, open_at(2, producer_id=7)))
    cluster.answer_list_transactions = lambda *_: ListTransactionsResponse(error_code=refusal)

    async with running(cluster, ClientSettings(deadline_ms=200, backoff_ms=1)) as client:
        (found,) = await find_hanging(client, [A, B])

    assert (found.place, found.start_offset, found.is_undecided, found.hangs) == (A, 2, True, False)


async def test_another_refusal_of_the_coordinator_is_an_error():
    cluster = cluster_with((A, open_at(2, producer_id=7)))
    refused = ListTransactionsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    cluster.answer_list_transactions = lambda *_: refused

    async with running(cluster, ClientSettings(deadline_ms=200, backoff_ms=1)) as client:
        with pytest.raises(ExactlogError):
            await find_hanging(client, [A])


async def test_groups_that_have_come_to_the_last_stable_offset_wait():
    cluster = cluster_with()
    cluster.topics["orders"].logs[0].last_stable_offset = 1
    async with running(cluster) as client:
        await client.produce("orders", [NewRecord(b"a"), NewRecord(b"b")], partition=0)
        cluster.group.committed[A] = 1
        # The toy's every group has the same offsets; one of them is listed by each broker.
        assert await held_partitions(client, [A, B]) == {
            A: HeldPartition(1, 2, ("g1", "g2")),
            B: HeldPartition(0, 0, ()),
        }
        cluster.group.committed[A] = 0
        assert (await held_partitions(client, [A]))[A].waiting_groups == ()


async def test_partitions_that_are_gone_hold_nobody():
    async with running(cluster_with()) as client:
        gone = [TopicPartition("orders", 2), TopicPartition("other", 0)]
        assert await held_partitions(client, gone) == {}


async def test_a_transaction_began_with_its_first_record_if_that_is_still_there():
    cluster = cluster_with()
    async with running(cluster) as client:
        await client.produce("orders", [NewRecord(b"a", timestamp_ms=5), NewRecord(b"b", timestamp_ms=9)], partition=0)
        assert await started_at(client, A, 1) == 9
        cluster.topics["orders"].logs[0].log_start = 2
        assert await started_at(client, A, 1) is None
