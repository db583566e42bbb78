"""A reader over raw Fetch requests that leaves out what Kafka's consumer does, and insists on getting on."""

from exactlog.client.wire.fetched_batches import visible_batches
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.core.record.batch_format import iter_headers
from tests.support.raw_client import BY_NAME

UNCOMMITTED, COMMITTED = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED


def aborted_of(data):
    """The aborted transactions of an answer, as pairs."""
    return [(aborted.producer_id, aborted.first_offset) for aborted in data.aborted_transactions]


def seen_in(data, offset, isolation=COMMITTED):
    """The (offset, value) pairs of an answer that a reader at an offset sees."""
    return [
        (record.offset, record.value)
        for _, records in visible_batches(
            data.records,
            data.aborted_transactions or (),
            place=TopicPartition("a", 0),
            from_offset=Offset(offset),
            isolation=isolation,
        )
        for record in records
    ]


def read_on(raw, topic, offset=0, *, isolation=COMMITTED, version=BY_NAME, **limits):
    """What a reader sees that fetches again and again up to the end it may reach."""
    seen = []
    while True:
        data = raw.fetch(topic, offset, isolation_level=isolation, version=version, **limits)
        assert data.error_code == 0
        end = data.last_stable_offset if isolation is COMMITTED else data.high_watermark
        if offset >= end:
            assert not len(data.records)
            return seen
        assert len(data.records), f"nothing at offset {offset}, though what may be read ends at {end}"
        seen += seen_in(data, offset, isolation)
        offset = [header for _, header in iter_headers(data.records)][-1].next_offset


def values(seen):
    """Only the values."""
    return [value for _, value in seen]
