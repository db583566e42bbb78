"""Compacting one partition: sealed segments are written anew with fewer records, under names of a new generation.

What stays of each batch is decided by `core.log.compaction`. Here segments are read, the new ones written beside them
under temporary names, synced, renamed, and their indexes made; a delta commit that puts them in the place of the old
ones is the caller's. Until it is published nothing has changed: what a crash leaves is no part of the table.

A segment of which everything stays is left alone. Neighbours that are small by now become one, up to `segment.bytes`.
The last batch of each new segment stays, if need be as an empty one of nobody: so a segment ends with the batch that it
says it ends with.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import crc32c
from msgspec import Struct

from exactlog.core.deltalog.log_path import parse_segment_file_name, print_segment_file_name, print_temporary_name
from exactlog.core.log.aborted_index_format import AbortedTransaction
from exactlog.core.log.compaction import (
    AbortedRanges,
    BatchJudge,
    Fate,
    Judgement,
    KeyOffsets,
    LastOfProducer,
)
from exactlog.core.model.errors import DamageError, DecodeError, InvariantError
from exactlog.core.model.ids import Offset, ProducerId
from exactlog.core.model.limits import COMPACTION_KEYS_MAX
from exactlog.core.record.batch_format import BatchHeader, crc_is_valid
from exactlog.core.record.batch_rewriting import (
    StoredRecords,
    empty_batch,
    filler_batch,
    index_records,
    is_filler,
    keep_records,
)
from exactlog.core.record.control_record_format import decode_marker_batch
from exactlog.storage.aborted_transactions import rebuild_aborted
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.pending_versions import Rewriting, TableChange
from exactlog.storage.segment import Segment, SegmentFiles
from exactlog.storage.segment_pieces import SegmentPiece, copy_bytes
from exactlog.storage.version_bytes import walk_batches
from exactlog.storage.whole_files import sync_data, sync_names

_logger = logging.getLogger(__name__)

_RELATIVE_OFFSET_MAX: Final = 2**31 - 1  # what an index row can say


class CompactionRules(Struct, frozen=True, kw_only=True):
    """How a partition is compacted.

    Attributes:
        now_ms: the time.
        delete_retention_ms: `delete.retention.ms`.
        min_lag_ms: `min.compaction.lag.ms`.
        segment_bytes: how large a segment of neighbours may become.
        keys_max: how many keys are known at a time.
    """

    now_ms: int
    delete_retention_ms: int
    min_lag_ms: int
    segment_bytes: int
    keys_max: int = COMPACTION_KEYS_MAX


class CompactedPart(Struct, frozen=True, kw_only=True):
    """What one pass has made.

    Attributes:
        end_offset: the end of the part whose keys it knew: where the next pass begins.
        change: what the delta commit has to say; None where everything stays as it is.
        records_removed: how many records went.
    """

    end_offset: Offset
    change: TableChange | None
    records_removed: int


class CompactionSource(Struct, frozen=True, kw_only=True):
    """The partition as it is.

    Attributes:
        segments: the committed ones, in order; the last one is active.
        last_stable_offset: the first undecided offset, or the end.
        find_aborted: the transactions that were aborted in a range of offsets.
        last_batches: of the producers that are known.
    """

    segments: Sequence[Segment]
    last_stable_offset: Offset
    find_aborted: Callable[[Offset, Offset], Sequence[AbortedTransaction]]
    last_batches: Mapping[ProducerId, LastOfProducer]


def compactable_segments(source: CompactionSource, rules: CompactionRules) -> list[Segment]:
    """The segments that may be compacted, from the first on: sealed, decided, and old enough.

    As in Apache Kafka (`cleanableOffsets`), but whole segments only: one with an undecided offset stays as it is.
    """
    found: list[Segment] = []
    for segment in source.segments[:-1]:
        is_too_young = rules.min_lag_ms > 0 and segment.max_timestamp > rules.now_ms - rules.min_lag_ms
        if segment.next_offset > source.last_stable_offset or is_too_young:
            break
        found.append(segment)
    return found


class Compaction:
    """Compacts one partition, pass by pass; blocks.

    Args:
        filesystem: where it is.
        files: makes its segments.
        directory: its path.
        rules: how.

    Methods raise DamageError where stored bytes are not what was written, and OSError where the disk refuses; nothing
    is left of what was begun then, if that can be removed.
    """

    def __init__(self, filesystem: Filesystem, files: SegmentFiles, directory: str, rules: CompactionRules) -> None:
        self._filesystem = filesystem
        self._files = files
        self._directory = directory
        self._rules = rules
        self._made: list[str] = []

    def run_pass(self, source: CompactionSource, start_offset: int) -> CompactedPart | None:
        """Compacts by the keys from an offset on; None where nothing is left there that may be compacted."""
        self._made = []
        segments = compactable_segments(source, self._rules)
        if not segments or segments[-1].next_offset <= start_offset:
            return None
        aborted = source.find_aborted(Offset(segments[0].base_offset), source.last_stable_offset)
        try:
            return self._run_pass(source, segments, aborted, start_offset)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Removes what the last pass has made: its commit has not come about."""
        for path in self._made:
            self._files.forget(path)
            with suppress(OSError):
                self._filesystem.remove(path)

    def _run_pass(
        self,
        source: CompactionSource,
        segments: Sequence[Segment],
        aborted: Sequence[AbortedTransaction],
        start_offset: int,
    ) -> CompactedPart:
        keys = self._take_keys(segments, AbortedRanges(aborted), start_offset)
        _logger.info("%s: %d keys from offset %d to %d", self._directory, len(keys), start_offset, keys.end_offset)
        judge = BatchJudge(
            keys,
            AbortedRanges(aborted),
            source.last_batches,
            now_ms=self._rules.now_ms,
            delete_retention_ms=self._rules.delete_retention_ms,
        )
        pieces = [
            self._compact_segment(segment, judge) for segment in segments if segment.base_offset < keys.end_offset
        ]
        groups = [group for group in self._group(pieces) if len(group) > 1 or group[0].is_changed]
        removed = sum(piece.records_removed for piece in pieces)
        if not groups:
            return CompactedPart(end_offset=keys.end_offset, change=None, records_removed=removed)
        change = self._finish(source.segments, groups)
        _logger.info("%s: %d segments are written anew, %d records went", self._directory, len(groups), removed)
        return CompactedPart(end_offset=keys.end_offset, change=change, records_removed=removed)

    # --- which keys there are -----------------------------------------------------------------------------------

    def _take_keys(self, segments: Sequence[Segment], aborted: AbortedRanges, start_offset: int) -> KeyOffsets:
        keys = KeyOffsets(start_offset, keys_max=self._rules.keys_max)
        for segment in segments:
            if segment.next_offset <= start_offset:
                continue
            for position, header in segment.headers_from(0):
                if header.next_offset <= start_offset:
                    continue
                if header.is_control or aborted.has(header) or not header.record_count:
                    keys.take(header, ())
                elif keys.has_room_for(header):
                    keys.take(header, self._read_records(segment, position, header).spans)
                else:
                    return keys
        return keys

    def _read_batch(self, segment: Segment, position: int, header: BatchHeader) -> bytes:
        batch = segment.read_batch(position, header)
        if not crc_is_valid(batch):
            raise DamageError(
                f"{segment.path}: the batch at byte {position} does not match its checksum",
                hint="look what is wrong with `exactlog log verify`; nothing was compacted",
            )
        return batch

    def _read_records(self, segment: Segment, position: int, header: BatchHeader) -> StoredRecords:
        try:
            return index_records(self._read_batch(segment, position, header), header)
        except DecodeError as error:
            raise self._undecodable(segment, position, error) from error

    def _undecodable(self, segment: Segment, position: int, error: DecodeError) -> DamageError:
        return DamageError(
            f"{segment.path}: the batch at byte {position} cannot be read: {error}",
            hint="look what is wrong with `exactlog log verify --deep`; nothing was compacted",
        )

    # --- what is left of them -----------------------------------------------------------------------------------

    def _compact_segment(self, segment: Segment, judge: BatchJudge) -> SegmentPiece:
        """One segment with what stays of it: a file of its own from the first byte on that changes."""
        aside = f"{self._directory}/{print_temporary_name(f'{segment.name}.compacted')}"
        self._made.append(aside)
        piece = SegmentPiece(self._filesystem, segment, aside)
        for position, header in segment.headers_from(0):
            is_last = position + header.size_bytes == segment.size
            judgement = self._judge(segment, position, header, judge)
            match judgement.fate:
                case Fate.AS_IS:
                    piece.keep(position, header)
                case Fate.WITH_RECORDS:
                    piece.replace(position, header, _with_records(header, judgement), kept=len(judgement.kept))
                case Fate.EMPTY:
                    piece.replace(position, header, empty_batch(header))
                case Fate.GONE if not is_last:
                    piece.replace(position, header, b"")
                case Fate.GONE:
                    piece.end_with_filler(position, header, None if is_filler(header) else filler_batch(header))
        piece.finish()
        return piece

    def _judge(self, segment: Segment, position: int, header: BatchHeader, judge: BatchJudge) -> Judgement:
        is_end_of_transaction = False
        if header.is_control and header.record_count:
            try:
                is_end_of_transaction = decode_marker_batch(self._read_batch(segment, position, header)) is not None
            except DecodeError as error:
                raise self._undecodable(segment, position, error) from error
        return judge.judge(
            header,
            lambda: self._read_records(segment, position, header),
            is_end_of_transaction=is_end_of_transaction,
        )

    # --- new segments -------------------------------------------------------------------------------------------

    def _group(self, pieces: Sequence[SegmentPiece]) -> Iterator[list[SegmentPiece]]:
        """Neighbours that fit into one segment together."""
        group: list[SegmentPiece] = []
        size = 0
        for piece in pieces:
            fits = group and (
                size + piece.size <= self._rules.segment_bytes
                and piece.source.next_offset - group[0].source.base_offset <= _RELATIVE_OFFSET_MAX
            )
            if not fits:
                if group:
                    yield group
                group, size = [], 0
            group.append(piece)
            size += piece.size_within
        if group:
            yield group

    def _finish(self, segments: Sequence[Segment], groups: Sequence[Sequence[SegmentPiece]]) -> TableChange:
        """The new segments, whole and durable under their own names, with their indexes."""
        crc, rewritten = 0, list[Rewriting]()
        for group in groups:
            segment, crc = self._make_segment(group, crc)
            rewritten.append(Rewriting([piece.source.in_table() for piece in group], segment))
        for path in self._asides(groups):
            self._filesystem.remove(path)
        leaving = {piece.source.name for group in groups for piece in group}
        new = [rewriting.added for rewriting in rewritten]
        kept = [segment for segment in segments if segment.name not in leaving]
        rebuild_aborted(sorted([*kept, *new], key=lambda segment: segment.base_offset), new)
        for segment in new:
            segment.seal_now()
        sync_names(self._filesystem, self._directory)
        return TableChange(rewritten=rewritten, data_crc=crc)

    def _asides(self, groups: Sequence[Sequence[SegmentPiece]]) -> list[str]:
        """The temporary files that are left; none of them is needed."""
        return [piece.aside for group in groups for piece in group if self._filesystem.exists(piece.aside)]

    def _make_segment(self, group: Sequence[SegmentPiece], crc: int) -> tuple[Segment, int]:
        """One new segment of what is left of some, and the CRC-32C of what was made so far with it."""
        first, last = group[0].source, group[-1].source
        parsed = parse_segment_file_name(first.name)
        if parsed is None:
            raise InvariantError(f"{first.name!r} is not the name of a segment")
        name = print_segment_file_name(parsed.base, generation=parsed.generation + 1)
        path = f"{self._directory}/{name}"
        aside = group[0].aside if len(group) == 1 else f"{self._directory}/{print_temporary_name(name)}"
        if len(group) > 1:
            self._made.append(aside)
            self._join(group, aside)
        sync_data(self._filesystem.open(aside))
        self._files.forget(path)
        self._filesystem.rename(aside, path)
        self._made += [path]
        segment = self._files.named(self._directory, name, base_offset=first.base_offset)
        file = self._filesystem.open(path, read_only=True)
        for found in walk_batches(file, 0, file.size()):
            segment.on_appended(found.header, found.position)
            crc = crc32c.crc32c(found.content, crc)
        if segment.size != file.size() or segment.next_offset != last.next_offset:
            raise InvariantError(f"{path}: {segment.size} bytes up to offset {segment.next_offset} were written")
        return segment, crc

    def _join(self, group: Sequence[SegmentPiece], path: str) -> None:
        file = self._filesystem.open(path, create=True)
        file.truncate(0)
        position = 0
        for piece in group:
            size = piece.size if piece is group[-1] else piece.size_within
            copy_bytes(piece.open(), file, size=size, position=position)
            position += size


def _with_records(header: BatchHeader, judgement: Judgement) -> bytes:
    if judgement.stored is None:
        raise InvariantError(f"the batch at offset {header.base_offset} is to keep records that were not read")
    return keep_records(header, judgement.stored.content, judgement.kept, delete_horizon_ms=judgement.delete_horizon_ms)
