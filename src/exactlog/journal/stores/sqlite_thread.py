"""A connection of SQLite with a thread of its own: coroutines ask, the thread does one thing after the other.

What several coroutines write at one time becomes one transaction, each in a savepoint of its own: one sync for all, and
whoever fails takes nothing of the others along. They are answered when it is committed.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from exactlog.core.journal.errors import Retriable
from exactlog.journal.stores.sqlite_errors import told

_T = TypeVar("_T")

WAITING_MAX: Final = 1_000
"""Coroutines that wait for one thread; more wait before its queue: its memory stays small."""
WRITES_TOGETHER_MAX: Final = 256
"""In one transaction: readers of the file's log see it by and by, and the first in it does not wait long."""


class _Asked(NamedTuple, Generic[_T]):
    work: Callable[[sqlite3.Connection], _T]
    answer: "Future[_T]"

    def refuse(self, error: BaseException) -> None:
        self.answer.set_exception(error)


class SqliteThread:
    """One connection and its thread.

    Args:
        place: what its errors call the file.
        open_connection: called in the thread.
        is_writer: whether what is asked is part of a transaction. A reader's each see one state of the file.
    """

    def __init__(self, place: str, open_connection: Callable[[], sqlite3.Connection], *, is_writer: bool) -> None:
        self._place = place
        self._open_connection = open_connection
        self._is_writer = is_writer
        self._queue: SimpleQueue[_Asked[Any] | None] = SimpleQueue()
        self._room = asyncio.Semaphore(WAITING_MAX)
        self._is_closed = False
        self._opened: Future[None] = Future()
        name = f"exactlog-journal-{'writer' if is_writer else 'reader'}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def start(self) -> None:
        """Open the connection.

        Raises:
            Retriable: it cannot be opened for now.
            DamageError: the file is no database.
            ExactlogError: what `open_connection` raises besides.
        """
        self._thread.start()
        await asyncio.wrap_future(self._opened)

    async def ask(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """What `work` gives, done in the thread. A coroutine that is cancelled meanwhile may have had it done.

        Raises:
            Retriable: it cannot be done for now; nothing of it is.
            DamageError: the file is broken.
        """
        async with self._room:
            if self._is_closed:
                raise Retriable(f"{self._place} is closed", hint="open the store again")
            asked = _Asked(work, Future[_T]())
            self._queue.put(asked)
            return await asyncio.wrap_future(asked.answer)

    async def close(self) -> None:
        """Do what was asked before, then close the connection."""
        self._is_closed = True
        if self._thread.is_alive():
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            connection = self._open_connection()
        except BaseException as error:  # noqa: BLE001  it goes to whoever opened the store
            self._opened.set_exception(self._told(error))
            return
        self._opened.set_result(None)
        try:
            while (first := self._queue.get()) is not None:
                together, is_over = self._with_those_that_wait(first)
                self._do(connection, together)
                if is_over:
                    break
        finally:
            connection.close()

    def _with_those_that_wait(self, first: _Asked[Any]) -> tuple[list[_Asked[Any]], bool]:
        together = [first]
        while self._is_writer and len(together) < WRITES_TOGETHER_MAX and not self._queue.empty():
            asked = self._queue.get()
            if asked is None:
                return together, True
            together.append(asked)
        return together, False

    def _do(self, connection: sqlite3.Connection, together: list[_Asked[Any]]) -> None:
        wanted = [asked for asked in together if asked.answer.set_running_or_notify_cancel()]
        if not self._is_writer:
            for asked in wanted:
                outcome = self._outcome(connection, asked)
                _answer(asked, outcome)
            return
        if not wanted:
            return
        try:
            outcomes = self._in_one_transaction(connection, wanted)
        except BaseException as error:  # noqa: BLE001  it goes to all who asked
            outcomes = [_Failed(self._told(error))] * len(wanted)
        for asked, outcome in zip(wanted, outcomes, strict=True):
            _answer(asked, outcome)

    def _in_one_transaction(self, connection: sqlite3.Connection, wanted: list[_Asked[Any]]) -> list[object]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            outcomes = []
            for asked in wanted:
                connection.execute("SAVEPOINT asked")
                outcome = self._outcome(connection, asked)
                if isinstance(outcome, _Failed):
                    if not connection.in_transaction:  # a full disk, say: SQLite has given up all of it
                        raise outcome.error
                    connection.execute("ROLLBACK TO asked")
                connection.execute("RELEASE asked")
                outcomes.append(outcome)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return outcomes

    def _outcome(self, connection: sqlite3.Connection, asked: _Asked[Any]) -> object:
        try:
            return asked.work(connection)
        except BaseException as error:  # noqa: BLE001  it goes to the one who asked
            return _Failed(self._told(error))

    def _told(self, error: BaseException) -> BaseException:
        if not isinstance(error, sqlite3.Error):
            return error
        known = told(error, self._place)
        if known is None:
            return error
        known.__cause__ = error
        return known


class _Failed(NamedTuple):
    error: BaseException


def _answer(asked: _Asked[Any], outcome: object) -> None:
    if isinstance(outcome, _Failed):
        asked.refuse(outcome.error)
    else:
        asked.answer.set_result(cast("Any", outcome))
