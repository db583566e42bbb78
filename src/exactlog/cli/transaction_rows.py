"""Transactions as rows: for programs milliseconds, for people what a clock and a calendar say."""

import time
from collections.abc import Collection
from typing import Final

from exactlog.cli.durations import format_duration
from exactlog.cli.output import Row
from exactlog.client.ports import Client
from exactlog.client.transactions import TransactionDescription
from exactlog.core.deltalog.timestamps import TIMESTAMP_MS_MAX, format_timestamp
from exactlog.core.model.ids import TimestampMs

LIST_COLUMNS: Final = (
    "transactional_id",
    "state",
    "producer_id",
    "producer_epoch",
    "open_for",
    "time_left",
    "partitions",
    "coordinator",
)

_TIMES: Final = ("started_at", "last_timestamp")


async def list_transactions(
    client: Client,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    open_for_ms_min: int | None = None,
    id_pattern: str | None = None,
) -> list[TransactionDescription]:
    """The transactional ids that pass the filters, as their coordinators describe them."""
    listings = await client.list_transactions(
        states=states, producer_ids=producer_ids, open_for_ms_min=open_for_ms_min, id_pattern=id_pattern
    )
    described = await client.describe_transactions([listing.transactional_id for listing in listings])
    return list(described.values())


def transaction_row(description: TransactionDescription, *, now_ms: TimestampMs) -> Row:
    """The transaction as a row; times only while it is open."""
    started_at_ms = description.started_at_ms if description.is_open else None
    open_for_ms = None if started_at_ms is None else max(0, now_ms - started_at_ms)
    return {
        "transactional_id": description.transactional_id,
        "state": description.state,
        "producer_id": description.producer_id,
        "producer_epoch": description.producer_epoch,
        "coordinator": description.coordinator,
        "timeout_ms": description.timeout_ms,
        "started_at": started_at_ms,
        "open_for_ms": open_for_ms,
        "partitions": [{"topic": place.topic, "partition": place.partition} for place in description.partitions],
    }


def shown_transaction(row: Row) -> Row:
    """The row of a transaction for people: how long it is open and has left, and how many partitions wait."""
    open_for_ms, timeout_ms, partitions = row["open_for_ms"], row["timeout_ms"], row["partitions"]
    assert isinstance(timeout_ms, int), "every transactional id has a timeout"
    shown = dict(shown_times(row))
    del shown["open_for_ms"], shown["timeout_ms"]
    shown["timeout"] = format_duration(timeout_ms)
    shown["open_for"] = format_duration(open_for_ms) if isinstance(open_for_ms, int) else None
    shown["time_left"] = format_duration(timeout_ms - open_for_ms) if isinstance(open_for_ms, int) else None
    shown["partitions"] = len(partitions) if isinstance(partitions, list) else partitions
    return shown


def shown_times(row: Row) -> Row:
    """The row for people: points in time as they write them."""
    return {name: _shown_time(value) if name in _TIMES else value for name, value in row.items()}


def now_ms() -> TimestampMs:
    """What time it is."""
    return TimestampMs(time.time_ns() // 1_000_000)


def _shown_time(value: object) -> object:
    if not isinstance(value, int) or not 0 <= value <= TIMESTAMP_MS_MAX:
        return value
    return format_timestamp(TimestampMs(value))
