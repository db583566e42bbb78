"""A backend in memory that dies, or fails, at a step of what is asked of it."""

from exactlog.core.model.errors import UnavailableError
from exactlog.wal.memory_backend import MemoryBackend
from exactlog.wal.ports import AppendUnsettledError


class CrashedError(Exception):
    """The program is dead from here on."""


class FailingBackend:
    """A `WalBackend` over another one, which lives on.

    Each append and each deletion has two steps, before it and after it, which are counted from 0.

    Attributes:
        steps: the names of those that were passed.
        crash_at: at this step the program dies: nothing is done any more.
        fail: the next append fails in that way: "before", "unknown" (it is written) or "unknown-lost" (it is not).
        settling_fails: how often it cannot be found out what became of an append.
    """

    def __init__(self, inner=None, *, crash_at=None):
        self.inner = inner or MemoryBackend()
        self.steps = []
        self.crash_at = crash_at
        self.fail = None
        self.settling_fails = 0
        self.is_dead = False

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception): ...

    async def close(self): ...

    def step(self, name):
        if self.is_dead:
            raise CrashedError(name)
        self.steps.append(name)
        if self.crash_at is not None and len(self.steps) - 1 == self.crash_at:
            self.is_dead = True
            raise CrashedError(name)

    async def list_topics(self):
        return await self.inner.list_topics()

    async def create_topic(self, topic, configs):
        self.step(f"create {topic}: before")
        await self.inner.create_topic(topic, configs)
        self.step(f"create {topic}: after")

    async def topic_configs(self, topic):
        return await self.inner.topic_configs(topic)

    async def bounds(self, topic):
        return await self.inner.bounds(topic)

    def read(self, topic, start, end):
        return self.inner.read(topic, start, end)

    async def delete_before(self, topic, offset):
        self.step(f"delete {topic}: before")
        await self.inner.delete_before(topic, offset)
        self.step(f"delete {topic}: after")

    async def writer(self, transactional_id):
        return FailingWriter(self, await self.inner.writer(transactional_id))


class FailingWriter:
    def __init__(self, backend, inner):
        self.backend = backend
        self.inner = inner
        self.unsettled = None

    async def append(self, topic, records):
        self.backend.step(f"append {topic}: before")
        how, self.backend.fail = self.backend.fail, None
        if how == "before":
            raise UnavailableError("no broker")
        if how == "unknown-lost":
            raise AppendUnsettledError("no answer")
        offsets = await self.inner.append(topic, records)
        self.backend.step(f"append {topic}: after")
        if how == "unknown":
            self.unsettled = offsets
            raise AppendUnsettledError("no answer")
        return offsets

    async def settle(self):
        if self.backend.settling_fails:
            self.backend.settling_fails -= 1
            raise UnavailableError("no broker")
        found, self.unsettled = self.unsettled, None
        return found

    async def close(self): ...
