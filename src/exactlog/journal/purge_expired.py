"""Purging journals whose time is over: on the day it ends (UTC), or on any later one that the job runs.

Each purge says how the journal stood when it was found due. An append that comes into the log first wins: it gives the
journal a new time to live, and the purge does nothing. A job that was stopped goes on: what it has not purged is due
still.
"""

import logging
from collections.abc import Iterable
from datetime import UTC, date, datetime

from exactlog.core.journal.new_actions import new_purge_of_due
from exactlog.journal.parts import Parts

_log = logging.getLogger(__name__)


async def purge_expired(parts: Parts, *, topics: Iterable[str] | None = None, today: date | None = None) -> int:
    """Ask for the purge of every journal that is due, and say of how many.

    Args:
        parts: of the journals.
        topics: to look through; None: all that are replicated.
        today: journals are due whose day this is, or was before; None: the present day (UTC).

    Raises:
        Retriable: the store cannot be asked; what was asked for so far is.
        UnavailableError: the log cannot be written to; likewise.
    """
    through = today or datetime.fromtimestamp(parts.clock.now_ms() / 1000, UTC).date()
    count = 0
    for topic in sorted(await parts.store.topics() if topics is None else topics):
        async for due in parts.store.due(topic, through=through):
            place = await parts.log.place_of(due.key)
            await parts.log.write(due.key, place, new_purge_of_due(due, writer=parts.writer))
            _log.info("journal %s was due on %s: its purge is asked for", due.key, due.expire_on)
            count += 1
    return count
