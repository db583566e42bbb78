"""Which sequences the entries of a write get: the writes of a group in turn, each of them whole or refused."""

from collections.abc import Sequence

from msgspec import Struct

from exactlog.core.wal.errors import EmptyBatchError, EntryTooLargeError, SequenceConflictError, WalError
from exactlog.core.wal.limits import ENTRY_BYTES_MAX
from exactlog.core.wal.log_entry_format import LogKey, encode_log_key, encode_log_value
from exactlog.core.wal.region_meta import RegionMeta


class WriteBatch(Struct, frozen=True):
    """Entries that are written together.

    Attributes:
        tables: payloads by table, in order.
        expected_last: what the last sequence of the one table has to be; None: whatever it is.
    """

    tables: tuple[tuple[int, tuple[bytes, ...]], ...]
    expected_last: int | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes of all payloads."""
        return sum(len(payload) for _, payloads in self.tables for payload in payloads)


class AssignedGroup(Struct, frozen=True):
    """A group of writes, ready to be appended.

    Attributes:
        results: for each write the last sequence of each of its tables, or why it is refused.
        keys: which entry each record is, in order.
        records: key and value of each.
    """

    results: tuple[dict[int, int] | WalError, ...]
    keys: tuple[LogKey, ...]
    records: tuple[tuple[bytes, bytes], ...]


def check_batch(region: int, batch: WriteBatch) -> None:
    """Refuse what no state of the region could take.

    Raises:
        EmptyBatchError: there is no entry, or none for one of the tables.
        EntryTooLargeError: a payload is above the limit.
    """
    if not batch.tables:
        raise EmptyBatchError(f"region {region}: a write without an entry", region=region)
    for table, payloads in batch.tables:
        if not payloads:
            raise EmptyBatchError(
                f"region {region}, table {table}: a write without an entry", region=region, table=table
            )
        largest = max(map(len, payloads))
        if largest > ENTRY_BYTES_MAX:
            raise EntryTooLargeError(
                f"region {region}, table {table}: an entry of {largest} bytes; {ENTRY_BYTES_MAX} is the limit",
                region=region,
                table=table,
                hint="write it as several entries",
            )


def assign_sequences(meta: RegionMeta, group: Sequence[WriteBatch]) -> AssignedGroup:
    """The sequences of a group of writes, from the next ones of their tables on. The region stays as it is."""
    results: list[dict[int, int] | WalError] = []
    keys: list[LogKey] = []
    records: list[tuple[bytes, bytes]] = []
    next_of: dict[int, int] = {}
    for batch in group:
        refused = _refusal(meta, batch, next_of)
        if refused is not None:
            results.append(refused)
            continue
        last: dict[int, int] = {}
        for table, payloads in batch.tables:
            first = _next_of(meta, next_of, table)
            for sequence, payload in enumerate(payloads, start=first):
                key = LogKey(meta.region, table, sequence)
                keys.append(key)
                records.append((encode_log_key(key), encode_log_value(payload)))
            next_of[table] = first + len(payloads)
            last[table] = next_of[table] - 1
        results.append(last)
    return AssignedGroup(tuple(results), tuple(keys), tuple(records))


def _next_of(meta: RegionMeta, next_of: dict[int, int], table: int) -> int:
    known = meta.tables.get(table)
    return next_of.get(table, 1 if known is None else known.next_seq_num)


def _refusal(meta: RegionMeta, batch: WriteBatch, next_of: dict[int, int]) -> WalError | None:
    for table, _ in batch.tables:
        known = meta.tables.get(table)
        if known is not None and known.is_dropped:
            return known.dropped_error(region=meta.region)
        last = _next_of(meta, next_of, table) - 1
        if batch.expected_last is not None and batch.expected_last != last:
            return SequenceConflictError(
                f"region {meta.region}, table {table}: the last sequence is {last}, not {batch.expected_last}",
                region=meta.region,
                table=table,
                sequence=last,
                hint="somebody has written meanwhile, or this very write came through before: read from there",
            )
    return None
