"""The bytes that versions name: followed batch by batch, with what they make of producers and transactions."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.deltalog.canonical_json import print_crc
from exactlog.core.deltalog.checkpoint_comparison import find_producers_difference
from exactlog.core.deltalog.checkpoint_format import Checkpoint, LeaderEpochEntry
from exactlog.core.deltalog.commit_format import DeltaCommit, Operation
from exactlog.core.log.producer_state import ProducerStates
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import Offset
from exactlog.core.record.batch_format import BatchHeader
from exactlog.core.record.control_record_format import decode_marker
from exactlog.core.record.record_format import decode_records
from exactlog.storage.audit_findings import Finding, Kind, OpenTransaction
from exactlog.storage.audit_indexes import NOTHING_COUNTED, CountedRows, aborted_rows_of
from exactlog.storage.audit_segments import SegmentWalk
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.producer_entries import producers_of


class Named(Struct, frozen=True):
    """Who names bytes: a version (None: only a checkpoint does, its version has expired), and what it allows.

    Attributes:
        version: the delta version.
        leader_epochs: as of it; no batch is of a later one.
        is_loss_allowed: whether a power cut may have taken the bytes, since they were not promised to survive it.
    """

    version: int | None
    leader_epochs: Sequence[LeaderEpochEntry]
    is_loss_allowed: bool
    is_rewriting: bool = False
    """Whether compaction has written them."""


class BytesAudit:
    """The segments of one partition, followed as its versions are replayed.

    Attributes:
        walks: the segments that are in the table, by name, in the order of offsets.
    """

    def __init__(
        self, filesystem: Filesystem, directory: str, counted: Mapping[str, CountedRows], *, is_deep: bool
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._counted = counted
        self._is_deep = is_deep
        self._producers: ProducerStates | None = None
        self.walks: dict[str, SegmentWalk] = {}

    def begin(self) -> None:
        """Version 0 comes next: nobody has written anything."""
        self._producers = ProducerStates()

    def follow_commit(self, commit: DeltaCommit, named: Named) -> bool:
        """Follows the bytes that a version adds, and lets go of the segments it removes.

        Returns:
            whether all of the bytes are there and are what was committed.
        """
        adds = [operation for operation in commit.operations if operation.type == "add"]
        named = replace(named, is_rewriting=commit.is_rewriting)
        crc, faults = 0, 0
        for add in adds:
            walk = self._walk_of(add.segment, add.offset_start)
            if walk.position != add.position:
                walk.skip_to(add.position, add.offset_start)
            faults_before, walk.data_crc = walk.faults, crc
            self._follow(walk, end=add.position + add.size, end_offset=add.offset_end + 1, named=named)
            crc, faults = walk.data_crc, faults + walk.faults - faults_before
            if faults and not named.is_rewriting:
                self._forget_producers()  # at once: what follows may end a transaction that began in what is not there
        if not faults and print_crc(crc) != commit.data_crc:
            self._tell_changed(adds, commit, crc)
            faults += 1
        if faults and not named.is_rewriting:
            self._forget_producers()
        for operation in commit.operations:
            if operation.type == "remove":
                self.walks.pop(operation.segment, None)
        if named.is_rewriting:
            self.walks = dict(sorted(self.walks.items(), key=_base_offset))
        return not faults

    def take_up(self, checkpoint: Checkpoint, named: Named) -> None:
        """Goes on from a checkpoint: the versions before it are not known, or not all of them."""
        kept = {entry.name for entry in checkpoint.segments}
        self.walks = {name: walk for name, walk in self.walks.items() if name in kept}
        self._forget_producers()
        for entry in checkpoint.segments:
            walk = self._walk_of(entry.name, entry.base)
            if walk.position < entry.size:
                self._follow(walk, end=entry.size, end_offset=entry.next_offset, named=named)
        self._take_up_producers(checkpoint)

    def compare(self, checkpoint: Checkpoint) -> str | None:
        """What a checkpoint tells otherwise of these bytes; where their producers are not known, they are taken up."""
        for entry in checkpoint.segments:
            walk = self.walks.get(entry.name)
            if walk is None or not walk.is_sound or walk.next_offset != entry.next_offset:
                continue
            if walk.max_timestamp != entry.max_timestamp:
                return f"the greatest timestamp of {entry.name} is {walk.max_timestamp}, not {entry.max_timestamp}"
            aborted = aborted_rows_of(entry)
            if walk.aborted is not None and walk.aborted != aborted:
                return (
                    f"{entry.name} has {walk.aborted.count} aborted transactions, CRC {walk.aborted.crc:08x}, "
                    f"not {aborted.count}, CRC {aborted.crc:08x}"
                )
        if self._producers is None:
            self._take_up_producers(checkpoint)
            return None
        told = producers_of(checkpoint).snapshot()
        return find_producers_difference(told, checkpoint.open_transactions, self._producers)

    def stable_end_offset(self, end_offset: Offset) -> Offset | None:
        """Below it every transaction is decided, as of that end; None where that is not known."""
        if self._producers is None:
            return None
        undecided = self._producers.first_undecided_offset
        return end_offset if undecided is None else undecided

    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """The transactions that are undecided now."""
        return tuple(
            OpenTransaction(entry.producer_id, entry.producer_epoch, entry.txn_start_offset)
            for entry in (self._producers or ProducerStates()).open_transactions()
            if entry.txn_start_offset is not None
        )

    def finish(self) -> Iterator[Finding]:
        """All versions have come: what was found in the segments that are in the table."""
        walks = list(self.walks.values())
        for walk in walks:
            walk.finish(is_active=walk is walks[-1])
            yield from walk.findings.all()

    def _walk_of(self, name: str, base_offset: int) -> SegmentWalk:
        walk = self.walks.get(name)
        if walk is None:
            before = next(reversed(self.walks.values()), None)
            if before is not None and before.next_offset <= base_offset:
                before.finish(is_active=False)
            counted = self._counted.get(name, NOTHING_COUNTED)
            walk = self.walks[name] = SegmentWalk(self._filesystem, self._directory, name, base_offset, counted)
        return walk

    def _follow(self, walk: SegmentWalk, *, end: int, end_offset: int, named: Named) -> None:
        batches = walk.walk(end, end_offset, version=named.version, is_loss_allowed=named.is_loss_allowed)
        faults_before = walk.faults
        for position, header in batches:
            if named.is_rewriting:
                self._take_rewritten(walk, position, header, named)
                continue
            if walk.faults > faults_before:
                self._forget_producers()
            _check_leader_epoch(walk, position, header, named)
            if header.is_control:
                self._take_marker(walk, position, header, named)
                continue
            if self._is_deep:
                _decode_all(walk, position, header, named)
            if self._producers is not None:
                self._producers.replay(header)

    def _take_rewritten(self, walk: SegmentWalk, position: int, header: BatchHeader, named: Named) -> None:
        """A batch that compaction has written anew: what it says of its producer has been replayed before."""
        _check_leader_epoch(walk, position, header, named)
        if header.is_control:
            walk.take_unknown_abort(header.last_offset)
        elif self._is_deep:
            _decode_all(walk, position, header, named)

    def _take_marker(self, walk: SegmentWalk, position: int, header: BatchHeader, named: Named) -> None:
        try:
            markers = [decode_marker(record) for record in decode_records(walk.read_batch(position, header))]
        except DecodeError as error:
            walk.tell(Kind.MARKER_DAMAGED, str(error), version=named.version, position=position)
            return
        for marker in markers:
            if marker is None:
                continue
            if self._producers is not None:
                aborted = self._producers.replay_marker(header, marker)[1]
                if aborted is not None:
                    walk.take_abort(aborted)
            elif not marker.is_commit:
                walk.take_unknown_abort(header.last_offset)

    def _forget_producers(self) -> None:
        self._producers = None

    def _take_up_producers(self, checkpoint: Checkpoint) -> None:
        self._producers = producers_of(checkpoint)

    def _tell_changed(self, adds: Sequence[Operation], commit: DeltaCommit, crc: int) -> None:
        message = f"the bytes of version {commit.version} have CRC {print_crc(crc)}, its delta commit says "
        for name in dict.fromkeys(add.segment for add in adds):
            position = next(add.position for add in adds if add.segment == name)
            self.walks[name].tell(
                Kind.BYTES_CHANGED, message + commit.data_crc, version=commit.version, position=position
            )


def _check_leader_epoch(walk: SegmentWalk, position: int, header: BatchHeader, named: Named) -> None:
    leader_epoch = _epoch_at(named.leader_epochs, header.base_offset)
    if header.leader_epoch > leader_epoch:
        message = f"a batch is of leader epoch {header.leader_epoch}, its offset is of epoch {leader_epoch}"
        walk.tell(Kind.LEADER_EPOCH_WRONG, message, version=named.version, position=position)


def _base_offset(named_walk: tuple[str, SegmentWalk]) -> int:
    return named_walk[1].base_offset


def _epoch_at(leader_epochs: Sequence[LeaderEpochEntry], offset: int) -> int:
    """The leader epoch an offset was committed under; of one before all that are known, the first that is."""
    index = bisect_right(leader_epochs, offset, key=lambda entry: entry.start_offset)
    return leader_epochs[max(0, index - 1)].epoch if leader_epochs else -1


def _decode_all(walk: SegmentWalk, position: int, header: BatchHeader, named: Named) -> None:
    """Reads every record of a batch as a consumer would."""
    next_offset = header.base_offset
    try:
        for record in decode_records(walk.read_batch(position, header), header=header):
            if not next_offset <= record.offset <= header.last_offset:
                raise DecodeError(f"a record has offset {record.offset}, {next_offset} or a later one was due")
            next_offset = Offset(record.offset + 1)
    except DecodeError as error:
        message = f"the batch of offsets {header.base_offset} to {header.last_offset} cannot be decoded: {error}"
        walk.tell(Kind.RECORDS_DAMAGED, message, version=named.version, position=position)
