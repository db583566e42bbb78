"""What a coordinator has decided, as records on their way into its log."""

from collections.abc import Iterable, Iterator
from typing import Final

from exactlog.core.model.decisions import CoordinatorRecord
from exactlog.core.model.ids import TimestampMs
from exactlog.core.record.batch_builder import NewRecord

_BATCH_RECORDS: Final = 5_000  # about half a megabyte: no batch of a rewrite is too large for a reader


class DecidedRecord(NewRecord, frozen=True, kw_only=True):
    """A record, and what was decided that it says."""

    decided: CoordinatorRecord


def encode_records(records: Iterable[CoordinatorRecord], *, now_ms: TimestampMs) -> list[DecidedRecord]:
    """The records of a decision.

    Raises:
        EncodeError: one of them cannot be written down.
    """
    return [
        DecidedRecord(record.encode_value(), record.encode_key(), timestamp_ms=now_ms, decided=record)
        for record in records
    ]


def newest_of_each(records: Iterable[DecidedRecord]) -> list[DecidedRecord]:
    """The last record of each key, in the order in which the keys came first."""
    return list({record.key: record for record in records}.values())


def batches_of(records: list[DecidedRecord]) -> Iterator[list[DecidedRecord]]:
    """The records of a rewrite, in parts."""
    for at in range(0, len(records), _BATCH_RECORDS):
        yield records[at : at + _BATCH_RECORDS]
