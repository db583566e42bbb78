"""An end that cannot be decided yet: what comes meanwhile for its id waits, and is no part of what ends."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.transaction import parking
from exactlog.core.transaction.requests import EndRequest
from tests.support.transaction_runtime import BILLS, ID, ORDERS, TransactionRuntime, identity


def end_that_was_expected(runtime, producer, *, is_commit=True, version=1):
    """The end is decided now."""
    producer_id, epoch = producer
    request = EndRequest(
        transactional_id=ID,
        producer_id=producer_id,
        producer_epoch=epoch,
        is_commit=is_commit,
        transaction_version=version,
    )
    return runtime.decide(
        lambda waiting: runtime.shard.end(request, waiting, was_expected=True, now_ms=runtime.now_ms), "end"
    )


def queue_end(runtime, producer):
    """An end comes behind what waits."""
    producer_id, epoch = producer
    request = EndRequest(
        transactional_id=ID, producer_id=producer_id, producer_epoch=epoch, is_commit=True, transaction_version=1
    )
    return runtime.decide(lambda waiting: runtime.shard.queue_end(request, waiting, now_ms=runtime.now_ms), "queue")


@pytest.fixture
def runtime():
    return TransactionRuntime()


@pytest.fixture
def producer(runtime):
    """Its transaction is open, and an end of it is expected."""
    producer = runtime.producer()
    runtime.add(producer, ORDERS, transaction_version=1)
    runtime.shard.expect_end(ID)
    return producer


@pytest.mark.parametrize("partition", [ORDERS, BILLS], ids=["one it has", "another one"])
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_what_comes_behind_it_begins_the_next_transaction(runtime, producer, partition, is_commit):
    behind = runtime.add(producer, partition, transaction_version=1)
    assert not behind.is_done

    assert end_that_was_expected(runtime, producer, is_commit=is_commit).error_code is ErrorCode.NONE
    assert not behind.is_done
    (ended,) = runtime.write_markers()

    assert ended.partitions == (ORDERS,)
    assert behind.error_code is ErrorCode.NONE
    assert runtime.entry().partitions == (partition,)
    assert runtime.state() == "Ongoing"


def test_with_an_epoch_for_each_transaction_the_next_one_waits_as_well(runtime):
    producer = runtime.producer()
    runtime.add(producer, ORDERS)
    runtime.shard.expect_end(ID)
    following = (producer[0], producer[1] + 1)
    behind = runtime.add(following, BILLS)

    ended = end_that_was_expected(runtime, producer, version=2)
    runtime.write_markers()

    assert identity(ended) == following
    assert behind.error_code is ErrorCode.NONE
    assert runtime.entry().partitions == (BILLS,)


def test_an_end_that_is_refused_lets_them_go_on(runtime, producer):
    behind = runtime.add(producer, BILLS, transaction_version=1)

    refused = end_that_was_expected(runtime, (producer[0], producer[1] + 7))

    assert refused.error_code is ErrorCode.PRODUCER_FENCED
    assert behind.error_code is ErrorCode.NONE
    assert runtime.entry().partitions == (BILLS, ORDERS)


def test_they_wait_for_the_last_of_several_ends(runtime, producer):
    runtime.shard.expect_end(ID)
    behind = runtime.add(producer, BILLS, transaction_version=1)

    end_that_was_expected(runtime, producer)
    runtime.write_markers()
    assert not behind.is_done
    end_that_was_expected(runtime, producer)  # a retry

    assert behind.error_code is ErrorCode.NONE
    assert runtime.entry().partitions == (BILLS,)


def test_an_end_that_comes_behind_what_waits_ends_that_and_holds_up_what_comes_behind_it(runtime, producer):
    assert ID not in runtime.shard.waited_for
    second = runtime.add(producer, BILLS, transaction_version=1)
    assert ID in runtime.shard.waited_for
    end = queue_end(runtime, producer)
    third = runtime.add(producer, ORDERS, transaction_version=1)

    end_that_was_expected(runtime, producer)
    assert not end.is_done
    runtime.write_markers()

    assert (second.error_code, end.error_code, third.is_done) == (ErrorCode.NONE, ErrorCode.NONE, False)
    assert end_that_was_expected(runtime, producer).error_code is ErrorCode.NONE
    (ended,) = runtime.write_markers()
    assert ended.partitions == (BILLS,)
    assert third.error_code is ErrorCode.NONE
    assert runtime.entry().partitions == (ORDERS,)
    assert ID not in runtime.shard.waited_for


def test_an_end_that_is_queued_waits_no_longer_than_the_others(runtime, producer):
    runtime.add(producer, BILLS, transaction_version=1)
    end = queue_end(runtime, producer)

    runtime.advance(101)

    assert end.error_code is ErrorCode.CONCURRENT_TRANSACTIONS


def test_an_end_that_is_queued_when_a_round_fails_is_sent_away(runtime, producer):
    runtime.add(producer, BILLS, transaction_version=1)
    end = queue_end(runtime, producer)

    runtime.fail_round()

    assert end.error_code is ErrorCode.NOT_COORDINATOR


def test_where_too_many_wait_an_end_is_told_so(runtime, producer, monkeypatch):
    monkeypatch.setattr(parking, "PARKED_REQUESTS_PER_TRANSACTION_MAX", 1)
    runtime.add(producer, BILLS, transaction_version=1)

    assert queue_end(runtime, producer).error_code is ErrorCode.CONCURRENT_TRANSACTIONS


def test_they_wait_no_longer_than_behind_markers(runtime, producer):
    behind = runtime.add(producer, BILLS, transaction_version=1)

    runtime.advance(101)

    assert behind.error_code is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_failed_round_sends_them_away_and_the_end_is_still_to_come(runtime, producer):
    behind = runtime.add(producer, BILLS, transaction_version=1)

    runtime.fail_round()
    assert behind.error_code is ErrorCode.NOT_COORDINATOR
    again = runtime.add(producer, BILLS, transaction_version=1)
    assert not again.is_done
    end_that_was_expected(runtime, producer)
    runtime.write_markers()

    assert again.error_code is ErrorCode.NONE


def test_an_id_is_settled_once_what_was_decided_of_it_is_committed_whatever_is_decided_of_others():
    runtime = TransactionRuntime(commits_at_once=False)
    assert runtime.shard.is_settled(ID)
    initialised = runtime.init(ID)
    assert not runtime.shard.is_settled(ID)
    assert runtime.shard.is_settled("another")
    runtime.commit()
    assert runtime.shard.is_settled(ID)
    producer = identity(initialised)

    runtime.add(producer, ORDERS)
    assert not runtime.shard.is_settled(ID)
    runtime.commit()
    assert runtime.shard.is_settled(ID)
