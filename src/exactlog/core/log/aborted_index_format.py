"""The aborted transactions of a segment: `.txnindex`, rows of 34 bytes, big-endian, as Kafka's (version 0).

    0   2  version: 0
    2   8  producer id
    10  8  first offset: of the transaction
    18  8  last offset: of its abort marker
    26  8  last stable offset: after that marker

Rows stand in the order of their markers, in the file of the segment that holds the marker. A sealed one ends with the
trailer of the other indexes (`index_format`). Layout: docs/formats/aborted_index_format.md.
"""

import struct
from itertools import pairwise
from typing import Final

import msgspec

from exactlog.core.log.index_format import ReadRow, count_rows
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import Offset, ProducerId

ABORTED_INDEX_ROW_SIZE: Final = 34

_VERSION: Final = 0
_ROW: Final = struct.Struct(">hqqqq")


class AbortedTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that was aborted.

    Attributes:
        producer_id: whose it was.
        first_offset: of its first record in this partition.
        last_offset: of its abort marker.
        last_stable_offset: of the partition once that marker was written.
    """

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class AbortedInRange(msgspec.Struct, frozen=True):
    """The aborted transactions of a range of offsets that a segment knows of.

    Attributes:
        transactions: in the order of their markers.
        is_complete: no later segment knows of another one that reaches into the range.
    """

    transactions: tuple[AbortedTransaction, ...]
    is_complete: bool


def encode_aborted_transaction(aborted: AbortedTransaction) -> bytes:
    """The row of an aborted transaction."""
    return _ROW.pack(
        _VERSION, aborted.producer_id, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset
    )


def decode_aborted_transaction(row: bytes) -> AbortedTransaction:
    """The aborted transaction of a row.

    Raises:
        DamageError: the row is cut short, of another version, or its offsets contradict each other.
    """
    if len(row) != ABORTED_INDEX_ROW_SIZE:
        raise DamageError(f"a row of an aborted transaction has {ABORTED_INDEX_ROW_SIZE} bytes, not {len(row)}")
    version, producer_id, first_offset, last_offset, last_stable_offset = _ROW.unpack(row)
    if version != _VERSION:
        raise DamageError(f"a row of an aborted transaction has version {version}; this exactlog reads {_VERSION}")
    if not 0 <= first_offset <= last_offset or producer_id < 0 or last_stable_offset < 0:
        raise DamageError(
            f"a row of an aborted transaction says producer {producer_id}, offsets {first_offset} to {last_offset}, "
            f"last stable offset {last_stable_offset}"
        )
    return AbortedTransaction(
        producer_id=ProducerId(producer_id),
        first_offset=Offset(first_offset),
        last_offset=Offset(last_offset),
        last_stable_offset=Offset(last_stable_offset),
    )


def decode_aborted_transactions(rows: bytes) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions of all rows, in the order of their markers.

    Raises:
        DamageError: a row is damaged, the last one cut short, or the markers are not in rising order.
    """
    found = tuple(
        decode_aborted_transaction(rows[start : start + ABORTED_INDEX_ROW_SIZE])
        for start in range(0, len(rows), ABORTED_INDEX_ROW_SIZE)
    )
    if any(later.last_offset <= earlier.last_offset for earlier, later in pairwise(found)):
        raise DamageError("the rows of aborted transactions are not in the order of their markers")
    return found


def find_aborted_in_range(
    read_row: ReadRow, *, row_count: int, start_offset: Offset, end_offset: Offset
) -> AbortedInRange:
    """The aborted transactions that reach into a range of offsets, from the rows of one segment.

    A reader goes on with the next segment until the answer is complete: a transaction's marker may stand much later
    than its records. As Kafka's `TransactionIndex.collectAbortedTxns`.

    Args:
        read_row: reads a row.
        row_count: how many there are.
        start_offset: the first offset of the range.
        end_offset: its exclusive end.

    Raises:
        DamageError: a row that was read is damaged.
    """
    skipped = count_rows(
        read_row,
        row_count=row_count,
        belongs=lambda row: decode_aborted_transaction(row).last_offset < start_offset,
    )
    found = []
    for row in range(skipped, row_count):
        aborted = decode_aborted_transaction(read_row(row))
        if aborted.first_offset < end_offset:
            found.append(aborted)
        if aborted.last_stable_offset >= end_offset:
            return AbortedInRange(tuple(found), is_complete=True)
    return AbortedInRange(tuple(found), is_complete=False)
