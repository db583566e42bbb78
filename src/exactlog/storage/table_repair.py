"""Putting right what an audit found, as far as that loses no acknowledged record.

What can be made anew is made anew or removed: damaged indexes and checkpoints, the damaged one of two copies of a delta
commit, what a crash left behind. What cannot is left to be restored from a copy. While a partition has damage of that
kind, nothing in it is touched: what looks like a leftover may be all that is left of a record. In flush modes
`interval` and `none` leftovers stay, too: the next start makes versions of them.
"""

import logging
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from exactlog.core.config.topic_configs import TopicConfig, validate_topic_config
from exactlog.core.deltalog.commit_format import TableMetadata
from exactlog.core.deltalog.log_path import (
    DELTA_LOG_DIRECTORY,
    CommitName,
    CompactedName,
    SegmentFileKind,
    parse_delta_log_name,
    parse_segment_file_name,
    print_segment_file_name,
)
from exactlog.core.deltalog.table_state import TableSegment
from exactlog.core.deltalog.version_cleanup import PackPlan
from exactlog.core.deltalog.version_ranges import VersionRanges
from exactlog.core.model.errors import DamageError
from exactlog.core.model.limits import INDEX_INTERVAL_BYTES
from exactlog.storage.aborted_transactions import rebuild_aborted
from exactlog.storage.audit_delta_log import DeltaLogListing
from exactlog.storage.audit_findings import AuditReport, Finding, Kind, Severity, TableReport
from exactlog.storage.audit_indexes import NOTHING_COUNTED
from exactlog.storage.audit_segments import SegmentWalk
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.packing import pack
from exactlog.storage.segment import SegmentFiles
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_audit import audit_table
from exactlog.storage.table_reader import TableReader
from exactlog.storage.whole_files import sync_names

_logger = logging.getLogger(__name__)

_OPEN_FILES_MAX: Final = 16
_INDEX_INTERVAL_KEY: Final = "index.interval.bytes"


class StepKind(StrEnum):
    """What a repair does; docs/operations.md explains each."""

    REMOVE_CHECKPOINT = "remove-checkpoint"
    REMOVE_COPY = "remove-copy"
    FINISH_PACKING = "finish-packing"
    CUT_SEGMENT = "cut-segment"
    REMOVE_SEGMENT = "remove-segment"
    REMOVE_TEMPORARY_FILE = "remove-temporary-file"
    REBUILD_INDEX = "rebuild-index"
    REBUILD_ABORTED_INDEX = "rebuild-aborted-index"


class Step(Struct, frozen=True):
    """One step of a repair.

    Attributes:
        kind: what it does.
        file: to which file, relative to the partition's directory; of an index, the segment it belongs to.
        position: where that file is cut, in bytes; None for other steps.
        reason: what was found.
    """

    kind: StepKind
    file: str
    position: int | None
    reason: str


class RepairPlan(Struct, frozen=True):
    """What can be put right in a partition, in order, and the damage that stays."""

    steps: tuple[Step, ...]
    remaining: tuple[Finding, ...]


class TableRepair(Struct, frozen=True, kw_only=True):
    """What a repair did, or would do, to one partition, and the damage it has then."""

    topic: str | None
    partition: int | None
    path: str
    steps: tuple[Step, ...]
    remaining: tuple[Finding, ...]


class RepairReport(Struct, frozen=True, kw_only=True):
    """What a repair did, or would do.

    Attributes:
        dry_run: whether it was only planned.
        tables: one for each partition.
        remaining: damage that is not about one partition; none of it can be repaired.
        steps: how many there are altogether.
        damage: how many findings remain altogether: all is well at 0.
    """

    dry_run: bool
    tables: tuple[TableRepair, ...]
    remaining: tuple[Finding, ...]
    steps: int
    damage: int


def repair(filesystem: Filesystem, found: AuditReport, *, dry_run: bool) -> RepairReport:
    """Puts right what an audit found. The caller holds the data directory's lock, unless it is a dry run.

    Raises:
        DamageError, OSError: a step could not be done; those before it are.
    """
    tables = tuple(_repair_table(filesystem, table, dry_run=dry_run) for table in found.tables)
    remaining = tuple(finding for finding in found.findings if finding.is_damage)
    return RepairReport(
        dry_run=dry_run,
        tables=tables,
        remaining=remaining,
        steps=sum(len(table.steps) for table in tables),
        damage=len(remaining) + sum(len(table.remaining) for table in tables),
    )


def plan_repair(filesystem: Filesystem, found: TableReport) -> RepairPlan:
    """What can be put right of what was found in a partition; changes nothing."""
    steps: dict[tuple[StepKind, str], Step] = {}
    remaining = []
    for finding in found.findings:
        step = _find_step(filesystem, found, finding)
        if step is not None:
            steps.setdefault((step.kind, step.file), step)
        elif finding.is_damage:
            remaining.append(finding)
    if any(finding.severity is Severity.DAMAGE for finding in remaining):
        return RepairPlan((), tuple(finding for finding in found.findings if finding.is_damage))
    if any(finding.kind == Kind.COPY_DAMAGED and not _is_loose(finding.file) for finding in found.findings):
        steps.pop((StepKind.FINISH_PACKING, DELTA_LOG_DIRECTORY), None)  # the pack itself is what is damaged
    order = list(StepKind)
    return RepairPlan(tuple(sorted(steps.values(), key=lambda step: order.index(step.kind))), tuple(remaining))


def _repair_table(filesystem: Filesystem, found: TableReport, *, dry_run: bool) -> TableRepair:
    plan = plan_repair(filesystem, found)
    remaining = plan.remaining
    if plan.steps and not dry_run:
        _Repair(filesystem, found.path).carry_out(plan.steps)
        after = audit_table(filesystem, found.path)
        remaining = tuple(finding for finding in after.findings if finding.is_damage)
    return TableRepair(
        topic=found.topic, partition=found.partition, path=found.path, steps=plan.steps, remaining=remaining
    )


def _find_step(filesystem: Filesystem, table: TableReport, finding: Finding) -> Step | None:
    """The step that puts a finding right; None where there is none, or nothing is to be done."""
    is_synced = table.flush_mode == FlushMode.COMMIT
    file, position = finding.file, None
    match finding.kind:
        case Kind.CHECKPOINT_DAMAGED | Kind.CHECKPOINT_DIFFERS:
            kind = StepKind.REMOVE_CHECKPOINT
        case Kind.COPY_DAMAGED | Kind.COPY_LOST if _has_other_copies(filesystem, table.path, file):
            kind = StepKind.REMOVE_COPY
        case Kind.PACKING_UNFINISHED:
            kind = StepKind.FINISH_PACKING
        case Kind.BYTES_BEHIND if is_synced:
            kind, position = StepKind.CUT_SEGMENT, finding.position
        case Kind.SEGMENT_UNNAMED if is_synced:
            kind = StepKind.REMOVE_SEGMENT
        case Kind.TEMPORARY_FILE if is_synced:
            kind = StepKind.REMOVE_TEMPORARY_FILE
        case Kind.INDEX_DAMAGED if (parsed := parse_segment_file_name(file)) is not None:
            is_of_aborted = parsed.kind is SegmentFileKind.ABORTED_INDEX
            kind = StepKind.REBUILD_ABORTED_INDEX if is_of_aborted else StepKind.REBUILD_INDEX
            file = print_segment_file_name(parsed.base, generation=parsed.generation)
        case _:
            return None
    return Step(kind, file, position, finding.message)


def _has_other_copies(filesystem: Filesystem, directory: str, file: str) -> bool:
    """Whether every version of a document file, or of a pack, has another good copy."""
    if _is_loose(file):
        return True  # of the only version it holds there is one, else it would not be a copy
    name = parse_delta_log_name(file.rpartition("/")[2])
    if not isinstance(name, CompactedName):
        return False
    listing = DeltaLogListing(filesystem, directory)
    run = VersionRanges(listing.loose).run_of(name.first_version)
    return run is not None and run.last_version >= name.last_version


def _is_loose(file: str) -> bool:
    """Whether a document of the delta log is the own file of a version."""
    return isinstance(parse_delta_log_name(file.rpartition("/")[2]), CommitName)


class _Repair:
    """The steps, carried out in one partition."""

    def __init__(self, filesystem: Filesystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory

    def carry_out(self, steps: Sequence[Step]) -> None:
        rebuilt, of_aborted = [], []
        for step in steps:
            _logger.info("%s: %s %s", self._directory, step.kind, step.file)
            match step.kind:
                case StepKind.FINISH_PACKING:
                    self._finish_packing()
                case StepKind.CUT_SEGMENT:
                    file = self._filesystem.open(f"{self._directory}/{step.file}")
                    file.truncate(step.position or 0)
                    file.sync()
                case StepKind.REBUILD_INDEX:
                    rebuilt.append(step.file)
                case StepKind.REBUILD_ABORTED_INDEX:
                    of_aborted.append(step.file)
                case _:
                    self._filesystem.remove(f"{self._directory}/{step.file}")
        for directory in (f"{self._directory}/{DELTA_LOG_DIRECTORY}", self._directory):
            sync_names(self._filesystem, directory)
        if rebuilt or of_aborted:
            self._rebuild_indexes(rebuilt, of_aborted)

    def _finish_packing(self) -> None:
        """Takes away the files that packs stand for, as the packing that made those would have."""
        listing = DeltaLogListing(self._filesystem, self._directory)
        for name in listing.packs:
            if any(name.first_version <= version <= name.last_version for version in listing.loose):
                plan = PackPlan(first_version=name.first_version, last_version=name.last_version)
                pack(self._filesystem, self._directory, plan)

    def _rebuild_indexes(self, names: Sequence[str], names_of_aborted: Sequence[str]) -> None:
        table = TableReader(self._filesystem, self._directory)
        segments = table.snapshot().segments
        files = SegmentFiles(
            self._filesystem,
            OpenFiles(self._filesystem, files_max=_OPEN_FILES_MAX),
            index_interval_bytes=_index_interval_of(table.metadata),
        )
        for segment in segments:
            if segment.name in names:
                self._rebuild_index(files, segment, is_active=segment is segments[-1])
        if names_of_aborted:
            self._rebuild_aborted_indexes(files, segments, names_of_aborted)

    def _rebuild_index(self, files: SegmentFiles, segment: TableSegment, *, is_active: bool) -> None:
        rebuilt = files.named(self._directory, segment.name, base_offset=segment.base)
        walk = SegmentWalk(self._filesystem, self._directory, segment.name, segment.base, NOTHING_COUNTED)
        for position, header in walk.walk(segment.size, segment.next_offset, version=None, is_loss_allowed=False):
            rebuilt.on_appended(header, position)
        if not walk.is_sound:
            raise DamageError(f"{rebuilt.path} has changed since it was verified", hint="verify it again")
        if not is_active:
            rebuilt.seal_now()
            return
        for rows in rebuilt.index.take_new_rows():
            rows.write(self._filesystem)

    def _rebuild_aborted_indexes(
        self, files: SegmentFiles, segments: Sequence[TableSegment], names: Sequence[str]
    ) -> None:
        """Those of several segments at once: it takes the batches of all that lie before them."""
        walked = []
        for entry in segments:
            segment = files.named(self._directory, entry.name, base_offset=entry.base)
            segment.size, segment.next_offset = entry.size, entry.next_offset
            walked.append(segment)
        rebuilt = [segment for segment in walked if segment.name in names]
        rebuild_aborted(walked, rebuilt)
        for segment in rebuilt:
            segment.aborted.write_anew(self._filesystem, is_sealed=segment is not walked[-1])


def _index_interval_of(metadata: TableMetadata) -> int:
    overrides = {name: text for name, text in metadata.config.items() if name == _INDEX_INTERVAL_KEY}
    config = validate_topic_config(overrides)
    return config.index_interval_bytes if isinstance(config, TopicConfig) else INDEX_INTERVAL_BYTES
