"""The store that a case works on, and what cases need of it beyond its ports."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol
from uuid import uuid4

import pytest

from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.rows import Step
from exactlog.journal.store_ports import JournalStore

SEGMENT_SIZES = (2, 3, 10_000, 2**31 - 1)
"""A segment that is full at once, one of an odd number, kafka-journal's own, and the greatest there is."""


class OpenedStore(Protocol):
    """An open store and a way past its rules: other programs write such tables too, and crash."""

    @property
    def store(self) -> JournalStore:
        """The store."""

    async def carry_out(self, key: JournalKey, steps: Sequence[Step]) -> None:
        """Carry out steps, whatever they are."""

    async def stored_events(self, key: JournalKey) -> Sequence[tuple[int, int]]:
        """(sequence number, segment) of every row of a journal that is there, of whichever life, ascending."""


class StoreOpener(Protocol):
    """Opens a store in which journals begin with this segment size. It may hold journals of other topics."""

    def __call__(self, segment_size: int) -> AbstractAsyncContextManager[OpenedStore]:
        """Open it; it is closed with its context."""


class Opened:
    """What all cases share."""

    @pytest.fixture
    def open_store(self) -> StoreOpener:
        """How the store under test is opened: to be overridden."""
        raise NotImplementedError

    @pytest.fixture(params=SEGMENT_SIZES)
    def segment_size(self, request: pytest.FixtureRequest) -> int:
        """Of journals that begin in the store."""
        return int(request.param)

    @pytest.fixture
    async def opened(self, open_store: StoreOpener, segment_size: int) -> AsyncIterator[OpenedStore]:
        """The store under test."""
        async with open_store(segment_size) as opened:
            yield opened

    @pytest.fixture
    def topic(self) -> str:
        """A topic that no other case uses."""
        return f"cases-{uuid4()}"

    @pytest.fixture
    def key(self, topic: str) -> JournalKey:
        """A journal that no other case uses."""
        return JournalKey(topic, "entity-1")
