"""What a sink makes of what it finds: whether a batch was written before, who wrote where, why it is over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.client.groups import CommittedOffset
from exactlog.client.transactions import SharedTransaction, TransactionDescription
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline.sink_transaction import (
    BatchId,
    Recorded,
    SharedPartitionError,
    SinkTransaction,
    TakenOverError,
    TaskOutcome,
    TransactionEndedError,
    TransactionTimedOutError,
    TwoQueriesError,
    WrittenPartition,
    is_recorded,
    newest_recorded,
    one_owner_each,
    why_over,
)
from exactlog.pipeline.write_options import WriteOptions

OPTIONS = WriteOptions(bootstrap="a:1", topic="t", txn_app_id="copy", transaction_timeout_ms=60_000)
SHARED = SharedTransaction("exactlog-sink-copy", 7, 3, 2)
TRANSACTION = SinkTransaction(SHARED, 1_000_000, None)

versions = st.integers(0, 50)
queries = st.sampled_from([None, "first", "second"])


@given(versions, queries, versions, queries)
def test_a_batch_is_written_when_it_is_newer_than_all_that_is_recorded(version, query, recorded, by):
    batch = BatchId(version, query)
    if version > recorded:
        assert not is_recorded(OPTIONS, batch, Recorded(recorded, by))
    elif query is not None and by is not None and query != by:
        with pytest.raises(TwoQueriesError, match="two queries write under txnAppId copy"):
            is_recorded(OPTIONS, batch, Recorded(recorded, by))
    else:
        assert is_recorded(OPTIONS, batch, Recorded(recorded, by))


@given(versions, queries)
def test_where_nothing_is_recorded_and_of_a_batch_without_a_number_all_is_written(version, query):
    assert not is_recorded(OPTIONS, BatchId(version, query), None)
    assert not is_recorded(OPTIONS, BatchId(None, query), Recorded(version, query))


@given(st.dictionaries(st.sampled_from("abc"), st.tuples(versions, queries), max_size=3))
def test_the_newest_of_all_topics_counts(recorded):
    offsets = {
        TopicPartition(topic, 0): CommittedOffset(
            version + 1, -1, '{"query":null}' if query is None else f'{{"query":"{query}"}}'
        )
        for topic, (version, query) in recorded.items()
    }
    newest = newest_recorded(offsets)
    if not recorded:
        assert newest is None
    else:
        assert newest.version == max(version for version, _ in recorded.values())
        assert (newest.version, newest.query) in recorded.values()


@pytest.mark.parametrize("metadata", ["", "by hand", "[]", '{"query": 5}', '{"other": 1}'])
def test_an_offset_that_was_set_by_hand_counts_by_its_number(metadata):
    place = TopicPartition("t", 0)
    assert newest_recorded({place: CommittedOffset(8, -1, metadata)}) == Recorded(7, None)
    assert newest_recorded({place: CommittedOffset(0, -1, metadata)}) is None


places = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3))


@given(st.lists(st.sets(places, max_size=3), max_size=4))
def test_each_partition_has_one_owner(owned):
    outcomes = [
        TaskOutcome(TRANSACTION, BatchId(0, None), tuple(WrittenPartition(place, 1, 0) for place in places_))
        for places_ in owned
    ]
    every = [place for places_ in owned for place in places_]
    if len(set(every)) == len(every):
        assert [written.place for written in one_owner_each(outcomes)] == sorted(every)
    else:
        with pytest.raises(SharedPartitionError):
            one_owner_each(outcomes)


def described(state, *, epoch=4):
    return TransactionDescription("exactlog-sink-copy", state, 7, epoch, 60_000, None, (), "a:1")


@pytest.mark.parametrize(
    ("description", "elapsed_ms", "expected"),
    [
        (described("CompleteAbort"), 61_000, TransactionTimedOutError),
        (described("PrepareAbort"), 60_000, TransactionTimedOutError),
        (None, 61_000, TransactionTimedOutError),
        (described("CompleteAbort"), 5_000, TransactionEndedError),
        (described("Empty"), 5_000, TakenOverError),
        (described("Ongoing", epoch=9), 61_000, TakenOverError),
        (described("CompleteCommit", epoch=9), 61_000, TakenOverError),
        (None, 5_000, TakenOverError),
    ],
)
def test_why_a_transaction_is_over(description, elapsed_ms, expected):
    told = why_over(OPTIONS, TRANSACTION, description, now_ms=1_000_000 + elapsed_ms)
    assert type(told) is expected
    assert "txnAppId copy" in str(told)
    assert told.hint
