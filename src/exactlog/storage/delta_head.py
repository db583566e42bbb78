"""The head of a partition's chain of delta versions: what the next one is called, and what it follows from."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from msgspec import UNSET

from exactlog.core.deltalog.append_terms import AppendTerms
from exactlog.core.deltalog.canonical_json import print_crc
from exactlog.core.deltalog.checkpoint_policy import is_checkpoint_due
from exactlog.core.deltalog.commit_format import (
    DecodedCommit,
    DeltaCommit,
    Operation,
    encode_commit,
    print_round_txn_id,
)
from exactlog.core.deltalog.log_path import print_commit_name
from exactlog.core.deltalog.table_state import TableSegment, TableState
from exactlog.core.deltalog.timestamps import format_timestamp, parse_timestamp
from exactlog.core.model.ids import BrokerId, DeltaVersion, LeaderEpoch, Offset, TimestampMs
from exactlog.storage.group import AddRange, Group
from exactlog.storage.pending_versions import Rewriting, TableChange
from exactlog.storage.round import CommitWrite
from exactlog.storage.settings import LogSettings

NO_CHANGE: Final = TableChange()
NO_TERMS: Final = AppendTerms()


class DeltaHead:
    """Numbers and chains versions from where a table stands; a new one each time head is set back to committed."""

    def __init__(self, table: TableState, settings: LogSettings) -> None:
        self._settings = settings
        self._version = table.version
        self._chain_crc = table.chain_crc
        self._timestamp_ms = parse_timestamp(table.timestamp) if table.timestamp else TimestampMs(0)
        self._next_offset = table.next_offset
        self._log_start_offset = table.log_start_offset
        self._last_stable_offset = table.last_stable_offset
        origin = table.origins.get(settings.node_id)
        self._origin_seq = origin.last_seq if origin is not None else 0

    def close(
        self, groups: Sequence[Group], *, data_crc: int, now_ms: int, change: TableChange = NO_CHANGE
    ) -> tuple[CommitWrite, DecodedCommit]:
        """The next version, over groups that follow each other, or over a change of the table.

        Args:
            data_crc: CRC-32C of the groups' bytes.
        """
        version = DeltaVersion(self._version + 1)
        timestamp_ms = TimestampMs(max(now_ms, self._timestamp_ms))
        end_offset = Offset(groups[-1].end_offset) if groups else self._next_offset
        if change.log_start_offset is not None:
            self._log_start_offset = Offset(change.log_start_offset)
        # That of this version's end: in `interval` and `none` more may be committed by now. What has been told stays.
        stable_end_offset = groups[-1].stable_end_offset if groups else self._last_stable_offset
        last_stable_offset = Offset(max(stable_end_offset, self._last_stable_offset, self._log_start_offset))
        txn_id = print_round_txn_id(
            node_id=BrokerId(self._settings.node_id), now_ms=TimestampMs(now_ms), sequence=version
        )
        commit = DeltaCommit(
            version=version,
            timestamp=format_timestamp(timestamp_ms),
            txn_id=txn_id,
            operations=(
                *self._adds(groups),
                *map(self._remove, change.removed),
                *(operation for each in change.rewritten for operation in self._rewrite(each)),
            ),
            checkpoint_hint=is_checkpoint_due(version, interval=self._settings.checkpoint_interval),
            end_offset=end_offset,
            last_stable_offset=last_stable_offset,
            log_start_offset=self._log_start_offset,
            leader_epoch=LeaderEpoch(self._settings.leader_epoch),
            data_crc=print_crc(data_crc),
            metadata=UNSET if change.metadata is None else change.metadata,
            prev_crc=self._chain_crc,
        )
        encoded = encode_commit(commit)
        self._version = version
        self._timestamp_ms = timestamp_ms
        self._next_offset = end_offset
        self._last_stable_offset = last_stable_offset
        self._chain_crc = encoded.chain_crc
        write = CommitWrite(version, print_commit_name(version), encoded.document, txn_id)
        return write, DecodedCommit(commit, encoded.chain_crc)

    def _adds(self, groups: Sequence[Group]) -> Iterator[Operation]:
        """One add for each range of one origin in one segment."""
        segment, pending = "", None
        for group in groups:
            for add in group.adds():
                if pending is not None and segment == group.segment.name and pending.terms is None is add.terms:
                    pending = AddRange(pending.offset_start, add.offset_end, pending.position, pending.size + add.size)
                    continue
                if pending is not None:
                    yield self._add(pending, segment)
                segment, pending = group.segment.name, add
        if pending is not None:
            yield self._add(pending, segment)

    def _add(self, add: AddRange, segment: str) -> Operation:
        terms = add.terms if add.terms is not None else NO_TERMS
        if terms.origin_id is None or add.origin_seq is None:
            self._origin_seq += 1
            origin_id, origin_seq = self._settings.node_id, self._origin_seq
        else:
            origin_id, origin_seq = terms.origin_id, add.origin_seq
        return Operation(
            type="add",
            origin_id=origin_id,
            origin_seq=origin_seq,
            offset_start=Offset(add.offset_start),
            offset_end=Offset(add.offset_end),
            segment=segment,
            position=add.position,
            size=add.size,
            txn_id=UNSET if terms.txn_id is None else terms.txn_id,
            payload_crc=UNSET if terms.payload_crc is None else terms.payload_crc,
        )

    def _rewrite(self, rewriting: Rewriting) -> Iterator[Operation]:
        yield from map(self._remove, rewriting.removed)
        yield self._whole("add", rewriting.added.in_table())

    def _remove(self, segment: TableSegment) -> Operation:
        return self._whole("remove", segment)

    def _whole(self, kind: Literal["add", "remove"], segment: TableSegment) -> Operation:
        return Operation(
            type=kind,
            origin_id=self._settings.node_id,
            origin_seq=0,
            offset_start=segment.base,
            offset_end=Offset(segment.next_offset - 1),
            segment=segment.name,
            position=0,
            size=segment.size,
        )
