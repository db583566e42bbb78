"""One transactional producer within a scenario: brings its transaction into a state, and words questions about it."""

from typing import NamedTuple

from exactlog.core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from exactlog.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from exactlog.core.protocol.messages.describe_transactions import DescribeTransactionsRequest
from exactlog.core.protocol.messages.end_txn import EndTxnRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from exactlog.core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from exactlog.core.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.raw_client import sequenced

NO_ERROR = 0
CONCURRENT_TRANSACTIONS = 51
COMMIT, ABORT = True, False
SEVERAL_SINCE = 4
"""From this version of AddPartitionsToTxn on one request may be about many transactions."""
ADD_BY_ITSELF, ADDED_BEFORE = 12, 11
"""Versions of Produce: with transaction version 2, and the one before."""


class Identity(NamedTuple):
    """Who a producer says it is."""

    producer_id: int
    producer_epoch: int

    def at(self, epoch):
        """The same producer with another epoch."""
        return self._replace(producer_epoch=epoch)


class Transaction:
    """A transactional id, its producer, and the topic it writes to.

    Attributes:
        identity: who the coordinator takes its producer to be.
        was: who it was before that, oldest first.
    """

    def __init__(self, peer, suffix="id", *, topic=None, timeout_ms=60_000):
        self.peer = peer
        self.id = peer.name(suffix)
        self.topic = topic or peer.one_topic()
        self.identity = Identity(-1, -1)
        self.was = []
        self._timeout_ms = timeout_ms
        self._sequences = {}

    # --- what brings it somewhere; nothing of it is compared ------------------------------------------------------

    def init(self, *, keeps=False):
        """Gets an id and an epoch, as often as it is told to come again."""
        while (answer := self.peer.quietly(self.init_request(keeps=keeps), 5)).error_code == CONCURRENT_TRANSACTIONS:
            pass
        assert answer.error_code == NO_ERROR, answer
        return self.become(answer)

    def take_over_once(self):
        """Somebody else begins with the transactional id: what is open is aborted; waits for that."""
        answer = self.peer.quietly(self.init_request(), 5)
        assert answer.error_code == CONCURRENT_TRANSACTIONS, answer
        return self.wait_for("CompleteAbort")

    def add(self, *partitions):
        """Makes partitions part of the transaction, as before transaction version 2."""
        answer = self.peer.quietly(self.add_request(*partitions, version=3), 3)
        results = [part for topic in answer.results_by_topic_v3_and_below for part in topic.results_by_partition]
        assert all(part.partition_error_code == NO_ERROR for part in results), answer
        return self

    def add_offsets(self, group):
        """Makes a group part of the transaction."""
        answer = self.peer.quietly(self.add_offsets_request(group), 3)
        assert answer.error_code == NO_ERROR, answer
        return self

    def write(self, *values, partition=0, version=ADD_BY_ITSELF):
        """Writes one batch."""
        answer = self.peer.quietly(self.produce_request(*values, partition=partition), version)
        assert answer.responses[0].partition_responses[0].error_code == NO_ERROR, answer
        self._sequences[partition] = self._sequences.get(partition, 0) + len(values)
        return self

    def commit_offset(self, group, offset, *, partition=0, version=5):
        """Commits an offset with the transaction."""
        request = self.offsets_request(group, (partition, offset))
        answer = self.peer.quietly(request, version)
        assert answer.topics[0].partitions[0].error_code == NO_ERROR, answer
        return self

    def end(self, outcome=COMMIT, *, version=5, is_waited_for=True):
        """Commits or aborts, and waits until the markers are written."""
        answer = self.peer.quietly(self.end_request(outcome), version)
        assert answer.error_code == NO_ERROR, answer
        if version >= 5:
            self.become(answer)
        return self.settle() if is_waited_for else self

    def settle(self):
        """Waits until the transaction has no markers to write, and becomes who the coordinator says it is."""
        self.peer.until(lambda: not self.described().transaction_state.startswith("Prepare"))
        found = self.described()
        return self if found.error_code else self.become(found)

    def wait_for(self, state):
        """Waits until the transaction is in a state, and becomes who the coordinator says it is."""
        self.peer.until(lambda: self.described().transaction_state == state)
        return self.become(self.described())

    def described(self):
        """What the coordinator says of it."""
        (found,) = self.peer.quietly(self.describe_request(), 0).transaction_states
        return found

    def become(self, identity):
        """Goes on as somebody else, with sequences from 0."""
        identity = Identity(identity.producer_id, identity.producer_epoch)
        if identity != self.identity:
            self.was.append(self.identity)
            self.identity = identity
            self._sequences = {}
            self.peer.name_producer(identity.producer_id)
        return self

    # --- questions ------------------------------------------------------------------------------------------------

    def init_request(self, *, keeps=False, identity=None, timeout_ms=None):
        given = identity or (self.identity if keeps else Identity(-1, -1))
        return InitProducerIdRequest(
            transactional_id=self.id, transaction_timeout_ms=timeout_ms or self._timeout_ms, **given._asdict()
        )

    def add_request(self, *partitions, version, identity=None, topic=None, verify_only=False):
        """`partitions` are indexes in its topic, or in another one."""
        topics = (AddPartitionsToTxnTopic(name=(topic or self.topic).name, partitions=partitions),)
        producer_id, producer_epoch = identity or self.identity
        if version >= SEVERAL_SINCE:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=self.id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=verify_only,
                topics=topics,
            )
            return AddPartitionsToTxnRequest(transactions=(transaction,))
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=topics,
        )

    def add_offsets_request(self, group, *, identity=None):
        return AddOffsetsToTxnRequest(transactional_id=self.id, group_id=group, **(identity or self.identity)._asdict())

    def produce_request(self, *values, partition=0, identity=None, sequence=None, transactional_id="", **batch):
        given = identity or self.identity
        fields = {"epoch": given.producer_epoch, "is_transactional": True, **batch}
        sequence = self._sequences.get(partition, 0) if sequence is None else sequence
        records = sequenced(given.producer_id, sequence, *values, **fields)
        data = PartitionProduceData(index=partition, records=records)
        of_topic = TopicProduceData(name=self.topic.name, topic_id=self.topic.topic_id, partition_data=(data,))
        return ProduceRequest(
            transactional_id=self.id if transactional_id == "" else transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=(of_topic,),
        )

    def offsets_request(self, group, *offsets, identity=None, topic=None, metadata="so far", **fields):
        """`offsets` are pairs of a partition and its offset."""
        parts = tuple(
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
            for index, offset in offsets
        )
        topic = topic or self.topic
        of_topic = TxnOffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=parts)
        return TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group,
            topics=(of_topic,),
            **{**(identity or self.identity)._asdict(), **fields},
        )

    def end_request(self, outcome=COMMIT, *, identity=None):
        return EndTxnRequest(transactional_id=self.id, committed=outcome, **(identity or self.identity)._asdict())

    def describe_request(self):
        return DescribeTransactionsRequest(transactional_ids=(self.id,))

    def marker(self, outcome, *partitions, identity=None, topic=None, coordinator_epoch=None, transaction_version=0):
        """One marker for WriteTxnMarkers; by itself of the present coordinator."""
        given = identity or self.identity
        if coordinator_epoch is None:
            coordinator_epoch = self.peer.broker.coordinator_epoch
        return WritableTxnMarker(
            **given._asdict(),
            transaction_result=outcome,
            topics=(WritableTxnMarkerTopic(name=(topic or self.topic).name, partition_indexes=partitions),),
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )


def markers_request(*markers):
    """Markers past the coordinator."""
    return WriteTxnMarkersRequest(markers=markers)
