"""What readers and groups see of transactions that overlap, are deleted from under, or are waited for."""

from msgspec.structs import replace

from exactlog.core.codec.compression import Compression
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from exactlog.core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from exactlog.core.record.batch_builder import NewRecord, build_batch
from tests.conformance.differential.scenario import scenario
from tests.conformance.differential.scenarios_of_transactions import (
    COMMITTED,
    UNCOMMITTED,
    Identity,
    ask_times,
    producers_request,
    read,
    read_offsets,
)
from tests.conformance.differential.transaction import ABORT, ADDED_BEFORE, COMMIT, Transaction, markers_request
from tests.support.raw_client import batch_of, fetch_request

TIME = 1_700_000_000_000
LATEST, EARLIEST, GREATEST = -1, -2, -3
BY_ID = 13


def _interleaved(peer):
    """Plain records and three transactions in one partition: one committed, one aborted, one open; the last one.

    0 plain, 1-2 aborted, 3 committed, 4 plain, 5 aborted, 6 abort, 7 commit, 8 open, 9 plain, 10 aborted, 11 abort
    """
    topic = peer.one_topic()
    aborted, committed, still_open, second = (
        Transaction(peer, suffix).init() for suffix in ("aborted", "committed", "open", "second")
    )
    peer.produce(topic, batch_of(b"0", timestamp_ms=TIME + 50))
    aborted.write(b"1", b"2")
    committed.write(b"3")
    peer.produce(topic, batch_of(b"4", timestamp_ms=TIME + 10))
    aborted.write(b"5").end(ABORT)
    committed.end(COMMIT)
    still_open.write(b"8")
    peer.produce(topic, batch_of(b"9", timestamp_ms=TIME + 90))
    second.write(b"10").end(ABORT)
    return still_open


def _list_offsets(peer, topic, *timestamps, isolation):
    for timestamp in timestamps:
        part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        of_topic = ListOffsetsTopic(name=topic.name, partitions=(part,))
        peer.ask(ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=(of_topic,)))


def _delete_records(peer, topic, offset):
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    peer.ask(DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic.name, partitions=(part,)),), timeout_ms=5_000))


@scenario(ApiKey.FETCH, "4+")
def transactions_that_overlap(peer):
    transaction = _interleaved(peer)
    for outcome in (None, ABORT):
        if outcome is not None:
            transaction.end(outcome)
        for isolation in (UNCOMMITTED, COMMITTED):
            for offset in range(14):
                peer.ask(fetch_request(transaction.topic, offset, isolation_level=isolation))


@scenario(ApiKey.FETCH, "4+")
def parts_of_transactions_that_overlap(peer):
    transaction = _interleaved(peer).end(COMMIT)
    for offset in (0, 2, 4, 5, 6, 8, 11):
        for limit in (1, 80, 170, 300, 500):
            peer.ask(
                fetch_request(
                    transaction.topic, offset, isolation_level=COMMITTED, partition_max_bytes=limit, max_bytes=limit
                )
            )


@scenario(ApiKey.FETCH, "4+")
def records_deleted_from_under_transactions(peer):
    transaction = _interleaved(peer)
    for offset in (2, 6, 7):
        _delete_records(peer, transaction.topic, offset)
        for isolation in (UNCOMMITTED, COMMITTED):
            for start in (offset - 1, offset, 7):
                peer.ask(fetch_request(transaction.topic, start, isolation_level=isolation))
    peer.ask(producers_request(transaction))
    _delete_records(peer, transaction.topic, 9)
    peer.ask(fetch_request(transaction.topic, 9, isolation_level=COMMITTED))
    peer.ask(producers_request(transaction))
    transaction.end(ABORT)
    for start in (9, 10, 11, 12):
        peer.ask(fetch_request(transaction.topic, start, isolation_level=COMMITTED))


@scenario(ApiKey.FETCH, "4+")
def a_transaction_open_in_one_partition_and_not_in_another(peer):
    one, other = Transaction(peer, "one").init(), Transaction(peer, "other").init()
    one.write(b"a").write(b"b", partition=1)
    other.write(b"c", partition=1).write(b"d", partition=2)
    for each in (one, other):
        each.end(COMMIT)
        parts = tuple(FetchPartition(partition=index, partition_max_bytes=10_000) for index in range(3))
        of_topic = FetchTopic(topic=one.topic.name, topic_id=one.topic.topic_id, partitions=parts)
        for isolation in (UNCOMMITTED, COMMITTED):
            peer.ask(FetchRequest(min_bytes=1, isolation_level=isolation, topics=(of_topic,)))


@scenario(ApiKey.FETCH, "7+")
def a_committed_session(peer):
    transaction = Transaction(peer).init().write(b"a")

    def request(session_id, epoch, topics=()):
        return FetchRequest(
            min_bytes=1, isolation_level=COMMITTED, session_id=session_id, session_epoch=epoch, topics=topics
        )

    part = FetchPartition(partition=0, partition_max_bytes=10_000)
    topics = (FetchTopic(topic=transaction.topic.name, topic_id=transaction.topic.topic_id, partitions=(part,)),)
    answer = peer.ask(request(0, 0, topics))
    session_id = answer.session_id if answer is not None else 0
    peer.ask(request(session_id, 1))
    transaction.write(b"b")
    peer.ask(request(session_id, 2))
    transaction.end(ABORT)
    peer.ask(request(session_id, 3))
    peer.ask(request(session_id, 4))


@scenario(ApiKey.FETCH, "4+")
def a_committed_reader_is_woken_by_a_marker(peer):
    transaction = Transaction(peer).init().write(b"a")
    waiting = peer.another_connection()
    version = min(peer.version, BY_ID)
    request = fetch_request(transaction.topic, 0, isolation_level=COMMITTED, max_wait_ms=4_000)
    waiting.send(peer.fitting(request, version), version)
    transaction.end(COMMIT)
    peer.compare("woken", waiting.receive())


@scenario(ApiKey.LIST_OFFSETS, "2+")
def times_of_transactions_that_overlap(peer):
    transaction = _interleaved(peer)
    for outcome in (None, COMMIT):
        if outcome is not None:
            transaction.end(outcome)
        peer.about("overlapping" if outcome is None else "decided")
        ask_times(transaction, LATEST, EARLIEST, GREATEST, 0, TIME + 1, TIME + 11, TIME + 51, TIME + 91, 2**62)


@scenario(ApiKey.LIST_OFFSETS, "2+")
def a_log_of_markers(peer):
    transaction = Transaction(peer).init().add(0).end(ABORT, version=4)
    peer.about("markers only")
    ask_times(transaction, LATEST, EARLIEST, GREATEST, 0)


@scenario(ApiKey.DELETE_RECORDS)
def records_of_an_open_transaction_deleted(peer):
    transaction = Transaction(peer).init().write(b"a", b"b").write(b"c")
    for offset in (1, 3, -1):
        _delete_records(peer, transaction.topic, offset)
        _list_offsets(peer, transaction.topic, LATEST, EARLIEST, isolation=COMMITTED)
    transaction.end(COMMIT)
    read(transaction)


# --- producers ------------------------------------------------------------------------------------------------------


@scenario(ApiKey.DESCRIBE_PRODUCERS)
def producers_of_every_kind(peer):
    transaction = _interleaved(peer)
    peer.ask(producers_request(transaction))
    transaction.write(b"more").end(COMMIT).write(b"next")
    peer.ask(producers_request(transaction))


@scenario(ApiKey.PRODUCE, "3+")
def batches_of_two_producers_in_one_transactional_request(peer):
    one, other = Transaction(peer, "one").init(), Transaction(peer, "other").init()
    first, second = one.produce_request(b"a"), other.produce_request(b"b", partition=1)
    (of_first,), (of_second,) = first.topic_data, second.topic_data
    both = replace(of_first, partition_data=of_first.partition_data + of_second.partition_data)
    peer.ask(replace(first, topic_data=(both,)))
    read(one)


@scenario(ApiKey.PRODUCE, "12+")
def a_transaction_after_another_with_sequences_of_every_kind(peer):
    transaction = Transaction(peer).init().write(b"a", b"b").end(COMMIT)
    for sequence in (2, 1, 0, 0, 1, 3):
        peer.ask(transaction.produce_request(b"x", sequence=sequence))
    peer.ask(transaction.produce_request(b"y", sequence=5, partition=1))
    peer.ask(transaction.describe_request())
    read(transaction)


@scenario(ApiKey.PRODUCE, "3+")
def a_transaction_and_plain_batches_of_its_producer(peer):
    transaction = Transaction(peer).init()
    peer.ask(transaction.produce_request(b"plain", is_transactional=False, transactional_id=None))
    peer.quietly(transaction.add_request(0, version=3), 3)
    for is_transactional, transactional_id in ((True, ""), (False, None), (False, ""), (True, "")):
        peer.ask(
            transaction.produce_request(
                b"x", sequence=1, is_transactional=is_transactional, transactional_id=transactional_id
            )
        )
    transaction.end(COMMIT, version=4)
    peer.ask(transaction.produce_request(b"plain", sequence=2, is_transactional=False, transactional_id=None))
    read(transaction)


@scenario(ApiKey.PRODUCE, "3+")
def a_transaction_without_an_answer(peer):
    transaction = Transaction(peer).init().add(0)
    peer.ask(replace(transaction.produce_request(b"a"), acks=0))
    peer.ask(fetch_request(transaction.topic, 0, max_wait_ms=4_000), 12)
    stranger = transaction.identity.at(7)
    peer.ask(replace(transaction.produce_request(b"a", identity=stranger, partition=1), acks=0))
    peer.ask(transaction.describe_request())


# --- what ends transactions from outside -----------------------------------------------------------------------------


@scenario(ApiKey.DELETE_TOPICS)
def a_topic_deleted_in_the_middle_of_a_transaction(peer):
    for outcome in (COMMIT, ABORT):
        peer.begin(f"commit {outcome}")
        transaction = Transaction(peer).init().write(b"a").write(b"b", partition=1)
        peer.delete_topic(transaction.topic)
        peer.ask(transaction.describe_request())
        peer.ask(transaction.end_request(outcome))
        transaction.settle()
        peer.ask(transaction.describe_request())


@scenario(ApiKey.WRITE_TXN_MARKERS)
def an_administrator_ends_what_hangs(peer):
    for outcome in (ABORT, COMMIT):
        peer.begin(f"commit {outcome}")
        transaction, group = Transaction(peer).init().write(b"a"), peer.name("group")
        transaction.commit_offset(group, 3)
        peer.ask(markers_request(transaction.marker(outcome, 0, coordinator_epoch=peer.broker.coordinator_epoch)))
        read(transaction)
        peer.ask(producers_request(transaction))
        peer.ask(transaction.produce_request(b"behind"))
        transaction.end(COMMIT)
        read(transaction)
        read_offsets(transaction, group)


@scenario(ApiKey.END_TXN)
def a_late_end_of_the_transaction_before(peer):
    transaction = Transaction(peer).init().write(b"a")
    late = transaction.identity
    transaction.end(COMMIT).write(b"b")
    for identity in (late, Identity(late.producer_id, late.producer_epoch + 7)):
        for outcome in (COMMIT, ABORT):
            peer.ask(transaction.end_request(outcome, identity=identity))
            peer.ask(transaction.describe_request())
    read(transaction)


@scenario(ApiKey.END_TXN, "0-4")
def an_end_of_one_transaction_in_the_next(peer):
    """Up to version 4 one cannot be told from the other."""
    transaction = Transaction(peer).init().add(0).write(b"a", version=ADDED_BEFORE).end(COMMIT, version=4)
    transaction.add(0).write(b"b", version=ADDED_BEFORE)
    peer.ask(transaction.end_request(COMMIT))
    transaction.settle()
    read(transaction)


@scenario(ApiKey.PRODUCE, "12+")
def who_is_taken_over_goes_on_writing(peer):
    """Its record is in no transaction that commits."""
    transaction = Transaction(peer).init().write(b"ghost")
    old = transaction.identity
    peer.ask(transaction.init_request())
    transaction.wait_for("CompleteAbort").init()
    for identity in (old, old.at(old.producer_epoch + 1)):
        peer.ask(transaction.produce_request(b"ghost", identity=identity))
        peer.ask(transaction.end_request(COMMIT, identity=identity))
    transaction.write(b"real").end(COMMIT)
    read(transaction)


@scenario(ApiKey.FETCH, "4+")
def a_compressed_transaction(peer):
    transaction = Transaction(peer).init().add(0)
    batch = build_batch(
        [NewRecord(b"x" * 100, timestamp_ms=TIME), NewRecord(b"y" * 100, timestamp_ms=TIME + 3)],
        compression=Compression.GZIP,
        producer_id=transaction.identity.producer_id,
        producer_epoch=transaction.identity.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    request = transaction.produce_request(b"")
    (of_topic,) = request.topic_data
    (part,) = of_topic.partition_data
    peer.quietly(
        replace(request, topic_data=(replace(of_topic, partition_data=(replace(part, records=bytes(batch)),)),)),
        11,
    )
    transaction.end(ABORT)
    for offset in (0, 1, 2, 3):
        peer.ask(fetch_request(transaction.topic, offset, isolation_level=COMMITTED))
