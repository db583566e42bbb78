"""Background work without a background: carried out at once, by whoever asks for it."""

import logging
from collections.abc import Callable
from typing import TypeVar

from exactlog.storage.whole_files import SyncFailedError

_logger = logging.getLogger(__name__)

T = TypeVar("T")


class InlineBackground:
    """One lane for all: nothing ever runs beside anything else.

    Work that the disk refuses is given up: what it would have made is made again by recovery. After a failed sync
    nothing more is done.
    """

    def __init__(self, *, on_sync_failed: Callable[[str], None]) -> None:
        self._on_sync_failed = on_sync_failed

    def lane(self) -> "InlineBackground":
        """The lane."""
        return self

    def submit(self, work: Callable[[], T], then: Callable[[T | None], None]) -> None:
        """Carries `work` out, then `then` with its result; with None when it failed."""
        try:
            result = work()
        except SyncFailedError as error:
            self._on_sync_failed(str(error))
        except OSError as error:
            _logger.error("a checkpoint or an index could not be written and is given up: %s", error)
            then(None)
        else:
            then(result)

    async def wait(self) -> None:
        """Nothing is ever running."""
