"""How many records a partition holds, and what became of their transactions: counted where the log is read.

Below the last stable offset all is decided, so committed records are those that a reader of committed records counts,
and the others were aborted; a range of it can be counted in pieces. Behind it a transaction is open at least; there one
task goes over the batches in order, and the next marker of a producer tells what became of its records before it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.model.errors import DamageError, DecodeError
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.core.record.batch_format import BATCH_OVERHEAD, LENGTH_OVERHEAD
from exactlog.core.record.control_record_format import decode_marker
from exactlog.core.record.record_format import decode_records
from exactlog.pipeline.errors import hints_kept
from exactlog.pipeline.open_source import open_source
from exactlog.pipeline.read_options import ReadOptions
from exactlog.pipeline.source import Slice, VisibleBatch

if TYPE_CHECKING:
    import pyarrow as pa

COUNTS: Final = ("committed", "waiting", "aborted", "open", "markers")
COUNTS_DDL: Final = "topic string, partition int, " + ", ".join(f"{name} bigint" for name in COUNTS)

_WITHOUT_RECORDS: Final = ("offset",)


class CountedSlice(Struct, frozen=True):
    """A piece of a partition that one task counts.

    Attributes:
        piece: what it is.
        is_decided: whether it lies below the last stable offset.
    """

    piece: Slice
    is_decided: bool


def count_slices(
    indexes: "Iterable[pa.RecordBatch]", *, counted: Sequence[CountedSlice], options: ReadOptions
) -> "Iterator[pa.RecordBatch]":
    """What the slices with these indexes hold, as `COUNTS_DDL`. For `mapInArrow`."""
    import pyarrow as pa  # noqa: PLC0415  an extra

    for index in (number.as_py() for batch in indexes for number in batch.column(0)):
        found = counted[index]
        with hints_kept():
            counts = count_decided(found.piece, options) if found.is_decided else count_undecided(found.piece, options)
        row = {"topic": found.piece.topic, "partition": found.piece.partition} | {name: counts[name] for name in COUNTS}
        types = [("topic", pa.string()), ("partition", pa.int32()), *((name, pa.int64()) for name in COUNTS)]
        yield pa.RecordBatch.from_pylist([row], schema=pa.schema(types))


def count_decided(piece: Slice, options: ReadOptions) -> Counter[str]:
    """The records of a piece that lies below the last stable offset.

    Raises:
        ExactlogError: as a source does.
    """
    committed = _count(piece, _seen(options, IsolationLevel.READ_COMMITTED))
    everything = _seen(options, IsolationLevel.READ_UNCOMMITTED, include_control=True)
    if options.path is None:  # a broker sends all of it for each count: once is enough
        with closing(open_source(everything)) as source:
            sizes = Counter({True: 0, False: 0})
            for batch in source.batches(piece):
                sizes[batch.header.is_control] += _records_in(batch)
        markers, records = sizes[True], sizes[False]
    else:
        records = _count(piece, _seen(options, IsolationLevel.READ_UNCOMMITTED))
        markers = _count(piece, everything) - records
    return Counter(committed=committed, aborted=records - committed, markers=markers)


def count_undecided(piece: Slice, options: ReadOptions) -> Counter[str]:
    """The records from the last stable offset on; those that are committed wait for what is open before them.

    Raises:
        ExactlogError: as a source does.
    """
    seen = _seen(options, IsolationLevel.READ_UNCOMMITTED, include_control=True)
    counts: Counter[str] = Counter()
    pending: Counter[int] = Counter()
    with closing(open_source(seen)) as source:
        for batch in source.batches(piece):
            header = batch.header
            if header.is_control:
                counts["markers"] += header.record_count
                is_commit = _is_commit(batch)
                if is_commit is not None:
                    counts["waiting" if is_commit else "aborted"] += pending.pop(header.producer_id, 0)
            elif header.is_transactional:
                pending[header.producer_id] += _records_in(batch)
            else:
                counts["waiting"] += _records_in(batch)
    counts["open"] = pending.total()
    counts["committed"] = counts["waiting"]
    return counts


def _seen(options: ReadOptions, isolation: IsolationLevel, *, include_control: bool = False) -> ReadOptions:
    return replace(options, isolation=isolation, include_control=include_control)


def _count(piece: Slice, options: ReadOptions) -> int:
    with closing(open_source(options, _WITHOUT_RECORDS)) as source:
        return source.count_rows(piece)


def _is_commit(batch: VisibleBatch) -> bool | None:
    """What a control batch says of the transaction of its producer; None: nothing."""
    try:
        records = list(decode_records(bytes(BATCH_OVERHEAD) + batch.records, header=batch.header))
        marker = decode_marker(records[0]) if records else None
    except DecodeError as error:
        raise DamageError(f"the control batch at offset {batch.header.base_offset} is malformed: {error}") from error
    return None if marker is None else marker.is_commit


def _records_in(batch: VisibleBatch) -> int:
    """How many records of it are seen; those of a batch that a slice cuts are looked at."""
    header = batch.header
    if batch.start_offset <= header.base_offset and header.last_offset < batch.end_offset:
        return header.record_count
    content = bytes(BATCH_OVERHEAD) + batch.records
    plain = replace(header, attributes=0, batch_length=len(content) - LENGTH_OVERHEAD)
    found = decode_records(content, header=plain)
    return sum(batch.start_offset <= record.offset < batch.end_offset for record in found)
