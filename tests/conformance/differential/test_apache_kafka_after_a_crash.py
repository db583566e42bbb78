"""What both brokers have of transactions after they were killed.

They are brokers of this test's own: all leader epochs change.
"""

import pytest

from exactlog.core.codec.wire_types import parse_versions
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from exactlog.core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.conformance.differential.scenario import Scenario
from tests.conformance.differential.scenarios_of_transactional_groups import LONG_MS, pending
from tests.conformance.differential.scenarios_of_transactions import (
    COMMITTED,
    producers_request,
    read,
    read_offsets,
)
from tests.conformance.differential.transaction import ABORT, ADDED_BEFORE, COMMIT, Transaction
from tests.conformance.differential.two_brokers import two_brokers
from tests.support.raw_client import fetch_request, offsets_and_values

LATEST = -1
VERSION = 5
"""Of EndTxn, with an epoch for each transaction."""


@pytest.mark.peer
def test_after_a_crash_both_go_on_in_the_same_way(tmp_path):
    crash = Scenario(ApiKey.END_TXN, "after a crash", parse_versions("5+"), _after_a_crash)

    with two_brokers(tmp_path) as comparison:
        assert comparison.differences(crash, VERSION) == []


def _after_a_crash(peer):
    """What was open goes on; leader epochs are higher."""
    ongoing, old = (
        Transaction(peer, "open", timeout_ms=LONG_MS).init().write(b"a", b"b"),
        Transaction(peer, "old", timeout_ms=LONG_MS).init(),
    )
    old.add(0).write(b"c", version=ADDED_BEFORE)
    ended = Transaction(peer, "ended").init().write(b"d").end(ABORT)
    waiting, group = pending(peer, plain=3)
    again = ongoing.produce_request(b"a", b"b", sequence=0)
    topic, epoch = ongoing.topic, peer.epoch()
    peer.kill_and_restart(topic)
    for transaction in (ongoing, old, ended, waiting):
        peer.until(lambda of=transaction: of.described().error_code == 0)
        peer.ask(transaction.describe_request())
    peer.about("after a crash, producers")
    peer.take_down("DescribeProducers", _without_coordinator_epochs(peer.quietly(producers_request(ongoing), 0)))
    peer.about("after a crash, leader epochs")
    for leader_epoch in (epoch, epoch + 100):
        fetch = fetch_request(topic, 0, leader_epoch=leader_epoch)
        peer.take_down("Fetch", peer.quietly(fetch, 12).responses[0].partitions[0].error_code)
        part = ListOffsetsPartition(partition_index=0, timestamp=LATEST, current_leader_epoch=leader_epoch)
        request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic.name, partitions=(part,)),))
        peer.take_down("ListOffsets", peer.quietly(request).topics[0].partitions[0].error_code)
        part = OffsetForLeaderPartition(partition=0, current_leader_epoch=leader_epoch, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=(OffsetForLeaderTopic(topic=topic.name, partitions=(part,)),)
        )
        peer.take_down("OffsetForLeaderEpoch", peer.quietly(request).topics[0].partitions[0].error_code)
    peer.about("after a crash, the transactions")
    read(ongoing)
    answer = peer.quietly(again, 12).responses[0].partition_responses[0]
    peer.take_down("again", (answer.error_code, answer.base_offset))
    read_offsets(waiting, group)
    ongoing.write(b"e").end(COMMIT)
    old.end(ABORT, version=4)
    waiting.end(COMMIT)
    ended.write(b"f").end(COMMIT)
    read_offsets(waiting, group)
    answer = peer.quietly(fetch_request(topic, 0, isolation_level=COMMITTED), 12).responses[0].partitions[0]
    aborted = sorted(
        (found.first_offset, found.producer_id == old.identity.producer_id) for found in answer.aborted_transactions
    )
    peer.take_down("aborted", (aborted, offsets_and_values(answer.records)[:3], answer.last_stable_offset))


def _without_coordinator_epochs(answer):
    """What is known of producers after a crash; a coordinator may have an epoch of its own for each start."""
    return [
        (producer.producer_epoch, producer.last_sequence, producer.current_txn_start_offset)
        for part in answer.topics[0].partitions
        for producer in sorted(part.active_producers, key=lambda producer: producer.producer_id)
    ]
