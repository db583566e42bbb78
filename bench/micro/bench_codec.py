"""What one message costs to decode and to encode, in microseconds: `python -m bench.micro.bench_codec`.

The messages are those of a transaction and of the metadata a client asks for first. The best of several runs is shown:
on a shared machine the others measure the neighbours.
"""

import argparse
import json
import sys
import timeit
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from uuid import UUID

from exactlog.core.codec.message_codec import decoder, encode_bytes, encoder
from exactlog.core.codec.message_schema import Message
from exactlog.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from exactlog.core.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from exactlog.core.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from exactlog.core.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from exactlog.core.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

TOPIC, TRANSACTION = "bench-topic", "bench-transaction-0001"
TOPIC_ID = UUID("11111111-2222-3333-4444-555555555555")
RECORDS = bytes(1024)

MESSAGES: tuple[tuple[Message, int], ...] = (
    (
        ProduceRequest(
            transactional_id=TRANSACTION,
            acks=-1,
            timeout_ms=30_000,
            topic_data=(
                TopicProduceData(name=TOPIC, partition_data=(PartitionProduceData(index=3, records=RECORDS),)),
            ),
        ),
        12,
    ),
    (
        ProduceResponse(
            responses=(
                TopicProduceResponse(
                    name=TOPIC,
                    partition_responses=(PartitionProduceResponse(index=3, base_offset=123_456, log_start_offset=0),),
                ),
            )
        ),
        12,
    ),
    (
        FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=52_428_800,
            isolation_level=1,
            topics=(
                FetchTopic(
                    topic=TOPIC,
                    partitions=tuple(
                        FetchPartition(partition=index, fetch_offset=1_000, partition_max_bytes=1_048_576)
                        for index in range(4)
                    ),
                ),
            ),
        ),
        12,
    ),
    (
        FetchResponse(
            session_id=7,
            responses=(
                FetchableTopicResponse(
                    topic=TOPIC,
                    partitions=tuple(
                        PartitionData(
                            partition_index=index, high_watermark=2_000, last_stable_offset=1_990, records=RECORDS
                        )
                        for index in range(4)
                    ),
                ),
            ),
        ),
        12,
    ),
    (EndTxnRequest(transactional_id=TRANSACTION, producer_id=4_000, producer_epoch=7, committed=True), 5),
    (EndTxnResponse(producer_id=4_000, producer_epoch=8), 5),
    (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_producer_id=4_000,
            v3_and_below_producer_epoch=7,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=TOPIC, partitions=(0, 1, 2)),),
        ),
        3,
    ),
    (
        AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=(
                AddPartitionsToTxnTopicResult(
                    name=TOPIC,
                    results_by_partition=tuple(
                        AddPartitionsToTxnPartitionResult(partition_index=index) for index in range(3)
                    ),
                ),
            )
        ),
        3,
    ),
    (InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=60_000), 4),
    (InitProducerIdResponse(producer_id=4_000, producer_epoch=0), 4),
    (MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),)), 12),
    (
        MetadataResponse(
            brokers=(MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9_092),),
            cluster_id="bench-cluster",
            controller_id=1,
            topics=(
                MetadataResponseTopic(
                    name=TOPIC,
                    topic_id=TOPIC_ID,
                    partitions=tuple(
                        MetadataResponsePartition(
                            partition_index=index, leader_id=1, replica_nodes=(1,), isr_nodes=(1,)
                        )
                        for index in range(4)
                    ),
                ),
            ),
        ),
        12,
    ),
)


class Cost(NamedTuple):
    """What one message costs."""

    message: str
    size_bytes: int
    decode_us: float
    decode_view_us: float
    encode_us: float


def measure(repeats: int) -> Iterator[Cost]:
    """The costs of all messages, the best of so many repeats each."""
    for message, version in MESSAGES:
        encoded = encode_bytes(message, version)
        view = memoryview(encoded)
        decode, encode = decoder(type(message), version), encoder(type(message), version)
        yield Cost(
            message=f"{type(message).__name__} v{version}",
            size_bytes=len(encoded),
            decode_us=_best_us(partial(decode, encoded, 0), repeats),
            decode_view_us=_best_us(partial(decode, view, 0), repeats),
            encode_us=_best_us(partial(encode, message), repeats),
        )


def _best_us(call: Callable[[], object], repeats: int) -> float:
    calls = 5_000
    return min(timeit.repeat(call, number=calls, repeat=repeats)) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Microseconds to decode and encode one message.")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    if not arguments.json:
        print(f"{'message':<32} {'bytes':>6} {'decode':>8} {'of view':>8} {'encode':>8}")
    for cost in measure(arguments.repeats):
        if arguments.json:
            sys.stdout.write(json.dumps(cost._asdict()) + "\n")
        else:
            times = f"{cost.decode_us:>8.2f} {cost.decode_view_us:>8.2f} {cost.encode_us:>8.2f}"
            print(f"{cost.message:<32} {cost.size_bytes:>6} {times}")


if __name__ == "__main__":
    main()
