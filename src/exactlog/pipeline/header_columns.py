"""The columns that are the same for all records of a batch, or follow from its header and a record's place in it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from exactlog.core.model.ids import NO_PRODUCER_ID, NO_SEQUENCE
from exactlog.core.model.sequences import SEQUENCE_MAX
from exactlog.pipeline.record_columns import DecodedRecords, GatheredBatch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Int64s: TypeAlias = npt.NDArray[np.int64]

T = TypeVar("T")


def header_column(name: str, gathered: Sequence[GatheredBatch], decoded: DecodedRecords) -> "pa.Array":
    """One of the columns that need no record, `row_seq` apart."""
    if name == "offset":
        return _offsets(gathered, decoded)
    if name == "sequence":
        return _sequences(gathered, decoded)
    type_name, value_of = _OF_BATCHES[name]
    return _repeated(gathered, decoded, value_of, type_name)


def row_sequences(first_rows: Sequence[int], decoded: DecodedRecords) -> "pa.Array":
    """`row_seq`, where the first row of each batch has these."""
    import numpy as np  # noqa: PLC0415  of the extra `spark`
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

    counts = decoded.counts
    starts = np.cumsum(counts) - counts
    return pa.array(np.arange(int(counts.sum())) + np.repeat(np.array(first_rows) - starts, counts))


def _repeated(
    gathered: Sequence[GatheredBatch],
    decoded: DecodedRecords,
    value_of: Callable[[GatheredBatch], object],
    type_name: str,
) -> "pa.Array":
    """What each batch has, for each of its records."""
    import numpy as np  # noqa: PLC0415  of the extra `spark`
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

    values = [value_of(one) for one in gathered]
    arrow_type = pa.type_for_alias(type_name)
    if values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], type=arrow_type), len(decoded.offset_delta))
    of_batches = pa.array(values, type=arrow_type)
    return of_batches.take(pa.array(np.repeat(np.arange(len(values)), decoded.counts)))


def _offsets(gathered: Sequence[GatheredBatch], decoded: DecodedRecords) -> "pa.Array":
    import numpy as np  # noqa: PLC0415  of the extra `spark`
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

    base = np.array([one.batch.header.base_offset for one in gathered], dtype=np.int64)
    return pa.array(decoded.offset_delta + np.repeat(base, decoded.counts))


def _sequences(gathered: Sequence[GatheredBatch], decoded: DecodedRecords) -> "pa.Array":
    """Of the producer, wrapped at 2^31; NULL where the batch has none."""
    import numpy as np  # noqa: PLC0415  of the extra `spark`
    import pyarrow as pa  # noqa: PLC0415  of the extra `spark`

    of_batches = [NO_SEQUENCE if _of_producer(one, 0) is None else one.batch.header.base_sequence for one in gathered]
    base = np.repeat(np.array(of_batches, dtype=np.int64), decoded.counts)
    sequences = ((base + decoded.offset_delta) & SEQUENCE_MAX).astype(np.int32)
    return pa.array(sequences, mask=base == NO_SEQUENCE)


def _of_producer(one: GatheredBatch, value: T) -> T | None:
    return None if one.batch.header.producer_id == NO_PRODUCER_ID else value


def _timestamp_type(one: GatheredBatch) -> str:
    return "LogAppendTime" if one.batch.header.is_log_append_time else "CreateTime"


_OF_BATCHES: Final[Mapping[str, tuple[str, Callable[[GatheredBatch], object]]]] = {
    "topic": ("string", lambda one: one.piece.topic),
    "partition": ("int32", lambda one: one.piece.partition),
    "timestamp_type": ("string", _timestamp_type),
    "producer_id": ("int64", lambda one: _of_producer(one, one.batch.header.producer_id)),
    "producer_epoch": ("int32", lambda one: _of_producer(one, one.batch.header.producer_epoch)),
    "transactional": ("bool", lambda one: one.batch.header.is_transactional),
    "control": ("bool", lambda one: one.batch.header.is_control),
    "delta_version": ("int64", lambda one: one.batch.delta_version),
    "origin_id": ("string", lambda one: one.batch.origin_id),
}
"""What all records of a batch have in common: the type in Arrow, and how it is found."""
