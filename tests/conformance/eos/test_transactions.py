"""What `transaction` promises, with real clients and real brokers."""

import asyncio

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.eos import AbortableError, FatalError, FencedError, RebalancedError, transaction
from tests.conformance.eos.faces import ALL, PATIENCE_S

NOTHING = [-1001, -1001]


async def test_records_of_several_topics_and_the_offsets_become_visible_as_one(shop):
    audit = shop.judge.create_topic(f"{shop.name}-audit", partitions=2)
    producer, consumer = await shop.producer(), await shop.consumer()

    async with transaction(producer, consumer) as txn:
        await shop.work(txn, consumer)
        await txn.send(audit, b"first", partition=0)
        await txn.send(audit, b"second", partition=1)

    assert shop.sent() == ALL
    assert shop.judge.values(audit, partitions=2) == [b"first", b"second"]
    assert shop.committed() == [3, 3]


async def test_an_error_in_the_block_takes_everything_back(shop):
    producer, consumer = await shop.producer(), await shop.consumer()
    mistake = ValueError("a mistake")
    read = []

    async def fail():
        async with transaction(producer, consumer) as txn:
            read.extend(await shop.work(txn, consumer))
            raise mistake

    with pytest.raises(ValueError, match="a mistake") as caught:
        await fail()
    async with transaction(producer, consumer) as txn:
        again = await shop.work(txn, consumer)

    assert caught.value is mistake
    assert sorted(again) == sorted(read)
    assert shop.sent() == ALL
    assert shop.sent("read_uncommitted") == sorted(ALL + ALL)


async def test_an_error_right_after_a_commit_goes_back_to_that_commit(shop):
    producer, consumer = await shop.producer(), await shop.consumer()
    read = []

    async def fail():
        async with transaction(producer, consumer):
            raise ZeroDivisionError

    for _ in range(3):
        async with transaction(producer, consumer):
            read += await shop.face.read(consumer, 2)
        with pytest.raises(ZeroDivisionError):
            await fail()

    assert sorted(record.value for record in read) == ALL
    assert shop.committed() == [3, 3]


async def test_where_nothing_is_committed_the_reset_policy_holds_again(shop):
    producer, consumer = await shop.producer(), await shop.consumer()

    async def fail():
        async with transaction(producer, consumer):
            await shop.face.read(consumer, 6)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

    assert shop.committed() == NOTHING
    assert len(await shop.face.read(consumer, 6)) == 6


async def test_after_a_crash_before_the_commit_nothing_is_lost_or_doubled(shop):
    crashed_consumer = await shop.consumer()
    crashed = await transaction(await shop.producer(), crashed_consumer).__aenter__()
    await shop.work(crashed, crashed_consumer)
    await shop.face.leave(crashed_consumer)

    producer, consumer = await shop.producer(), await shop.consumer()
    async with transaction(producer, consumer) as txn:
        await shop.work(txn, consumer)

    assert shop.sent() == ALL
    assert shop.sent("read_uncommitted") == sorted(ALL + ALL)
    assert shop.committed() == [3, 3]


async def test_a_zombie_is_told_that_it_is_one(shop):
    zombie, consumer = await shop.producer(), await shop.consumer()
    heirs = []

    async def be_taken_over():
        async with transaction(zombie, consumer) as txn:
            await shop.work(txn, consumer)
            heirs.append(await shop.producer())

    async def go_on():
        async with transaction(zombie, consumer) as txn:
            await txn.send(shop.invoices, b"of the zombie")

    with pytest.raises(FencedError) as caught:
        await be_taken_over()
    with pytest.raises(FencedError):
        await go_on()
    async with transaction(heirs[0]) as txn:
        await txn.send(shop.invoices, b"of the heir")

    assert caught.value.kafka_error in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
    assert not caught.value.retryable
    assert shop.sent() == [b"of the heir"]
    assert shop.committed() == NOTHING


async def test_a_zombie_is_told_so_though_its_block_has_failed_too(shop):
    zombie = await shop.producer()

    async def fail():
        async with transaction(zombie) as txn:
            await txn.send(shop.invoices, b"of the zombie")
            await txn._client.deliver(timeout_s=PATIENCE_S)
            await shop.producer()
            raise ZeroDivisionError

    with pytest.raises(FencedError) as caught:
        await fail()

    assert "ZeroDivisionError" in caught.value.__notes__[0]


async def test_a_rebalance_in_the_middle_aborts(shop):
    producer, consumer = await shop.producer(), await shop.consumer()
    joining = []

    async def share():
        async with transaction(producer, consumer) as txn:
            await shop.work(txn, consumer)
            joining.append(asyncio.ensure_future(shop.consumer()))
            while len(shop.face.partitions(consumer)) != 1:
                await shop.face.take_part(consumer)

    with pytest.raises(RebalancedError) as caught:
        await share()
    others_producer, other = await shop.producer("-2"), await joining[0]
    for writer, reader in ((producer, consumer), (others_producer, other)):
        async with transaction(writer, reader) as txn:
            await shop.work(txn, reader, count=3)

    assert caught.value.retryable
    assert shop.sent() == ALL
    assert shop.committed() == [3, 3]


async def test_a_member_that_does_not_know_of_a_rebalance_does_not_commit(shop, expel):
    producer, consumer = await shop.producer(), await shop.consumer()

    async def be_expelled():
        async with transaction(producer, consumer) as txn:
            await shop.work(txn, consumer)
            expel(shop.name, shop.face.member_id(consumer))

    with pytest.raises(RebalancedError):
        await be_expelled()

    assert shop.sent() == []
    assert shop.committed() == NOTHING


async def test_work_is_done_again_after_a_rebalance(shop, expel):
    producer, consumer = await shop.producer(), await shop.consumer()
    attempts = []

    async def work(txn):
        attempts.append(await shop.work(txn, consumer))
        if len(attempts) == 1:
            expel(shop.name, shop.face.member_id(consumer))
        return "done"

    result = await transaction(producer, consumer, retries=10).run(work)

    assert result == "done"
    assert len(attempts) >= 2
    assert shop.sent() == ALL
    assert shop.committed() == [3, 3]


async def test_offsets_can_be_given(shop):
    producer, consumer = await shop.producer(), await shop.consumer()

    async with transaction(producer, consumer) as txn:
        for record in await shop.face.read(consumer, 6):
            if record.offset < 2:
                txn.use_offsets({(shop.orders, record.partition): record.offset + 1})
    async with transaction(producer, consumer) as txn:
        txn.use_offsets({})

    assert shop.committed() == [2, 2]


async def test_offsets_of_partitions_that_the_consumer_does_not_have_are_refused(shop):
    producer, consumer = await shop.producer(), await shop.consumer()

    async def commit_others():
        async with transaction(producer, consumer) as txn:
            txn.use_offsets({(shop.invoices, 0): 1})

    with pytest.raises(RebalancedError, match=shop.invoices):
        await commit_others()

    assert shop.judge.committed(shop.name, shop.invoices) == [-1001]


async def test_a_record_that_is_not_delivered_takes_the_others_with_it(shop):
    small = shop.judge.create_topic(f"{shop.name}-small", max_message_bytes=1_000)
    producer = await shop.producer()

    async def send_too_much():
        async with transaction(producer) as txn:
            await txn.send(small, b"fits")
            await txn.send(small, bytes(5_000))

    with pytest.raises((AbortableError, FatalError)) as caught:
        await send_too_much()
    async with transaction(await shop.producer()) as txn:
        await txn.send(small, b"next")

    assert caught.value.kafka_error is ErrorCode.MESSAGE_TOO_LARGE
    assert not caught.value.retryable
    assert shop.judge.values(small) == [b"next"]


async def test_being_cancelled_takes_everything_back(shop):
    producer, consumer = await shop.producer(), await shop.consumer()
    has_sent = asyncio.Event()

    async def work():
        async with transaction(producer, consumer) as txn:
            await shop.work(txn, consumer)
            has_sent.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await has_sent.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert shop.sent() == []
    assert len(await shop.face.read(consumer, 6)) == 6


@pytest.mark.slow
async def test_a_transaction_that_takes_too_long_is_not_committed(shop, let_time_pass):
    producer = await shop.producer(timeout_ms=1_000)

    async def be_late():
        async with transaction(producer) as txn:
            await txn.send(shop.invoices, b"late")
            await txn._client.deliver(timeout_s=PATIENCE_S)
            let_time_pass(20_000)
            await asyncio.to_thread(shop.sent)  # returns when the coordinator has given the transaction up

    with pytest.raises((FencedError, AbortableError)):
        await be_late()

    assert shop.sent() == []
