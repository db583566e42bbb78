"""Transactions seen from outside, against a toy cluster."""

import pytest

from exactlog.client.produced import ProducerIdentity
from exactlog.client.transactions import ActiveProducer, TransactionDescription, TransactionListing
from exactlog.core.codec.wire_types import Versions
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DecodeError, KafkaError, NotFoundError, UnsupportedError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages import describe_producers
from exactlog.core.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.protocol.messages.list_transactions import ListTransactionsRequest
from tests.unit.client.toy_broker import running
from tests.unit.client.toy_transactions import ToyTransaction, TransactionCluster, up_to

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def cluster_with_transactions(**options) -> TransactionCluster:
    cluster = TransactionCluster(broker_count=2, **options)
    cluster.add_topic("orders", leaders=(1, 2))
    cluster.coordinator_id = 2
    cluster.transactions["pay"] = ToyTransaction(7, 3, "Ongoing", {A, B})
    cluster.transactions["bill"] = ToyTransaction(8, 0)
    return cluster


def described(cluster, transactional_id, **fields):
    values = {
        "state": "Empty",
        "producer_id": 8,
        "producer_epoch": 0,
        "timeout_ms": 60_000,
        "started_at_ms": None,
        "partitions": (),
        "coordinator": f"127.0.0.1:{cluster.brokers[1].port}",
    }
    return TransactionDescription(transactional_id, **(values | fields))


async def test_transactions_are_listed_from_every_broker_by_name():
    cluster = cluster_with_transactions()
    async with running(cluster) as client:
        assert await client.list_transactions() == (
            TransactionListing("bill", 8, "Empty", 2),
            TransactionListing("pay", 7, "Ongoing", 2),
        )
        assert await client.list_transactions(states=["Ongoing"]) == (TransactionListing("pay", 7, "Ongoing", 2),)
        assert await client.list_transactions(producer_ids=[8]) == (TransactionListing("bill", 8, "Empty", 2),)


async def test_filters_travel_in_the_versions_that_have_them():
    cluster = cluster_with_transactions()
    async with running(cluster) as client:
        await client.list_transactions(open_for_ms_min=5, id_pattern="p.*")
    (request, _) = cluster.requests_of(ListTransactionsRequest)
    assert (request.duration_filter, request.transactional_id_pattern) == (5, "p.*")


@pytest.mark.parametrize(("highest", "filters"), [(0, {"open_for_ms_min": 5}), (1, {"id_pattern": "p.*"})])
async def test_a_filter_that_the_broker_does_not_know_is_not_left_out(highest, filters):
    cluster = cluster_with_transactions(versions={ApiKey.LIST_TRANSACTIONS: Versions(0, highest)})
    async with running(cluster) as client:
        with pytest.raises(UnsupportedError):
            await client.list_transactions(**filters)


async def test_a_state_that_the_broker_does_not_know_is_no_empty_list():
    async with running(cluster_with_transactions()) as client:
        with pytest.raises(KafkaError, match="Nonsense") as caught:
            await client.list_transactions(states=["Nonsense"])
    assert caught.value.error_code is ErrorCode.INVALID_REQUEST


async def test_a_transaction_is_described_by_its_coordinator():
    cluster = cluster_with_transactions()
    cluster.fail(ApiKey.DESCRIBE_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
    async with running(cluster) as client:
        found = await client.describe_transaction("pay")
        assert found == described(
            cluster,
            "pay",
            state="Ongoing",
            producer_id=7,
            producer_epoch=3,
            started_at_ms=5_000,
            partitions=(A, B),
        )
    assert found.is_open


async def test_an_id_that_nobody_knows_is_not_found():
    async with running(cluster_with_transactions()) as client:
        with pytest.raises(NotFoundError, match="nobody"):
            await client.describe_transaction("nobody")


async def test_many_are_described_at_once_and_unknown_ones_left_out():
    cluster = cluster_with_transactions()
    async with running(cluster) as client:
        await client.list_transactions()  # which tells who coordinates them
        found = await client.describe_transactions(["pay", "nobody", "bill"])
        assert list(found) == ["bill", "pay"]
        assert found["bill"] == described(cluster, "bill")
    assert len(cluster.requests_of(DescribeTransactionsRequest)) == 1
    assert [request.coordinator_keys for request in cluster.requests_of(FindCoordinatorRequest)] == [("nobody",)]


async def test_an_answer_that_leaves_one_out_is_malformed():
    cluster = cluster_with_transactions()
    cluster.scripts[ApiKey.DESCRIBE_TRANSACTIONS].append(lambda *_: DescribeTransactionsResponse())
    async with running(cluster) as client:
        with pytest.raises(DecodeError, match="pay"):
            await client.describe_transaction("pay")


async def test_producers_are_described_by_the_leaders_of_partitions():
    cluster = cluster_with_transactions()
    cluster.active[B] = [
        describe_producers.ActiveProducer(
            producer_id=9,
            producer_epoch=1,
            last_sequence=4,
            last_timestamp=6_000,
            coordinator_epoch=2,
            current_txn_start_offset=17,
        ),
        describe_producers.ActiveProducer(producer_id=5, coordinator_epoch=-1),
    ]
    async with running(cluster) as client:
        assert await client.describe_producers([A, B]) == {
            A: (),
            B: (ActiveProducer(5, 0, None, None, None, None), ActiveProducer(9, 1, 4, 6_000, 2, 17)),
        }


async def test_fencing_waits_for_the_end_of_the_transaction():
    cluster = cluster_with_transactions()
    async with running(cluster) as client:
        assert await client.fence_producers("pay", timeout_ms=9) == ProducerIdentity(7, 5)
    first, second = cluster.requests_of(InitProducerIdRequest)
    assert first == second
    assert (first.producer_id, first.producer_epoch, first.transaction_timeout_ms) == (-1, -1, 9)
    assert [state for state, _, _ in cluster.outcomes] == ["CompleteAbort"]


@pytest.mark.parametrize("highest", [0, 2])
async def test_an_abort_marker_goes_to_the_leader_with_the_numbers_given(highest):
    cluster = cluster_with_transactions(versions=up_to(ApiKey.WRITE_TXN_MARKERS, highest))
    cluster.fail(ApiKey.WRITE_TXN_MARKERS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    async with running(cluster) as client:
        await client.write_abort_marker(B, producer_id=9, producer_epoch=1, coordinator_epoch=2)
    version, marker = cluster.markers[-1]
    assert version == highest
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (9, 1, 2)
    assert (marker.transaction_result, marker.transaction_version) == (False, 0)


async def test_a_marker_that_is_refused_says_why():
    cluster = cluster_with_transactions()
    cluster.fail(ApiKey.WRITE_TXN_MARKERS, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match="producer 9 in orders-1: TRANSACTION_COORDINATOR_FENCED"):
            await client.write_abort_marker(B, producer_id=9, producer_epoch=1, coordinator_epoch=0)
