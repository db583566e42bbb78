"""The write-ahead log of a namespace: its regions, those that are open here, and their clean-up in the background."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Collection
from typing import Any, Generic, Self, TypeVar, overload

from exactlog.client.ports import ClientSettings
from exactlog.core.model.errors import ExactlogError
from exactlog.core.wal.errors import RegionClosedError, RegionFenced
from exactlog.core.wal.limits import CLEAN_INTERVAL_S
from exactlog.core.wal.region_topics import RegionTopics, check_namespace, region_of_topic
from exactlog.wal.backends import open_backend
from exactlog.wal.blocking import SyncWal
from exactlog.wal.entries import RegionStats
from exactlog.wal.ports import PayloadCodec, WalBackend
from exactlog.wal.region import Region
from exactlog.wal.region_opening import OpenOptions, RegionOpening, skip_set

_log = logging.getLogger(__name__)

Payload = TypeVar("Payload")

NAMESPACE_DEFAULT = "wal"  # HoraeDB's


class BytesCodec:
    """The `PayloadCodec` of payloads that are bytes already."""

    def encode(self, payload: bytes | bytearray | memoryview, /) -> bytes | bytearray | memoryview:
        """See `PayloadCodec`."""
        return payload

    def decode(self, data: bytes, /) -> bytes:
        """See `PayloadCodec`."""
        return data


class Wal(Generic[Payload]):
    """A write-ahead log, to be used as a context: `async with Wal.open(url, namespace="ts") as wal: ...`."""

    def __init__(
        self,
        where: str | WalBackend,
        *,
        namespace: str,
        codec: PayloadCodec[Payload],
        clean_interval_s: float | None,
        settings: ClientSettings | None,
        replication_factor: int | None,
    ) -> None:
        """Use `open`, which has defaults."""
        self.namespace = check_namespace(namespace)
        self._where = where
        self._codec = codec
        self._clean_interval_s = clean_interval_s
        self._settings = settings
        self._replication_factor = replication_factor
        self._backend: WalBackend | None = None
        self._regions: dict[int, Region[Payload]] = {}
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._cleaners: dict[int, asyncio.Task[None]] = {}

    @overload
    @classmethod
    def open(
        cls,
        where: str | WalBackend,
        *,
        namespace: str = ...,
        codec: None = None,
        clean_interval_s: float | None = ...,
        settings: ClientSettings | None = ...,
        replication_factor: int | None = ...,
    ) -> "Wal[bytes]": ...

    @overload
    @classmethod
    def open(
        cls,
        where: str | WalBackend,
        *,
        namespace: str = ...,
        codec: PayloadCodec[Payload],
        clean_interval_s: float | None = ...,
        settings: ClientSettings | None = ...,
        replication_factor: int | None = ...,
    ) -> "Wal[Payload]": ...

    @classmethod
    def open(
        cls,
        where: str | WalBackend,
        *,
        namespace: str = NAMESPACE_DEFAULT,
        codec: PayloadCodec[Any] | None = None,
        clean_interval_s: float | None = CLEAN_INTERVAL_S,
        settings: ClientSettings | None = None,
        replication_factor: int | None = None,
    ) -> "Wal[Any]":
        """The write-ahead log of a namespace. Nothing is opened before the context is entered.

        Args:
            where: `kafka://HOST:PORT` for brokers of any make, `embedded:DIRECTORY` for one of one's own, `memory:`;
                or a backend, which stays open when this is closed.
            namespace: what the topics' names begin with.
            codec: of payloads that are no bytes.
            clean_interval_s: how often each open region is cleaned in the background; None: never.
            settings: of the client; `deadline_ms` is how long a write tries.
            replication_factor: of topics that are created; None: the cluster's default.

        Raises:
            ConfigError: topics cannot be called so.
        """
        return Wal(
            where,
            namespace=namespace,
            codec=codec or BytesCodec(),
            clean_interval_s=clean_interval_s,
            settings=settings,
            replication_factor=replication_factor,
        )

    @staticmethod
    def open_sync(where: str | WalBackend, **options: Any) -> SyncWal:  # noqa: ANN401  those of `open`
        """The same for programs without an event loop: `with Wal.open_sync(url) as wal: ...`."""
        return SyncWal(Wal.open(where, **options))

    async def __aenter__(self) -> Self:
        if self._backend is None:
            self._backend = (
                await open_backend(self._where, self._settings, replication_factor=self._replication_factor)
                if isinstance(self._where, str)
                else self._where
            )
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every region, and then the log. What fails for one region does not keep the others open."""
        backend, self._backend = self._backend, None
        if backend is None:
            return
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(self._where, str):
                stack.push_async_callback(backend.close)
            for region in list(self._regions):
                stack.push_async_callback(self.close_region, region)

    # --- regions ---------------------------------------------------------------------------------------------

    async def regions(self) -> list[int]:
        """The ids of all regions of the namespace, whether they are open or not."""
        topics = await self._open_backend().list_topics()
        return sorted({region for topic in topics if (region := region_of_topic(self.namespace, topic)) is not None})

    async def open_region(
        self,
        region: int,
        *,
        create: bool = False,
        read_only: bool = False,
        skip_offsets: Collection[int] = (),
        accept_loss: bool = False,
    ) -> Region[Payload]:
        """Open a region: take it from whoever has it, and recover it. One that is open here already is given again.

        Args:
            region: its id.
            create: create it if it is not there.
            read_only: look without taking it from its owner; as it is now.
            skip_offsets: records that cannot be read, to be passed over from now on.
            accept_loss: open it though entries or snapshots are gone; its `findings` say what.

        Raises:
            RegionNotFoundError: it is not there.
            UnreadableRecordError: a record cannot be read; names its offset.
            RegionDataLostError, RegionMetaLostError: something is gone; says what.
            RegionTopicsError: its topics are not a region's.
        """
        topics = RegionTopics(self.namespace, region)
        options = OpenOptions(create, read_only, skip_set(skip_offsets), accept_loss)
        async with self._turns[region]:
            known = self._regions.get(region)
            if known is not None and known.is_usable and not read_only:
                return known
            backend = self._open_backend()
            if known is not None and not read_only:
                await self._let_go(region)
            opened = await RegionOpening(backend, topics, options).open()
            found = Region(backend, topics, opened, self._codec)
            if not read_only:
                if opened.is_changed:
                    await found.write_snapshot()
                self._regions[region] = found
                self._start_cleaner(found)
            return found

    async def close_region(self, region: int) -> None:
        """Write what was taken, and let the region go: another owner may have it. One that is not open stays so."""
        async with self._turns[region]:
            await self._let_go(region)

    async def stats(self) -> list[RegionStats]:
        """How the open regions are, and which table of each keeps its log from being deleted."""
        self._open_backend()
        return [await self._regions[region].stats() for region in sorted(self._regions)]

    # ---------------------------------------------------------------------------------------------------------

    def _open_backend(self) -> WalBackend:
        if self._backend is None:
            raise RegionClosedError("the write-ahead log is not open", hint="use it as a context: `async with`")
        return self._backend

    async def _let_go(self, region: int) -> None:
        found = self._regions.pop(region, None)
        cleaner = self._cleaners.pop(region, None)
        if cleaner is not None:
            cleaner.cancel()
            await asyncio.wait([cleaner])
        if found is not None:
            await found.close()

    def _start_cleaner(self, region: Region[Payload]) -> None:
        if self._clean_interval_s is not None:
            self._cleaners[region.region] = asyncio.create_task(_clean_now_and_then(region, self._clean_interval_s))


async def _clean_now_and_then(region: Region[Any], interval_s: float) -> None:
    """Clean one region until it is closed or fenced; what fails is told, and tried again the next time."""
    while region.is_usable:
        await asyncio.sleep(interval_s)
        try:
            await region.clean()
        except RegionFenced as error:
            _log.info("%s", error)
        except ExactlogError as error:
            _log.warning("region %s was not cleaned: %s", region.region, error)
