"""Where a stream stands: what Spark keeps of it in a checkpoint, as JSON.

    {"v": 1,                                    of this layout
     "cluster": "c243f31eeaed44e1bebc65",       read from a broker: its cluster, where the broker tells
     "topics": {"orders": "86bb4d19-..."},      the ids of the topics: one that is made again is another one
     "partitions": {"orders": {"0": {
         "version": 12,                         read from a directory: the delta version that the position lies in
         "offset": 345,                         the next one to read, perhaps in the middle of that version
         "rows": 300,                           how many rows came before it: only where `row_seq` is read
         "from": 0}}},                          where the partition began: only in the batch in which it joined
     "initial": true}                           only before the first batch

Spark asks again where a stream begins until its first batch is done, and the answer may be another one by then (new
records came, old ones went). So that first batch keeps its own beginning, in `from`; so does that of a new partition.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.ids import TopicPartition

LAYOUT_VERSION: Final = 1
START_AGAIN: Final = "start with a new checkpoint location, and say in the options where"

_PARTITION_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")


class StreamOffsetError(ExactlogError):
    """An offset that no stream of this version, with these options, can have written."""

    code = "malformed-offset"


class OtherLogError(ExactlogError):
    """The checkpoint of a stream is of another log than the one that is read now."""

    code = "other-log"


class StreamRecordsRemovedError(ExactlogError):
    """Records that a stream has not read yet are gone."""

    code = "offset-out-of-range"


class StreamVersionExpiredError(ExactlogError):
    """Versions that a stream has not read yet have been vacuumed."""

    code = "version-expired"


class Position(msgspec.Struct, frozen=True):
    """Where a stream stands in one partition.

    Attributes:
        offset: the next one to read.
        version: the delta version that this lies in; None where a broker is read.
        rows: how many rows the stream has had of the partition; None where they are not counted.
    """

    offset: int
    version: int | None = None
    rows: int | None = None


class OffsetRange(msgspec.Struct, frozen=True):
    """What a micro-batch has of one partition: the offsets from `start` to below `end`; at least one.

    Attributes:
        start: the first offset.
        end: exclusive.
        start_version: the delta version that the start lies in; None where it is not known.
        first_row: `row_seq` of the first row; None where rows are not counted.
    """

    start: int
    end: int
    start_version: int | None
    first_row: int | None


class StreamOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stream stands in all its partitions.

    Attributes:
        positions: of each partition that has been there so far.
        begun: where those partitions began that joined with the batch that ends here.
        topic_ids: of their topics, where they are known.
        cluster_id: of the cluster, where a broker is read and tells it.
        is_initial: whether it is before the first batch.
    """

    positions: Mapping[TopicPartition, Position]
    begun: Mapping[TopicPartition, int] = {}
    topic_ids: Mapping[str, str] = {}
    cluster_id: str | None = None
    is_initial: bool = False

    def document(self) -> dict[str, object]:
        """What Spark keeps; the same offset is the same document, key by key."""
        partitions: dict[str, dict[str, dict[str, int]]] = {}
        for place, position in sorted(self.positions.items()):
            entry = {"version": position.version, "offset": position.offset, "rows": position.rows}
            entry["from"] = self.begun.get(place)
            known = {name: number for name, number in entry.items() if number is not None}
            partitions.setdefault(place.topic, {})[str(place.partition)] = known
        document: dict[str, object] = {"v": LAYOUT_VERSION}
        if self.cluster_id is not None:
            document["cluster"] = self.cluster_id
        document["topics"] = {topic: self.topic_ids[topic] for topic in partitions if topic in self.topic_ids}
        document["partitions"] = partitions
        if self.is_initial:
            document["initial"] = True
        return document

    def range_of(self, place: TopicPartition, start: "StreamOffset") -> OffsetRange | None:
        """What a batch from `start` to here has of a partition; None: nothing.

        Raises:
            StreamOffsetError: the partition goes back, or nobody knows where it began.
        """
        end = self.positions[place]
        position = start.positions.get(place)
        if position is not None and not start.is_initial:
            first, rows, version = position.offset, position.rows, position.version
        else:
            first = self.begun.get(place, end.offset if self.is_initial else -1)
            rows = None if end.rows is None else 0
            version = None if position is None else position.version
        if not 0 <= first <= end.offset:
            raise StreamOffsetError(
                f"the stream cannot go from offset {first} to {end.offset} in {_named(place)}", hint=START_AGAIN
            )
        return None if first == end.offset else OffsetRange(first, end.offset, version, rows)

    def ranges_from(self, start: "StreamOffset") -> dict[TopicPartition, OffsetRange]:
        """What a batch from `start` to here has of each partition, in order; those without anything are left out.

        Raises:
            StreamOffsetError: a partition goes back, or is not there any more.
        """
        gone = start.positions.keys() - self.positions.keys()
        if gone and not start.is_initial:  # else they joined since that batch was planned
            raise StreamOffsetError(f"the stream stood in {_named(min(gone))}, and now does not", hint=START_AGAIN)
        ranges = {place: self.range_of(place, start) for place in sorted(self.positions)}
        return {place: found for place, found in ranges.items() if found is not None}


class _Entry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    offset: int
    version: int | None = None
    rows: int | None = None
    begun: int | None = msgspec.field(default=None, name="from")


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    v: int
    partitions: dict[str, dict[str, _Entry]]
    topics: dict[str, str] = {}
    cluster: str | None = None
    initial: bool = False


def parse_offset(document: object) -> StreamOffset:
    """The offset that Spark kept, as it comes out of its JSON.

    Raises:
        StreamOffsetError: it is not one, or one of a later layout.
    """
    version = document.get("v") if isinstance(document, dict) else None
    if isinstance(version, int) and version > LAYOUT_VERSION:
        raise StreamOffsetError(
            f"the checkpoint has offsets of layout {version}, this version knows {LAYOUT_VERSION}",
            hint="use the version of exactlog that wrote it, or a later one",
        )
    try:
        read = msgspec.convert(document, _Document)
    except msgspec.ValidationError as error:
        raise _malformed(str(error)) from error
    if read.v != LAYOUT_VERSION:
        raise _malformed(f"there is no layout {read.v}")
    positions, begun = {}, {}
    for topic, partitions in read.partitions.items():
        for number, entry in partitions.items():
            if not _PARTITION_NUMBER.fullmatch(number):
                raise _malformed(f"{number!r} of topic {topic} is not the number of a partition")
            place = TopicPartition(topic, int(number))
            numbers = (entry.offset, entry.version, entry.rows, entry.begun)
            if any(number is not None and number < 0 for number in numbers):
                raise _malformed(f"a number of {_named(place)} is negative")
            positions[place] = Position(entry.offset, entry.version, entry.rows)
            if entry.begun is not None:
                begun[place] = entry.begun
    if read.topics.keys() - read.partitions.keys():
        raise _malformed("a topic has an id, and no partition")
    return StreamOffset(
        positions=positions, begun=begun, topic_ids=read.topics, cluster_id=read.cluster, is_initial=read.initial
    )


def check_same_log(
    offset: StreamOffset, *, cluster_id: str | None, topic_ids: Mapping[str, str], is_path: bool
) -> None:
    """Whether an offset is of the log that is read now.

    Args:
        offset: as it was kept.
        cluster_id: of the cluster that is read now; None where it is not known.
        topic_ids: of the topics there are now.
        is_path: whether a directory is read now.

    Raises:
        OtherLogError: another cluster, a directory in place of a broker or the reverse, or a topic that was made again.
    """
    if offset.cluster_id is not None and cluster_id is not None and offset.cluster_id != cluster_id:
        raise OtherLogError(
            f"the checkpoint is of a stream from cluster {offset.cluster_id}, and this one reads cluster {cluster_id}",
            hint=f"name the broker that it was of, or {START_AGAIN}",
        )
    for place, position in sorted(offset.positions.items()):
        if (position.version is not None) is not is_path:
            was, now = ("a broker", "a directory") if is_path else ("a directory", "a broker")
            raise OtherLogError(
                f"the checkpoint is of a stream from {was}, and this one reads {now}",
                hint=f"read {was} again, or {START_AGAIN}",
            )
        now_id, kept_id = topic_ids.get(place.topic), offset.topic_ids.get(place.topic)
        if now_id is not None and kept_id is not None and now_id != kept_id:
            raise OtherLogError(
                f"topic {place.topic} is not the one that the stream was reading: it was deleted and made again, or "
                f"belongs to another log; partition {place.partition} had been read up to {told(position)}",
                hint=START_AGAIN,
            )


def told(position: Position) -> str:
    """A position in words."""
    return f"offset {position.offset}" + ("" if position.version is None else f" of version {position.version}")


def _named(place: TopicPartition) -> str:
    return f"topic {place.topic}, partition {place.partition}"


def _malformed(reason: str) -> StreamOffsetError:
    return StreamOffsetError(
        f"the checkpoint has an offset that is not one of an exactlog stream: {reason}",
        hint=f"use the checkpoint with the source that wrote it, or {START_AGAIN}",
    )
