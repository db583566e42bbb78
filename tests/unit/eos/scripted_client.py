"""A client that notes what it is asked, and fails where a test says so."""

from exactlog.eos.client import Membership

PLACE = ("orders", 0)


class ClientError(Exception):
    """What a client library would raise; `meaning` is what it is sorted as."""

    def __init__(self, meaning):
        super().__init__("refused")
        self.meaning = meaning


class ScriptedClient:
    """Time passes only while it pauses or a step takes it all."""

    def __init__(self, *, has_consumer=True):
        self.has_consumer = has_consumer
        self.asked = []
        self.failures = {}
        self.offset = 17
        self.has = Membership("generation 1", frozenset({PLACE}))
        self.now_s = 0.0

    def fail(self, step, *meanings, times=1):
        self.failures[step] = [meaning for meaning in meanings for _ in range(times)]

    async def _step(self, step, note=None):
        self.asked.append(step if note is None else (step, note))
        if self.failures.get(step):
            raise ClientError(self.failures[step].pop(0))

    async def begin(self, *, timeout_s):
        await self._step("begin")

    async def send(self, message, *, timeout_s):
        await self._step("send", message.value)

    async def deliver(self, *, timeout_s):
        await self._step("deliver")

    async def membership(self):
        return self.has

    async def positions(self, *, timeout_s):
        await self._step("positions")
        return {PLACE: self.offset}

    async def send_offsets(self, offsets, membership, *, timeout_s):
        assert membership == self.has
        await self._step("send_offsets", offsets)

    async def commit(self, *, timeout_s):
        await self._step("commit")

    async def abort(self, *, timeout_s):
        await self._step("abort")

    async def rewind(self, *, timeout_s):
        await self._step("rewind")

    async def pause(self, seconds):
        self.now_s += seconds

    def typed(self, error, *, doing):
        return error.meaning(f"{doing}: {error}") if isinstance(error, ClientError) else None
