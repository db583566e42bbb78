"""What an audit of a directory can find, how bad each is, and what to do about it.

Every finding says what is wrong, where, why it matters and what comes next. `DAMAGE` and `HARMLESS` are both damage: a
file is not as it was written. What is harmless costs no record: recovery passes over it or makes it anew. A `NOTE` is
no damage: what a crash, a running broker or a copy of its directory leaves behind.
"""

from enum import StrEnum
from typing import Final

import msgspec

from exactlog.core.model.limits import FINDINGS_PER_TABLE_MAX


class Severity(StrEnum):
    """How bad a finding is."""

    DAMAGE = "damage"
    HARMLESS = "harmless"
    NOTE = "note"


class Kind(StrEnum):
    """What was found; docs/operations.md explains each."""

    # the delta log
    DELTA_LOG_MISSING = "delta-log-missing"
    COMMIT_DAMAGED = "commit-damaged"
    COMMITS_DIFFER = "commits-differ"
    VERSIONS_MISSING = "versions-missing"
    CHAIN_BROKEN = "chain-broken"
    TABLE_UNKNOWN = "table-unknown"
    START_REFUSED = "start-refused"
    CHECKPOINT_DIFFERS = "checkpoint-differs"
    CHECKPOINT_DAMAGED = "checkpoint-damaged"
    COPY_DAMAGED = "copy-damaged"
    COPY_LOST = "copy-lost"
    VERSIONS_LOST = "versions-lost"
    CHECKPOINT_AHEAD = "checkpoint-ahead"
    PACKING_UNFINISHED = "packing-unfinished"
    # the segments
    SEGMENT_MISSING = "segment-missing"
    BYTES_MISSING = "bytes-missing"
    BATCH_DAMAGED = "batch-damaged"
    OFFSETS_BROKEN = "offsets-broken"
    BYTES_CHANGED = "bytes-changed"
    LEADER_EPOCH_WRONG = "leader-epoch-wrong"
    RECORDS_DAMAGED = "records-damaged"
    MARKER_DAMAGED = "marker-damaged"
    STABLE_OFFSET_WRONG = "stable-offset-wrong"
    BYTES_LOST = "bytes-lost"
    BYTES_BEHIND = "bytes-behind"
    SEGMENT_UNNAMED = "segment-unnamed"
    SEGMENT_REMOVED = "segment-removed"
    # the indexes
    INDEX_DAMAGED = "index-damaged"
    INDEX_INCOMPLETE = "index-incomplete"
    # the commit journal
    JOURNALED = "journaled"
    JOURNAL_DAMAGED = "journal-damaged"
    JOURNAL_DIFFERS = "journal-differs"
    # the directories
    FILE_UNREADABLE = "file-unreadable"
    CATALOG_MISSING = "catalog-missing"
    CATALOG_DAMAGED = "catalog-damaged"
    CATALOG_UNFINISHED = "catalog-unfinished"
    PARTITION_MISSING = "partition-missing"
    PARTITION_FOREIGN = "partition-foreign"
    PARTITION_UNNAMED = "partition-unnamed"
    PARTITION_UNFINISHED = "partition-unfinished"
    TEMPORARY_FILE = "temporary-file"
    FOREIGN_FILE = "foreign-file"
    MORE_FINDINGS = "more-findings"


class Meaning(msgspec.Struct, frozen=True):
    """What it means that something of a kind was found.

    Attributes:
        severity: how bad it is.
        why: why it matters.
        next_step: what to do about it.
    """

    severity: Severity
    why: str
    next_step: str


_RESTORE: Final = "restore the file from a copy"
_RESTORE_BYTES: Final = (
    "restore the segment from a copy; if this is a copy made beside a broker, copy _delta_log first, the segments after"
)
_AT_START: Final = "nothing: the next start sees to it, or `exactlog log repair`"

MEANINGS: Final[dict[Kind, Meaning]] = {
    # the delta log
    Kind.DELTA_LOG_MISSING: Meaning(
        Severity.DAMAGE, "without it no byte of the partition counts", "restore the directory from a copy"
    ),
    Kind.COMMIT_DAMAGED: Meaning(
        Severity.DAMAGE,
        "what its version did is not known, nor anything behind it before the next checkpoint",
        _RESTORE,
    ),
    Kind.COMMITS_DIFFER: Meaning(
        Severity.DAMAGE,
        "only one of them is of this history",
        "find out which by the prev_crc of the version behind it, and remove the other",
    ),
    Kind.VERSIONS_MISSING: Meaning(
        Severity.DAMAGE,
        "what they did is not known, nor anything behind them before the next checkpoint",
        "restore the files from a copy; if this is a copy made beside a broker, copy _delta_log again",
    ),
    Kind.CHAIN_BROKEN: Meaning(
        Severity.DAMAGE,
        "one of two versions is not of this history, and nothing behind them can be trusted before the next checkpoint",
        "restore both from a copy",
    ),
    Kind.TABLE_UNKNOWN: Meaning(
        Severity.DAMAGE, "no start and no reader can use the partition", "restore a checkpoint from a copy"
    ),
    Kind.START_REFUSED: Meaning(Severity.DAMAGE, "the partition stays closed", "restore a checkpoint from a copy"),
    Kind.CHECKPOINT_DIFFERS: Meaning(
        Severity.DAMAGE,
        "a start would believe it",
        "`exactlog log repair` removes it; please report how it came about",
    ),
    Kind.CHECKPOINT_DAMAGED: Meaning(
        Severity.HARMLESS, "a start passes over it and takes longer", "`exactlog log repair` removes it"
    ),
    Kind.COPY_DAMAGED: Meaning(
        Severity.HARMLESS,
        "the other document of its version is good and is read instead",
        "`exactlog log repair` removes it, once every version in it is elsewhere",
    ),
    Kind.COPY_LOST: Meaning(
        Severity.NOTE,
        "a power cut took it, and the other document of its version is read instead",
        "`exactlog log repair` removes it",
    ),
    Kind.VERSIONS_LOST: Meaning(
        Severity.NOTE,
        "a power cut took what was not promised to survive one",
        "nothing: a start goes on from what is there, without them",
    ),
    Kind.CHECKPOINT_AHEAD: Meaning(
        Severity.NOTE, "all that the missing commits did is in it; only reads as of them are not possible", "nothing"
    ),
    Kind.PACKING_UNFINISHED: Meaning(
        Severity.NOTE, "a packing was broken off, or is under way", "nothing: the next packing finishes it"
    ),
    # the segments
    Kind.SEGMENT_MISSING: Meaning(Severity.DAMAGE, "acknowledged records are missing", _RESTORE_BYTES),
    Kind.BYTES_MISSING: Meaning(Severity.DAMAGE, "acknowledged records are missing", _RESTORE_BYTES),
    Kind.BATCH_DAMAGED: Meaning(
        Severity.DAMAGE, "whoever reads these records gets an error", "restore the segment from a copy"
    ),
    Kind.OFFSETS_BROKEN: Meaning(
        Severity.DAMAGE,
        "whoever reads these records gets wrong offsets, or an error",
        "restore the segment from a copy",
    ),
    Kind.BYTES_CHANGED: Meaning(
        Severity.DAMAGE, "they are not the bytes that were committed", "restore the segment from a copy"
    ),
    Kind.LEADER_EPOCH_WRONG: Meaning(
        Severity.DAMAGE,
        "consumers and replicas compare leader epochs to tell one history from another",
        "restore the segment from a copy",
    ),
    Kind.RECORDS_DAMAGED: Meaning(
        Severity.DAMAGE,
        "consumers get an error here; it was produced like this, its checksum is right",
        "skip this batch when consuming",
    ),
    Kind.MARKER_DAMAGED: Meaning(
        Severity.DAMAGE, "how a transaction ended cannot be told", "restore the segment from a copy"
    ),
    Kind.STABLE_OFFSET_WRONG: Meaning(
        Severity.DAMAGE,
        "who reads only what is committed is shown records that are undecided, or not all that are decided",
        "read all records, and leave out what transactions left undecided; please report how it came about",
    ),
    Kind.BYTES_LOST: Meaning(
        Severity.NOTE,
        "a power cut took what was not promised to survive one",
        "nothing: the next start drops those versions",
    ),
    Kind.BYTES_BEHIND: Meaning(
        Severity.NOTE, "nobody was told of them: a crash left them, or a broker is writing", _AT_START
    ),
    Kind.SEGMENT_UNNAMED: Meaning(
        Severity.NOTE, "nobody was told of it: a crash left it, or a broker is writing", _AT_START
    ),
    Kind.SEGMENT_REMOVED: Meaning(
        Severity.NOTE, "it stays until no checkpoint can need it", "nothing: a broker removes it when it is time"
    ),
    # the indexes
    Kind.INDEX_DAMAGED: Meaning(
        Severity.HARMLESS,
        "no answer is wrong by it, the first look-up takes longer",
        "`exactlog log repair` makes it anew, or a broker when it next needs it",
    ),
    Kind.INDEX_INCOMPLETE: Meaning(
        Severity.NOTE, "the first look-up takes longer", "nothing: a broker makes the rows when it next needs them"
    ),
    # the commit journal
    Kind.JOURNALED: Meaning(
        Severity.NOTE,
        "the commit journal has it: a crash came, or a broker is writing",
        "nothing: the next start puts it in its place",
    ),
    Kind.JOURNAL_DAMAGED: Meaning(
        Severity.DAMAGE,
        "no broker can start here: what was acknowledged may be in it alone",
        "restore the file from a copy",
    ),
    Kind.JOURNAL_DIFFERS: Meaning(
        Severity.DAMAGE,
        "the partition stays closed: one of the two is not what was acknowledged",
        "restore the file from a copy",
    ),
    # the directories
    Kind.FILE_UNREADABLE: Meaning(
        Severity.DAMAGE,
        "the operating system refuses it, and would refuse it to a broker",
        "find out why: permissions, or a disk that fails",
    ),
    Kind.CATALOG_MISSING: Meaning(
        Severity.NOTE,
        "a broker that starts here knows no topic; where none ever did, there never was one",
        "if a broker has served this directory, restore the file from a copy",
    ),
    Kind.CATALOG_DAMAGED: Meaning(Severity.DAMAGE, "no broker can start here", _RESTORE),
    Kind.CATALOG_UNFINISHED: Meaning(
        Severity.NOTE,
        "the next start finishes it, or takes it back",
        "nothing: verify again after that, or when the broker is done",
    ),
    Kind.PARTITION_MISSING: Meaning(
        Severity.DAMAGE,
        "all its records are missing",
        "restore the directory from a copy; if this is a copy made beside a broker, copy it again",
    ),
    Kind.PARTITION_FOREIGN: Meaning(
        Severity.DAMAGE, "a broker refuses to open it", "put the directory of this topic back in its place"
    ),
    Kind.PARTITION_UNNAMED: Meaning(
        Severity.NOTE, "no broker opens it", "remove it if its topic is deleted, else restore the catalog"
    ),
    Kind.PARTITION_UNFINISHED: Meaning(
        Severity.NOTE, "the next start finishes it, or takes it back", "nothing: verify again after that"
    ),
    Kind.TEMPORARY_FILE: Meaning(Severity.NOTE, "a crash left it, or a broker is writing", _AT_START),
    Kind.FOREIGN_FILE: Meaning(Severity.NOTE, "exactlog neither reads nor removes it", "nothing"),
    Kind.MORE_FINDINGS: Meaning(Severity.NOTE, "nobody reads them all", "put right what is listed, and verify again"),
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found.

    Attributes:
        severity: how bad it is; follows from the kind.
        kind: what it is.
        version: the delta version it is about; None where it is about none.
        file: relative to the directory that was audited.
        position: where in that file, in bytes; None where it is about the whole.
        message: what is there, what should be, and why it matters.
        next_step: what to do about it.
    """

    severity: Severity
    kind: Kind
    version: int | None
    file: str
    position: int | None
    message: str
    next_step: str = msgspec.field(name="next")

    @property
    def is_damage(self) -> bool:
        """Whether a file is not as it was written."""
        return self.severity is not Severity.NOTE


def make_finding(
    kind: Kind, file: str, message: str, *, version: int | None = None, position: int | None = None
) -> Finding:
    """A finding of a kind, with the severity, the reason and the next step that go with it."""
    meaning = MEANINGS[kind]
    return Finding(
        severity=meaning.severity,
        kind=kind,
        version=version,
        file=file.encode(errors="replace").decode(),  # a foreign name may be no UTF-8
        position=position,
        message=f"{message}; {meaning.why}",
        next_step=meaning.next_step,
    )


class Findings:
    """The findings about one directory: as many as a person would read, the rest counted."""

    def __init__(self) -> None:
        self._damage: list[Finding] = []
        self._notes: list[Finding] = []
        self._unlisted = 0

    def add(self, finding: Finding) -> None:
        """One more."""
        listed = self._damage if finding.is_damage else self._notes
        if len(listed) < FINDINGS_PER_TABLE_MAX:
            listed.append(finding)
        else:
            self._unlisted += 1

    def all(self) -> tuple[Finding, ...]:
        """Damage first, each in the order it was found; where not all are listed, the last one says so."""
        listed = (*self._damage, *self._notes)
        if not self._unlisted:
            return listed
        return (*listed, make_finding(Kind.MORE_FINDINGS, "", f"{self._unlisted} findings more are not listed"))


class OpenTransaction(msgspec.Struct, frozen=True):
    """A transaction that is undecided at the newest version."""

    producer_id: int
    producer_epoch: int
    first_offset: int


class TableReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit says of one partition.

    Attributes:
        path: of its directory.
        topic, partition, topic_id: as its metadata say; None where no metadata can be read.
        flush_mode: under which the newest version was written: what a power cut may have taken.
        version: the newest version whose table is known; None where none is.
        oldest_version: the oldest one from which on every delta commit is there.
        log_start_offset, end_offset, bytes: of that table.
        batches, records: how many whole ones its segments hold; transaction markers are batches and no records.
        open_transactions: those of the newest version, as far as the producers are known.
    """

    topic: str | None
    partition: int | None
    topic_id: str | None
    path: str
    flush_mode: str | None
    version: int | None
    oldest_version: int | None
    log_start_offset: int | None
    end_offset: int | None
    bytes: int
    batches: int
    records: int
    open_transactions: tuple[OpenTransaction, ...]
    findings: tuple[Finding, ...]


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit says of a partition, or of a data directory.

    Attributes:
        tables: one for each partition.
        findings: what is not about one of them: the catalog, unknown directories.
        damage: how many findings are damage, harmless ones among them: verified well is 0.
        harmless: how many of those cost nothing.
        notes: how many findings are no damage.
    """

    tables: tuple[TableReport, ...]
    findings: tuple[Finding, ...]
    damage: int
    harmless: int
    notes: int


def summarise(tables: tuple[TableReport, ...], findings: tuple[Finding, ...] = ()) -> AuditReport:
    """The report over some partitions and what is beside them."""
    found = [*findings, *(finding for table in tables for finding in table.findings)]
    damage = sum(finding.is_damage for finding in found)
    return AuditReport(
        tables=tables,
        findings=findings,
        damage=damage,
        harmless=sum(finding.severity is Severity.HARMLESS for finding in found),
        notes=len(found) - damage,
    )
