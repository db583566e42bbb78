"""A partition as a table: append, read now or as of any version, commit a transaction or drop it."""

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypedDict, Unpack

from exactlog.core.codec.compression import Compression
from exactlog.core.deltalog.append_terms import AppendTerms, Committed, Unavailable
from exactlog.core.deltalog.table_state import TableSnapshot
from exactlog.core.model.errors import NotFoundError
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.core.record.batch_builder import NewRecord
from exactlog.core.record.payload_crc import payload_crc
from exactlog.core.record.record_format import Record
from exactlog.log.directory_owner import Claim, claim_partition
from exactlog.log.errors import InvalidArgumentError, PartitionClosedError, ReadOnlyError, TransactionEndedError
from exactlog.log.new_records import RecordLike, build_stamped_batch, copy_records
from exactlog.log.table_place import parse_directory_name
from exactlog.log.table_writer import Outcome, TableWriter
from exactlog.storage.filesystem import Filesystem, OsFilesystem
from exactlog.storage.table_reader import TableReader

Isolation = Literal["read_committed", "read_uncommitted"]

_ISOLATIONS: Final[Mapping[str, IsolationLevel]] = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}
_NUMBER_MAX: Final = 2**63 - 1


class AppendOptions(TypedDict, total=False):
    """What may be said of an append, and so of the commit of a transaction: see `Partition.append`."""

    expected_version: int | None
    txn_id: str | None
    origin_id: int | None
    origin_seq: int | None
    expected_origin_seq: int | None
    compression: Compression


def open_partition(
    path: str | os.PathLike[str], *, read_only: bool = False, filesystem: Filesystem | None = None
) -> "Partition":
    """Opens the partition in a directory `topic=NAME-part=NUMBER`; one that is not there yet is made.

    To write, the process takes the lock of the data directory, the parent of that directory: once, however many
    partitions it opens and however often. Where a broker has left a catalog in it, only what that knows can be opened.
    With `read_only` no lock is taken and nothing is written, so that a broker or another process may be at work in it.

    Args:
        path: of the partition's directory.
        read_only: whether only to read.
        filesystem: where the files are; the operating system's by default. On another one no lock is taken.

    Raises:
        DirectoryLockedError: another process owns the data directory; names it.
        InvalidArgumentError: that is not the name of a partition's directory.
        NotFoundError: there is nothing to read, or the catalog does not know the partition.
        DamageError: it cannot be opened; names the file, the version and what to do.
        OSError: the operating system refuses.
    """
    given = Path(path)
    parse_directory_name(given.name)
    if type(filesystem) is OsFilesystem:
        filesystem = None  # which means just that one, with its lock
    root = os.path.realpath(given.parent) if filesystem is None else str(given.parent)
    claim = None if read_only else claim_partition(root, given.name, filesystem)
    return Partition(f"{root}/{given.name}", OsFilesystem() if filesystem is None else filesystem, claim)


class Partition:
    """A partition that is open, to be closed with `close` or by leaving its context. Any thread may use it.

    Every method raises `PartitionClosedError` after that. Those of a partition that was opened for writing raise
    `PartitionStoppedError` once a failed sync, or an operation broken off, has left it unknown what is on disk.
    """

    def __init__(self, directory: str, filesystem: Filesystem, claim: Claim | None) -> None:
        self.directory = directory
        self._filesystem = filesystem
        self._claim = claim
        self._is_closed = False
        self._reading = threading.Lock()
        self._table: TableReader | None = None
        if claim is None:
            if not filesystem.exists(directory):
                raise NotFoundError(f"{directory} does not exist")
            self._table = TableReader(filesystem, directory)

    @property
    def is_read_only(self) -> bool:
        """Whether it was opened only to be read."""
        return self._claim is None

    # --- what there is ------------------------------------------------------------------------------------------

    def current_version(self) -> int:
        """The newest delta version; the first, which only makes the table, is 0."""
        return self.load_state().version

    def load_state(self) -> TableSnapshot:
        """The table as of its newest version: segments, origins, next offset and the rest; it never changes."""
        self._check_open()
        if self._claim is not None:
            return self._claim.writer.snapshot()
        with self._reading:
            return self._newest_table().snapshot()

    def read(
        self,
        from_offset: int = 0,
        to_offset: int | None = None,
        *,
        as_of_version: int | None = None,
        as_of_timestamp: int | None = None,
        isolation: Isolation = "read_committed",
        include_control: bool = False,
    ) -> Iterator[Record]:
        """The records from an offset on, as of the newest version there is now or an earlier one.

        Args:
            from_offset: the first one; where it has been removed already, the first one that is left.
            to_offset: where to stop, exclusive.
            as_of_version: as that delta version left the table.
            as_of_timestamp: as it was at that time, in milliseconds since 1970.
            isolation: with `read_committed`, records of aborted transactions are left out, and so is all from the first
                one on that was open as of that version, for ever; `read_uncommitted` shows everything.
            include_control: whether the markers that end transactions come too, which are no data.

        Raises:
            VersionExpiredError, VersionUnknownError: that version cannot be read.
            OffsetOutOfRangeError: records that the version had have been removed since; names the first one left.
            InvalidArgumentError: a negative number, both a version and a time, an unknown isolation.
            DamageError: the bytes are not what was committed.
        """
        self._check_open()
        level = _check_isolation(isolation)
        _check_numbers(
            from_offset=from_offset,
            to_offset=to_offset,
            as_of_version=as_of_version,
            as_of_timestamp=as_of_timestamp,
        )
        if as_of_version is not None and as_of_timestamp is not None:
            raise InvalidArgumentError("as_of_version and as_of_timestamp exclude each other", hint="give one of them")
        if self._claim is not None:
            self._claim.writer.check()
        with self._reading:
            records = self._newest_table().read(
                from_offset,
                to_offset,
                as_of_version=as_of_version,
                as_of_timestamp=as_of_timestamp,
                isolation=level,
                include_control=include_control,
            )
        return self._one_by_one(records)

    def _newest_table(self) -> TableReader:
        """The reader, at the newest published version."""
        if self._table is None:
            self._table = TableReader(self._filesystem, self.directory)
        else:
            self._table.refresh()
        return self._table

    def _one_by_one(self, records: Iterator[Record]) -> Iterator[Record]:
        """The same, each read while nobody else uses the reader."""
        while True:
            with self._reading:
                self._check_open()
                record = next(records, None)
            if record is None:
                return
            yield record

    # --- changing it --------------------------------------------------------------------------------------------

    def append(
        self,
        records: Iterable[RecordLike],
        *,
        expected_version: int | None = None,
        txn_id: str | None = None,
        origin_id: int | None = None,
        origin_seq: int | None = None,
        expected_origin_seq: int | None = None,
        compression: Compression = Compression.NONE,
    ) -> Outcome:
        """Appends all records or none, in one delta version; what this returns is on disk.

        Args:
            records: one or more; each a `NewRecord`, a value, or a pair of a key and a value. They are copied at once;
                one without a timestamp gets the time of now.
            expected_version: the newest version as the caller knows it: with any other one it is a conflict.
            txn_id: an id of the caller's own: who comes again with it, and the same records, gets the first result (of
                the last 10,000 ids).
            origin_id: a writer that numbers its appends; any number but the id of this node.
            origin_seq: the number of this append, from 1 on; the next one by default. None is ever added twice.
            expected_origin_seq: the last number of this origin, as the caller knows it (0: none): with any other one it
                is a conflict, whatever other writers have appended.
            compression: of all of them together.

        Returns:
            `Committed`, or why nothing was appended: `Conflicted`; `PayloadDiffers` (the same id with other records);
            `Superseded` (the origin has gone on to a higher number); `Unavailable` (the disk refuses; try again).

        Raises:
            InvalidArgumentError: no records, or what no append can have.
            ReadOnlyError: the partition was opened to be read.
        """
        writer = self._writer()
        _check_numbers(
            expected_version=expected_version,
            origin_id=origin_id,
            origin_seq=origin_seq,
            expected_origin_seq=expected_origin_seq,
        )
        _check_txn_id(txn_id)
        copied = copy_records(records)
        if not copied:
            raise InvalidArgumentError("there is nothing to append", hint="an append has at least one record")
        header, batch = build_stamped_batch(copied, writer.config, compression=compression, now_ms=writer.now_ms())
        terms = AppendTerms(
            expected_version=expected_version,
            txn_id=txn_id,
            payload_crc=None if txn_id is None and origin_id is None else payload_crc(copied),
            origin_id=origin_id,
            origin_seq=origin_seq,
            expected_origin_seq=expected_origin_seq,
        )
        return writer.append(header, batch, terms)

    def append_transactional(self, records: Iterable[RecordLike] = ()) -> "Transaction":
        """A transaction with these records so far; nobody sees them before it is committed.

        Raises:
            InvalidArgumentError: one of them is not a record.
            ReadOnlyError: the partition was opened to be read.
        """
        self._writer()
        return Transaction(self, copy_records(records))

    def delete_records_before(self, offset: int) -> TableSnapshot | Unavailable:
        """Takes all records below an offset away, for good; the table then.

        Their files go later, when nobody can need them any more: with a later call, which may make a version of its own
        for that, one that changes nothing. Where the records are gone already, nothing else happens.

        Raises:
            InvalidArgumentError: the offset is negative, or above the end.
            ReadOnlyError: the partition was opened to be read.
        """
        writer = self._writer()
        _check_numbers(offset=offset)
        return writer.move_log_start(offset)

    def maybe_checkpoint(self) -> bool:
        """Writes a checkpoint, if one has been due since the last; whether it did.

        Appends write most of them already: one is due at every tenth version, and left out while the last is younger
        than a second, or larger than all commits since.

        Raises:
            ReadOnlyError: the partition was opened to be read.
        """
        return self._writer().checkpoint_if_due()

    def _writer(self) -> TableWriter:
        self._check_open()
        if self._claim is None:
            raise ReadOnlyError(f"{self.directory} was opened to be read only", hint="open it without read_only")
        return self._claim.writer

    # --- closing ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes it; the last partition of a data directory that a process closes unlocks it. Twice is fine."""
        if not self._is_closed:
            self._is_closed = True
            if self._claim is not None:
                self._claim.let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise PartitionClosedError(f"{self.directory} was closed")


class Transaction:
    """Records that become one delta version together, or never were; to be used by one thread at a time.

    It ends when it is committed or aborted. A commit that comes to something else than `Committed` appends nothing and
    ends nothing: commit it again on other terms, or abort it.
    """

    def __init__(self, partition: Partition, records: tuple[NewRecord, ...]) -> None:
        self.partition = partition
        self._records = records
        self._end: str | None = None

    def append(self, records: Iterable[RecordLike]) -> None:
        """Adds records to it; they are copied at once.

        Raises:
            InvalidArgumentError: one that is not a record.
            TransactionEndedError: it was committed or aborted before.
        """
        self._check_not_ended()
        self._records += copy_records(records)

    def commit(self, **options: Unpack[AppendOptions]) -> Outcome:
        """Appends all its records at once, as `Partition.append` does; a transaction without any is refused.

        Raises:
            InvalidArgumentError, ReadOnlyError: as `Partition.append`; the transaction goes on.
            TransactionEndedError: it was committed or aborted before.
        """
        self._check_not_ended()
        outcome = self.partition.append(self._records, **options)
        if isinstance(outcome, Committed):
            self._end = "committed"
        return outcome

    def abort(self) -> None:
        """Drops its records; they were never anywhere else than here.

        Raises:
            TransactionEndedError: it was committed or aborted before.
        """
        self._check_not_ended()
        self._end = "aborted"
        self._records = ()

    def _check_not_ended(self) -> None:
        if self._end is not None:
            raise TransactionEndedError(f"the transaction was {self._end}", hint="begin another one")


def _check_isolation(isolation: str) -> IsolationLevel:
    level = _ISOLATIONS.get(isolation)
    if level is None:
        raise InvalidArgumentError(f"isolation {isolation!r} is none of {', '.join(_ISOLATIONS)}")
    return level


def _check_numbers(**numbers: object) -> None:
    for name, number in numbers.items():
        if number is None:
            continue
        if not isinstance(number, int) or isinstance(number, bool):
            raise InvalidArgumentError(f"{name} is a {type(number).__name__}, not a number")
        if not 0 <= number <= _NUMBER_MAX:
            raise InvalidArgumentError(f"{name} {number} is not from 0 to {_NUMBER_MAX}")


def _check_txn_id(txn_id: object) -> None:
    if txn_id is None:
        return
    if not isinstance(txn_id, str):
        raise InvalidArgumentError(f"txn_id is a {type(txn_id).__name__}, not a str")
    try:
        txn_id.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"txn_id {txn_id!r} cannot be written: {error}") from error
