"""The whole table as of one version: the delta checkpoint `_delta_log/{version:020d}.checkpoint.json`.

Opening a partition reads the newest checkpoint and the delta commits after it, nothing before. So it holds all that
replaying the delta log from version 0 would give, and all that reading the segments from their beginning would: what
producers have written, which transactions are open, how many rows of the indexes are good.

Layout: docs/formats/checkpoint_format.md; seed 000 §2.3 (`Checkpoint`).
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import UNSET, UnsetType

from exactlog.core.deltalog.canonical_json import Crc, JsonObject, decode_document, encode_document
from exactlog.core.deltalog.commit_format import (
    Count,
    LeaderEpochField,
    OffsetField,
    SizeField,
    TableMetadata,
    VersionField,
    check_metadata,
    check_timestamp,
)
from exactlog.core.deltalog.log_path import (
    CheckpointName,
    SegmentFileKind,
    parse_delta_log_name,
    parse_segment_file_name,
)
from exactlog.core.model.errors import DamageError
from exactlog.core.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs

_TimestampField = Annotated[TimestampMs, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_ProducerIdField = Annotated[ProducerId, msgspec.Meta(ge=0, le=2**63 - 1)]
_ProducerEpochField = Annotated[ProducerEpoch, msgspec.Meta(ge=-1, le=2**15 - 1)]
_SequenceField = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]


class SegmentEntry(JsonObject, frozen=True, kw_only=True, gc=False):
    """A segment, and how much of its files counts.

    Attributes:
        name: of its `.log` file.
        base: the first offset of the segment.
        next_offset: the offset after its last one, exclusive end.
        size: how many bytes of the file count, from its beginning.
        max_timestamp: the greatest record timestamp in it, in milliseconds since 1970; -1 where no record has one.
        index_entries: how many rows of its `.index` are good at this version.
        time_index_entries: how many rows of its `.timeindex` are good at this version.
        aborted_entries: how many rows of its `.txnindex` are good at this version; without it there are none.
        aborted_crc: CRC-32C of those rows.
    """

    name: str
    base: OffsetField
    next_offset: OffsetField
    size: SizeField
    max_timestamp: _TimestampField
    index_entries: Count
    time_index_entries: Count
    aborted_entries: Count | UnsetType = UNSET
    aborted_crc: Crc | UnsetType = UNSET


class OriginEntry(JsonObject, frozen=True, kw_only=True, gc=False):
    """The last add of one origin: remembered for ever, so that no sequence of it is ever added twice.

    Attributes:
        origin_id: the origin.
        last_seq: the greatest `origin_seq` it has added.
        payload_crc: of that add, where it had one.
        version: which version added it.
        offset_start: the first offset of that add.
        offset_end: the last offset of that add, inclusive.
    """

    origin_id: Count
    last_seq: Count
    payload_crc: Crc | UnsetType = UNSET
    version: VersionField
    offset_start: OffsetField
    offset_end: OffsetField


class TxnIdEntry(JsonObject, frozen=True, kw_only=True, gc=False):
    """One client's append under an id of its own, and where it went: the answer to a retry.

    Attributes:
        txn_id: the id the client gave.
        payload_crc: of what it sent, where the commit has it.
        version: which version added it.
        offset_start: the first offset of that add.
        offset_end: the last offset of that add, inclusive.
    """

    txn_id: str
    payload_crc: Crc | UnsetType = UNSET
    version: VersionField
    offset_start: OffsetField
    offset_end: OffsetField


class LeaderEpochEntry(JsonObject, frozen=True, kw_only=True, gc=False):
    """A leader epoch, and the first offset that was or will be written under it (KIP-101)."""

    epoch: LeaderEpochField
    start_offset: OffsetField


class ProducerBatchEntry(JsonObject, frozen=True, kw_only=True, gc=False):
    """One of the last batches of a producer: its sequences and offsets, both ends inclusive, and its time in ms."""

    first_sequence: _SequenceField
    last_sequence: _SequenceField
    offset_start: OffsetField
    offset_end: OffsetField
    timestamp: _TimestampField


class ProducerEntry(JsonObject, frozen=True, kw_only=True, gc=False):
    """What a partition knows of an idempotent or transactional producer (KIP-98).

    Attributes:
        producer_id: the producer.
        producer_epoch: the greatest epoch seen of it.
        coordinator_epoch: of the coordinator that wrote its last transaction marker; -1 without one.
        last_timestamp: when it last wrote here, in milliseconds since 1970.
        batches: its last batches, oldest first, five at most.
        txn_start_offset: the first offset of its open transaction; None without one.
    """

    nested: ClassVar[Mapping[str, type[JsonObject]]] = {"batches": ProducerBatchEntry}

    producer_id: _ProducerIdField
    producer_epoch: _ProducerEpochField
    coordinator_epoch: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
    last_timestamp: _TimestampField
    batches: tuple[ProducerBatchEntry, ...]
    txn_start_offset: OffsetField | None


class OpenTransactionEntry(JsonObject, frozen=True, kw_only=True, gc=False):
    """A transaction that is undecided at this version, by its producer and its first offset."""

    producer_id: _ProducerIdField
    producer_epoch: _ProducerEpochField
    first_offset: OffsetField


class Checkpoint(JsonObject, frozen=True, kw_only=True, gc=False):
    """The content of a checkpoint document, `crc` apart.

    Attributes:
        version: the version whose table this is.
        timestamp: when that version was committed.
        last_offset: the table's last offset, `next_offset - 1`; -1 before the first record.
        segments: in the order of offsets, without gaps.
        origins: the last add of each origin.
        next_offset: the offset the next record gets.
        log_start_offset: the first offset that can still be read.
        last_stable_offset: below it every transaction is decided.
        leader_epoch: the epoch of the leader that committed the version.
        producers: what the partition knows of producers.
        open_transactions: those undecided at this version.
        leader_epochs: in rising order.
        txn_ids: the clients' own ids that are remembered, oldest first.
        metadata: what the table is.
        chain_crc: what the `prev_crc` of the next version must be.
    """

    nested: ClassVar[Mapping[str, type[JsonObject]]] = {
        "segments": SegmentEntry,
        "origins": OriginEntry,
        "producers": ProducerEntry,
        "open_transactions": OpenTransactionEntry,
        "leader_epochs": LeaderEpochEntry,
        "txn_ids": TxnIdEntry,
        "metadata": TableMetadata,
    }

    version: VersionField
    timestamp: str
    last_offset: Annotated[Offset, msgspec.Meta(ge=-1, le=2**63 - 1)]
    segments: tuple[SegmentEntry, ...]
    origins: tuple[OriginEntry, ...]
    next_offset: OffsetField
    log_start_offset: OffsetField
    last_stable_offset: OffsetField
    leader_epoch: LeaderEpochField
    producers: tuple[ProducerEntry, ...]
    open_transactions: tuple[OpenTransactionEntry, ...]
    leader_epochs: tuple[LeaderEpochEntry, ...]
    txn_ids: tuple[TxnIdEntry, ...]
    metadata: TableMetadata
    chain_crc: Crc


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The canonical document of a checkpoint. Pure and slow for large ones: meant for a thread of its own."""
    return encode_document(checkpoint)


def decode_checkpoint(document: bytes, *, path_hint: str) -> Checkpoint:
    """The checkpoint that a document holds.

    Args:
        document: the whole file.
        path_hint: where it was read, for errors. If its last part is the name of a checkpoint, the document must be
            of that version.

    Raises:
        DamageError: the document is empty, torn, not JSON, of wrong types, of another version than its name says, not
            what its `crc` was computed over, or its segments and offsets contradict each other. A reader then takes
            an older checkpoint, or replays everything.
    """
    checkpoint = decode_document(document, _decoder, Checkpoint, path_hint=path_hint)
    name = parse_delta_log_name(path_hint.rpartition("/")[2])
    if isinstance(name, CheckpointName) and name.version != checkpoint.version:
        raise DamageError(f"{path_hint}: the document is of version {checkpoint.version}, its name of {name.version}")
    check_timestamp(checkpoint.timestamp, path_hint=path_hint)
    check_metadata(checkpoint.metadata, path_hint=path_hint)
    contradiction = _find_contradiction(checkpoint)
    if contradiction is not None:
        raise DamageError(f"{path_hint}: {contradiction}")
    return checkpoint


def _find_contradiction(checkpoint: Checkpoint) -> str | None:
    next_offset = checkpoint.next_offset
    if checkpoint.last_offset != next_offset - 1:
        return f"last_offset {checkpoint.last_offset} is not one below next_offset {next_offset}"
    if not checkpoint.log_start_offset <= next_offset or not checkpoint.last_stable_offset <= next_offset:
        return f"log_start_offset or last_stable_offset lies above next_offset {next_offset}"
    expected_base = checkpoint.segments[0].base if checkpoint.segments else next_offset
    if checkpoint.log_start_offset < expected_base:
        return f"log_start_offset {checkpoint.log_start_offset} lies below the first segment, {expected_base}"
    for segment in checkpoint.segments:
        name = parse_segment_file_name(segment.name)
        if name is None or name.kind is not SegmentFileKind.LOG or name.base != segment.base:
            return f"segment {segment.name!r} is not the name of one with base {segment.base}"
        if segment.base != expected_base or segment.next_offset <= segment.base:
            return f"segment {segment.name} does not begin at {expected_base}, or is empty"
        expected_base = segment.next_offset
    if expected_base != next_offset:
        return f"the segments end at {expected_base}, the table at {next_offset}"
    return None


_decoder: Final = msgspec.json.Decoder(Checkpoint)
