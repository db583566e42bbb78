"""Answers that get lost, and a broker that dies, at the worst moments."""

import asyncio

import pytest

from exactlog.eos import FatalError, OutcomeUnknownError, RebalancedError, transaction
from exactlog.testing import Broker
from tests.conformance.eos.faces import ALL, FACES, PATIENCE_S, Judge


@pytest.fixture(params=["exactlog"])
def broker_name(request):
    """The one broker whose answers can be ordered to go wrong."""
    return request.param


async def test_a_commit_whose_answer_is_lost_is_committed_once(shop, exactlog_faults):
    producer, consumer = await shop.producer(), await shop.consumer()

    with exactlog_faults.drop_answer("EndTxn", transactional_id=shop.name, times=2) as fault:
        async with transaction(producer, consumer) as txn:
            await shop.work(txn, consumer)

    assert fault.hits == 2
    assert shop.sent() == ALL
    assert shop.committed() == [3, 3]


@pytest.mark.parametrize("is_committed", [False, True])
async def test_a_commit_that_is_never_answered_is_told_and_can_be_looked_up(shop, exactlog_faults, is_committed):
    producer, consumer = await shop.producer(), await shop.consumer()
    read = []

    async def commit():
        async with transaction(producer, consumer, timeout_ms=2_000) as txn:
            read.extend(await shop.work(txn, consumer))

    order = exactlog_faults.drop_answer if is_committed else exactlog_faults.drop
    with order("EndTxn", transactional_id=shop.name):
        with pytest.raises(OutcomeUnknownError):
            await commit()
        await shop.face.leave(consumer)
        heir = await shop.producer()
    assert shop.committed() == ([3, 3] if is_committed else [-1001, -1001])

    if not is_committed:
        successor = await shop.consumer()
        async with transaction(heir, successor) as txn:
            await shop.work(txn, successor)
    assert shop.sent() == ALL


async def test_offsets_whose_answer_is_lost_are_committed_once(shop, exactlog_faults):
    producer, consumer = await shop.producer(), await shop.consumer()

    with exactlog_faults.drop_answer("TxnOffsetCommit", group_id=shop.name, times=1) as fault:
        async with transaction(producer, consumer) as txn:
            await shop.work(txn, consumer)

    assert fault.hits == 1
    assert shop.sent() == ALL
    assert shop.committed() == [3, 3]


async def test_members_that_are_told_to_join_again_do_not_commit(shop, exactlog_faults):
    producer, consumer = await shop.producer(), await shop.consumer()

    async def share():
        async with transaction(producer, consumer) as txn:
            await shop.work(txn, consumer)
            before = await txn._client.membership()
            exactlog_faults.rebalance(shop.name)
            while await txn._client.membership() == before:
                await shop.face.take_part(consumer)

    with pytest.raises(RebalancedError):
        await share()

    assert shop.sent() == []


@pytest.mark.parametrize("moment", ["before the end", "after it"])
@pytest.mark.parametrize("face_name", FACES)
async def test_a_broker_that_dies_changes_nothing(face_name, moment):
    with Broker(config={"flush.mode": "commit"}) as broker:
        judge = Judge(broker.bootstrap_servers)
        judge.create_topic("orders", partitions=2)
        judge.create_topic("invoices")
        judge.fill("orders", ALL, partitions=2)
        face = FACES[face_name](broker.bootstrap_servers)
        producer, consumer = await face.producer("billing"), await face.consumer("billing", "orders")

        async def work(txn):
            for record in await face.read(consumer, 6):
                await txn.send("invoices", record.value)
            await txn._client.deliver(timeout_s=PATIENCE_S)
            if moment == "before the end":
                await asyncio.to_thread(restart, broker)

        try:
            while judge.committed("billing", "orders", partitions=2) != [3, 3]:
                try:
                    await transaction(producer, consumer, retries=20).run(work)
                except FatalError:  # a transaction that did not survive the restart
                    producer = await face.producer("billing")
        finally:
            await face.close()
        if moment == "after it":
            restart(broker)

        assert judge.values("invoices") == ALL


def restart(broker):
    broker.kill()
    broker.restart()
