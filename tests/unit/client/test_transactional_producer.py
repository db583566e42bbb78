"""The producer of a transactional id, at both levels of `transaction.version`, against a toy coordinator."""

import asyncio
import pickle

import msgspec
import pytest

from exactlog.client.ports import ClientSettings
from exactlog.client.transactions import (
    OutcomeUnknownError,
    ProducerFencedError,
    SharedTransaction,
    TransactionFailedError,
    TransactionStateError,
)
from exactlog.client.wire.partitioner import partition_of_key
from exactlog.core.codec.compression import Compression
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import KafkaError, UnavailableError, UnsupportedError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from exactlog.core.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from exactlog.core.protocol.messages.end_txn import EndTxnRequest
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.protocol.messages.offset_fetch import OffsetFetchRequest
from exactlog.core.protocol.messages.produce import ProduceRequest
from exactlog.core.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import decode_header
from tests.unit.client.toy_broker import HangUpError, running
from tests.unit.client.toy_transactions import TransactionCluster, up_to

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
OFFSETS = TopicPartition("__consumer_offsets", 0)
HASTY = ClientSettings(deadline_ms=300, backoff_ms=1, backoff_ms_max=5)
both_levels = pytest.mark.parametrize("level", [1, 2])


def cluster_at(level: int, **options) -> TransactionCluster:
    cluster = TransactionCluster(level=level, broker_count=2, **options)
    cluster.add_topic("orders", leaders=(1, 2))
    return cluster


def hang_up(*_):
    raise HangUpError


def carry_out_and_hang_up(key: ApiKey):
    """The broker does what it is asked, and the answer is lost."""

    def answer(broker, request, version):
        getattr(broker.cluster, f"answer_{key.name.lower()}")(broker, request, version)
        raise HangUpError

    return answer


def signatures(cluster: TransactionCluster) -> list[tuple[int, int, int]]:
    """Partition, epoch and sequence of every batch sent, in order."""
    return [
        (data.index, decode_header(data.records).producer_epoch, decode_header(data.records).base_sequence)
        for request in cluster.requests_of(ProduceRequest)
        for topic in request.topic_data
        for data in topic.partition_data
    ]


async def write(producer, *, partition=0, count=1):
    return await producer.produce("orders", [NewRecord(b"x")] * count, partition=partition)


@both_levels
async def test_records_of_several_partitions_are_committed_together(level):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        assert producer.identity is None
        async with producer.transaction():
            assert [found.offset for found in await write(producer, partition=1, count=2)] == [0, 1]
            await write(producer)
    assert cluster.outcomes == [("CompleteCommit", 0, {A, B})]


async def write_and_fail(producer):
    async with producer.transaction():
        await write(producer)
        raise ZeroDivisionError


@both_levels
async def test_an_exception_aborts(level):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        with pytest.raises(ZeroDivisionError):
            await write_and_fail(producer)
        async with producer.transaction():
            await write(producer)
    assert [state for state, _, _ in cluster.outcomes] == ["CompleteAbort", "CompleteCommit"]


async def test_at_level_1_partitions_are_added_once_before_they_are_written_to_and_the_epoch_stays():
    cluster = cluster_at(1)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        for _ in range(2):
            async with producer.transaction():
                await write(producer, count=2)
                await write(producer)
    assert cluster.versions_of(AddPartitionsToTxnRequest) == [3, 3]
    assert cluster.versions_of(ProduceRequest) == [11] * 4
    assert cluster.versions_of(EndTxnRequest) == [4, 4]
    assert signatures(cluster) == [(0, 0, 0), (0, 0, 2), (0, 0, 3), (0, 0, 5)]


async def test_at_level_2_writing_adds_partitions_and_every_transaction_has_an_epoch_of_its_own():
    cluster = cluster_at(2)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        for _ in range(2):
            async with producer.transaction():
                await write(producer, count=2)
                await write(producer)
    assert cluster.versions_of(AddPartitionsToTxnRequest) == []
    assert min(cluster.versions_of(ProduceRequest)) >= 12
    assert cluster.versions_of(EndTxnRequest) == [5, 5]
    assert signatures(cluster) == [(0, 0, 0), (0, 0, 2), (0, 1, 0), (0, 1, 2)]


@pytest.mark.parametrize(
    "old", [up_to(ApiKey.END_TXN, 4), up_to(ApiKey.PRODUCE, 11), up_to(ApiKey.TXN_OFFSET_COMMIT, 4)]
)
async def test_a_broker_that_lacks_the_versions_of_level_2_is_spoken_to_as_at_level_1(old):
    cluster = cluster_at(2, versions=old)
    async with running(cluster) as client, client.transactional_producer("pay") as producer, producer.transaction():
        await write(producer)
    assert cluster.versions_of(AddPartitionsToTxnRequest) == [3]


async def test_high_versions_alone_are_not_level_2():
    cluster = cluster_at(0)
    async with running(cluster) as client, client.transactional_producer("pay") as producer, producer.transaction():
        await write(producer)
    assert (cluster.versions_of(ProduceRequest), cluster.versions_of(EndTxnRequest)) == ([11], [4])


@both_levels
async def test_the_coordinator_of_the_transactional_id_is_asked_for_and_followed(level):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        await write(producer)
        cluster.coordinator_id = 2
        await producer.commit()
    asked = cluster.requests_of(FindCoordinatorRequest)
    assert {(request.key_type, *request.coordinator_keys) for request in asked} == {(1, "pay")}
    assert [state for state, _, _ in cluster.outcomes] == ["CompleteCommit"]


@both_levels
async def test_a_transaction_in_which_nothing_was_written_is_no_affair_of_the_coordinator(level):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        async with producer.transaction():
            assert await producer.produce("orders", []) == ()
            await producer.send_offsets("g", {})
        await producer.begin()
        await producer.abort()
    assert cluster.requests_of(EndTxnRequest) == []


@both_levels
async def test_what_may_succeed_later_is_tried_again_under_the_same_sequence(level):
    cluster = cluster_at(level)
    cluster.fail(ApiKey.PRODUCE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.fail(ApiKey.INIT_PRODUCER_ID, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    cluster.fail(ApiKey.END_TXN, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR)
    async with running(cluster) as client, client.transactional_producer("pay") as producer, producer.transaction():
        cluster.scripts[ApiKey.PRODUCE].append(hang_up)
        await write(producer)
    assert set(signatures(cluster)) == {(0, 0, 0)}
    assert [state for state, _, _ in cluster.outcomes] == ["CompleteCommit"]


async def test_adding_partitions_is_tried_again_and_the_one_at_fault_is_named():
    cluster = cluster_at(1)
    cluster.fail(ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        await write(producer)
        cluster.fail(ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(KafkaError, match="add orders-1") as caught:
            await write(producer, partition=1)
    assert caught.value.error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_partition_that_was_only_not_attempted_is_not_the_one_at_fault():
    cluster = cluster_at(1)
    keys = {partition_of_key(b"%d" % number, partition_count=2): b"%d" % number for number in range(10)}
    cluster.fail(
        ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        with pytest.raises(KafkaError, match="add orders-1"):
            await producer.produce("orders", [NewRecord(b"x", key=keys[0]), NewRecord(b"x", key=keys[1])])


@both_levels
@pytest.mark.parametrize("highest", [0, 3, 4])
async def test_coordinators_are_found_in_old_versions_too(level, highest):
    cluster = cluster_at(level, versions=up_to(ApiKey.FIND_COORDINATOR, highest))
    async with running(cluster, HASTY) as client, client.transactional_producer("pay") as producer:
        if highest:
            assert (await producer.init()).producer_epoch == 0
        else:
            with pytest.raises(UnsupportedError):
                await producer.init()


# --- what goes wrong ------------------------------------------------------------------------------------------


@both_levels
@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING])
async def test_a_fenced_producer_says_so_from_then_on(level, code):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        cluster.fail(ApiKey.PRODUCE, code)
        with pytest.raises(ProducerFencedError) as caught:
            await write(producer)
        for call in (lambda: write(producer), producer.abort, producer.commit, producer.init):
            with pytest.raises(ProducerFencedError):
                await call()
    assert (caught.value.error_code, caught.value.code, caught.value.retryable) == (code, "fenced", False)
    assert cluster.requests_of(EndTxnRequest) == []


@both_levels
async def test_a_producer_whose_id_was_taken_over_does_not_commit(level):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as old:
        await old.begin()
        await write(old)
        async with client.transactional_producer("pay") as new:
            await new.init()
            with pytest.raises(ProducerFencedError):
                await old.commit()
            with pytest.raises(ProducerFencedError):
                await old.begin()
            async with new.transaction():
                await write(new, partition=1)
    assert [(state, places) for state, _, places in cluster.outcomes] == [
        ("CompleteAbort", {A}),
        ("CompleteCommit", {B}),
    ]


async def test_to_go_on_after_a_failure_does_not_take_the_id_back_from_another():
    cluster = cluster_at(1)
    async with running(cluster) as client, client.transactional_producer("pay") as old:
        await old.begin()
        cluster.fail(ApiKey.PRODUCE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        with pytest.raises(KafkaError):
            await write(old)
        await old.abort()
        async with client.transactional_producer("pay") as new, new.transaction():
            with pytest.raises(ProducerFencedError):
                await old.begin()
            await write(new)
    assert [state for state, _, _ in cluster.outcomes] == ["CompleteAbort", "CompleteCommit"]


@both_levels
async def test_where_a_part_has_failed_only_an_abort_is_left_and_a_new_epoch_begins(level):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        await write(producer)
        cluster.fail(ApiKey.PRODUCE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        with pytest.raises(KafkaError):
            await write(producer)
        for call in (producer.commit, lambda: write(producer, partition=1)):
            with pytest.raises(TransactionFailedError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
                await call()
        await producer.abort()
        async with producer.transaction():
            await write(producer)
    assert [state for state, _, _ in cluster.outcomes] == ["CompleteAbort", "CompleteCommit"]
    assert signatures(cluster)[-1] == (0, 1, 0)


@both_levels
async def test_a_call_that_is_given_up_fails_the_transaction(level):
    cluster = cluster_at(level)
    was_asked = asyncio.Event()

    def never(*_):
        was_asked.set()

    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        cluster.scripts[ApiKey.PRODUCE].append(never)
        writing = asyncio.create_task(write(producer))
        await was_asked.wait()
        with pytest.raises(TransactionStateError, match="on their way"):
            await producer.commit()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        with pytest.raises(TransactionFailedError):
            await producer.commit()
        await producer.abort()
        async with producer.transaction():
            await write(producer)
    assert signatures(cluster)[-1] == (0, 1, 0)


@both_levels
@pytest.mark.parametrize("is_commit", [True, False])
async def test_an_end_whose_answer_is_lost_is_sent_again_and_cannot_end_the_next_transaction(level, is_commit):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        await write(producer)
        cluster.scripts[ApiKey.END_TXN].append(carry_out_and_hang_up(ApiKey.END_TXN))
        await (producer.commit() if is_commit else producer.abort())
        async with producer.transaction():
            await write(producer)
    assert [state for state, _, _ in cluster.outcomes] == [
        "CompleteCommit" if is_commit else "CompleteAbort",
        "CompleteCommit",
    ]
    # Whichever way, the first EndTxn is of another epoch than the second transaction.
    assert [request.producer_epoch for request in cluster.requests_of(EndTxnRequest)] == [0, 0, 1]


@both_levels
async def test_an_end_that_is_never_answered_has_an_unknown_outcome_and_can_be_asked_for_again(level):
    cluster = cluster_at(level)
    async with running(cluster, HASTY) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        await write(producer)
        lose = carry_out_and_hang_up(ApiKey.END_TXN)
        cluster.scripts[ApiKey.END_TXN].extend([lose] * 1_000)
        with pytest.raises(OutcomeUnknownError) as caught:
            await producer.commit()
        for call in (producer.abort, producer.begin, lambda: write(producer)):
            with pytest.raises(TransactionStateError, match="commit again"):
                await call()
        cluster.scripts[ApiKey.END_TXN].clear()
        await producer.commit()
        async with producer.transaction():
            await write(producer)
    assert not caught.value.retryable
    assert [state for state, _, _ in cluster.outcomes] == ["CompleteCommit", "CompleteCommit"]


@both_levels
async def test_an_end_that_could_not_be_sent_leaves_the_transaction_open(level):
    cluster = cluster_at(level)
    async with running(cluster, HASTY) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        await write(producer)
        cluster.fail(ApiKey.END_TXN, ErrorCode.NOT_COORDINATOR)
        cluster.fail(ApiKey.FIND_COORDINATOR, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 1_000)
        with pytest.raises(UnavailableError) as caught:
            await producer.commit()
        cluster.group.errors.clear()
        await write(producer, partition=1)
        await producer.commit()
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert cluster.outcomes == [("CompleteCommit", 0, {A, B})]


@both_levels
async def test_a_refused_commit_can_be_aborted(level):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        await write(producer)
        cluster.fail(ApiKey.END_TXN, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await producer.commit()
        with pytest.raises(TransactionFailedError):
            await producer.commit()
        await producer.abort()
    assert [state for state, _, _ in cluster.outcomes] == ["CompleteAbort"]


@both_levels
async def test_what_is_open_when_the_producer_is_left_is_aborted(level):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        await write(producer)
    assert [state for state, _, _ in cluster.outcomes] == ["CompleteAbort"]


@both_levels
async def test_a_producer_can_be_left_while_no_coordinator_answers(level, caplog):
    cluster = cluster_at(level)
    async with running(cluster, HASTY) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        await write(producer)
        cluster.fail(ApiKey.END_TXN, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert "transaction pay was left open" in caplog.text


@both_levels
async def test_an_abort_of_what_never_began_is_done_with(level):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        key = ApiKey.PRODUCE if level == 2 else ApiKey.ADD_PARTITIONS_TO_TXN
        cluster.fail(key, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(KafkaError):
            await write(producer)
        cluster.transactions["pay"].state = "Empty"
        await producer.abort()
        async with producer.transaction():
            await write(producer)
    assert [state for state, _, _ in cluster.outcomes][-1] == "CompleteCommit"


async def test_a_transaction_that_timed_out_at_level_2_is_not_taken_for_committed():
    cluster = cluster_at(2)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        await write(producer)
        cluster.fail(ApiKey.END_TXN, ErrorCode.INVALID_TXN_STATE)
        with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
            await producer.commit()


async def test_calls_that_make_no_sense_are_refused():
    cluster = cluster_at(2)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        for call in (lambda: write(producer), producer.commit, producer.abort):
            with pytest.raises(TransactionStateError):
                await call()
        await producer.begin()
        for call in (producer.begin, producer.begin_shared):
            with pytest.raises(TransactionStateError, match="a transaction is open"):
                await call()


@both_levels
async def test_to_init_again_aborts_what_is_open(level):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay", timeout_ms=7_000) as producer:
        await producer.begin()
        await write(producer)
        await producer.init()
        with pytest.raises(TransactionStateError):
            await producer.commit()
        async with producer.transaction():
            await write(producer)
    assert [state for state, _, _ in cluster.outcomes] == ["CompleteAbort", "CompleteCommit"]
    assert {request.transaction_timeout_ms for request in cluster.requests_of(InitProducerIdRequest)} == {7_000}


# --- offsets --------------------------------------------------------------------------------------------------


@both_levels
async def test_offsets_are_committed_with_the_records_or_not_at_all(level):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        async with producer.transaction():
            await producer.send_offsets("g", {A: 3}, member_id="m", generation_id=4, group_instance_id="i")
        await producer.begin()
        await producer.send_offsets("g", {A: 9})
        await producer.abort()
        assert {place: found.offset for place, found in (await client.list_committed_offsets("g")).items()} == {A: 3}
    first, _ = cluster.requests_of(TxnOffsetCommitRequest)
    assert (first.member_id, first.generation_id_or_member_epoch, first.group_instance_id) == ("m", 4, "i")
    assert cluster.versions_of(TxnOffsetCommitRequest) == ([5, 5] if level == 2 else [4, 4])
    assert len(cluster.requests_of(AddOffsetsToTxnRequest)) == (0 if level == 2 else 2)


@both_levels
@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.PRODUCER_FENCED])
async def test_offsets_that_are_refused_fail_the_transaction(level, code):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        cluster.fail(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, code)
        with pytest.raises(KafkaError) as caught:
            await producer.send_offsets("g", {A: 3}, member_id="m", generation_id=4)
        with pytest.raises(ProducerFencedError if code is ErrorCode.PRODUCER_FENCED else TransactionFailedError):
            await producer.commit()
    assert caught.value.error_code is code
    assert cluster.group.committed == {}


async def test_a_member_is_not_left_out_where_the_broker_does_not_know_members():
    cluster = cluster_at(1, versions=up_to(ApiKey.TXN_OFFSET_COMMIT, 2))
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        await producer.send_offsets("g", {A: 3})
        with pytest.raises(UnsupportedError):
            await producer.send_offsets("g", {A: 4}, member_id="m", generation_id=1)


# --- sharing --------------------------------------------------------------------------------------------------


@both_levels
async def test_others_write_in_a_shared_transaction(level):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        async with producer.transaction():
            await write(producer)
        shared = await producer.begin_shared()
        await client.join_transaction(shared).produce("orders", [NewRecord(b"x")], partition=1)
        await write(producer)
        await producer.commit()
        assert (await producer.begin_shared()).producer_epoch > shared.producer_epoch
        with pytest.raises(ProducerFencedError):
            await write(client.join_transaction(shared))
    assert [(state, places) for state, _, places in cluster.outcomes][:2] == [
        ("CompleteCommit", {A}),
        ("CompleteCommit", {A, B}),
    ]
    # In an epoch of its own everybody counts from 0.
    assert {sequence for _, epoch, sequence in signatures(cluster) if epoch == shared.producer_epoch} == {0}


@both_levels
@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_shared_transaction_in_which_nobody_wrote_can_be_ended_and_late_comers_are_fenced(level, is_commit):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        shared = await producer.begin_shared()
        await (producer.commit() if is_commit else producer.abort())
        await producer.begin()
        with pytest.raises(ProducerFencedError):
            await write(client.join_transaction(shared))


async def test_a_shared_transaction_that_timed_out_at_level_2_is_not_taken_for_an_empty_one():
    cluster = cluster_at(2)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await write(client.join_transaction(await producer.begin_shared()))
        cluster.transactions["pay"].state = "CompleteAbort"
        cluster.transactions["pay"].producer_epoch += 1
        cluster.fail(ApiKey.END_TXN, ErrorCode.INVALID_TXN_STATE)
        with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
            await producer.commit()


async def test_a_shared_transaction_that_was_ended_elsewhere_is_not_taken_for_an_empty_one():
    cluster = cluster_at(1)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await write_shared_and_end_it_elsewhere(cluster, client, producer)
        with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
            await producer.commit()


async def write_shared_and_end_it_elsewhere(cluster, client, producer):
    shared = await producer.begin_shared()
    await write(client.join_transaction(shared))
    cluster.transactions["pay"].state = "CompleteAbort"


def test_a_shared_transaction_travels():
    shared = SharedTransaction("pay", 7, 3, 2)
    assert pickle.loads(pickle.dumps(shared)) == shared
    assert msgspec.json.decode(msgspec.json.encode(shared), type=SharedTransaction) == shared


async def test_compressed_records_need_a_broker_that_knows_the_codec():
    cluster = cluster_at(1, versions=up_to(ApiKey.PRODUCE, 6))
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        await producer.begin()
        with pytest.raises(UnsupportedError):
            await producer.produce("orders", [NewRecord(b"x")], partition=0, compression=Compression.ZSTD)


# --- a transaction that is begun in one process and ended in another ------------------------------------------


@both_levels
@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_transaction_that_was_left_open_is_ended_by_whoever_knows_it(level, is_commit):
    cluster = cluster_at(level)
    async with running(cluster) as client:
        shared = await client.transactional_producer("pay").begin_shared()
        await write(client.join_transaction(shared))
        async with client.resume_transaction(shared) as producer:
            await producer.send_offsets("g", {A: 4}, metadata="who")
            await (producer.commit() if is_commit else producer.abort())
            assert (await producer.begin_shared()).producer_epoch > shared.producer_epoch
    state, _, places = cluster.outcomes[0]
    assert (state, places) == ("CompleteCommit" if is_commit else "CompleteAbort", {A, OFFSETS})
    assert cluster.group.committed == ({A: 4} if is_commit else {})
    (request,) = cluster.requests_of(TxnOffsetCommitRequest)
    assert request.topics[0].partitions[0].committed_metadata == "who"


@both_levels
async def test_a_resumed_transaction_is_aborted_when_it_is_left(level):
    cluster = cluster_at(level)
    async with running(cluster) as client:
        shared = await client.transactional_producer("pay").begin_shared()
        await write(client.join_transaction(shared))
        async with client.resume_transaction(shared):
            pass
    assert [state for state, _, _ in cluster.outcomes] == ["CompleteAbort"]


@both_levels
async def test_to_resume_takes_nothing_over(level):
    cluster = cluster_at(level)
    async with running(cluster) as client:
        shared = await client.transactional_producer("pay").begin_shared()
        await write(client.join_transaction(shared))
        async with client.transactional_producer("pay") as other:
            await other.begin()
            await write(other)
            async with client.resume_transaction(shared) as producer:
                with pytest.raises(ProducerFencedError):
                    await producer.send_offsets("g", {A: 4})
                with pytest.raises(ProducerFencedError):
                    await producer.commit()
            assert cluster.transactions["pay"].state == "Ongoing"


@both_levels
async def test_offsets_are_looked_at_when_no_other_transaction_is_about_to_commit_them(level):
    cluster = cluster_at(level)
    cluster.group.committed[A] = 4
    async with running(cluster) as client:
        part = client.join_transaction(await client.transactional_producer("pay").begin_shared())
        cluster.fail(ApiKey.OFFSET_FETCH, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert {place: found.offset for place, found in (await part.stable_offsets("g")).items()} == {A: 4}
    assert [request.require_stable for request in cluster.requests_of(OffsetFetchRequest)] == [True, True]


def built(shared, *, sequence=0, count=1, compression=Compression.NONE):
    return build_batch(
        [NewRecord(b"x")] * count,
        compression=compression,
        producer_id=shared.producer_id,
        producer_epoch=shared.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


@both_levels
async def test_batches_that_the_caller_has_built_are_sent_as_they_are(level):
    cluster = cluster_at(level)
    async with running(cluster) as client:
        shared = await client.transactional_producer("pay").begin_shared()
        part = client.join_transaction(shared)
        assert [
            await part.send_batch(A, built(shared, count=3)),
            await part.send_batch(A, built(shared, sequence=3)),
            await part.send_batch(B, built(shared, compression=Compression.ZSTD)),
        ] == [0, 3, 0]
        await client.resume_transaction(shared).commit()
    assert signatures(cluster) == [(place, shared.producer_epoch, at) for place, at in [(0, 0), (0, 3), (1, 0)]]
    assert len(cluster.requests_of(AddPartitionsToTxnRequest)) == (0 if level == 2 else 2)


@both_levels
async def test_a_batch_that_is_too_large_may_be_sent_again_in_parts(level):
    cluster = cluster_at(level)
    async with running(cluster) as client:
        shared = await client.transactional_producer("pay").begin_shared()
        part = client.join_transaction(shared)
        cluster.fail(ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE)
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await part.send_batch(A, built(shared, count=2))
        await part.send_batch(A, built(shared))
        cluster.fail(ApiKey.PRODUCE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        with pytest.raises(KafkaError, match="OUT_OF_ORDER"):
            await part.send_batch(A, built(shared, sequence=1))
        with pytest.raises(TransactionFailedError):
            await part.send_batch(A, built(shared, sequence=1))


@both_levels
async def test_the_producer_itself_sends_batches_and_looks_at_offsets_too(level):
    cluster = cluster_at(level)
    async with running(cluster) as client, client.transactional_producer("pay") as producer:
        shared = await producer.begin_shared()
        assert await producer.stable_offsets("g") == {}
        assert await producer.send_batch(A, built(shared)) == 0
        await producer.commit()
    assert [state for state, _, _ in cluster.outcomes] == ["CompleteCommit"]
