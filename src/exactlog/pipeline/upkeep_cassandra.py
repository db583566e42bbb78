"""A store in Apache Cassandra, of which one task looks through its segments of head rows and no others."""

from collections.abc import Sequence

from exactlog.core.model.errors import NotFoundError
from exactlog.journal.stores.cassandra_place import CassandraPlace
from exactlog.journal.stores.cassandra_session import CassandraSession
from exactlog.journal.stores.cassandra_store import CassandraJournalStore


class CassandraShare(CassandraJournalStore):
    """A store whose `ids` and `due` are those of some segments. Entering its context makes no keyspace.

    Args:
        place: of the keyspace.
        segments: which; a head row counts by the number of the segment that it stands in.
    """

    def __init__(self, place: CassandraPlace, segments: frozenset[int]) -> None:
        super().__init__(place, connect=_connect_to_keyspace)
        self._segments_of_share = segments

    async def _head_segments_of(self, topic: str) -> Sequence[int]:
        return [segment for segment in await super()._head_segments_of(topic) if segment in self._segments_of_share]


async def _connect_to_keyspace(place: CassandraPlace) -> CassandraSession:
    """A session of a keyspace that is there.

    Raises:
        Retriable: no node answers.
        NotFoundError: there is no such keyspace.
    """
    session = await CassandraSession.connect(place)
    name = place.keyspace.lower()  # as it is written without quotes
    try:
        if await session.execute_once(
            "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = %s", (name,)
        ):
            return session
        raise NotFoundError(
            f"there is no store of journals {place}", hint="a replicator makes it: `exactlog journal replicate`"
        )
    except BaseException:
        await session.close()
        raise
