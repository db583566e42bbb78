"""Whether a partition's directory is as it was written: every document, every batch, every index row that counts.

An audit replays all versions that are there, in order, and follows their bytes, apart from how recovery and readers do
it: those take the shortest way, this one takes every step and compares. It changes nothing and takes no lock. Beside a
running broker, and on a copy made beside one, it judges by the names it finds when it begins: what lies behind the
newest of those versions is no damage. Memory is bounded, however large the log.
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import UNSET, Struct

from exactlog.core.deltalog.checkpoint_comparison import find_table_difference
from exactlog.core.deltalog.checkpoint_format import Checkpoint, decode_checkpoint
from exactlog.core.deltalog.commit_format import DecodedCommit, DeltaCommit, TableMetadata, decode_commit
from exactlog.core.deltalog.log_path import (
    DELTA_LOG_DIRECTORY,
    SegmentFileKind,
    SegmentFileName,
    is_temporary_name,
    parse_partition_directory_name,
    parse_segment_file_name,
    print_checkpoint_name,
    print_segment_file_name,
)
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.model.errors import DamageError, UnavailableError
from exactlog.core.model.ids import DeltaVersion, Offset
from exactlog.storage.audit_bytes import BytesAudit, Named
from exactlog.storage.audit_delta_log import DeltaLogListing, Document, in_delta_log, is_half_written
from exactlog.storage.audit_findings import Findings, Kind, TableReport, make_finding
from exactlog.storage.audit_indexes import CountedRows, aborted_rows_of
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.settings import FlushMode, recorded_flush_mode

_logger = logging.getLogger(__name__)

_ATTEMPTS_MAX: Final = 5
"""How often a directory may change under an audit so that it must begin again: a broker packs or removes files."""
_VERSIONS_PER_LOG_LINE: Final = 10_000

_MAY_HAVE_GONE: Final = frozenset({Kind.SEGMENT_MISSING, Kind.VERSIONS_MISSING, Kind.TABLE_UNKNOWN})
"""What a broker that removes files beside the audit would make it find."""


def audit_table(filesystem: Filesystem, directory: str, *, is_deep: bool = False) -> TableReport:
    """Verifies a partition's directory.

    Args:
        is_deep: whether every record is decoded too.

    Raises:
        UnavailableError: a broker keeps removing what is being looked at.
    """
    for _ in range(_ATTEMPTS_MAX):
        audit = TableAudit(filesystem, directory, is_deep=is_deep)
        try:
            report = audit.run()
        except FileNotFoundError as error:
            _logger.info("%s changes while it is verified (%s): begun again", directory, error)
            continue
        if not any(finding.kind in _MAY_HAVE_GONE for finding in report.findings) or not audit.has_changed():
            return report
    raise UnavailableError(f"{directory} keeps changing while it is verified", hint="verify again, or a copy of it")


class TableAudit:
    """One audit of one partition."""

    def __init__(self, filesystem: Filesystem, directory: str, *, is_deep: bool) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._is_deep = is_deep
        self._findings = Findings()
        self._listing: DeltaLogListing | None = None
        self._bytes = BytesAudit(filesystem, directory, {}, is_deep=is_deep)
        self._table: TableState | None = None
        self._metadata: TableMetadata | None = None
        self._cursors: _Cursors | None = None
        self._newest_document: DeltaVersion | None = None
        self._oldest_version: DeltaVersion | None = None
        self._chain: tuple[DeltaVersion, str] | None = None
        self._doubled: list[DeltaVersion] = []
        self._start = _Start()

    def run(self) -> TableReport:
        """Verifies everything; to be called once.

        Raises:
            FileNotFoundError: a name has gone since the names were listed.
        """
        _logger.info("%s is verified", self._directory)
        try:
            listing = self._listing = DeltaLogListing(self._filesystem, self._directory)
        except (FileNotFoundError, NotADirectoryError):
            self._tell(Kind.DELTA_LOG_MISSING, DELTA_LOG_DIRECTORY, "there is no such directory")
            return self._report()
        if listing.newest_version is None:
            self._tell(Kind.DELTA_LOG_MISSING, DELTA_LOG_DIRECTORY, "it holds neither a delta commit nor a checkpoint")
            return self._report()
        counted = self._look_ahead(listing)
        self._bytes = BytesAudit(self._filesystem, self._directory, counted, is_deep=self._is_deep)
        self._replay_all(listing)
        if self._cursors is None:
            message = "neither version 0 nor a checkpoint is there from which the versions could be replayed"
            self._tell(Kind.TABLE_UNKNOWN, DELTA_LOG_DIRECTORY, message)
        elif (refusal := self._start.refusal) is not None:
            self._tell(Kind.START_REFUSED, DELTA_LOG_DIRECTORY, refusal)
        for finding in self._bytes.finish():
            self._findings.add(finding)
        self._look_at_names(listing)
        return self._report()

    def has_changed(self) -> bool:
        """Whether somebody has written, or removed, since the audit began."""
        try:
            now = DeltaLogListing(self._filesystem, self._directory)
        except FileNotFoundError:
            return True
        return self._listing is None or now.names != self._listing.names

    # --- versions -----------------------------------------------------------------------------------------------

    def _replay_all(self, listing: DeltaLogListing) -> None:
        checkpoints = deque(listing.checkpoints)
        for version, documents in listing.versions():
            while checkpoints and checkpoints[0] < version:
                self._take_checkpoint(listing, checkpoints.popleft())
            self._take_version(version, documents)
            if checkpoints and checkpoints[0] == version:
                self._take_checkpoint(listing, checkpoints.popleft())
            if version and version % _VERSIONS_PER_LOG_LINE == 0:
                _logger.info("%s: version %d of %d", self._directory, version, listing.newest_version)
        if checkpoints and self._newest_document is not None:
            file = in_delta_log(print_checkpoint_name(checkpoints[-1]))
            message = f"it is of version {checkpoints[-1]}, the newest delta commit is of {self._newest_document}"
            self._tell(Kind.CHECKPOINT_AHEAD, file, message, version=checkpoints[-1])
        for version in checkpoints:
            self._take_checkpoint(listing, version)
        if self._doubled:
            message = f"versions {self._doubled[0]} to {self._doubled[-1]} are there on their own and packed"
            self._tell(Kind.PACKING_UNFINISHED, DELTA_LOG_DIRECTORY, message, version=self._doubled[-1])

    def _take_version(self, version: DeltaVersion, documents: Sequence[Document]) -> None:
        self._look_for_gap(version)
        self._newest_document = version
        found = self._decode(version, documents)
        if found is None:
            self._oldest_version = None
            self._lose(version)
            return
        document, decoded = found
        if self._oldest_version is None:
            self._oldest_version = version
        if self._table is None and version == 0:
            self._table = TableState(table=DELTA_LOG_DIRECTORY)
            self._bytes.begin()
            self._start.begin_here()
        if self._table is not None and self._table.version == version - 1:
            self._replay(document, decoded, self._table)
        elif self._chain is not None and self._chain[0] == version - 1 and self._chain[1] != decoded.commit.prev_crc:
            message = f"its prev_crc is {decoded.commit.prev_crc}, version {version - 1} has {self._chain[1]}"
            self._tell(Kind.CHAIN_BROKEN, document.file, message, version=version, position=document.position)
        self._chain = version, decoded.chain_crc
        if any(operation.type == "remove" for operation in decoded.commit.operations):
            self._start.remove_at(version)
        if decoded.commit.metadata is not UNSET:
            self._metadata = decoded.commit.metadata

    def _look_for_gap(self, version: DeltaVersion) -> None:
        before = self._newest_document
        if before is None or version == before + 1:
            return
        kind = Kind.VERSIONS_LOST if self._is_lenient else Kind.VERSIONS_MISSING
        message = f"versions {before + 1} to {version - 1} are missing, though version {version} is there"
        self._tell(kind, DELTA_LOG_DIRECTORY, message, version=before + 1)
        self._lose(before + 1)
        is_taken_up = self._table is not None and self._table.version == version - 1
        self._oldest_version = DeltaVersion(version - 1) if is_taken_up else None

    def _decode(self, version: DeltaVersion, documents: Sequence[Document]) -> tuple[Document, DecodedCommit] | None:
        """The delta commit of a version; None where no document of it is any good."""
        good: list[tuple[Document, DecodedCommit]] = []
        bad: list[tuple[Document, str]] = []
        for document in documents:
            problem = document.problem
            if not problem:
                try:
                    decoded = decode_commit(document.content, path_hint=document.file)
                    if decoded.commit.version == version:
                        good.append((document, decoded))
                        continue
                    problem = f"the document is of version {decoded.commit.version}, version {version} was due"
                except DamageError as error:
                    problem = str(error).removeprefix(f"{document.file}: ")
            bad.append((document, problem))
        for document, problem in bad:
            is_lost = not document.is_packed and self._is_lenient and is_half_written(document.content)
            if good:
                kind = Kind.COPY_LOST if is_lost else Kind.COPY_DAMAGED
            else:
                kind = Kind.VERSIONS_LOST if is_lost else Kind.COMMIT_DAMAGED
            self._tell(kind, document.file, problem, version=version, position=document.position)
        if len(good) > 1:
            self._doubled = [*self._doubled[:1], version]
            if any(decoded.commit != good[0][1].commit for _, decoded in good):
                message = f"it and {good[1][0].file} hold different delta commits of version {version}"
                self._tell(Kind.COMMITS_DIFFER, good[0][0].file, message, version=version)
        return good[0] if good else None

    def _replay(self, document: Document, decoded: DecodedCommit, table: TableState) -> None:
        commit, stable_before = decoded.commit, table.last_stable_offset
        try:
            table.replay(decoded)
        except DamageError as error:
            self._table = None
            message = str(error).removeprefix(f"{DELTA_LOG_DIRECTORY}: ")
            self._tell(Kind.CHAIN_BROKEN, document.file, message, version=commit.version, position=document.position)
            return
        self._metadata = table.metadata
        self._cursors = _Cursors(commit.version, commit.log_start_offset, commit.end_offset)
        named = Named(commit.version, table.leader_epochs, is_loss_allowed=self._is_lenient)
        if not self._bytes.follow_commit(commit, named):
            self._start.lose(commit.version)
        stable_end_offset = self._bytes.stable_end_offset(commit.end_offset)
        if stable_end_offset is not None:
            self._check_stable_offset(document, commit, max(stable_before, stable_end_offset, commit.log_start_offset))

    def _check_stable_offset(self, document: Document, commit: DeltaCommit, expected: Offset) -> None:
        told = commit.last_stable_offset
        if told == expected:
            return
        reason = "a transaction is open there" if told > expected else "no transaction is open before it"
        message = f"its last_stable_offset is {told}, not {expected}: {reason}"
        self._tell(Kind.STABLE_OFFSET_WRONG, document.file, message, version=commit.version)

    def _lose(self, version: int) -> None:
        """A version's document is not there, or no good."""
        if self._is_lenient:  # else that is told as damage of its own
            self._start.lose(version)

    @property
    def _is_lenient(self) -> bool:
        """Whether what comes next was written without syncs, so that a power cut may have taken it."""
        return self._metadata is not None and recorded_flush_mode(self._metadata) is not FlushMode.COMMIT

    # --- checkpoints --------------------------------------------------------------------------------------------

    def _take_checkpoint(self, listing: DeltaLogListing, version: DeltaVersion) -> None:
        file = in_delta_log(print_checkpoint_name(version))
        try:
            checkpoint = _read_checkpoint(listing, version)
        except FileNotFoundError:
            return  # vacuumed since the names were listed
        except (DamageError, OSError) as error:
            self._tell(Kind.CHECKPOINT_DAMAGED, file, str(error).removeprefix(f"{file}: "), version=version)
            return
        if not self._is_lenient or self._has_its_bytes(checkpoint):
            self._start.begin_here()
        if self._table is None or self._table.version != version:
            self._take_up(checkpoint)
            return
        told = TableState.from_checkpoint(checkpoint, table=DELTA_LOG_DIRECTORY).freeze()
        difference = find_table_difference(told, self._table.freeze()) or self._bytes.compare(checkpoint)
        if difference is not None:
            self._tell(Kind.CHECKPOINT_DIFFERS, file, difference, version=version)

    def _has_its_bytes(self, checkpoint: Checkpoint) -> bool:
        try:
            return all(
                self._filesystem.file_size(f"{self._directory}/{entry.name}") >= entry.size
                for entry in checkpoint.segments
            )
        except FileNotFoundError:
            return False

    def _take_up(self, checkpoint: Checkpoint) -> None:
        """Goes on from a checkpoint: what came before it is not known."""
        self._table = TableState.from_checkpoint(checkpoint, table=DELTA_LOG_DIRECTORY)
        self._metadata = checkpoint.metadata
        if self._oldest_version is None:  # it stands in for the commit of its version
            self._oldest_version = checkpoint.version
        self._cursors = _Cursors(checkpoint.version, checkpoint.log_start_offset, checkpoint.next_offset)
        self._bytes.take_up(checkpoint, Named(None, checkpoint.leader_epochs, is_loss_allowed=self._is_lenient))

    def _look_ahead(self, listing: DeltaLogListing) -> Mapping[str, CountedRows]:
        """How many rows of each index are good, as the newest checkpoint says that can be used.

        Its metadata are those of what comes first, until that tells its own.
        """
        for version in reversed(listing.checkpoints):
            try:
                checkpoint = _read_checkpoint(listing, version)
            except (DamageError, OSError):
                continue  # told when its version comes
            entries, self._metadata = checkpoint.segments, checkpoint.metadata
            return {
                entry.name: CountedRows(
                    entry.index_entries,
                    entry.time_index_entries,
                    aborted_rows_of(entry).count,
                    is_sealed=entry is not entries[-1],
                    first_offset=entries[0].base,
                )
                for entry in entries
            }
        return {}

    # --- names --------------------------------------------------------------------------------------------------

    def _look_at_names(self, listing: DeltaLogListing) -> None:
        for name in listing.temporary:
            self._tell(Kind.TEMPORARY_FILE, in_delta_log(name), "a file that never got its name")
        for name in listing.foreign:
            self._tell(Kind.FOREIGN_FILE, in_delta_log(name), "no name of exactlog's")
        names = set(self._filesystem.list_names(self._directory))
        for name in sorted(names - {DELTA_LOG_DIRECTORY}):
            parsed = parse_segment_file_name(name)
            if is_temporary_name(name):
                self._tell(Kind.TEMPORARY_FILE, name, "a file that never got its name")
            elif parsed is None:
                self._tell(Kind.FOREIGN_FILE, name, "no name of exactlog's")
            elif self._cursors is not None:
                self._look_at_segment_name(name, parsed, names)

    def _look_at_segment_name(self, name: str, parsed: SegmentFileName, names: set[str]) -> None:
        segment = print_segment_file_name(parsed.base, generation=parsed.generation)
        if segment in self._bytes.walks or self._cursors is None:
            return
        if parsed.kind is not SegmentFileKind.LOG:
            if segment not in names:
                self._tell(Kind.SEGMENT_UNNAMED, name, "an index of a segment that is not there")
        elif parsed.base < self._cursors.end_offset:
            self._tell(Kind.SEGMENT_REMOVED, name, f"its records are no longer part of version {self._cursors.version}")
        else:
            message = f"it begins behind the end of version {self._cursors.version}: no version names it yet"
            self._tell(Kind.SEGMENT_UNNAMED, name, message)

    # --- telling ------------------------------------------------------------------------------------------------

    def _tell(
        self, kind: Kind, file: str, message: str, *, version: int | None = None, position: int | None = None
    ) -> None:
        self._findings.add(make_finding(kind, file, message, version=version, position=position))

    def _report(self) -> TableReport:
        name = parse_partition_directory_name(self._directory.rstrip("/").rpartition("/")[2])
        metadata, cursors, walks = self._metadata, self._cursors, self._bytes.walks.values()
        return TableReport(
            topic=metadata.topic if metadata else name.topic if name else None,
            partition=metadata.partition if metadata else name.partition if name else None,
            topic_id=str(metadata.topic_id) if metadata else None,
            path=self._directory,
            flush_mode=str(recorded_flush_mode(metadata)) if metadata else None,
            version=cursors.version if cursors else None,
            oldest_version=self._oldest_version,
            log_start_offset=cursors.log_start_offset if cursors else None,
            end_offset=cursors.end_offset if cursors else None,
            bytes=sum(walk.position for walk in walks),
            batches=sum(walk.batches for walk in walks),
            records=sum(walk.records for walk in walks),
            open_transactions=self._bytes.open_transactions(),
            findings=self._findings.all(),
        )


class _Start:
    """Whether a start could make do with what is there.

    It begins from the newest checkpoint that it can use, or from version 0, and goes through all that follows. Of bytes
    that are gone from there on it must know that nobody removed them, to drop what a power cut took.
    """

    def __init__(self) -> None:
        self.refusal: str | None = "there is no checkpoint whose bytes are there, and version 0 has expired"
        self._first_lost: int | None = None

    def begin_here(self) -> None:
        """It can begin from here."""
        self.refusal = self._first_lost = None

    def lose(self, version: int) -> None:
        """From here on it misses something."""
        if self._first_lost is None:
            self._first_lost = version

    def remove_at(self, version: int) -> None:
        """Records were removed."""
        if self._first_lost is not None and self.refusal is None:
            self.refusal = (
                f"version {version} removed records, and no checkpoint behind it can be used: what was known of "
                f"producers by version {self._first_lost} cannot be found again"
            )


class _Cursors(Struct, frozen=True):
    """The newest version whose table is known, and where that table begins and ends."""

    version: DeltaVersion
    log_start_offset: Offset
    end_offset: Offset


def _read_checkpoint(listing: DeltaLogListing, version: DeltaVersion) -> Checkpoint:
    return decode_checkpoint(listing.read_checkpoint(version), path_hint=in_delta_log(print_checkpoint_name(version)))
