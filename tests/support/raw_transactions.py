"""A transactional producer on a plain socket: every request is the test's own doing."""

from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from exactlog.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from exactlog.core.protocol.messages.describe_transactions import DescribeTransactionsRequest
from exactlog.core.protocol.messages.end_txn import EndTxnRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.core.protocol.messages.list_transactions import ListTransactionsRequest
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

TIMEOUT_MS = 60_000
WITH_IMPLICIT_ADD, WITHOUT_IMPLICIT_ADD = 12, 11
"""Versions of Produce; both name topics."""
COMMIT, ABORT = True, False


class TransactionalProducer:
    """One producer of a transactional id; it remembers its id, epoch and sequences, and raises nothing."""

    def __init__(self, raw, transactional_id, *, timeout_ms=TIMEOUT_MS):
        self.raw = raw
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id, self.epoch = -1, -1
        self._sequences = {}

    @property
    def identity(self):
        """Producer id and epoch."""
        return self.producer_id, self.epoch

    def become(self, producer_id, epoch):
        """Goes on as somebody else, with sequences from 0 where the epoch is another one."""
        if self.identity != (producer_id, epoch):
            self._sequences = {}
        self.producer_id, self.epoch = producer_id, epoch
        return self

    def skip_to(self, topic, index, *, sequence):
        """Goes on in a partition with another sequence than the next one."""
        self._sequences[topic.name, index] = sequence

    def init(self, *, version=5, keeps=False):
        """Asks for an id and an epoch, as who has none or (`keeps`) as who goes on; the error."""
        given = {"producer_id": self.producer_id, "producer_epoch": self.epoch} if keeps else {}
        response = self.raw.ask(
            InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms, **given
            ),
            version,
        )
        if response.error_code == 0:
            self.become(response.producer_id, response.producer_epoch)
        return ErrorCode(response.error_code)

    def add(self, *partitions, version=3):
        """Adds (topic, index) pairs; the error of each, in order."""
        topics = tuple(AddPartitionsToTxnTopic(name=topic.name, partitions=(index,)) for topic, index in partitions)
        response = self.raw.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=topics,
            ),
            version,
        )
        return _errors_of(response.results_by_topic_v3_and_below)

    def verify(self, *partitions, verify_only=True, version=5):
        """Asks as a broker does; the error of each partition, or the one of the request."""
        topics = tuple(AddPartitionsToTxnTopic(name=topic.name, partitions=(index,)) for topic, index in partitions)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            verify_only=verify_only,
            topics=topics,
        )
        response = self.raw.ask(AddPartitionsToTxnRequest(transactions=(transaction,)), version)
        if response.error_code:
            return [ErrorCode(response.error_code)]
        (result,) = response.results_by_transaction
        return _errors_of(result.topic_results)

    def add_offsets(self, group_id, *, version=3):
        """Adds the partition that keeps a group's offsets; the error."""
        response = self.raw.ask(
            AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group_id,
            ),
            version,
        )
        return ErrorCode(response.error_code)

    def commit_offsets(self, group_id, topic, offset, *, partition=0, version=5):
        """Commits one offset of a group with the transaction; the error."""
        part = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        named = {"topic_id": topic.topic_id} if version >= 6 else {"name": topic.name}
        response = self.raw.ask(
            TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=(TxnOffsetCommitRequestTopic(**named, partitions=(part,)),),
            ),
            version,
        )
        return ErrorCode(response.topics[0].partitions[0].error_code)

    # --- records ------------------------------------------------------------------------------------------------

    def request(self, *writes, acks=-1, **batch):
        """A Produce request; each write is (topic, index, values...). Sequences move on whatever becomes of it."""
        topics = []
        for topic, index, *values in writes:
            sequence = self._sequences.get((topic.name, index), 0)
            self._sequences[topic.name, index] = sequence + len(values)
            fields = {"epoch": self.epoch, "is_transactional": True, **batch}
            records = sequenced(self.producer_id, sequence, *values, **fields)
            data = PartitionProduceData(index=index, records=records)
            topics.append(TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=(data,)))
        return ProduceRequest(
            transactional_id=self.transactional_id, acks=acks, timeout_ms=10_000, topic_data=tuple(topics)
        )

    def produce(self, *writes, version=WITH_IMPLICIT_ADD):
        """Produces one batch into each (topic, index, values...); the error of each, in order."""
        return produced(self.raw.ask(self.request(*writes), version))

    # --- the end ------------------------------------------------------------------------------------------------

    def end(self, outcome=COMMIT, *, version=5):
        """Commits or aborts; goes on as whom the answer names. The error."""
        response = self.raw.ask(self.end_request(outcome), version)
        if response.error_code == 0 and version >= 5:
            self.become(response.producer_id, response.producer_epoch)
        return ErrorCode(response.error_code)

    def end_request(self, outcome=COMMIT):
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=outcome,
        )


def produced(response):
    """The error of each partition of a Produce answer, in order."""
    return [ErrorCode(part.error_code) for topic in response.responses for part in topic.partition_responses]


def _errors_of(topics):
    return [ErrorCode(part.partition_error_code) for topic in topics for part in topic.results_by_partition]


def describe(raw, transactional_id):
    """The description of one transactional id."""
    (found,) = raw.ask(DescribeTransactionsRequest(transactional_ids=(transactional_id,)), 0).transaction_states
    return found


def list_transactions(raw, *, version=2, **filters):
    """The answer to ListTransactions."""
    return raw.ask(ListTransactionsRequest(**filters), version)


def write_marker(raw, topic, producer_id, epoch, outcome, *, partition=0, version=2, coordinator_epoch=0, tv=0):
    """Writes a marker past the coordinator; the error."""
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=outcome,
        coordinator_epoch=coordinator_epoch,
        transaction_version=tv,
        topics=(WritableTxnMarkerTopic(name=topic.name, partition_indexes=(partition,)),),
    )
    (of_marker,) = raw.ask(WriteTxnMarkersRequest(markers=(marker,)), version).markers
    return ErrorCode(of_marker.topics[0].partitions[0].error_code)
