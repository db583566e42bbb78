"""Trying again what may succeed later, within a deadline."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from exactlog.client.ports import ClientSettings
from exactlog.core.model.errors import ExactlogError, UnavailableError

Result = TypeVar("Result")


async def retry(what: str, attempt: Callable[[], Awaitable[Result]], settings: ClientSettings) -> Result:
    """The result of the first attempt that succeeds.

    Args:
        what: for the message, as "create topic orders".
        attempt: one try. An `ExactlogError` with `retryable` lets it be tried again; it must have forgotten by then
            whatever it found to be out of date.
        settings: the deadline, and how long to wait between attempts.

    Raises:
        UnavailableError: the deadline has passed; the last error is named, and is the cause.
        ExactlogError: an attempt raised one that is not retryable.
    """
    last_error: ExactlogError | None = None
    pauses_s = _pauses_s(settings)
    try:
        async with asyncio.timeout(settings.deadline_ms / 1000):
            while True:
                try:
                    return await attempt()
                except ExactlogError as error:
                    if not error.retryable:
                        raise
                    last_error = error
                await asyncio.sleep(next(pauses_s))
    except TimeoutError as timeout:
        raise _gave_up(what, settings, last_error) from (last_error or timeout)


async def retry_patiently(what: str, attempt: Callable[[], Awaitable[Result]], settings: ClientSettings) -> Result:
    """As `retry`, for attempts that may take as long as they like: the deadline counts from the first that fails."""
    now = asyncio.get_running_loop().time
    failing_since: float | None = None
    pauses_s = _pauses_s(settings)
    while True:
        try:
            return await attempt()
        except ExactlogError as error:
            if not error.retryable:
                raise
            failing_since = now() if failing_since is None else failing_since
            if now() - failing_since >= settings.deadline_ms / 1000:
                raise _gave_up(what, settings, error) from error
        await asyncio.sleep(next(pauses_s))


def _pauses_s(settings: ClientSettings) -> Iterator[float]:
    """How long to wait before each further attempt."""
    backoff_ms = settings.backoff_ms
    while True:
        yield backoff_ms / 1000
        backoff_ms = min(2 * backoff_ms, settings.backoff_ms_max)


def _gave_up(what: str, settings: ClientSettings, last_error: ExactlogError | None) -> UnavailableError:
    reason = "no answer" if last_error is None else str(last_error)
    error = UnavailableError(
        f"{what}: gave up after {settings.deadline_ms} ms: {reason}",
        hint="" if last_error is None else last_error.hint,
    )
    error.kafka_error = None if last_error is None else last_error.kafka_error
    return error
