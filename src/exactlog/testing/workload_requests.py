"""The requests of a workload's calls, and the answers that their responses are."""

from collections.abc import Callable, Iterator
from typing import Final

from exactlog.core.codec.message_codec import decode
from exactlog.core.codec.message_schema import Message
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import NO_SEQUENCE, ProducerEpoch, ProducerId, TimestampMs
from exactlog.core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from exactlog.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from exactlog.core.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from exactlog.core.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from exactlog.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from exactlog.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from exactlog.core.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from exactlog.core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import BatchHeader, iter_headers
from exactlog.core.record.control_record_format import decode_marker
from exactlog.core.record.record_format import decode_records
from exactlog.testing.history_format import ABORT, COMMIT, Batch, Place, PlaceOffset
from exactlog.testing.workload_calls import (
    AddOffsets,
    AddPartitions,
    Answer,
    Call,
    CommitOffsets,
    EndFound,
    EndTransaction,
    Fetch,
    Fetched,
    FetchOffsets,
    FindEnd,
    Identified,
    InitProducer,
    OffsetsFetched,
    Produce,
    Produced,
)

_TIMEOUT_MS: Final = 30_000
_TRANSACTION_TIMEOUT_MS: Final = 60_000
_LATEST: Final = -1
_TIMESTAMP_MS: Final = TimestampMs(1_700_000_000_000)

Reply = Callable[[bytes], Answer]
"""What makes an answer of the body of a response."""


def coordinators_of(call: Call) -> set[tuple[int, str]]:
    """Whose coordinators a call is for: `(key type, key)` of FindCoordinator."""
    match call:
        case InitProducer(transactional_id=str(transactional_id)):
            return {(1, transactional_id)}
        case CommitOffsets(group=group) | FetchOffsets(group=group):
            return {(0, group)}
        case _:
            return set()


def request_of(call: Call, transaction_version: int) -> tuple[Message, int, Reply]:
    """The request of a call, its version, and what makes an answer of the body of the response."""
    is_whole = transaction_version >= 2
    match call:
        case Fetch() | FetchOffsets() | FindEnd():
            return _read_request(call)
        case InitProducer():
            return _init(call)
        case AddPartitions():
            return _add_partitions(call)
        case AddOffsets():
            return _add_offsets(call)
        case Produce():
            return _produce(call, 12 if is_whole else 11)
        case CommitOffsets(producer=producer):
            if producer.transactional_id is None:
                return _commit_at_once(call)
            return _commit_in_transaction(call, producer.transactional_id, 5 if is_whole else 4)
        case EndTransaction():
            return _end(call, 5 if is_whole else 4)


def _read_request(call: Fetch | FetchOffsets | FindEnd) -> tuple[Message, int, Reply]:
    match call:
        case Fetch():
            return _fetch(call)
        case FetchOffsets():
            return _fetch_offsets(call)
        case FindEnd():
            return _find_end(call)


# --- producers ------------------------------------------------------------------------------------------------------


def _init(call: InitProducer) -> tuple[Message, int, Reply]:
    request = InitProducerIdRequest(
        transactional_id=call.transactional_id, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
    )

    def reply(body: bytes) -> Answer:
        response = decode(InitProducerIdResponse, 5, body)
        return Identified(response.error_code, response.producer_id, response.producer_epoch)

    return request, 5, reply


def _add_partitions(call: AddPartitions) -> tuple[Message, int, Reply]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=call.producer.transactional_id or "",
        v3_and_below_producer_id=call.producer.producer_id,
        v3_and_below_producer_epoch=call.producer.producer_epoch,
        v3_and_below_topics=(AddPartitionsToTxnTopic(name=call.place.topic, partitions=(call.place.partition,)),),
    )

    def reply(body: bytes) -> Answer:
        (topic,) = decode(AddPartitionsToTxnResponse, 3, body).results_by_topic_v3_and_below
        (partition,) = topic.results_by_partition
        return Answer(partition.partition_error_code)

    return request, 3, reply


def _add_offsets(call: AddOffsets) -> tuple[Message, int, Reply]:
    request = AddOffsetsToTxnRequest(
        transactional_id=call.producer.transactional_id or "",
        producer_id=call.producer.producer_id,
        producer_epoch=call.producer.producer_epoch,
        group_id=call.group,
    )
    return request, 3, lambda body: Answer(decode(AddOffsetsToTxnResponse, 3, body).error_code)


def _end(call: EndTransaction, version: int) -> tuple[Message, int, Reply]:
    request = EndTxnRequest(
        transactional_id=call.producer.transactional_id or "",
        producer_id=call.producer.producer_id,
        producer_epoch=call.producer.producer_epoch,
        committed=call.is_commit,
    )

    def reply(body: bytes) -> Answer:
        response = decode(EndTxnResponse, version, body)
        return Identified(response.error_code, response.producer_id, response.producer_epoch)

    return request, version, reply


def _produce(call: Produce, version: int) -> tuple[Message, int, Reply]:
    batch = build_batch(
        [NewRecord(value.encode(), timestamp_ms=_TIMESTAMP_MS) for value in call.values],
        producer_id=ProducerId(call.producer.producer_id),
        producer_epoch=ProducerEpoch(call.producer.producer_epoch),
        base_sequence=call.base_sequence,
        is_transactional=call.producer.transactional_id is not None,
    )
    part = PartitionProduceData(index=call.place.partition, records=batch)
    request = ProduceRequest(
        transactional_id=call.producer.transactional_id,
        acks=-1,
        timeout_ms=_TIMEOUT_MS,
        topic_data=(TopicProduceData(name=call.place.topic, partition_data=(part,)),),
    )

    def reply(body: bytes) -> Answer:
        (topic,) = decode(ProduceResponse, version, body).responses
        (partition,) = topic.partition_responses
        return Produced(partition.error_code, partition.base_offset)

    return request, version, reply


# --- offsets of groups ----------------------------------------------------------------------------------------------


def _by_topic(offsets: tuple[PlaceOffset, ...]) -> Iterator[tuple[str, list[PlaceOffset]]]:
    for topic in dict.fromkeys(offset.topic for offset in offsets):
        yield topic, [offset for offset in offsets if offset.topic == topic]


def _commit_in_transaction(call: CommitOffsets, transactional_id: str, version: int) -> tuple[Message, int, Reply]:
    topics = tuple(
        TxnOffsetCommitRequestTopic(
            name=topic,
            partitions=tuple(
                TxnOffsetCommitRequestPartition(partition_index=offset.partition, committed_offset=offset.offset)
                for offset in of_topic
            ),
        )
        for topic, of_topic in _by_topic(call.offsets)
    )
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=call.group,
        producer_id=call.producer.producer_id,
        producer_epoch=call.producer.producer_epoch,
        topics=topics,
    )

    def reply(body: bytes) -> Answer:
        response = decode(TxnOffsetCommitResponse, version, body)
        return _first_error(part.error_code for topic in response.topics for part in topic.partitions)

    return request, version, reply


def _commit_at_once(call: CommitOffsets) -> tuple[Message, int, Reply]:
    topics = tuple(
        OffsetCommitRequestTopic(
            name=topic,
            partitions=tuple(
                OffsetCommitRequestPartition(partition_index=offset.partition, committed_offset=offset.offset)
                for offset in of_topic
            ),
        )
        for topic, of_topic in _by_topic(call.offsets)
    )

    def reply(body: bytes) -> Answer:
        response = decode(OffsetCommitResponse, 8, body)
        return _first_error(part.error_code for topic in response.topics for part in topic.partitions)

    return OffsetCommitRequest(group_id=call.group, topics=topics), 8, reply


def _first_error(error_codes: Iterator[int]) -> Answer:
    return Answer(next((code for code in error_codes if code), ErrorCode.NONE))


def _fetch_offsets(call: FetchOffsets) -> tuple[Message, int, Reply]:
    topics = tuple(
        OffsetFetchRequestTopics(
            name=topic, partition_indexes=tuple(place.partition for place in call.places if place.topic == topic)
        )
        for topic in dict.fromkeys(place.topic for place in call.places)
    )
    group = OffsetFetchRequestGroup(group_id=call.group, topics=topics)

    def reply(body: bytes) -> Answer:
        (found,) = decode(OffsetFetchResponse, 8, body).groups
        parts = [(topic.name, part) for topic in found.topics for part in topic.partitions]
        error = _first_error(iter((found.error_code, *(part.error_code for _, part in parts))))
        offsets = tuple(PlaceOffset(topic, part.partition_index, part.committed_offset) for topic, part in parts)
        return OffsetsFetched(error.error_code, offsets)

    return OffsetFetchRequest(groups=(group,), require_stable=call.is_stable), 8, reply


# --- reading --------------------------------------------------------------------------------------------------------


def _fetch(call: Fetch) -> tuple[Message, int, Reply]:
    part = FetchPartition(partition=call.place.partition, fetch_offset=call.offset, partition_max_bytes=call.bytes_max)
    request = FetchRequest(
        max_bytes=call.bytes_max,
        isolation_level=int(call.is_committed),
        topics=(FetchTopic(topic=call.place.topic, partitions=(part,)),),
    )

    def reply(body: bytes) -> Answer:
        response = decode(FetchResponse, 12, body)
        if response.error_code:
            return Fetched(response.error_code)
        (topic,) = response.responses
        (found,) = topic.partitions
        aborted = found.aborted_transactions
        return Fetched(
            found.error_code,
            tuple(_batches(bytes(found.records or b""), call.place)),
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            None if aborted is None else tuple((entry.producer_id, entry.first_offset) for entry in aborted),
        )

    return request, 12, reply


def _batches(records: bytes, place: Place) -> Iterator[Batch]:
    for position, header in iter_headers(records, may_be_cut=True):
        marker, coordinator_epoch = None, -1
        values: tuple[str | None, ...] = ()
        if header.is_control:
            marker, coordinator_epoch = _marker(records, position, header)
        elif not place.topic.startswith("__"):
            values = tuple(
                None if record.value is None else record.value.decode(errors="replace")
                for record in decode_records(records, position, header=header)
            )
        yield Batch(
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence if header.base_sequence >= 0 else NO_SEQUENCE,
            is_transactional=header.is_transactional,
            marker=marker,
            coordinator_epoch=coordinator_epoch,
            values=values,
        )


def _marker(records: bytes, position: int, header: BatchHeader) -> tuple[str | None, int]:
    marker = next((decode_marker(record) for record in decode_records(records, position, header=header)), None)
    if marker is None:
        return None, -1
    return COMMIT if marker.is_commit else ABORT, marker.coordinator_epoch


def _find_end(call: FindEnd) -> tuple[Message, int, Reply]:
    part = ListOffsetsPartition(partition_index=call.place.partition, timestamp=_LATEST)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(call.is_committed),
        topics=(ListOffsetsTopic(name=call.place.topic, partitions=(part,)),),
    )

    def reply(body: bytes) -> Answer:
        (topic,) = decode(ListOffsetsResponse, 7, body).topics
        (found,) = topic.partitions
        return EndFound(found.error_code, found.offset)

    return request, 7, reply
