"""The statements of a store in Apache Cassandra: rows in, rows out.

What writes a journal says at which time it was decided (`at_us`, microseconds since 1970): of two writes of one row the
later one stands, whichever comes to the node last.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from cassandra.query import UNSET_VALUE, BatchStatement, BatchType
from cassandra.util import Date, Duration

from exactlog.core.journal.event_journal_format import decode_row_metadata, encode_row_metadata
from exactlog.core.journal.events import Event, EventRow
from exactlog.core.journal.expiry import ExpireAfter, Expiry
from exactlog.core.journal.keys import JournalKey, Place, SeqNr, SeqRange
from exactlog.core.journal.rows import DueJournal, HeadRow, PointerRow, SnapshotRow, WriteRows
from exactlog.core.journal.segments import event_segment
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.journal.stores.cassandra_session import CassandraSession, PreparedStatement, Row, Statement
from exactlog.journal.stores.event_journal_store_format import (
    PayloadColumns,
    is_reset_by,
    life_in_key,
    life_of_key,
    payload_columns,
    payload_of,
    properties_column,
)

BATCH_ROWS_MAX: Final = 100
BATCH_BYTES_MAX: Final = 1 << 16
"""Of payloads in one batch, which is of one partition; the node warns of larger ones, and holds them in memory."""
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  the driver's times have no zone
_MS: Final = timedelta(milliseconds=1)
_DAY_NS: Final = 86_400_000_000_000

_PARTS: Final[Mapping[str, str]] = {
    "head": "partition, offset, segment_size, seq_nr, delete_to, created, updated, expire_after, expire_on, record_id, "
    "origin, properties",
    "event": "seq_nr, timestamp, partition, offset, origin, version, meta_record_id, event_id, tags, metadata, "
    "payload_type, payload_txt, payload_bin, headers",
    "snapshot": "record_id, seq_nr, partition, offset, timestamp, payload_type, payload_txt, payload_bin, metadata",
    "of_head": "topic = ? AND segment = ? AND id = ?",
    "of_events": "id = ? AND topic = ? AND segment = ?",
    "of_snapshots": "id = ? AND topic = ?",
    "of_pointer": "topic = ? AND partition = ?",
    "x11": ", ".join("?" * 11),
    "x16": ", ".join("?" * 16),
    "x17": ", ".join("?" * 17),
}
STATEMENTS: Final[Mapping[str, str]] = {
    "head": "SELECT {head} FROM {keyspace}.metajournal WHERE {of_head}",
    "put_head": "INSERT INTO {keyspace}.metajournal (topic, segment, id, created_date, {head}) VALUES ({x16}) "
    "USING TIMESTAMP ?",
    "drop_head": "DELETE FROM {keyspace}.metajournal USING TIMESTAMP ? WHERE {of_head}",
    "head_segments": "SELECT DISTINCT topic, segment FROM {keyspace}.metajournal",
    "ids": "SELECT id FROM {keyspace}.metajournal WHERE topic = ? AND segment = ?",
    "due": "SELECT id, expire_on, seq_nr, record_id FROM {keyspace}.metajournal "
    "WHERE topic = ? AND segment = ? AND expire_on <= ? ALLOW FILTERING",  # within one partition of the table
    "events": "SELECT {event} FROM {keyspace}.journal WHERE {of_events} AND seq_nr >= ? AND seq_nr <= ?",
    "put_event": "INSERT INTO {keyspace}.journal (id, topic, segment, {event}) VALUES ({x17}) USING TIMESTAMP ?",
    "drop_events": "DELETE FROM {keyspace}.journal USING TIMESTAMP ? WHERE {of_events} AND seq_nr >= ? AND seq_nr <= ?",
    "drop_segment": "DELETE FROM {keyspace}.journal USING TIMESTAMP ? WHERE {of_events}",
    "event_segments": "SELECT DISTINCT id, topic, segment FROM {keyspace}.journal",
    "pointer": "SELECT offset, created, updated FROM {keyspace}.pointer2 WHERE {of_pointer}",
    "pointers": "SELECT topic, partition, offset, created, updated FROM {keyspace}.pointer2",
    "create_pointer": "INSERT INTO {keyspace}.pointer2 (topic, partition, offset, created, updated) "
    "VALUES (?, ?, ?, ?, ?) IF NOT EXISTS",
    "move_pointer": "UPDATE {keyspace}.pointer2 SET offset = ?, updated = ? WHERE {of_pointer} IF offset < ?",
    "topics": "SELECT DISTINCT topic, partition FROM {keyspace}.pointer2",
    "latest_snapshot": "SELECT {snapshot} FROM {keyspace}.snapshot "
    "WHERE {of_snapshots} AND record_id = ? AND seq_nr <= ? AND timestamp <= ? LIMIT 1 ALLOW FILTERING",
    "snapshots": "SELECT record_id, seq_nr, partition, offset, timestamp FROM {keyspace}.snapshot WHERE {of_snapshots}",
    "put_snapshot": "INSERT INTO {keyspace}.snapshot (id, topic, {snapshot}) VALUES ({x11})",
    "drop_snapshot": "DELETE FROM {keyspace}.snapshot WHERE {of_snapshots} AND record_id = ? AND seq_nr = ?",
}


class CassandraTables:
    """Statements that are prepared, and what they are bound to."""

    def __init__(self, statements: Mapping[str, PreparedStatement]) -> None:
        self._statements = statements

    @classmethod
    async def prepare(cls, session: CassandraSession) -> "CassandraTables":
        """Prepare every statement.

        Raises:
            Retriable: no node answers.
        """
        keyspace = session.place.keyspace
        texts = {name: cql.format(keyspace=keyspace, **_PARTS) for name, cql in STATEMENTS.items()}
        return cls({name: await session.prepare(cql) for name, cql in texts.items()})

    def bound(self, name: str, *values: object) -> Statement:
        """A statement with its values."""
        return self._statements[name].bind(values)

    # --- rows in ------------------------------------------------------------------------------------------------------

    def put_head(self, key: JournalKey, segment: int, head: HeadRow, *, at_us: int) -> Statement:
        """All columns of a head row; what it has not becomes null."""
        expiry = head.expiry
        created_date = datetime.fromtimestamp(head.created_ms / 1_000, UTC).date()
        return self.bound(
            "put_head",
            key.topic,
            segment,
            key.id,
            created_date,
            *head.place,
            head.segment_size,
            head.seq_nr,
            head.delete_to,
            head.created_ms,
            head.updated_ms,
            None if expiry is None else Duration(0, 0, expiry.after.ns),
            None if expiry is None else expiry.on,
            head.record_id,
            head.origin,
            properties_column(is_reset=head.is_reset),
            at_us,
        )

    def put_rows(self, key: JournalKey, step: WriteRows, *, at_us: int) -> Iterator[Statement]:
        """Rows as batches, each of one partition of the table: a batch is there whole, or not."""
        batch: list[Statement] = []
        batch_bytes, batch_segment = 0, None
        for row in step.rows:
            segment = event_segment(row.seq_nr, step.segment_size)
            columns = payload_columns(row.event.payload)
            row_bytes = len(columns.text or "") + len(columns.content or b"")
            is_full = len(batch) == BATCH_ROWS_MAX or batch_bytes + row_bytes > BATCH_BYTES_MAX
            if batch and (is_full or segment != batch_segment):
                yield _batch_of(batch)
                batch, batch_bytes = [], 0
            batch.append(self._put_event(key, segment, row, columns, at_us=at_us))
            batch_bytes += row_bytes
            batch_segment = segment
        if batch:
            yield _batch_of(batch)

    def _put_event(
        self, key: JournalKey, segment: int, row: EventRow, payload: PayloadColumns, *, at_us: int
    ) -> Statement:
        """What is null is not written, for it would be a mark of deletion in each row that is read.

        But for the life and the kind of payload: they say what a row is, in place of one of another life that was left
        there with its number and time.
        """
        return self.bound(
            "put_event",
            key.id,
            key.topic,
            segment,
            row.seq_nr,
            row.timestamp_ms,
            *row.place,
            _written(row.origin),
            _written(row.version),
            row.record_id,
            _written(row.event_id),
            _written(set(row.event.tags) or None),
            encode_row_metadata(row.metadata),
            payload.kind,
            _written(payload.text),
            _written(payload.content),
            _written(dict(row.headers) or None),
            at_us,
        )

    def drop_segment(
        self, key: JournalKey, segment: int, segment_size: int, deleted: SeqRange, *, at_us: int
    ) -> Statement:
        """The rows of a range in one segment: all of it at once, where the range holds it."""
        first, last = segment * segment_size + 1, (segment + 1) * segment_size
        if deleted.first <= first and last <= deleted.last:
            return self.bound("drop_segment", at_us, key.id, key.topic, segment)
        return self.bound("drop_events", at_us, key.id, key.topic, segment, deleted.first, deleted.last)

    def put_snapshot(self, key: JournalKey, snapshot: SnapshotRow) -> Statement:
        """All columns of a snapshot."""
        return self.bound(
            "put_snapshot",
            key.id,
            key.topic,
            life_in_key(snapshot.record_id),
            snapshot.seq_nr,
            *snapshot.place,
            snapshot.timestamp_ms,
            *payload_columns(snapshot.payload),
            snapshot.metadata,
        )


# --- rows out ---------------------------------------------------------------------------------------------------------


def head_of(columns: Row) -> HeadRow:
    """The head row of its columns. Older rows, and those of other programs, lack some."""
    partition, offset, size, seq_nr, delete_to, created, updated, after, on, record_id, origin, properties = columns
    return HeadRow(
        place=Place(partition, Offset(offset)),
        segment_size=size,
        seq_nr=seq_nr,
        delete_to=delete_to,
        created_ms=_ms_of(created),
        updated_ms=_ms_of(updated),
        expiry=None if after is None or on is None else Expiry(_expire_after_of(after), _date_of(on)),
        record_id=record_id,
        origin=origin,
        is_reset=is_reset_by(properties),
    )


def event_of(columns: Row) -> EventRow:
    """The row of an event.

    Raises:
        DecodeError: a column is not as a journal writes it.
    """
    (seq_nr, timestamp, partition, offset, origin, version, record_id, event_id, tags, metadata, *payload, headers) = (
        columns
    )
    return EventRow(
        event=Event(SeqNr(seq_nr), payload_of(PayloadColumns(*payload)), frozenset(tags or ())),
        timestamp_ms=_ms_of(timestamp),
        place=Place(partition, Offset(offset)),
        origin=origin,
        version=version,
        metadata=decode_row_metadata(metadata),
        headers=dict(headers.items()) if headers else {},
        event_id=event_id,
        record_id=record_id,
    )


def due_of(topic: str, columns: Row) -> DueJournal:
    """A journal that is due."""
    key_id, expire_on, seq_nr, record_id = columns
    return DueJournal(key=JournalKey(topic, key_id), expire_on=_date_of(expire_on), seq_nr=seq_nr, record_id=record_id)


def pointer_of(columns: Row) -> PointerRow:
    """A pointer."""
    offset, created, updated = columns
    return PointerRow(offset=offset, created_ms=_ms_of(created), updated_ms=_ms_of(updated))


def pointers_of(rows: Sequence[Row]) -> Iterator[tuple[TopicPartition, PointerRow]]:
    """Pointers with their partitions."""
    for topic, partition, *columns in rows:
        yield TopicPartition(topic, partition), pointer_of(tuple(columns))


class FoundSnapshot(NamedTuple):
    """What is asked of a snapshot to know whether it is to go; `record_id` as it stands in the table."""

    record_id: UUID
    seq_nr: int
    partition: int
    offset: int
    timestamp_ms: int


def found_snapshot_of(columns: Row) -> FoundSnapshot:
    """A snapshot that was found."""
    record_id, seq_nr, partition, offset, timestamp = columns
    return FoundSnapshot(record_id, seq_nr, partition, offset, _ms_of(timestamp))


def snapshot_of(columns: Row) -> SnapshotRow:
    """A snapshot."""
    record_id, seq_nr, partition, offset, timestamp, *payload, metadata = columns
    return SnapshotRow(
        seq_nr=seq_nr,
        record_id=life_of_key(UUID(int=record_id.int)),
        place=Place(partition, Offset(offset)),
        timestamp_ms=_ms_of(timestamp),
        payload=payload_of(PayloadColumns(*payload)),
        metadata=metadata,
    )


def _written(value: object) -> object:
    return UNSET_VALUE if value is None else value


def _batch_of(statements: Sequence[Statement]) -> Statement:
    if len(statements) == 1:
        return statements[0]
    batch = BatchStatement(batch_type=BatchType.UNLOGGED, consistency_level=statements[0].consistency_level)
    batch.is_idempotent = True
    for statement in statements:
        batch.add(statement)
    return batch


def _ms_of(time: datetime | None) -> int:
    return 0 if time is None else (time - _EPOCH) // _MS


def _date_of(day: Date) -> date:
    return date(1970, 1, 1) + timedelta(days=day.days_from_epoch)


def _expire_after_of(duration: Any) -> ExpireAfter:  # noqa: ANN401  the driver has no types
    """A month is 30 days here: kafka-journal writes none."""
    return ExpireAfter((duration.months * 30 + duration.days) * _DAY_NS + duration.nanoseconds)
