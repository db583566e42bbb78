"""Records of a data topic as entries, and which of them a reader sees."""

from collections.abc import Callable

from msgspec import Struct

from exactlog.core.model.errors import DecodeError
from exactlog.core.wal.errors import UnreadableRecordError
from exactlog.core.wal.log_entry_format import decode_log_key, decode_log_value


class LogEntry(Struct, frozen=True, gc=False):
    """An entry as it lies in the log."""

    table: int
    sequence: int
    payload: bytes
    offset: int


def read_log_record(region: int, *, offset: int, key: bytes | None, value: bytes | None) -> LogEntry:
    """The entry that a record is.

    Raises:
        UnreadableRecordError: it is none, or one of another region; names its offset.
    """
    try:
        if key is None or value is None:
            raise DecodeError(f"it has no {'key' if key is None else 'value'}")
        found = decode_log_key(key)
        if found.region != region:
            raise DecodeError(f"it is of region {found.region}")
        if not found.sequence:
            raise DecodeError(f"table {found.table}: it has sequence 0, and sequences begin at 1")
        return LogEntry(found.table, found.sequence, decode_log_value(value), offset)
    except DecodeError as error:
        raise UnreadableRecordError(
            f"region {region}: the record at offset {offset} is no entry of this region: {error}",
            region=region,
            offset=offset,
            hint=f"look who writes to the topic; to pass the record over, open the region with skip_offsets=[{offset}]",
        ) from error


def missing_entry_error(region: int, *, table: int, sequence: int, offset: int) -> UnreadableRecordError:
    """The error for an entry that does not lie where it was written: something there was damaged so that it hides."""
    return UnreadableRecordError(
        f"region {region}, table {table}: entry {sequence} was written at offset {offset}, and is not there",
        region=region,
        table=table,
        sequence=sequence,
        offset=offset,
        hint="restore the topic from a copy if there is one; to go on without what lies there, open the region with "
        f"skip_offsets=[{offset}]",
    )


class LiveEntries:
    """Which of the entries that come along a reader is to see: not what is marked, and nothing twice.

    Attributes:
        duplicate_count: how many came with a sequence that the table had already.
        last_duplicate_offset: where the last of them lies; None: there was none.
    """

    def __init__(self, mark_of: Callable[[int], int], *, first: int = 0) -> None:
        """`mark_of` tells the present mark of a table; of sequences below `first` the reader wants none."""
        self._first = first
        self._mark_of = mark_of
        self._last: dict[int, int] = {}
        self.duplicate_count = 0
        self.last_duplicate_offset: int | None = None

    def expected(self, table: int) -> int:
        """The sequence that the reader is to see next of a table."""
        return max(self._first, self._last.get(table, 0) + 1, self._mark_of(table))

    def sees(self, table: int, sequence: int, offset: int) -> bool:
        """Whether the reader sees the entry that comes next."""
        if sequence <= self._last.get(table, 0):
            self.duplicate_count += 1
            self.last_duplicate_offset = offset
            return False
        self._last[table] = sequence
        return sequence >= self._mark_of(table)
