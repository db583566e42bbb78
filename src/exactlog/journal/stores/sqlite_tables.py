"""The statements of a store in a SQLite file: rows in, rows out, on a connection that is at hand."""

import sqlite3
from collections.abc import Sequence
from datetime import date
from typing import Any, Final
from uuid import UUID

from exactlog.core.journal.event_journal_format import decode_row_metadata, encode_row_metadata
from exactlog.core.journal.events import Event, EventRow
from exactlog.core.journal.expiry import ExpireAfter, Expiry
from exactlog.core.journal.keys import JournalKey, Place, SeqNr, SeqRange
from exactlog.core.journal.rows import (
    DeleteRows,
    DropHead,
    DropSnapshots,
    DueJournal,
    HeadRow,
    PointerRow,
    PutHead,
    SnapshotRow,
    Step,
    WriteRows,
)
from exactlog.core.journal.segments import event_segment
from exactlog.core.model.ids import Offset, TopicPartition
from exactlog.journal.stores.event_journal_store_format import (
    PayloadColumns,
    headers_of,
    headers_text,
    life_in_key,
    life_of_key,
    payload_columns,
    payload_of,
    tags_of,
    tags_text,
    uuid_of,
    uuid_text,
)

PAGE_ROWS_MAX: Final = 1_000
"""Rows that are read at a time: kafka-journal's fetch size."""
PAGE_BYTES_MAX: Final = 1 << 20
"""Of payloads: a page ends early with large ones, with one row at least."""

_HEAD: Final = (
    "partition, offset, segment_size, seq_nr, delete_to, created, updated, expire_after, expire_on, record_id, origin, "
    "is_reset"
)
_EVENT: Final = (
    "seq_nr, timestamp, partition, offset, origin, version, meta_record_id, event_id, tags, metadata, payload_type, "
    "payload_txt, payload_bin, headers"
)
_SNAPSHOT: Final = "record_id, seq_nr, partition, offset, timestamp, payload_type, payload_txt, payload_bin, metadata"


def _inserted(table: str, key: str, columns: str) -> str:
    names = f"{key}, {columns}"
    return f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({', '.join('?' * len(names.split(',')))})"  # noqa: S608


_PUT_HEAD: Final = _inserted("metajournal", "topic, id", _HEAD)
_PUT_EVENT: Final = _inserted("journal", "topic, id, segment", _EVENT)
_PUT_SNAPSHOT: Final = _inserted("snapshot", "topic, id", _SNAPSHOT)


# --- reading ----------------------------------------------------------------------------------------------------------


def select_pointers(connection: sqlite3.Connection, topic: str) -> dict[int, PointerRow]:
    """The pointers of a topic, by partition."""
    found = connection.execute("SELECT partition, offset, created, updated FROM pointer2 WHERE topic = ?", (topic,))
    return {
        partition: PointerRow(offset=offset, created_ms=created, updated_ms=updated)
        for partition, offset, created, updated in found
    }


def select_pointer(connection: sqlite3.Connection, topic_partition: TopicPartition) -> PointerRow | None:
    """The pointer of a partition."""
    found = connection.execute(
        "SELECT offset, created, updated FROM pointer2 WHERE topic = ? AND partition = ?", tuple(topic_partition)
    ).fetchone()
    return None if found is None else PointerRow(offset=found[0], created_ms=found[1], updated_ms=found[2])


def select_topics(connection: sqlite3.Connection) -> frozenset[str]:
    """The topics that have a pointer."""
    return frozenset(topic for (topic,) in connection.execute("SELECT DISTINCT topic FROM pointer2"))


def select_head(connection: sqlite3.Connection, key: JournalKey) -> HeadRow | None:
    """The head row of a journal."""
    found = connection.execute(
        f"SELECT {_HEAD} FROM metajournal WHERE topic = ? AND id = ?",  # noqa: S608
        tuple(key),
    ).fetchone()
    return None if found is None else _head_of(found)


def select_rows(
    connection: sqlite3.Connection, key: JournalKey, within: SeqRange, *, after: tuple[int, int]
) -> tuple[Sequence[EventRow], bool]:
    """A page of rows behind (number, timestamp), of whichever life; and whether there may be more."""
    page: list[EventRow] = []
    page_bytes = 0
    cursor = connection.execute(
        f"SELECT {_EVENT} FROM journal WHERE topic = ? AND id = ? AND (seq_nr, timestamp) > (?, ?) AND seq_nr <= ? "  # noqa: S608
        "ORDER BY seq_nr, timestamp LIMIT ?",
        (*key, *after, within.last, PAGE_ROWS_MAX),
    )
    for row in cursor:
        page.append(_event_of(row))
        page_bytes += len(row[11] or "") + len(row[12] or b"")
        if page_bytes >= PAGE_BYTES_MAX:
            cursor.close()
            return page, True
    return page, len(page) == PAGE_ROWS_MAX


def select_ids(connection: sqlite3.Connection, topic: str, *, after: str | None) -> Sequence[str]:
    """A page of the ids of a topic behind one of them."""
    found = connection.execute(
        "SELECT id FROM metajournal WHERE topic = ? AND (? IS NULL OR id > ?) ORDER BY id LIMIT ?",
        (topic, after, after, PAGE_ROWS_MAX),
    )
    return [key_id for (key_id,) in found]


def select_due(
    connection: sqlite3.Connection, topic: str, *, through: date, after: tuple[str, str]
) -> Sequence[DueJournal]:
    """A page of the journals that are due, by day and id, behind one of them."""
    found = connection.execute(
        "SELECT id, expire_on, seq_nr, record_id FROM metajournal WHERE topic = ? AND expire_on IS NOT NULL "
        "AND expire_on <= ? AND (expire_on, id) > (?, ?) ORDER BY expire_on, id LIMIT ?",
        (topic, through.isoformat(), *after, PAGE_ROWS_MAX),
    )
    return [
        DueJournal(
            key=JournalKey(topic, key_id),
            expire_on=date.fromisoformat(expire_on),
            seq_nr=seq_nr,
            record_id=uuid_of(record_id),
        )
        for key_id, expire_on, seq_nr, record_id in found
    ]


def select_snapshot(
    connection: sqlite3.Connection, key: JournalKey, *, record_id: UUID | None, to_seq_nr: int, to_timestamp_ms: int
) -> SnapshotRow | None:
    """The latest snapshot of a life, up to a number and a time."""
    found = connection.execute(
        f"SELECT {_SNAPSHOT} FROM snapshot WHERE topic = ? AND id = ? AND record_id = ? AND seq_nr <= ? "  # noqa: S608
        "AND timestamp <= ? ORDER BY seq_nr DESC LIMIT 1",
        (*key, str(life_in_key(record_id)), to_seq_nr, to_timestamp_ms),
    ).fetchone()
    return None if found is None else _snapshot_of(found)


# --- writing ----------------------------------------------------------------------------------------------------------


def raise_pointer(connection: sqlite3.Connection, topic_partition: TopicPartition, offset: int, *, now_ms: int) -> None:
    """Create the pointer, or move it forth."""
    connection.execute(
        "INSERT INTO pointer2 (topic, partition, offset, created, updated) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (topic, partition) DO UPDATE SET offset = excluded.offset, updated = excluded.updated "
        "WHERE excluded.offset > pointer2.offset",
        (*topic_partition, offset, now_ms, now_ms),
    )


def carry_out_step(connection: sqlite3.Connection, key: JournalKey, step: Step) -> None:
    """One step of a plan."""
    match step:
        case WriteRows(rows=rows, segment_size=segment_size):
            connection.executemany(_PUT_EVENT, (_event_columns(key, row, segment_size) for row in rows))
        case DeleteRows(range=deleted):
            connection.execute(
                "DELETE FROM journal WHERE topic = ? AND id = ? AND seq_nr BETWEEN ? AND ?",
                (*key, deleted.first, deleted.last),
            )
        case PutHead(head=head):
            connection.execute(_PUT_HEAD, (*key, *_head_columns(head)))
        case DropHead():
            connection.execute("DELETE FROM metajournal WHERE topic = ? AND id = ?", tuple(key))
        case DropSnapshots(place=place):
            connection.execute(
                "DELETE FROM snapshot WHERE topic = ? AND id = ? AND partition = ? AND offset <= ?", (*key, *place)
            )


def put_snapshot(connection: sqlite3.Connection, key: JournalKey, snapshot: SnapshotRow) -> None:
    """Keep a snapshot, in place of one of its life and number."""
    payload = payload_columns(snapshot.payload)
    life = str(life_in_key(snapshot.record_id))
    columns = (life, snapshot.seq_nr, *snapshot.place, snapshot.timestamp_ms, *payload, snapshot.metadata)
    connection.execute(_PUT_SNAPSHOT, (*key, *columns))


def drop_snapshots(
    connection: sqlite3.Connection, key: JournalKey, *, from_seq_nr: int, to_seq_nr: int, to_timestamp_ms: int
) -> None:
    """Drop the snapshots with these numbers, up to a time."""
    connection.execute(
        "DELETE FROM snapshot WHERE topic = ? AND id = ? AND seq_nr BETWEEN ? AND ? AND timestamp <= ?",
        (*key, from_seq_nr, to_seq_nr, to_timestamp_ms),
    )


# --- columns ----------------------------------------------------------------------------------------------------------


def _head_columns(head: HeadRow) -> tuple[object, ...]:
    expiry = head.expiry
    return (
        *head.place,
        head.segment_size,
        head.seq_nr,
        head.delete_to,
        head.created_ms,
        head.updated_ms,
        None if expiry is None else expiry.after.ns,
        None if expiry is None else expiry.on.isoformat(),
        uuid_text(head.record_id),
        head.origin,
        int(head.is_reset),
    )


def _head_of(columns: tuple[Any, ...]) -> HeadRow:
    partition, offset, segment_size, seq_nr, delete_to, created, updated, after, on, record_id, origin, reset = columns
    return HeadRow(
        place=Place(partition, Offset(offset)),
        segment_size=segment_size,
        seq_nr=seq_nr,
        delete_to=delete_to,
        created_ms=created,
        updated_ms=updated,
        expiry=None if on is None else Expiry(ExpireAfter(after), date.fromisoformat(on)),
        record_id=uuid_of(record_id),
        origin=origin,
        is_reset=bool(reset),
    )


def _event_columns(key: JournalKey, row: EventRow, segment_size: int) -> tuple[object, ...]:
    return (
        *key,
        event_segment(row.seq_nr, segment_size),
        row.seq_nr,
        row.timestamp_ms,
        *row.place,
        row.origin,
        row.version,
        uuid_text(row.record_id),
        row.event_id,
        tags_text(row.event.tags),
        encode_row_metadata(row.metadata),
        *payload_columns(row.event.payload),
        headers_text(row.headers),
    )


def _event_of(columns: tuple[Any, ...]) -> EventRow:
    (seq_nr, timestamp, partition, offset, origin, version, record_id, event_id, tags, metadata, *payload, headers) = (
        columns
    )
    return EventRow(
        event=Event(SeqNr(seq_nr), payload_of(PayloadColumns(*payload)), tags_of(tags)),
        timestamp_ms=timestamp,
        place=Place(partition, Offset(offset)),
        origin=origin,
        version=version,
        metadata=decode_row_metadata(metadata),
        headers=headers_of(headers),
        event_id=event_id,
        record_id=uuid_of(record_id),
    )


def _snapshot_of(columns: tuple[Any, ...]) -> SnapshotRow:
    record_id, seq_nr, partition, offset, timestamp, *payload, metadata = columns
    return SnapshotRow(
        seq_nr=seq_nr,
        record_id=life_of_key(UUID(record_id)),
        place=Place(partition, Offset(offset)),
        timestamp_ms=timestamp,
        payload=payload_of(PayloadColumns(*payload)),
        metadata=metadata,
    )
