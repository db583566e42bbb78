"""The one writer of a region: groups of entries and snapshots, one append after another."""

import asyncio
import logging
from collections.abc import Sequence

from exactlog.core.model.errors import ExactlogError, UnavailableError
from exactlog.core.wal.errors import RegionFenced, RegionTopicsError, WriteOutcomeUnknownError
from exactlog.core.wal.log_entry_format import LogKey
from exactlog.core.wal.region_meta import RegionMeta
from exactlog.core.wal.region_snapshot_format import encode_meta_key, encode_snapshot
from exactlog.core.wal.region_topics import RegionTopics
from exactlog.core.wal.write_batches import AssignedGroup, WriteBatch, assign_sequences
from exactlog.wal.ports import AppendUnsettledError, LogWriter, WalBackend, WriterFencedError

_log = logging.getLogger(__name__)


class RegionWriter:
    """Appends, and lets the region's metadata follow.

    Attributes:
        replayed_since: how many entries came since the last snapshot.
        marks_since: how many marks.
        is_fenced: whether somebody else has the region now.
        failure: why nothing can be written any more, besides.
    """

    def __init__(self, backend: WalBackend, topics: RegionTopics, writer: LogWriter, meta: RegionMeta) -> None:
        self.replayed_since = 0
        self.marks_since = 0
        self.is_fenced = False
        self.failure: RegionTopicsError | None = None
        self._backend = backend
        self._topics = topics
        self._writer = writer
        self._meta = meta
        self._turn = asyncio.Lock()
        self._unsettled: tuple[LogKey, ...] | None = None

    def check_may_write(self) -> None:
        """Refuse an owner that another one has followed, or whose topic is another one now.

        Raises `RegionFenced`, `RegionTopicsError`.
        """
        if self.is_fenced:
            raise self._fenced()
        if self.failure is not None:
            raise self.failure

    async def write(self, group: Sequence[WriteBatch]) -> AssignedGroup:
        """Append a group of writes, all that are not refused or none.

        Raises:
            RegionFenced: somebody else has the region now.
            WriteOutcomeUnknownError: they may be there.
            ExactlogError: nothing was written.
        """
        async with self._turn:
            await self._settle()
            assigned = assign_sequences(self._meta, group)
            if assigned.records:
                offsets = await self._append(self._topics.data, assigned.records, assigned.keys)
                self._replay(assigned.keys, offsets)
            return assigned

    async def write_snapshot(self) -> None:
        """Write a snapshot, durably; those before it are deleted. Raises as `write`."""
        async with self._turn:
            await self._settle()
            snapshot = self._meta.snapshot()
            replayed, marks = self.replayed_since, self.marks_since
            record = (encode_meta_key(self._topics.region), encode_snapshot(snapshot))
            (offset,) = await self._append(self._topics.meta, [record], ())
            self.replayed_since -= replayed
            self.marks_since -= marks
            await self._delete_older_snapshots(offset)

    async def settle(self) -> None:
        """Find out what became of a write that was left open, if one was. Raises as `write`."""
        if self._unsettled is not None:
            async with self._turn:
                await self._settle()

    async def close(self) -> None:
        """Write no more."""
        async with self._turn:
            await self._writer.close()

    # ---------------------------------------------------------------------------------------------------------

    async def _append(self, topic: str, records: Sequence[tuple[bytes, bytes]], keys: tuple[LogKey, ...]) -> list[int]:
        try:
            return await self._writer.append(topic, records)
        except WriterFencedError as error:
            self.is_fenced = True
            raise self._fenced() from error
        except AppendUnsettledError as error:
            self._unsettled = keys
            return await self._settle_at_once(error)
        except asyncio.CancelledError:
            self._unsettled = keys
            raise

    async def _settle_at_once(self, unsettled: AppendUnsettledError) -> list[int]:
        try:
            offsets = await self._ask()
        except UnavailableError:
            raise WriteOutcomeUnknownError(
                f"region {self._topics.region}: whether the last write counts is not known: {unsettled}",
                region=self._topics.region,
                hint="the region finds out before its next write; compare sequence_num then, before writing again",
            ) from unsettled
        if offsets is None:
            raise UnavailableError(f"region {self._topics.region}: the write did not come through") from unsettled
        return offsets

    async def _settle(self) -> None:
        """Find out what became of an append that was left open; the metadata follows."""
        self.check_may_write()
        keys = self._unsettled
        if keys is not None:
            offsets = await self._ask()
            if offsets is not None and keys:
                self._replay(keys, offsets)

    async def _ask(self) -> list[int] | None:
        try:
            offsets = await self._writer.settle()
        except WriterFencedError as error:
            self.is_fenced = True
            raise self._fenced() from error
        self._unsettled = None
        return offsets

    def _replay(self, keys: Sequence[LogKey], offsets: Sequence[int]) -> None:
        self._check_is_same_log(offsets[0])
        for key, offset in zip(keys, offsets, strict=True):
            self._meta.replay(key.table, key.sequence, offset)
        self.replayed_since += len(keys)

    def _check_is_same_log(self, offset: int) -> None:
        """A log only grows: one that gives an offset a second time was deleted and made anew under its owner."""
        if offset < self._meta.high_watermark:
            self.failure = RegionTopicsError(
                f"region {self._topics.region}: topic {self._topics.data} gave offset {offset}, and had come to "
                f"{self._meta.high_watermark} before: it was deleted and made anew",
                region=self._topics.region,
                offset=offset,
                hint="close the region and open it again: that says what is lost",
            )
            raise self.failure

    async def _delete_older_snapshots(self, offset: int) -> None:
        try:
            await self._backend.delete_before(self._topics.meta, offset)
        except ExactlogError as error:  # the newest counts; the next snapshot deletes them too
            _log.warning("region %s: old snapshots stay for now: %s", self._topics.region, error)

    def _fenced(self) -> RegionFenced:
        return RegionFenced(
            f"region {self._topics.region} of namespace {self._topics.namespace} has another owner now",
            region=self._topics.region,
            hint="close it here; to take it back, open it again, which fences the other owner in turn",
        )
