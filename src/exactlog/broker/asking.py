"""How a request is put to a coordinator and comes by its answer."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from exactlog.broker.coordinator.groups import Runner
from exactlog.broker.coordinator.machine import AnyMachine
from exactlog.broker.coordinator.shard_runner import ShardRunner
from exactlog.broker.coordinator.shards import Shards
from exactlog.broker.request_context import RequestContext
from exactlog.core.codec.message_schema import Message
from exactlog.core.group.shard import GroupShard
from exactlog.core.model.decisions import Answer, Decision, Waiter
from exactlog.core.model.error_code import ErrorCode

Later: TypeAlias = Coroutine[None, None, None] | None
"""What is left to be awaited; None: nothing, the answer is on its way."""

Decide = Callable[[AnyMachine, Waiter, int], Decision]
"""Lets the rules decide about a request, for who waits, at a time in ms since 1970."""


class RequestWaiter:
    """A request that waits for one decision."""

    def __init__(
        self,
        context: RequestContext,
        respond: Callable[[Any], Message],
        refuse: Callable[[ErrorCode], Message],
    ) -> None:
        self._context = context
        self._respond = respond
        self._refuse = refuse

    def answer(self, outcome: Struct) -> None:
        """Sends the response."""
        self._context.finish(lambda: self._context.answer(self._respond(outcome)))

    def fail(self, error_code: ErrorCode) -> None:
        """Sends the refusal."""
        self._context.finish(lambda: self._context.answer(self._refuse(error_code)))


def ask(group_id: str, context: RequestContext, decide: Decide[GroupShard], waiter: Waiter) -> Later:
    """Puts a request to the shard of a group: at once, or where that has to be loaded first, when it is awaited."""
    return ask_shard(context.broker.groups, group_id, decide, waiter)


def ask_shard(shards: Shards[AnyMachine], key: str, decide: Decide[AnyMachine], waiter: Waiter) -> Later:
    """Puts a request to the shard of a key: at once, or where that has to be loaded first, when it is awaited."""
    runner = shards.find(key)
    if runner is None:
        return _ask_when_loaded(shards, key, decide, waiter)
    runner.decide(lambda machine, now_ms: decide(machine, waiter, now_ms), asker=waiter)
    return None


async def _ask_when_loaded(shards: Shards[AnyMachine], key: str, decide: Decide[AnyMachine], waiter: Waiter) -> None:
    runner = await shards.load(key)
    if isinstance(runner, ErrorCode):
        waiter.fail(runner)
    else:
        runner.decide(lambda machine, now_ms: decide(machine, waiter, now_ms), asker=waiter)


class Slot:
    """One of several outcomes that a request waits for."""

    def __init__(self, gathering: "Gathering", index: int) -> None:
        self._gathering = gathering
        self._index = index

    def answer(self, outcome: Struct) -> None:
        """Notes the outcome."""
        self._gathering.put(self._index, outcome)

    def fail(self, error_code: ErrorCode) -> None:
        """Notes that there is none."""
        self._gathering.put(self._index, error_code)


class Gathering:
    """Waits for several outcomes, each a value or an error, and answers with all of them in order."""

    def __init__(
        self, count: int, context: RequestContext, respond: Callable[[Sequence[Struct | ErrorCode]], Message]
    ) -> None:
        self._outcomes: list[Struct | ErrorCode] = [ErrorCode.UNKNOWN_SERVER_ERROR] * count
        self._missing = count
        self._context = context
        self._respond = respond
        self.slots = [Slot(self, index) for index in range(count)]
        if not count:
            context.answer(respond(()))

    def put(self, index: int, outcome: Struct | ErrorCode) -> None:
        """One outcome is known."""
        self._outcomes[index] = outcome
        self._missing -= 1
        if not self._missing:
            self._context.finish(lambda: self._context.answer(self._respond(self._outcomes)))


def tell_decided(runner: Runner, look: Callable[[GroupShard], Struct], waiter: Waiter) -> None:
    """Answers with what is decided by now, once that is committed."""
    runner.decide(lambda shard, _: Decision(answers=(Answer(waiter, look(shard)),)), asker=waiter)


def read_when_committed(runner: ShardRunner[AnyMachine], read: Callable[[AnyMachine], Struct], waiter: Waiter) -> None:
    """Reads what is committed once all that is decided by now is, so that a reader sees what was before it."""

    def look(error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            waiter.answer(read(runner.machine))
        else:
            waiter.fail(error)

    runner.when_committed(look)
