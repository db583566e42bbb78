"""Which partition each row goes to: the one that it names, else that of its key, as Kafka's clients decide it.

Keys are hashed in columns, all of one length together; `client.wire.partitioner` says the same of each alone.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from exactlog.client.wire.partitioner import STICKY_BYTES
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline.record_rows import InvalidRowError, RecordRows, to_record_rows

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Int64s: TypeAlias = npt.NDArray[np.int64]
    Words: TypeAlias = npt.NDArray[np.uint32]

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_SHIFT: Final = 24
_SIGN_MASK: Final = 0x7FFFFFFF
_WORD_BYTES: Final = 4


class PartitionedRows:
    """Cuts the Arrow batches of one task along the partitions that their rows go to.

    Rows without a partition and a key stay together for a while, then move on to the next partition, from the one that
    `spread_from` names on, so that tasks begin at different ones.
    """

    def __init__(
        self, topic: str | None, partition_count: Callable[[str], int], *, spread_from: int, now_ms: Callable[[], int]
    ) -> None:
        """With `topic` None the column of that name says where a row goes."""
        self._topic = topic
        self._partition_count = partition_count
        self._spread_bytes = spread_from * STICKY_BYTES
        self._now_ms = now_ms
        self._counts: dict[str, int] = {}

    def cut(self, batch: "pa.RecordBatch") -> Iterator[tuple[TopicPartition, RecordRows]]:
        """The rows for each partition, in the order of the batch.

        Raises:
            InvalidRowError: a row that cannot be a record, names no topic, or a partition that its topic does not have.
            NotFoundError: a topic that does not exist.
        """
        import numpy as np  # noqa: PLC0415  of the extra `spark`

        if not batch.num_rows:
            return
        rows = to_record_rows(batch, now_ms=self._now_ms())
        named = batch.column("partition") if "partition" in batch.schema.names else None
        for topic, places in self._by_topic(batch):
            of_topic = rows if places is None else rows.take(places)
            of_named = named if named is None or places is None else named.take(places)
            partitions = self._partitions(topic, of_topic, of_named)
            first = int(partitions[0])
            if (partitions == first).all():
                yield TopicPartition(topic, first), of_topic
                continue
            order = np.argsort(partitions, kind="stable")
            found, starts = np.unique(partitions[order], return_index=True)
            ends = [*starts[1:].tolist(), len(order)]
            for partition, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
                yield TopicPartition(topic, partition), of_topic.take(order[start:end])

    def _by_topic(self, batch: "pa.RecordBatch") -> Iterator[tuple[str, "Int64s | None"]]:
        """Each topic with the places of its rows, None being all."""
        import numpy as np  # noqa: PLC0415  of the extra `spark`

        if self._topic is not None:
            yield self._topic, None
            return
        column = batch.column("topic")
        if column.null_count:
            raise InvalidRowError("a row has NULL for its topic", hint="name one in each row, or use the option topic")
        encoded = column.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            yield topic, np.flatnonzero(codes == code)

    def _partitions(self, topic: str, rows: RecordRows, named: "pa.Array | None") -> "Int64s":
        """The partition of each row."""
        import numpy as np  # noqa: PLC0415  of the extra `spark`

        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._partition_count(topic)
        if named is not None and not named.null_count:
            return self._checked(topic, named, count)
        chosen = self._of_keys(rows, count)
        if named is not None:
            has = np.flatnonzero(named.is_valid().to_numpy(zero_copy_only=False))
            chosen[has] = self._checked(topic, named.drop_null(), count)
        return chosen

    def _checked(self, topic: str, named: "pa.Array", count: int) -> "Int64s":
        import numpy as np  # noqa: PLC0415  of the extra `spark`

        partitions: Int64s = named.to_numpy(zero_copy_only=False).astype(np.int64)
        wrong = partitions[(partitions < 0) | (partitions >= count)]
        if len(wrong):
            raise InvalidRowError(
                f"a row names partition {wrong[0]} of topic {topic}, which has {count} partitions",
                hint="partitions are numbered from 0; where the column is NULL the key decides",
            )
        return partitions

    def _of_keys(self, rows: RecordRows, count: int) -> "Int64s":
        import numpy as np  # noqa: PLC0415  of the extra `spark`

        chosen = partitions_of_keys(rows.keys, partition_count=count)
        bare = np.flatnonzero(chosen < 0)
        if len(bare):
            ends = self._spread_bytes + np.cumsum(rows.sizes()[bare])
            chosen[bare] = (ends // STICKY_BYTES) % count
            self._spread_bytes = int(ends[-1])
        return chosen


def partitions_of_keys(keys: "pa.Array", *, partition_count: int) -> "Int64s":
    """The partition of every record with each of these keys; -1 where the key is NULL."""
    import numpy as np  # noqa: PLC0415  of the extra `spark`
    import pyarrow.compute as pc  # noqa: PLC0415  of the extra `spark`

    lengths = pc.binary_length(keys).fill_null(-1).to_numpy(zero_copy_only=False)
    chosen = np.full(len(keys), -1, dtype=np.int64)
    for length in np.unique(lengths[lengths >= 0]).tolist():
        places = np.flatnonzero(lengths == length)
        digests = _murmur2_of_one_length(keys.take(places), length)
        chosen[places] = (digests & np.uint32(_SIGN_MASK)).astype(np.int64) % partition_count
    return chosen


def _murmur2_of_one_length(keys: "pa.Array", length: int) -> "Words":
    """`murmur2` of each of these keys, none of them NULL, all so long."""
    import numpy as np  # noqa: PLC0415  of the extra `spark`

    count = len(keys)
    _, offsets, content = keys.buffers()
    begin = int(np.frombuffer(offsets, dtype=np.int32)[keys.offset])
    octets = np.frombuffer(content or b"", dtype=np.uint8)[begin : begin + count * length].reshape(count, length)
    multiplier = np.uint32(_MULTIPLIER)
    whole_bytes = length & ~(_WORD_BYTES - 1)
    words = np.ascontiguousarray(octets[:, :whole_bytes]).view("<u4")
    digests = np.full(count, (_SEED ^ length) & 0xFFFFFFFF, dtype=np.uint32)
    for column in range(whole_bytes // _WORD_BYTES):
        word = words[:, column] * multiplier
        word = (word ^ word >> np.uint32(_SHIFT)) * multiplier
        digests = digests * multiplier ^ word
    if whole_bytes < length:
        rest = np.zeros((count, _WORD_BYTES), dtype=np.uint8)
        rest[:, : length - whole_bytes] = octets[:, whole_bytes:]
        digests = (digests ^ rest.view("<u4")[:, 0]) * multiplier
    digests = (digests ^ digests >> np.uint32(13)) * multiplier
    found: Words = digests ^ digests >> np.uint32(15)
    return found
