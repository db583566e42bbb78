"""A toy cluster that coordinates transactions: enough of Kafka's rules to tell whether a client keeps to them."""

from collections import defaultdict, deque
from dataclasses import dataclass, field

from exactlog.core.codec.wire_types import Versions
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from exactlog.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from exactlog.core.protocol.messages.api_versions import FinalizedFeatureKey
from exactlog.core.protocol.messages.describe_producers import (
    ActiveProducer,
    DescribeProducersPartitionResponse,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
)
from exactlog.core.protocol.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsResponse,
    TransactionTopic,
)
from exactlog.core.protocol.messages.end_txn import EndTxnResponse
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdResponse
from exactlog.core.protocol.messages.list_transactions import ListedTransaction, ListTransactionsResponse
from exactlog.core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from exactlog.core.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from exactlog.core.record.batch_format import decode_header
from tests.unit.client.toy_broker import produced
from tests.unit.client.toy_groups import GroupCluster


@dataclass
class ToyTransaction:
    """One transactional id."""

    producer_id: int
    producer_epoch: int
    state: str = "Empty"
    places: set[TopicPartition] = field(default_factory=set)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


class TransactionCluster(GroupCluster):
    """Broker `coordinator_id` coordinates every transactional id too.

    Attributes:
        transactions: by id.
        pending: what producers have written in open transactions, by their identity; a commit makes it count.
        committed: what counts, in order: partitions and values of headers.
        active: what partitions say of their producers.
    """

    def __init__(self, *, level: int = 2, **options) -> None:
        super().__init__(**options)
        self.level = level
        self.transactions: dict[str, ToyTransaction] = {}
        self.outcomes: list[tuple[str, int, set[TopicPartition]]] = []
        self.active: defaultdict[TopicPartition, list[ActiveProducer]] = defaultdict(list)
        self.markers: list = []

    def fail(self, key: ApiKey, *codes: int) -> None:
        """The next answers to that API carry these codes."""
        self.group.errors.setdefault(key, deque()).extend(codes)

    def answer_api_versions(self, broker, request, version):
        response = super().answer_api_versions(broker, request, version)
        level = FinalizedFeatureKey(name="transaction.version", max_version_level=self.level, min_version_level=0)
        return type(response)(
            api_keys=response.api_keys, supported_features=response.supported_features, finalized_features=(level,)
        )

    def _refusal(self, broker, key, transactional_id, producer_id, producer_epoch) -> int:
        if error_code := self._error(broker, key):
            return error_code
        found = self.transactions.get(transactional_id)
        if found is None or found.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return 0 if found.producer_epoch == producer_epoch else ErrorCode.PRODUCER_FENCED

    def answer_init_producer_id(self, broker, request, version):
        if request.transactional_id is None:
            return super().answer_init_producer_id(broker, request, version)
        if error_code := self._error(broker, ApiKey.INIT_PRODUCER_ID):
            return InitProducerIdResponse(error_code=error_code)
        found = self.transactions.get(request.transactional_id)
        if found is None:
            self.next_producer_id += 1
            found = self.transactions[request.transactional_id] = ToyTransaction(self.next_producer_id, -1)
        elif request.producer_id >= 0 and request.producer_epoch != found.producer_epoch:
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        found.producer_epoch += 1
        if found.state == "Ongoing":
            self._end(request.transactional_id, found, "CompleteAbort")
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        found.state = "Empty"
        return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.producer_epoch)

    def answer_add_partitions_to_txn(self, broker, request, version):
        transactional_id = request.v3_and_below_transactional_id
        error_code = self._refusal(
            broker,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        places = [(topic.name, number) for topic in request.v3_and_below_topics for number in topic.partitions]
        if not error_code:
            self._begin(transactional_id, *(TopicPartition(*place) for place in places))
        # The first one is at fault, if there is a fault; the others are not attempted.
        codes = dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED if error_code else 0)
        codes[places[-1]] = error_code
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=tuple(
                AddPartitionsToTxnTopicResult(
                    name=name,
                    results_by_partition=(
                        AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code),
                    ),
                )
                for (name, number), code in codes.items()
            )
        )

    def _begin(self, transactional_id: str, *places: TopicPartition) -> None:
        self.transactions[transactional_id].state = "Ongoing"
        self.transactions[transactional_id].places.update(places)

    def answer_produce(self, broker, request, version):
        if request.transactional_id is None:
            return super().answer_produce(broker, request, version)
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        header = decode_header(data.records)
        assert header.is_transactional
        found = self.transactions[request.transactional_id]
        place = TopicPartition(self.name_of(topic.name, topic.topic_id), data.index)
        codes = self.group.errors.get(ApiKey.PRODUCE)
        error_code = codes.popleft() if codes else 0
        if (found.producer_id, found.producer_epoch) != (header.producer_id, header.producer_epoch):
            error_code = ErrorCode.INVALID_PRODUCER_EPOCH
        elif version >= 12:
            self._begin(request.transactional_id, place)
        elif place not in found.places or found.state != "Ongoing":
            error_code = ErrorCode.INVALID_TXN_STATE
        if error_code:
            return produced(request, error_code=error_code)
        return super().answer_produce(broker, request, version)

    def answer_add_offsets_to_txn(self, broker, request, version):
        error_code = self._refusal(
            broker,
            ApiKey.ADD_OFFSETS_TO_TXN,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
        )
        if not error_code:
            self._begin(request.transactional_id, TopicPartition("__consumer_offsets", 0))
        return AddOffsetsToTxnResponse(error_code=error_code)

    def answer_txn_offset_commit(self, broker, request, version):
        offsets_place = TopicPartition("__consumer_offsets", 0)
        found = self.transactions[request.transactional_id]
        error_code = self._refusal(
            broker,
            ApiKey.TXN_OFFSET_COMMIT,
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
        )
        if not error_code and version >= 5:
            self._begin(request.transactional_id, offsets_place)
        if not error_code and offsets_place not in found.places:
            error_code = ErrorCode.INVALID_TXN_STATE
        topics = []
        for topic in request.topics:
            for partition in topic.partitions:
                if not error_code:
                    found.offsets[TopicPartition(topic.name, partition.partition_index)] = partition.committed_offset
                answer = TxnOffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error_code
                )
                topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=(answer,)))
        return TxnOffsetCommitResponse(topics=tuple(topics))

    def answer_end_txn(self, broker, request, version):
        found = self.transactions.get(request.transactional_id)
        wanted = "CompleteCommit" if request.committed else "CompleteAbort"
        if error_code := self._error(broker, ApiKey.END_TXN):
            return EndTxnResponse(error_code=error_code)
        is_again = version >= 5 and request.producer_epoch == found.producer_epoch - 1 and found.state == wanted
        if not is_again and request.producer_epoch != found.producer_epoch:
            return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        is_again |= version < 5 and found.state == wanted
        if not is_again:
            is_empty_abort = version >= 5 and not request.committed
            if found.state != "Ongoing" and not is_empty_abort:
                return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
            self._end(request.transactional_id, found, wanted)
            found.producer_epoch += version >= 5
        if version < 5:
            return EndTxnResponse()
        return EndTxnResponse(producer_id=found.producer_id, producer_epoch=found.producer_epoch)

    def _end(self, transactional_id: str, found: ToyTransaction, state: str) -> None:
        found.state = state
        self.outcomes.append((state, found.producer_epoch, found.places))
        if state == "CompleteCommit":
            self.group.committed.update(found.offsets)
        found.places, found.offsets = set(), {}

    # --- KIP-664 ---------------------------------------------------------------------------------------------

    def answer_list_transactions(self, broker, request, version):
        if broker.id != self.coordinator_id:
            return ListTransactionsResponse()
        listed = tuple(
            ListedTransaction(
                transactional_id=transactional_id, producer_id=found.producer_id, transaction_state=found.state
            )
            for transactional_id, found in self.transactions.items()
            if (not request.state_filters or found.state in request.state_filters)
            and (not request.producer_id_filters or found.producer_id in request.producer_id_filters)
        )
        unknown = tuple(state for state in request.state_filters if state == "Nonsense")
        return ListTransactionsResponse(
            error_code=self._error(broker, ApiKey.LIST_TRANSACTIONS),
            transaction_states=listed,
            unknown_state_filters=unknown,
        )

    def answer_describe_transactions(self, broker, request, version):
        return DescribeTransactionsResponse(
            transaction_states=tuple(
                self._described(broker, transactional_id) for transactional_id in request.transactional_ids
            )
        )

    def _described(self, broker, transactional_id):
        found = self.transactions.get(transactional_id)
        error_code = self._error(broker, ApiKey.DESCRIBE_TRANSACTIONS)
        if error_code or found is None:
            return DescribedTransaction(
                transactional_id=transactional_id,
                error_code=error_code or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            )
        return DescribedTransaction(
            transactional_id=transactional_id,
            transaction_state=found.state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=5_000 if found.state == "Ongoing" else -1,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=tuple(
                TransactionTopic(topic=place.topic, partitions=(place.partition,))
                for place in sorted(found.places, reverse=True)  # a client must not rely on the order
            ),
        )

    def answer_describe_producers(self, broker, request, version):
        return DescribeProducersResponse(
            topics=tuple(
                DescribeProducersTopicResponse(
                    name=topic.name,
                    partitions=tuple(self._producers(broker, topic.name, index) for index in topic.partition_indexes),
                )
                for topic in request.topics
            )
        )

    def _producers(self, broker, name, index):
        if self.topics[name].logs[index].leader_id != broker.id:
            return DescribeProducersPartitionResponse(
                partition_index=index, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        return DescribeProducersPartitionResponse(
            partition_index=index, active_producers=tuple(self.active[TopicPartition(name, index)])
        )

    def answer_write_txn_markers(self, broker, request, version):
        (marker,) = request.markers
        (topic,) = marker.topics
        (index,) = topic.partition_indexes
        self.markers.append((version, marker))
        error_code = 0
        if self.topics[topic.name].logs[index].leader_id != broker.id:
            error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif codes := self.group.errors.get(ApiKey.WRITE_TXN_MARKERS):
            error_code = codes.popleft()
        result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=error_code)
        answered = WritableTxnMarkerTopicResult(name=topic.name, partitions=(result,))
        return WriteTxnMarkersResponse(
            markers=(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=(answered,)),)
        )


def up_to(key: ApiKey, highest: int) -> dict[ApiKey, Versions]:
    """The API, in versions up to that one."""
    return {key: Versions(0 if key is not ApiKey.PRODUCE else 3, highest)}
