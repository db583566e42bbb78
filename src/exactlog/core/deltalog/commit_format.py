"""One version of the table: the delta commit `_delta_log/{version:020d}.json`.

A version is a group of appends (or a removal, or a change of settings) that became committed together. Its document
says which bytes of which segments count from now on; what producers and transactions these bytes mean stands in the
batches themselves. Documents are chained: `prev_crc` is the checksum of the previous version's logical fields, those
that a replica, whose segments are cut elsewhere, has in common.

Layout: docs/formats/commit_format.md; seed 000 §2.2 (`CommitLogEntry`).
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from exactlog.core.deltalog.canonical_json import (
    Crc,
    JsonObject,
    compute_crc,
    decode_document,
    encode_document,
    print_crc,
)
from exactlog.core.deltalog.log_path import CommitName, parse_delta_log_name
from exactlog.core.deltalog.timestamps import parse_timestamp
from exactlog.core.model.errors import DamageError, DecodeError
from exactlog.core.model.ids import BrokerId, DeltaVersion, LeaderEpoch, Offset, TimestampMs

FORMAT_VERSION: Final = 1

_NUMBER_MAX: Final = 2**63 - 1
Count = Annotated[int, msgspec.Meta(ge=0, le=_NUMBER_MAX)]
OffsetField = Annotated[Offset, msgspec.Meta(ge=0, le=_NUMBER_MAX)]
VersionField = Annotated[DeltaVersion, msgspec.Meta(ge=0, le=_NUMBER_MAX)]
LeaderEpochField = Annotated[LeaderEpoch, msgspec.Meta(ge=0, le=2**31 - 1)]
SizeField = Annotated[int, msgspec.Meta(ge=1, le=_NUMBER_MAX)]


class Operation(JsonObject, frozen=True, kw_only=True, gc=False):
    """A contiguous range of offsets that a version adds to the table, or takes from it.

    Attributes:
        type: `add` or `remove`.
        origin_id: who supplied `origin_seq`: the writer, else the node.
        origin_seq: grows by one with each add of this origin in this partition.
        offset_start: the first offset of the range.
        offset_end: the last offset of the range, inclusive.
        segment: the name of the segment file that holds the bytes.
        position: where in that file they begin, in bytes.
        size: how many bytes they are.
        txn_id: the client's own id of this append, for retries without duplicates; absent where it gave none.
        payload_crc: CRC-32C of what the client sent, to tell a retry from another append under the same id or
            sequence; absent where neither was given.
    """

    type: Literal["add", "remove"]
    origin_id: Count
    origin_seq: Count
    offset_start: OffsetField
    offset_end: OffsetField
    segment: str
    position: Count
    size: SizeField
    txn_id: str | UnsetType = UNSET
    payload_crc: Crc | UnsetType = UNSET


class TableMetadata(JsonObject, frozen=True, kw_only=True, gc=False):
    """What the table is: in version 0, in every version that changes a setting, in every checkpoint.

    Attributes:
        topic: its name, which the directory's name may only hold as a hash.
        partition: its number within the topic.
        topic_id: the id that tells this topic from an earlier one of the same name.
        created: when the topic was made, as a timestamp.
        format_version: which version of these formats the directory is written in.
        config: the settings that were given for the topic, by Kafka's names; defaults are not listed.
    """

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    topic_id: UUID
    created: str
    format_version: Annotated[int, msgspec.Meta(ge=1)]
    config: dict[str, str]


class DeltaCommit(JsonObject, frozen=True, kw_only=True, gc=False):
    """The content of a commit document, `crc` apart: that belongs to the bytes.

    Attributes:
        version: the number of the version; they follow each other from 0 without gaps.
        timestamp: when it was committed, never earlier than the version before it.
        txn_id: the id of the round that committed it, `broker-{id}:{ms}:{seq}`.
        operations: what it adds and removes, in the order of offsets.
        checkpoint_hint: whether a checkpoint is due at this version.
        end_offset: the table's next offset after this version, exclusive end of what it can serve.
        last_stable_offset: below it every transaction is decided, as of this version.
        log_start_offset: the first offset that can still be read, as of this version.
        leader_epoch: the epoch of the leader that committed it.
        data_crc: CRC-32C of the bytes of all its adds, in order; `00000000` where it adds none.
        prev_crc: checksum of the previous version's logical fields; `00000000` in version 0.
        metadata: what the table is, where this version says it anew.
    """

    nested: ClassVar[Mapping[str, type[JsonObject]]] = {"operations": Operation, "metadata": TableMetadata}

    version: VersionField
    timestamp: str
    txn_id: str
    operations: tuple[Operation, ...]
    checkpoint_hint: bool
    end_offset: OffsetField
    last_stable_offset: OffsetField
    log_start_offset: OffsetField
    leader_epoch: LeaderEpochField
    data_crc: Crc
    metadata: TableMetadata | UnsetType = UNSET
    prev_crc: Crc

    @property
    def is_rewriting(self) -> bool:
        """Whether its adds put other segments in the place of those it removes, instead of adding at the end."""
        removed = [operation for operation in self.operations if operation.type == "remove"]
        added = [operation for operation in self.operations if operation.type == "add"]
        if not removed or not added:
            return False
        is_below = min(operation.offset_start for operation in added) == min(
            operation.offset_start for operation in removed
        )
        return is_below and {operation.segment for operation in added}.isdisjoint(
            operation.segment for operation in removed
        )

    @property
    def appends(self) -> tuple[Operation, ...]:
        """What it adds at the end of the table."""
        if self.is_rewriting:
            return ()
        return tuple(operation for operation in self.operations if operation.type == "add")


class EncodedCommit(msgspec.Struct, frozen=True):
    """A commit as bytes: the whole document, and what the next version's `prev_crc` must be."""

    document: bytes
    chain_crc: str


class DecodedCommit(msgspec.Struct, frozen=True):
    """A commit as read, and what the next version's `prev_crc` must be."""

    commit: DeltaCommit
    chain_crc: str


def encode_commit(commit: DeltaCommit) -> EncodedCommit:
    """The canonical document of a commit."""
    return EncodedCommit(document=encode_document(commit), chain_crc=compute_chain_crc(commit))


def decode_commit(document: bytes, *, path_hint: str) -> DecodedCommit:
    """The commit that a document holds, alone: whether it follows from the version before it is for the replay.

    Args:
        document: the whole file, or one line of a compacted one.
        path_hint: where it was read, for errors. If its last part is the name of a delta commit, the document must
            be of that version.

    Raises:
        DamageError: the document is empty, torn, not JSON, of wrong types, of another version than its name says, or
            not what its `crc` was computed over.
    """
    commit = decode_document(document, _decoder, DeltaCommit, path_hint=path_hint)
    name = parse_delta_log_name(path_hint.rpartition("/")[2])
    if isinstance(name, CommitName) and name.version != commit.version:
        raise DamageError(f"{path_hint}: the document is of version {commit.version}, its name says {name.version}")
    check_timestamp(commit.timestamp, path_hint=path_hint)
    if commit.metadata is not UNSET:
        check_metadata(commit.metadata, path_hint=path_hint)
    return DecodedCommit(commit=commit, chain_crc=compute_chain_crc(commit))


def compute_chain_crc(commit: DeltaCommit) -> str:
    """The checksum of a commit's logical fields: all but `crc`, `checkpoint_hint`, and where the bytes lie."""
    operations = [
        _LogicalOperation(
            operation.type,
            operation.origin_id,
            operation.origin_seq,
            operation.offset_start,
            operation.offset_end,
            operation.size,
            operation.txn_id,
            operation.payload_crc,
            unknown=operation.unknown,
        )
        for operation in commit.operations
    ]
    logical = _LogicalCommit(
        commit.version,
        commit.timestamp,
        commit.txn_id,
        operations,
        commit.end_offset,
        commit.last_stable_offset,
        commit.log_start_offset,
        commit.leader_epoch,
        commit.data_crc,
        commit.metadata,
        commit.prev_crc,
        unknown=commit.unknown,
    )
    return print_crc(compute_crc(logical))


def print_round_txn_id(*, node_id: BrokerId, now_ms: TimestampMs, sequence: int) -> str:
    """The `txn_id` of a commit: which node closed it, when, and a number that tells it from others of that moment."""
    return f"broker-{node_id}:{now_ms}:{sequence}"


def check_timestamp(text: str, *, path_hint: str) -> None:
    """Raises DamageError for a text that is no timestamp of the delta log."""
    try:
        parse_timestamp(text)
    except DecodeError as error:
        raise DamageError(f"{path_hint}: {error}") from error


def check_metadata(metadata: TableMetadata, *, path_hint: str) -> None:
    """Raises DamageError for metadata that this version cannot read."""
    check_timestamp(metadata.created, path_hint=path_hint)
    if metadata.format_version > FORMAT_VERSION:
        raise DamageError(
            f"{path_hint}: the directory is in format version {metadata.format_version}, "
            f"this exactlog reads versions up to {FORMAT_VERSION}",
            hint="open it with the newer exactlog that wrote it",
        )


class _LogicalOperation(JsonObject, frozen=True, gc=False):
    type: str
    origin_id: int
    origin_seq: int
    offset_start: int
    offset_end: int
    size: int
    txn_id: str | UnsetType
    payload_crc: str | UnsetType


class _LogicalCommit(JsonObject, frozen=True, gc=False):
    nested: ClassVar[Mapping[str, type[JsonObject]]] = {"operations": _LogicalOperation, "metadata": TableMetadata}

    version: int
    timestamp: str
    txn_id: str
    operations: list[_LogicalOperation]
    end_offset: int
    last_stable_offset: int
    log_start_offset: int
    leader_epoch: int
    data_crc: str
    metadata: TableMetadata | UnsetType
    prev_crc: str


_decoder: Final = msgspec.json.Decoder(DeltaCommit)
