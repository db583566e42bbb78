"""The order of a transaction's steps, written once for both kinds of blocks."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeVar

from exactlog.core.model.errors import InvariantError
from exactlog.eos.client import Membership, Message, Place, TransactionalClient
from exactlog.eos.errors import (
    AbortableError,
    FatalError,
    FencedError,
    OutcomeUnknownError,
    RebalancedError,
    RetriableError,
    TransactionError,
)

Result = TypeVar("Result")

RETRY_PAUSE_S: Final = 0.1


class Steps:
    """One transaction, from its beginning to its end.

    Attributes:
        offsets: what to commit for the consumer; None stands for its positions.
    """

    def __init__(self, client: TransactionalClient, *, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._membership: Membership | None = None
        self.offsets: dict[Place, int] | None = None

    async def begin(self) -> None:
        """Begins, and notes what the consumer has, which must be the same at the end."""
        if self._client.has_consumer:
            self._membership = await self._client.membership()
        await self._settle("cannot begin a transaction", self._client.begin)

    async def send(self, message: Message) -> None:
        """Sends a record within the transaction."""
        doing = f"cannot send to {message.topic}"
        await self._typed(doing, self._client.send(message, timeout_s=self._timeout_s))

    async def end(self, error: BaseException | None) -> None:
        """Commits; on an error, the block's or one of its own, takes all back. Raises its own error only."""
        if error is not None:
            await self._undo(error)
            return
        try:
            await self._commit()
        except BaseException as own_error:
            await self._undo(own_error)
            raise

    async def _commit(self) -> None:
        await self._typed("a record was not delivered", self._client.deliver(timeout_s=self._timeout_s))
        if self._membership is not None:
            await self._send_offsets(self._membership)
        try:
            await self._settle("cannot commit", self._client.commit)
        except RetriableError as error:
            raise OutcomeUnknownError(
                f"the commit was not answered within {self._timeout_s:g} s: it may be committed or not ({error})",
                kafka_error=error.kafka_error,
                hint="make a new producer with the same transactional id, which settles the transaction, and a new "
                "consumer; the committed offsets of the group, or the records themselves, then say how it ended",
            ) from error

    async def _send_offsets(self, membership: Membership) -> None:
        now = await self._client.membership()
        if now != membership:
            raise RebalancedError(
                "the group has given this consumer other partitions since the block began",
                hint="" if membership.partitions else "it had none: with confluent-kafka, read before the block begins",
            )
        offsets: Mapping[Place, int] | None = self.offsets
        if offsets is None:
            reading = self._client.positions(timeout_s=self._timeout_s)
            offsets = await self._typed("cannot tell the consumer's positions", reading)
        if foreign := offsets.keys() - membership.partitions:
            raise RebalancedError(f"the consumer does not have {sorted(foreign)}, whose offsets are to be committed")
        if offsets:
            await self._settle("cannot send offsets", self._client.send_offsets, offsets, membership)

    async def _undo(self, error: BaseException) -> None:
        """Aborts and rewinds, as far as that is right; what it cannot do, whoever catches the error must know."""
        try:
            if isinstance(error, FatalError):
                await self._abort_if_possible(error)
            else:
                await self._abort()
        except FatalError as failure:
            await self._rewind_if_known(failure)
            _tell(failure, error)
        else:
            await self._rewind_if_known(error)

    async def _abort_if_possible(self, error: FatalError) -> None:
        """So that readers need not wait for the coordinator to do it. Not what is somebody else's by now."""
        if not isinstance(error, FencedError | OutcomeUnknownError):
            with suppress(TransactionError):  # that the producer is of no use is what is being told
                await self._abort()

    async def _abort(self) -> None:
        try:
            await self._settle("cannot abort", self._client.abort)
        except (RetriableError, AbortableError) as error:
            raise FatalError(
                f"the transaction could not be aborted: {error}",
                kafka_error=error.kafka_error,
                hint="its coordinator aborts it after its timeout, or as soon as a new producer uses its id",
            ) from error

    async def _rewind_if_known(self, error: BaseException) -> None:
        """Not after an unknown outcome: if it was committed after all, the records would be read twice."""
        if self._membership is None or isinstance(error, OutcomeUnknownError):
            return
        try:
            await self._settle("cannot rewind", self._client.rewind)
        except Exception as failure:  # noqa: BLE001  whatever it is, the consumer is not where it should be
            unplaced = FatalError(
                f"nothing was committed, but the consumer could not be put back and would leave records out: {failure}",
                hint="close the consumer; a new one begins at the committed offsets",
            )
            unplaced.__cause__ = failure
            _tell(unplaced, error)

    async def _settle(self, doing: str, step: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Takes a step, again and again while it may still succeed and there is time."""
        deadline = monotonic() + self._timeout_s
        while True:
            try:
                remaining_s = max(deadline - monotonic(), 0.0)
                return await self._typed(doing, step(*arguments, timeout_s=remaining_s))
            except RetriableError:
                if monotonic() + RETRY_PAUSE_S >= deadline:
                    raise
            await self._client.pause(RETRY_PAUSE_S)

    async def _typed(self, doing: str, step: Awaitable[Result]) -> Result:
        try:
            return await step
        except Exception as error:
            typed = self._client.typed(error, doing=doing)
            if typed is None:
                raise
            raise typed from error


def _tell(failure: FatalError, error: BaseException) -> None:
    """Raises what went wrong on top of an error, unless that one must arrive, as an interrupt."""
    if not isinstance(error, Exception):
        error.add_note(f"{failure} ({failure.hint})")
        return
    failure.add_note(f"met while taking back what had failed with {error!r}")
    raise failure


def finished(steps: Coroutine[Any, Any, Result]) -> Result:
    """Runs steps whose client blocks, without an event loop: they never wait for anything else."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    steps.close()
    raise InvariantError("a blocking client waited for an event loop")
