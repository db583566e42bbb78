"""A session of cassandra-driver, asked by coroutines.

The driver's own threads do the work; a coroutine waits for its answer. Every statement here may be carried out twice,
so what does not come back in time, or finds too few nodes, is tried again before it is given up.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from exactlog.core.journal.errors import Retriable
from exactlog.core.model.errors import ExactlogError
from exactlog.journal.stores.cassandra_place import CassandraPlace
from exactlog.journal.stores.errors import DriverMissingError

try:
    from cassandra import (
        ConsistencyLevel,
        CoordinationFailure,
        DriverException,
        OperationTimedOut,
        Timeout,
        Unavailable,
    )
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import (
        EXEC_PROFILE_DEFAULT,
        Cluster,
        ExecutionProfile,
        NoHostAvailable,
        ResponseFuture,
        ResultSet,
        Session,
    )
    from cassandra.connection import ConnectionException
    from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
    from cassandra.protocol import OverloadedErrorMessage
    from cassandra.query import PreparedStatement, Statement, tuple_factory
except ImportError as error:
    raise DriverMissingError(
        "stores in Apache Cassandra need the package cassandra-driver", hint="pip install 'exactlog[cassandra]'"
    ) from error

Row = tuple[Any, ...]

PAGE_ROWS: Final = 1_000
"""Rows that are fetched at a time, as kafka-journal does."""
REQUEST_SECONDS_MAX: Final = 10
DDL_SECONDS_MAX: Final = 30
TRIES_MAX: Final = 4
BACKOFF_SECONDS: Final = 0.05
"""Before the second try; twice as long before each further one, and up to half as long again by chance."""
AT_ONCE_MAX: Final = 64
"""Requests of one store that are on their way: a long poll does not flood the nodes."""

_FOR_NOW: Final = (
    ConnectionException,
    CoordinationFailure,
    NoHostAvailable,
    OperationTimedOut,
    OverloadedErrorMessage,
    Timeout,
    Unavailable,
)


class CassandraSession:
    """A session with the nodes of one place."""

    def __init__(self, place: CassandraPlace, cluster: Cluster, session: Session) -> None:
        self.place = place
        self._cluster = cluster
        self._session = session
        self._room: asyncio.Semaphore | None = None
        self._room_loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    async def connect(cls, place: CassandraPlace) -> "CassandraSession":
        """Connect to the nodes.

        Raises:
            Retriable: none of them answers.
        """
        auth = None if place.user is None else PlainTextAuthProvider(place.user, place.password or "")
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(place.local_dc or "")),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
            request_timeout=REQUEST_SECONDS_MAX,
            row_factory=tuple_factory,
        )
        cluster = Cluster(
            list(place.contact_points),
            port=place.contact_points[0][1],
            auth_provider=auth,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        )
        try:
            session = await asyncio.to_thread(cluster.connect)
        except (*_FOR_NOW, OSError) as error:
            await asyncio.to_thread(cluster.shutdown)
            raise Retriable(f"{place}: {error}", hint="see that a node runs there, and lets you in") from error
        return cls(place, cluster, session)

    async def close(self) -> None:
        """Let go of the nodes."""
        await asyncio.to_thread(self._cluster.shutdown)

    async def prepare(self, cql: str) -> PreparedStatement:
        """A statement whose values come later.

        Raises:
            Retriable: no node answers.
        """
        prepared = await self._tried(lambda: asyncio.to_thread(self._session.prepare, cql))
        prepared.consistency_level = ConsistencyLevel.LOCAL_QUORUM
        prepared.fetch_size = PAGE_ROWS
        prepared.is_idempotent = True  # the driver may ask another node, too
        return prepared

    async def execute(self, statement: Statement) -> Sequence[Row]:
        """All rows of a statement.

        Raises:
            Retriable: it was not carried out in time, or by too few nodes; it may have been all the same.
        """
        return [row async for page in self.pages(statement) for row in page]

    async def pages(self, statement: Statement) -> AsyncIterator[Sequence[Row]]:
        """The rows of a statement as they come.

        Raises:
            Retriable: as `execute`.
        """
        paging_state = None
        while True:
            page = await self._page(statement, paging_state)
            yield page.current_rows
            paging_state = page.paging_state
            if paging_state is None:
                return

    async def execute_all(self, statements: Sequence[Statement]) -> None:
        """Carry all of them out, in any order; when this is over, none is on its way any more.

        Raises:
            Retriable: one of them was not.
        """
        outcomes = await asyncio.gather(*map(self.execute, statements), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def execute_once(self, cql: str, parameters: Sequence[object] = ()) -> Sequence[Row]:
        """A statement that is not tried again: of a schema, or a conditional one.

        Raises:
            Retriable: whether it was carried out is not known, or not all nodes have heard of it yet.
        """
        try:
            future = self._session.execute_async(cql, tuple(parameters) or None, timeout=DDL_SECONDS_MAX)
            answer = await _answer_of(future)
        except _FOR_NOW as error:
            raise self._not_now(error) from error
        if not future.is_schema_agreed:
            raise Retriable(f"{self.place}: its nodes do not agree on the schema yet", hint="see that all are up")
        return list(answer.current_rows)

    # --- trying -------------------------------------------------------------------------------------------------------

    async def _page(self, statement: Statement, paging_state: bytes | None) -> ResultSet:
        async def asked() -> ResultSet:
            async with self._some_room():
                return await _answer_of(self._session.execute_async(statement, paging_state=paging_state))

        return await self._tried(asked)

    async def _tried(self, ask: Callable[[], Any]) -> Any:  # noqa: ANN401  what the driver gives has no types
        tries_left = TRIES_MAX
        seconds = BACKOFF_SECONDS
        while True:
            tries_left -= 1
            try:
                return await ask()
            except _FOR_NOW as error:
                if tries_left == 0:
                    raise self._not_now(error) from error
            await asyncio.sleep(seconds * random.uniform(1, 1.5))  # noqa: S311  no secret
            seconds *= 2

    def _not_now(self, error: Exception) -> ExactlogError:
        kind = type(error).__name__
        return Retriable(f"{self.place}: {kind}: {error}", hint="see that enough of its nodes are up, and not too busy")

    def _some_room(self) -> asyncio.Semaphore:
        """Of the loop that runs: a session may outlive one."""
        loop = asyncio.get_running_loop()
        if self._room is None or self._room_loop is not loop:
            self._room, self._room_loop = asyncio.Semaphore(AT_ONCE_MAX), loop
        return self._room


async def _answer_of(future: ResponseFuture) -> ResultSet:
    """Wait for the driver's answer, which comes in a thread of its own."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[ResultSet] = loop.create_future()

    def tell(rows: object, error: BaseException | None) -> None:
        if answer.done():  # who asked was cancelled
            return
        if error is None:
            answer.set_result(ResultSet(future, rows))
        else:
            answer.set_exception(error)

    def told(rows: object = None, error: BaseException | None = None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, rows, error)

    future.add_callbacks(told, lambda error: told(error=error))
    return await answer


__all__ = ["CassandraSession", "DriverException", "PreparedStatement", "Row", "Statement"]
