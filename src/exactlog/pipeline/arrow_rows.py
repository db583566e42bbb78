"""Batches of the log into record batches of Arrow, as Spark takes them: only the columns that are wanted.

What a batch's header says is repeated for its records; the records are decoded only for what they alone hold. Several
batches are gathered into one record batch of Arrow, so that small ones do not cost a hand-over each, and large ones
are handed over in parts.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from exactlog.core.model.errors import InvariantError
from exactlog.pipeline.header_columns import header_column, row_sequences
from exactlog.pipeline.record_columns import DecodedRecords, GatheredBatch, decode_gathered, locate_by_headers
from exactlog.pipeline.schema import COLUMNS
from exactlog.pipeline.source import Slice, Source, VisibleBatch

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX: Final = 10_000
"""How many rows a record batch of Arrow has at most."""
GATHERED_BYTES_MAX: Final = 8 * 1024 * 1024
"""How many bytes of records, or one batch more, are gathered before they are handed over: bounds a worker's memory."""

_IN_RECORDS: Final = frozenset(column.name for column in COLUMNS if column.is_in_records)


def read_rows(source: Source, pieces: Sequence[Slice], schema: "pa.Schema") -> "Iterator[pa.RecordBatch]":
    """The rows of some pieces, one after the other, as record batches of Arrow; none of them is empty.

    Args:
        source: where to read them.
        pieces: what to read; with `first_row` where the schema has `row_seq`.
        schema: of the record batches, as `schema.arrow_schema` gives it.

    Raises:
        ExactlogError: as the source; the records of a batch are malformed: names topic, partition, offset and version.
    """
    rows = ArrowRows(schema)
    for piece in pieces:
        for batch in source.batches(piece):
            rows.add(piece, batch)
            if rows.is_full:
                yield from rows.take()
    yield from rows.take()


class ArrowRows:
    """Gathers batches until they are enough for a record batch of Arrow.

    Args:
        schema: the wanted columns, as `schema.arrow_schema` gives them.
    """

    def __init__(self, schema: "pa.Schema") -> None:
        self._schema = schema
        self._needs_records = not _IN_RECORDS.isdisjoint(schema.names)
        self._gathered: list[GatheredBatch] = []
        self._row_count = 0
        self._byte_count = 0
        self._row_piece: Slice | None = None  # the piece that `_next_row` counts in
        self._next_row = 0

    @property
    def is_full(self) -> bool:
        """Whether enough is gathered."""
        return self._row_count >= ROWS_MAX or self._byte_count >= GATHERED_BYTES_MAX

    def add(self, piece: Slice, batch: VisibleBatch) -> None:
        """Gathers one more batch, which was read for a piece; batches of a piece in order, and one piece at a time."""
        self._gathered.append(GatheredBatch(piece, batch))
        self._row_count += batch.header.record_count
        self._byte_count += len(batch.records)

    def take(self) -> "Iterator[pa.RecordBatch]":
        """What is gathered, as record batches of at most `ROWS_MAX` rows.

        Raises:
            DamageError: records are malformed; names topic, partition, offset and version.
        """
        import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

        gathered, self._gathered = self._gathered, []
        self._row_count = self._byte_count = 0
        if not gathered:
            return
        decode = decode_gathered if self._needs_records else locate_by_headers
        decoded = decode(gathered, self._schema)
        row_count = len(decoded.offset_delta)
        if row_count:
            arrays = [self._column(name, gathered, decoded) for name in self._schema.names]
            rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            for start in range(0, row_count, ROWS_MAX):
                yield rows.slice(start, ROWS_MAX)

    def _column(self, name: str, gathered: Sequence[GatheredBatch], decoded: DecodedRecords) -> "pa.Array":
        if name in decoded.columns:
            return decoded.columns[name]
        if name == "row_seq":
            return row_sequences(self._first_rows(gathered, decoded.counts.tolist()), decoded)
        return header_column(name, gathered, decoded)

    def _first_rows(self, gathered: Sequence[GatheredBatch], counts: Sequence[int]) -> list[int]:
        """The `row_seq` of the first row of each batch; counts on."""
        first_rows = []
        for (piece, _), count in zip(gathered, counts, strict=True):
            if piece is not self._row_piece:
                if piece.first_row is None:
                    raise InvariantError(f"row_seq is wanted, and no first row is known of {piece}")
                self._row_piece, self._next_row = piece, piece.first_row
            first_rows.append(self._next_row)
            self._next_row += count
        return first_rows
