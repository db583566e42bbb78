"""The head of a partition's chain of delta versions: what the next one is called, and what it follows from."""

from collections.abc import Sequence

from msgspec import UNSET

from exactlog.core.deltalog.canonical_json import print_crc
from exactlog.core.deltalog.checkpoint_policy import is_checkpoint_due
from exactlog.core.deltalog.commit_format import (
    DecodedCommit,
    DeltaCommit,
    Operation,
    TableMetadata,
    encode_commit,
    print_round_txn_id,
)
from exactlog.core.deltalog.log_path import print_commit_name
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.deltalog.timestamps import format_timestamp, parse_timestamp
from exactlog.core.model.ids import BrokerId, DeltaVersion, LeaderEpoch, Offset, TimestampMs
from exactlog.storage.group import Group
from exactlog.storage.round import CommitWrite
from exactlog.storage.settings import LogSettings


class DeltaHead:
    """Numbers and chains versions from where a table stands; a new one each time head is set back to committed."""

    def __init__(self, table: TableState, settings: LogSettings) -> None:
        self._settings = settings
        self._version = table.version
        self._chain_crc = table.chain_crc
        self._timestamp_ms = parse_timestamp(table.timestamp) if table.timestamp else TimestampMs(0)
        self._next_offset = table.next_offset
        self._log_start_offset = table.log_start_offset
        origin = table.origins.get(settings.node_id)
        self._origin_seq = origin.last_seq if origin is not None else 0

    def close(
        self, groups: Sequence[Group], *, data_crc: int, now_ms: int, metadata: TableMetadata | None = None
    ) -> tuple[CommitWrite, DecodedCommit]:
        """The next version, over groups that follow each other; with `metadata`, one that says what the table is.

        Args:
            data_crc: CRC-32C of the groups' bytes.
        """
        version = DeltaVersion(self._version + 1)
        timestamp_ms = TimestampMs(max(now_ms, self._timestamp_ms))
        end_offset = Offset(groups[-1].end_offset) if groups else self._next_offset
        txn_id = print_round_txn_id(
            node_id=BrokerId(self._settings.node_id), now_ms=TimestampMs(now_ms), sequence=version
        )
        commit = DeltaCommit(
            version=version,
            timestamp=format_timestamp(timestamp_ms),
            txn_id=txn_id,
            operations=self._operations(groups),
            checkpoint_hint=is_checkpoint_due(version, interval=self._settings.checkpoint_interval),
            end_offset=end_offset,
            last_stable_offset=end_offset,
            log_start_offset=self._log_start_offset,
            leader_epoch=LeaderEpoch(self._settings.leader_epoch),
            data_crc=print_crc(data_crc),
            metadata=UNSET if metadata is None else metadata,
            prev_crc=self._chain_crc,
        )
        encoded = encode_commit(commit)
        self._version = version
        self._timestamp_ms = timestamp_ms
        self._next_offset = end_offset
        self._chain_crc = encoded.chain_crc
        write = CommitWrite(version, print_commit_name(version), encoded.document, txn_id)
        return write, DecodedCommit(commit, encoded.chain_crc)

    def _operations(self, groups: Sequence[Group]) -> tuple[Operation, ...]:
        """One add for each run of groups in one segment."""
        runs: list[list[Group]] = []
        for group in groups:
            if runs and runs[-1][0].segment is group.segment:
                runs[-1].append(group)
            else:
                runs.append([group])
        operations = []
        for run in runs:
            self._origin_seq += 1
            operations.append(
                Operation(
                    type="add",
                    origin_id=self._settings.node_id,
                    origin_seq=self._origin_seq,
                    offset_start=Offset(run[0].base_offset),
                    offset_end=Offset(run[-1].end_offset - 1),
                    segment=run[0].segment.name,
                    position=run[0].position,
                    size=sum(group.size for group in run),
                )
            )
        return tuple(operations)
