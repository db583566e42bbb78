"""What is read and deleted: Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeProducers."""

from itertools import product

from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from exactlog.core.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from exactlog.core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from exactlog.core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from exactlog.core.record.batch_builder import NewRecord, build_batch
from tests.conformance.differential.hostile import NOBODY
from tests.conformance.differential.scenario import scenario
from tests.conformance.differential.valid import topic_with_records
from tests.support.raw_client import batch_of, fetch_request, sequenced

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -2, -1, -3, -4, -5, -6


# --- Fetch --------------------------------------------------------------------------------------------------------


@scenario(ApiKey.FETCH)
def from_every_offset(peer):
    topic = topic_with_records(peer)
    for offset in (0, 1, 2, 3, 4, 2**62):
        peer.ask(fetch_request(topic, offset))


@scenario(ApiKey.FETCH)
def with_every_limit(peer):
    topic = topic_with_records(peer)
    for limit in (1, 60, 61, 77, 78, 100, 200):
        peer.ask(fetch_request(topic, 0, max_bytes=limit))
        peer.ask(fetch_request(topic, 0, partition_max_bytes=limit))


@scenario(ApiKey.FETCH)
def two_partitions_share_a_limit(peer):
    topic = peer.topic(partitions=2)
    for partition in (0, 1):
        peer.produce(topic, batch_of(b"x" * 100), partition=partition)
    parts = tuple(FetchPartition(partition=index, partition_max_bytes=1_000) for index in (0, 1))
    of_topic = FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=parts)
    for limit in (1, 150, 200, 400):
        peer.ask(FetchRequest(max_bytes=limit, min_bytes=1, topics=(of_topic,)))


@scenario(ApiKey.FETCH)
def an_empty_partition(peer):
    peer.ask(fetch_request(peer.topic(), 0))
    peer.ask(fetch_request(peer.topic("other"), 1))


@scenario(ApiKey.FETCH)
def below_the_start_of_the_log(peer):
    topic = topic_with_records(peer)
    _delete(peer, topic, 2)
    for offset in (0, 1, 2, 3):
        peer.ask(fetch_request(topic, offset))


@scenario(ApiKey.FETCH)
def read_committed(peer):
    topic = topic_with_records(peer)
    peer.ask(fetch_request(topic, 0, isolation_level=1))
    peer.ask(fetch_request(topic, 3, isolation_level=1))


@scenario(ApiKey.FETCH, "9+")
def with_leader_epochs(peer):
    topic = topic_with_records(peer)
    for above in (0, 1, 7):
        peer.ask(fetch_request(topic, 0, leader_epoch=peer.epoch(above)))


@scenario(ApiKey.FETCH, "12+")
def with_the_epoch_last_fetched(peer):
    topic = topic_with_records(peer)
    for offset, above in product((0, 1, 3), (0, 1)):
        part = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1_000, last_fetched_epoch=peer.epoch(above)
        )
        of_topic = FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=(part,))
        peer.ask(FetchRequest(topics=(of_topic,)))


@scenario(ApiKey.FETCH, "13+")
def ids_of_nobody(peer):
    topic = topic_with_records(peer)
    topics = tuple(
        FetchTopic(topic_id=topic_id, partitions=(FetchPartition(partition=0, partition_max_bytes=1_000),))
        for topic_id in (NOBODY, topic.topic_id, ZERO_UUID)
    )
    peer.ask(FetchRequest(topics=topics))


@scenario(ApiKey.FETCH)
def records_of_an_old_topic_of_the_name(peer):
    topic = topic_with_records(peer)
    peer.delete_topic(topic)
    peer.ask(fetch_request(topic, 0))


# --- fetch sessions -----------------------------------------------------------------------------------------------


def _in_session(topics, *, session_id=0, epoch=0, offsets=None, forgotten=()):
    """A request of a session for the first partition of some topics."""
    offsets = offsets or {}
    return FetchRequest(
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=tuple(
            FetchTopic(
                topic=topic.name,
                topic_id=topic.topic_id,
                partitions=(
                    FetchPartition(partition=0, fetch_offset=offsets.get(topic.name, 0), partition_max_bytes=100_000),
                ),
            )
            for topic in topics
        ),
        forgotten_topics_data=tuple(
            ForgottenTopic(topic=topic.name, topic_id=topic.topic_id, partitions=(0,)) for topic in forgotten
        ),
    )


def _session_of(answer):
    return answer.session_id if answer is not None else 0


@scenario(ApiKey.FETCH, "7+")
def a_session_from_its_beginning_to_its_end(peer):
    one, other = peer.topic("one"), peer.topic("other")
    peer.produce(one, batch_of(b"a"))
    session_id = _session_of(peer.ask(_in_session((one, other))))
    peer.ask(_in_session((), session_id=session_id, epoch=1))
    peer.ask(_in_session((one,), session_id=session_id, epoch=2, offsets={one.name: 1}))
    peer.produce(other, batch_of(b"b"))
    peer.ask(_in_session((), session_id=session_id, epoch=3))
    peer.ask(_in_session((), session_id=session_id, epoch=4, forgotten=(other,)))
    peer.produce(one, batch_of(b"c"))
    peer.ask(_in_session((), session_id=session_id, epoch=5))
    peer.ask(_in_session((one,), session_id=session_id, epoch=-1))
    peer.ask(_in_session((), session_id=session_id, epoch=6))


@scenario(ApiKey.FETCH, "7+")
def a_session_whose_epoch_is_wrong(peer):
    topic = topic_with_records(peer)
    session_id = _session_of(peer.ask(_in_session((topic,))))
    for epoch in (2, 0, 1):
        peer.ask(_in_session((), session_id=session_id, epoch=epoch))


@scenario(ApiKey.FETCH, "7+")
def a_session_that_nobody_has(peer):
    topic = topic_with_records(peer)
    for session_id, epoch in ((7, 1), (7, 0), (7, -1), (0, 1), (0, 0), (0, -1)):
        peer.ask(_in_session((topic,), session_id=session_id, epoch=epoch))


@scenario(ApiKey.FETCH, "7+")
def a_session_without_partitions(peer):
    session_id = _session_of(peer.ask(_in_session(())))
    peer.ask(_in_session((), session_id=session_id, epoch=1))


@scenario(ApiKey.FETCH, "7+")
def a_session_in_which_a_partition_is_in_error(peer):
    topic = topic_with_records(peer)
    session_id = _session_of(peer.ask(_in_session((topic,), offsets={topic.name: 99})))
    peer.ask(_in_session((), session_id=session_id, epoch=1))
    peer.ask(_in_session((topic,), session_id=session_id, epoch=2))


@scenario(ApiKey.FETCH, "7+")
def a_session_whose_topic_is_deleted(peer):
    topic = topic_with_records(peer)
    session_id = _session_of(peer.ask(_in_session((topic,))))
    peer.delete_topic(topic)
    peer.ask(_in_session((), session_id=session_id, epoch=1))


@scenario(ApiKey.FETCH, "7+")
def a_session_that_goes_on_with_the_log(peer):
    topic = topic_with_records(peer)
    session_id = _session_of(peer.ask(_in_session((topic,), offsets={topic.name: 3})))
    peer.ask(_in_session((), session_id=session_id, epoch=1))
    _delete(peer, topic, 2)
    peer.ask(_in_session((), session_id=session_id, epoch=2))
    peer.produce(topic, batch_of(b"d"))
    peer.ask(_in_session((), session_id=session_id, epoch=3))


@scenario(ApiKey.FETCH, "7+")
def what_is_forgotten_was_never_known(peer):
    topic, other = topic_with_records(peer), peer.topic("other")
    session_id = _session_of(peer.ask(_in_session((topic,))))
    peer.ask(_in_session((topic,), session_id=session_id, epoch=1, forgotten=(other,)))
    peer.ask(_in_session((topic,), session_id=session_id, epoch=2, forgotten=(topic,)))
    peer.ask(_in_session((), session_id=session_id, epoch=3))


# --- ListOffsets --------------------------------------------------------------------------------------------------


def _offsets_of(topic, *timestamps, **fields):
    """The same partition for one timestamp each, in requests of their own."""
    for timestamp in timestamps:
        part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        yield ListOffsetsRequest(
            replica_id=-1, topics=(ListOffsetsTopic(name=topic.name, partitions=(part,)),), **fields
        )


@scenario(ApiKey.LIST_OFFSETS)
def offsets_by_time(peer):
    topic = peer.topic()
    peer.produce(topic, batch_of(b"a", b"b", timestamp_ms=1_000))
    peer.produce(topic, build_batch([NewRecord(b"x", timestamp_ms=at) for at in (5_000, 3_000, 4_000)]))
    peer.produce(topic, batch_of(b"c", timestamp_ms=2_000))
    for request in _offsets_of(topic, 0, 1, 999, 1_000, 1_001, 2_000, 3_000, 3_001, 4_500, 5_000, 5_001, 2**62):
        peer.ask(request)


@scenario(ApiKey.LIST_OFFSETS)
def the_ends_of_a_log(peer):
    topic, empty = topic_with_records(peer), peer.topic("empty")
    _delete(peer, topic, 1)
    for of in (topic, empty):
        for request in _offsets_of(of, EARLIEST, LATEST):
            peer.ask(request)


@scenario(ApiKey.LIST_OFFSETS)
def special_timestamps_before_their_version(peer):
    topic = topic_with_records(peer)
    for request in _offsets_of(topic, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING, -7):
        peer.ask(request)


@scenario(ApiKey.LIST_OFFSETS)
def special_timestamps_of_an_empty_log(peer):
    topic = peer.topic()
    for request in _offsets_of(topic, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING, 0, 1):
        peer.ask(request)


@scenario(ApiKey.LIST_OFFSETS, "2+")
def the_last_stable_offset(peer):
    for request in _offsets_of(topic_with_records(peer), LATEST, EARLIEST, 0, isolation_level=1):
        peer.ask(request)


@scenario(ApiKey.LIST_OFFSETS, "4+")
def offsets_with_leader_epochs(peer):
    topic = topic_with_records(peer)
    for timestamp, above in product((LATEST, EARLIEST, 0), (0, 1)):
        part = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=peer.epoch(above))
        of_topic = ListOffsetsTopic(name=topic.name, partitions=(part,))
        peer.ask(ListOffsetsRequest(replica_id=-1, topics=(of_topic,)))


@scenario(ApiKey.LIST_OFFSETS)
def offsets_of_good_and_bad_partitions(peer):
    topic = peer.topic(partitions=2)
    parts = tuple(ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in (1, 0, 2, -1))
    topics = tuple(ListOffsetsTopic(name=name, partitions=parts) for name in (topic.name, peer.name("nobody"), ""))
    peer.ask(ListOffsetsRequest(replica_id=-1, topics=topics))


@scenario(ApiKey.LIST_OFFSETS)
def the_largest_timestamp_and_append_time(peer):
    topic = peer.topic(message_timestamp_type="LogAppendTime")
    peer.produce(topic, batch_of(b"a", b"b"))
    for request in _offsets_of(topic, LATEST, EARLIEST, 0):
        peer.ask(request)


# --- DeleteRecords, OffsetForLeaderEpoch, DescribeProducers -------------------------------------------------------


def _delete_request(topic, *offsets_by_partition):
    parts = tuple(
        DeleteRecordsPartition(partition_index=partition, offset=offset) for partition, offset in offsets_by_partition
    )
    return DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic.name, partitions=parts),), timeout_ms=10_000)


def _delete(peer, topic, offset):
    (of_topic,) = peer.quietly(_delete_request(topic, (0, offset)), 2).topics
    assert of_topic.partitions[0].error_code == 0


@scenario(ApiKey.DELETE_RECORDS)
def records_deleted_up_to_every_offset(peer):
    topic = topic_with_records(peer)
    for offset in (0, 1, 0, -1, 3, 4, -2):
        peer.ask(_delete_request(topic, (0, offset)))
    peer.read(topic, 3)
    peer.produce(topic, batch_of(b"d"))
    peer.read(topic, 3)


@scenario(ApiKey.DELETE_RECORDS)
def records_of_an_empty_log_deleted(peer):
    topic = peer.topic(partitions=2)
    peer.ask(_delete_request(topic, (0, 0), (1, -1)))
    peer.ask(_delete_request(topic, (0, 1), (2, 0), (-1, 0)))


@scenario(ApiKey.DELETE_RECORDS)
def records_deleted_where_the_log_is_compacted(peer):
    topic = peer.topic(cleanup_policy="compact")
    peer.produce(topic, build_batch([NewRecord(b"v", key=b"k", timestamp_ms=1)]))
    peer.ask(_delete_request(topic, (0, 1)))


@scenario(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def where_epochs_end(peer):
    topic, empty = topic_with_records(peer), peer.topic("empty")
    for of, above in product((topic, empty), (0, 1, 7)):
        part = OffsetForLeaderPartition(partition=0, leader_epoch=peer.epoch(above))
        of_topic = OffsetForLeaderTopic(topic=of.name, partitions=(part,))
        peer.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=(of_topic,)))


@scenario(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def where_the_epoch_ends_for_a_reader_of_another(peer):
    topic = topic_with_records(peer)
    for above in (0, 1):
        part = OffsetForLeaderPartition(partition=0, leader_epoch=peer.epoch(), current_leader_epoch=peer.epoch(above))
        of_topic = OffsetForLeaderTopic(topic=topic.name, partitions=(part,))
        peer.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=(of_topic,)))


@scenario(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def where_epochs_end_in_partitions_good_and_bad(peer):
    topic = peer.topic(partitions=2)
    parts = tuple(OffsetForLeaderPartition(partition=index, leader_epoch=peer.epoch()) for index in (0, 1, 2, -1))
    topics = tuple(OffsetForLeaderTopic(topic=name, partitions=parts) for name in (topic.name, peer.name("nobody")))
    peer.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics))


@scenario(ApiKey.DESCRIBE_PRODUCERS)
def producers_of_partitions_good_and_bad(peer):
    topic, one, other = peer.topic(partitions=2), peer.producer(), peer.producer()
    for producer, sequence, epoch in ((one, 0, 0), (other, 0, 0), (one, 1, 0), (other, 0, 2)):
        peer.produce(topic, sequenced(producer, sequence, b"x", epoch=epoch))
    asked = (
        DescribeProducersTopic(name=topic.name, partition_indexes=(0, 1, 2, -1)),
        DescribeProducersTopic(name=peer.name("nobody"), partition_indexes=(0,)),
        DescribeProducersTopic(name="no/name", partition_indexes=(0,)),
    )
    peer.ask(DescribeProducersRequest(topics=asked))
