"""Opening a region: find or create its topics, take its writer, recover its metadata from snapshot and log."""

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from msgspec import Struct

from exactlog.core.model.errors import DecodeError, OffsetOutOfRangeError, UnavailableError
from exactlog.core.wal.errors import (
    RegionMetaLostError,
    RegionNotFoundError,
    RegionTrimmedError,
    UnreadableRecordError,
)
from exactlog.core.wal.recovery import Recovery, newest_snapshot_error, plan_recovery
from exactlog.core.wal.region_meta import RegionMeta
from exactlog.core.wal.region_snapshot_format import RegionSnapshot, decode_meta_key, decode_snapshot
from exactlog.core.wal.region_topics import META_TOPIC_CONFIGS, TOPIC_CONFIGS, RegionTopics, endangering_settings
from exactlog.wal.ports import DamagedRecordsError, LogWriter, StoredRecord, TopicBounds, WalBackend
from exactlog.wal.readable_records import readable_records, refuse_unless_skipped

_log = logging.getLogger(__name__)

_STABLE_PAUSE_S: Final = 0.1
_STABLE_TRIES: Final = 50  # a transaction that is being ended takes milliseconds


class OpenOptions(Struct, frozen=True):
    """How a region is opened.

    Attributes:
        is_created: create the region if it is not there.
        is_read_only: look without taking it from its owner.
        skip_offsets: records of the data topic to pass over, now and from now on.
        is_loss_accepted: open it though records or snapshots are gone, with what is left.
    """

    is_created: bool = False
    is_read_only: bool = False
    skip_offsets: frozenset[int] = frozenset()
    is_loss_accepted: bool = False


class OpenedRegion(Struct, frozen=True):
    """A region that can be used.

    Attributes:
        meta: as recovered.
        writer: None for one that is only read.
        replayed_count: how many entries were read behind the snapshot.
        findings: what is not as it should be, as sentences.
        is_changed: whether the metadata says what no snapshot says, and cannot be found in the log again.
    """

    meta: RegionMeta
    writer: LogWriter | None
    replayed_count: int
    findings: tuple[str, ...]
    is_changed: bool


class RegionOpening:
    """One opening of one region."""

    def __init__(self, backend: WalBackend, topics: RegionTopics, options: OpenOptions) -> None:
        self._backend = backend
        self._topics = topics
        self._options = options
        self._findings: list[str] = []

    async def open(self) -> OpenedRegion:
        """Open it.

        Raises:
            RegionNotFoundError: it is not there, and was not to be created.
            RegionTopicsError: a topic of it has more than one partition.
            RegionMetaLostError: the snapshots are gone.
            RegionDataLostError: entries are gone.
            UnreadableRecordError: a snapshot or an entry cannot be read.
        """
        is_meta_new = await self._find_topics()
        await self._look_at_settings()
        # Taken before anything is read: from here on nobody else can append.
        writer = None if self._options.is_read_only else await self._backend.writer(self._topics.transactional_id)
        try:
            snapshot = await self._newest_snapshot(is_meta_new=is_meta_new)
            recovery, is_changed = await self._recover(snapshot)
        except BaseException:
            if writer is not None:
                await writer.close()
            raise
        for finding in self._findings:
            _log.warning("%s", finding)
        return OpenedRegion(recovery.meta, writer, recovery.replayed_count, tuple(self._findings), is_changed)

    # --- topics ----------------------------------------------------------------------------------------------

    async def _find_topics(self) -> bool:
        """See that both topics are there; whether the meta topic had to be created."""
        topics, options = self._topics, self._options
        there = set(await self._backend.list_topics())
        missing = [topic for topic in (topics.meta, topics.data) if topic not in there]
        # With one of them missing, a creation did not come to its end: its owner finishes it.
        may_create = not options.is_read_only and (options.is_created or len(missing) == 1)
        if missing and not may_create:
            raise RegionNotFoundError(
                f"namespace {topics.namespace} has no region {topics.region}",
                region=topics.region,
                hint="open it with create=True to create it",
            )
        for topic in missing:  # the meta topic first: without it there is no data
            await self._backend.create_topic(topic, META_TOPIC_CONFIGS if topic == topics.meta else TOPIC_CONFIGS)
        return topics.meta in missing

    async def _look_at_settings(self) -> None:
        for topic in (self._topics.data, self._topics.meta):
            endangering = endangering_settings(await self._backend.topic_configs(topic))
            for name, value in endangering.items():
                self._findings.append(
                    f"topic {topic} has {name}={value}: the broker may delete what was not flushed; "
                    f"`exactlog topic alter {topic} -c {name}={TOPIC_CONFIGS[name]}` ends that"
                )

    # --- snapshot --------------------------------------------------------------------------------------------

    async def _newest_snapshot(self, *, is_meta_new: bool) -> RegionSnapshot | None:
        """The newest committed snapshot; None where there never was one."""
        topic = self._topics.meta
        bounds = await self._bounds(topic)
        newest: RegionSnapshot | None = None
        damage: UnreadableRecordError | None = None
        is_any = False

        def on_damage(found: DamagedRecordsError) -> None:
            nonlocal damage, is_any
            is_any, damage = True, newest_snapshot_error(self._topics.region, offset=found.offset, error=found)

        records = readable_records(self._backend, topic, bounds.start, bounds.stable_end, on_damage=on_damage)
        async for record in records:
            is_any = True
            try:
                newest, damage = self._decode(record), None
            except (DecodeError, ValueError) as error:
                damage = newest_snapshot_error(self._topics.region, offset=record.offset, error=error)
        if damage is not None:
            self._accept(damage)
        if not is_any:
            await self._check_never_had_any(bounds, is_meta_new=is_meta_new)
        return newest

    async def _check_never_had_any(self, bounds: TopicBounds, *, is_meta_new: bool) -> None:
        """Refuse a meta topic that once had a snapshot, and one that is newer than the data."""
        data = await self._bounds(self._topics.data)
        if bounds.start > 0 or (is_meta_new and data.end > 0):
            self._accept(
                RegionMetaLostError(
                    f"region {self._topics.region}: topic {self._topics.meta} holds no snapshot any more, and once did",
                    region=self._topics.region,
                    offset=bounds.start,
                    hint="accept_loss=True recovers from the entries alone: marks are forgotten, and a table of which "
                    "no entry is left begins at sequence 1 again",
                )
            )

    def _decode(self, record: StoredRecord) -> RegionSnapshot:
        region = self._topics.region
        if record.key is None or record.value is None:
            raise DecodeError("a record without a key or a value")
        if (found := decode_meta_key(record.key)) != region:
            raise DecodeError(f"a snapshot of region {found}")
        snapshot = decode_snapshot(record.value)
        RegionMeta.of_snapshot(region, snapshot)  # whether it contradicts itself
        return snapshot

    def _accept(self, error: RegionMetaLostError | UnreadableRecordError) -> None:
        if not self._options.is_loss_accepted:
            raise error
        self._findings.append(f"accepted: {error}")

    # --- entries ---------------------------------------------------------------------------------------------

    async def _recover(self, snapshot: RegionSnapshot | None) -> tuple[Recovery, bool]:
        topic, options = self._topics.data, self._options
        bounds = await self._bounds(topic)
        plan = plan_recovery(snapshot, log_start=bounds.start, log_end=bounds.end)
        recovery = Recovery(self._topics.region, snapshot, plan=plan, log_start=bounds.start)
        is_changed = bool(options.skip_offsets - recovery.meta.skipped_offsets)
        recovery.meta.skipped_offsets |= {offset for offset in options.skip_offsets if offset < bounds.end}
        refuse = refuse_unless_skipped(self._topics.region, recovery.meta.skipped_offsets)

        def on_damage(found: DamagedRecordsError) -> None:
            refuse(found)
            recovery.replay_damage(found.offset, min(found.next_offset, bounds.stable_end))

        records = readable_records(self._backend, topic, plan.start, bounds.stable_end, on_damage=on_damage)
        try:
            async for record in records:
                recovery.replay(record.offset, record.key, record.value)
        except OffsetOutOfRangeError as error:
            raise trimmed(self._topics.region, error) from error
        if options.is_loss_accepted:
            is_changed |= bool(recovery.lost) or plan.is_replaced
            self._findings += (
                f"accepted: region {self._topics.region}, table {table}: entries {first} to {last} are lost"
                for table, (first, last) in sorted(recovery.lost.items())
            )
            recovery.accept_losses()
        else:
            recovery.check_nothing_is_lost()
        recovery.meta.replay_trim(bounds.start)
        return recovery, is_changed

    async def _bounds(self, topic: str) -> TopicBounds:
        """Where a topic begins and ends; for an owner, once nobody else's transaction is open in it."""
        bounds = await self._backend.bounds(topic)
        if self._options.is_read_only:
            return bounds
        for _ in range(_STABLE_TRIES):
            if bounds.stable_end == bounds.end:
                return bounds
            await asyncio.sleep(_STABLE_PAUSE_S)
            bounds = await self._backend.bounds(topic)
        if bounds.stable_end < bounds.end:
            raise UnavailableError(
                f"topic {topic}: a transaction of somebody else is open from offset {bounds.stable_end} on, and hides "
                f"what lies behind it",
                hint=f"`exactlog txn find-hanging {topic}` shows it; it ends with its timeout at the latest",
            )
        return bounds


def trimmed(region: int, error: OffsetOutOfRangeError) -> RegionTrimmedError:
    """The error for what was deleted while it was read."""
    return RegionTrimmedError(
        f"region {region}: what was to be read has been deleted meanwhile: {error}",
        region=region,
        offset=error.oldest,
        hint="open the region again and read on",
    )


def skip_set(offsets: Collection[int]) -> frozenset[int]:
    """Offsets to pass over, as a set. Raises `ValueError` for one that there cannot be."""
    if any(offset < 0 for offset in offsets):
        raise ValueError(f"skip_offsets: there is no offset {min(offsets)}")
    return frozenset(offsets)
