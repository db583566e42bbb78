"""What the journal replicator keeps beside Spark's own files in its checkpoint, and what it reads of these.

Spark writes, of each micro-batch, where it ends (`offsets/N`) before it begins, and that it is done (`commits/N`)
after. From the first the replicator learns which offsets a batch is about: transactions leave offsets without rows, and
the pointer of a store passes them too.

What Spark does not keep stands in `exactlog-journal.json`, so that the job knows its checkpoint again, whichever
version of it wrote that:

    {"v": 1, "job": "replicate-journal",
     "source": "broker",                                     path, broker, or kafka for Spark's own source
     "topics": {"orders": {"id": "86bb4d19-...", "partitions": 3}}}
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.journal.errors import Repartitioned
from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline.stream_offsets import OtherLogError, parse_offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB: Final = "replicate-journal"
LAYOUT_VERSION: Final = 1
PAGE_NAME: Final = "exactlog-journal.json"
KAFKA_SOURCE: Final = "kafka"
START_AGAIN: Final = "name another directory with the checkpoint: the job goes on where the store is"

_OFFSETS, _COMMITS = "offsets", "commits"
_HAS_SCHEME: Final = re.compile(r"[a-zA-Z][\w+.-]*:/")


class OtherQueryError(ExactlogError):
    """A checkpoint is of another query, of another source, or of a later version of the job."""

    code = "other-query"


class TopicIdentity(Struct, frozen=True):
    """Which topic it is: another one of the same name has another id.

    Attributes:
        id: None where nobody tells.
        partitions: how many it has.
    """

    id: str | None
    partitions: int


class _Page(Struct, kw_only=True):
    v: int = LAYOUT_VERSION
    job: str = JOB
    source: str
    topics: dict[str, TopicIdentity] = {}


class JournalCheckpoint:
    """The checkpoint of a query, on any file system that Spark knows.

    Args:
        spark: a session.
        location: the directory; without a scheme it is one of this machine.
        source: what is read: path, broker or kafka.

    Attributes:
        location: as Spark is to be told it.
    """

    def __init__(self, spark: "SparkSession", location: str | Path, *, source: str) -> None:
        text = str(location)
        self.location = text if _HAS_SCHEME.match(text) else Path(text).absolute().as_uri()
        self._source = source
        self._page = _Page(source=source)
        jvm: Any = spark._jvm  # noqa: SLF001  Spark's files are written by what Spark writes its own with
        self._path = jvm.org.apache.hadoop.fs.Path
        configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        files = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        self._files = files.create(self._path(self.location), configuration)

    def open(self) -> None:
        """Read the page, or begin a new checkpoint.

        Raises:
            OtherQueryError: another query has used the directory.
        """
        text = self._read(PAGE_NAME)
        if text is None:
            if self._numbers_in(_OFFSETS):
                raise OtherQueryError(f"{self.location} is the checkpoint of another query", hint=START_AGAIN)
            self._write_page()
            return
        try:
            page = msgspec.json.decode(text, type=_Page)
        except msgspec.DecodeError as error:
            raise OtherQueryError(
                f"{self.location}/{PAGE_NAME} is not a page of this job: {error}", hint=START_AGAIN
            ) from None
        if page.v > LAYOUT_VERSION:
            raise OtherQueryError(
                f"{self.location} was written by a later version of exactlog (layout {page.v}, known {LAYOUT_VERSION})",
                hint="use that version, or a later one",
            )
        if (page.job, page.source) != (JOB, self._source):
            raise OtherQueryError(
                f"{self.location} is the checkpoint of {page.job} from {_SOURCES.get(page.source, page.source)}, "
                f"not of {JOB} from {_SOURCES.get(self._source, self._source)}",
                hint=START_AGAIN,
            )
        self._page = page

    def check(self, found: Mapping[str, TopicIdentity]) -> None:
        """Raise where a topic is not what it was.

        Raises:
            OtherLogError: it was deleted and made again, or belongs to another log.
            Repartitioned: it has another number of partitions.
        """
        for name, known in self._page.topics.items():
            now = found.get(name)
            if now is None:
                continue
            if now.id is not None and known.id is not None and now.id != known.id:
                raise OtherLogError(
                    f"topic {name} is not the one that was replicated: it was deleted and made again, or belongs to "
                    "another log",
                    hint="replicate it into another store, or under another name, with a new checkpoint",
                )
            if now.partitions != known.partitions:
                raise Repartitioned(
                    f"topic {name} had {known.partitions} partitions and now has {now.partitions}",
                    hint="its journals would be looked for where they are not: copy the topic into one of the new "
                    "number",
                )

    def note(self, found: Mapping[str, TopicIdentity]) -> None:
        """Keep in mind which topics these are, before anything of them is in the store."""
        new = {name: identity for name, identity in found.items() if name not in self._page.topics}
        if new:
            self._page = replace(self._page, topics={**self._page.topics, **new})
            self._write_page()

    # --- Spark's files ------------------------------------------------------------------------------------------------

    def committed(self) -> dict[TopicPartition, int]:
        """Where the last micro-batch ends that is done: the next offset of each partition."""
        done = self._numbers_in(_COMMITS)
        return self.ends_of(max(done)) if done else {}

    def ends_of(self, batch_id: int) -> dict[TopicPartition, int]:
        """Where a micro-batch ends that has begun: the next offset of each partition.

        Raises:
            OtherQueryError: Spark has written no such batch, or one of another source.
        """
        text = self._read(f"{_OFFSETS}/{batch_id}")
        if text is None:
            raise OtherQueryError(f"{self.location} has no micro-batch {batch_id}", hint=START_AGAIN)
        of_source = text.rstrip("\n").rpartition("\n")[2]
        try:
            if self._source == KAFKA_SOURCE:
                decoded = msgspec.json.decode(of_source, type=dict[str, dict[int, int]])
                return {TopicPartition(topic, at): end for topic, ends in decoded.items() for at, end in ends.items()}
            offset = parse_offset(msgspec.json.decode(of_source))
        except msgspec.DecodeError as error:
            raise OtherQueryError(
                f"micro-batch {batch_id} of {self.location} is of another source: {error}", hint=START_AGAIN
            ) from None
        return {place: position.offset for place, position in offset.positions.items()}

    # ------------------------------------------------------------------------------------------------------------------

    def _at(self, name: str) -> Any:  # noqa: ANN401  an object of Java
        return self._path(f"{self.location}/{name}")

    def _read(self, name: str) -> str | None:
        if not self._files.exists(self._at(name)):
            return None
        stream = self._files.open(self._at(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def _numbers_in(self, name: str) -> list[int]:
        if not self._files.exists(self._at(name)):
            return []
        names = [str(status.getPath().getName()) for status in self._files.list(self._at(name))]
        return [int(each) for each in names if each.isdigit()]

    def _write_page(self) -> None:
        """Written aside and renamed."""
        self._files.mkdirs(self._path(self.location))
        stream = self._files.createAtomic(self._at(PAGE_NAME), True)  # noqa: FBT003  it may be there already
        stream.write(msgspec.json.encode(self._page))
        stream.close()


_SOURCES: Final = {"path": "a directory", "broker": "a broker", KAFKA_SOURCE: "Spark's source for Kafka"}
