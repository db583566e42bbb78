"""The readable export says all there is, sorted."""

import json

from exactlog.core.model.ids import ProducerEpoch, ProducerId, TopicPartition
from exactlog.core.transaction.requests import TransactionDescription
from exactlog.core.transaction.transactions_export_format import encode_export


def description(transactional_id, **fields):
    return TransactionDescription(
        **{
            "transactional_id": transactional_id,
            "state": "Ongoing",
            "producer_id": ProducerId(7),
            "producer_epoch": ProducerEpoch(3),
            "timeout_ms": 60_000,
            "start_time_ms": 1_000,
            "last_update_ms": 2_000,
            "partitions": (TopicPartition("t", 1),),
            **fields,
        }
    )


def test_everything_is_there_and_sorted():
    content = encode_export([description("b"), description("a", start_time_ms=-1, partitions=())], now_ms=5_000)

    document = json.loads(content)
    assert content.endswith(b"}\n")
    assert document["written_ms"] == 5_000
    first, second = document["transactions"]
    assert (first["transactional_id"], first["start_time_ms"], first["partitions"]) == ("a", None, [])
    assert second == {
        "transactional_id": "b",
        "state": "Ongoing",
        "producer_id": 7,
        "producer_epoch": 3,
        "timeout_ms": 60_000,
        "start_time_ms": 1_000,
        "last_update_ms": 2_000,
        "partitions": [{"topic": "t", "partition": 1}],
    }


def test_without_transactional_ids_it_is_a_document_too():
    assert json.loads(encode_export([], now_ms=1)) == {"written_ms": 1, "transactions": []}
