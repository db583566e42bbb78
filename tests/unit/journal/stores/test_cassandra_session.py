"""The session with Apache Cassandra, on a driver that fails as it is told. (With a real node: tests/peers.)"""

import asyncio
import subprocess
import sys
import threading

import pytest
from cassandra import ConsistencyLevel, InvalidRequest, OperationTimedOut, ReadTimeout, Unavailable, WriteTimeout
from cassandra.cluster import NoHostAvailable

from exactlog.core.journal.errors import Retriable
from exactlog.journal.stores import cassandra_session
from exactlog.journal.stores.cassandra_place import CassandraPlace
from exactlog.journal.stores.cassandra_session import TRIES_MAX, CassandraSession

PLACE = CassandraPlace(contact_points=(("host", 9042),), keyspace="journal")
FOR_NOW = [
    OperationTimedOut(),
    NoHostAvailable("nobody", {}),
    ReadTimeout("slow", consistency=ConsistencyLevel.LOCAL_QUORUM),
    WriteTimeout("slow", write_type=0),
    Unavailable("too few", required_replicas=2, alive_replicas=1),
]


class Answer:
    """What the driver calls a future: it answers in a thread of its own."""

    is_schema_agreed = True
    has_more_pages = False
    _paging_state = None
    _col_names = _col_types = ()

    def __init__(self, outcome):
        self.outcome = outcome

    def add_callbacks(self, callback, errback):
        told = errback if isinstance(self.outcome, Exception) else callback
        threading.Thread(target=told, args=(self.outcome,)).start()


class Driver:
    """A session of the driver: gives one outcome after the other."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.asked = []

    def execute_async(self, statement, *_, **__):
        self.asked.append(statement)
        return Answer(self.outcomes.pop(0))


@pytest.fixture(autouse=True)
def no_back_off(monkeypatch):
    monkeypatch.setattr(cassandra_session, "BACKOFF_SECONDS", 0)


def session_of(*outcomes):
    driver = Driver(*outcomes)
    return driver, CassandraSession(PLACE, None, driver)


@pytest.mark.parametrize("error", FOR_NOW, ids=lambda error: type(error).__name__)
async def test_what_fails_for_now_is_tried_again(error):
    driver, session = session_of(error, error, [(1,), (2,)])

    assert await session.execute("statement") == [(1,), (2,)]
    assert driver.asked == ["statement"] * 3


@pytest.mark.parametrize("error", FOR_NOW, ids=lambda error: type(error).__name__)
async def test_what_goes_on_failing_is_told(error):
    driver, session = session_of(*[error] * TRIES_MAX)

    with pytest.raises(Retriable, match=rf"cassandra://host:9042/journal: {type(error).__name__}") as refused:
        await session.execute("statement")

    assert refused.value.__cause__ is error
    assert len(driver.asked) == TRIES_MAX


async def test_what_is_wrong_is_not_tried_again():
    driver, session = session_of(InvalidRequest("no such table"))

    with pytest.raises(InvalidRequest):
        await session.execute("statement")
    assert len(driver.asked) == 1


async def test_a_statement_of_the_schema_is_not_tried_again():
    driver, session = session_of(OperationTimedOut())

    with pytest.raises(Retriable):
        await session.execute_once("ALTER TABLE")
    assert len(driver.asked) == 1


async def test_nodes_that_do_not_agree_on_the_schema_are_told():
    driver, session = session_of([])
    driver.execute_async = lambda *_, **__: disagreeing

    disagreeing = Answer([])
    disagreeing.is_schema_agreed = False
    with pytest.raises(Retriable, match="do not agree"):
        await session.execute_once("ALTER TABLE")


async def test_of_many_statements_none_is_on_its_way_when_one_has_failed():
    wrong = InvalidRequest("no")
    driver, session = session_of(wrong, *[[]] * 200)

    with pytest.raises(InvalidRequest):
        await session.execute_all([f"statement {number}" for number in range(201)])
    assert len(driver.asked) == 201


async def test_no_more_than_so_many_are_on_their_way(monkeypatch):
    monkeypatch.setattr(cassandra_session, "AT_ONCE_MAX", 3)
    waiting = []

    class Waiting(Answer):
        def add_callbacks(self, callback, errback):
            waiting.append(callback)

    driver, session = session_of()
    driver.execute_async = lambda *_, **__: Waiting([])
    asked = asyncio.ensure_future(session.execute_all(["statement"] * 10))
    seen = []
    while not asked.done():
        await asyncio.sleep(0)
        if waiting:
            seen.append(len(waiting))
            waiting.pop()([])

    await asked
    assert max(seen) == 3


async def test_who_was_cancelled_is_not_told():
    driver, session = session_of()
    callbacks = []

    class Waiting(Answer):
        def add_callbacks(self, callback, errback):
            callbacks.append(callback)

    driver.execute_async = lambda *_, **__: Waiting([])
    asked = asyncio.ensure_future(session.execute("statement"))
    await asyncio.sleep(0)  # it has asked
    await asyncio.sleep(0)
    assert callbacks
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    callbacks[0]([])
    await asyncio.sleep(0)


def test_a_session_outlives_an_event_loop():
    _, session = session_of(*[[(number,)] for number in range(4)])

    assert [asyncio.run(session.execute("statement")) for _ in range(4)] == [[(0,)], [(1,)], [(2,)], [(3,)]]


def test_without_the_driver_it_is_named_what_to_install():
    program = (
        "import sys; sys.modules['cassandra'] = None\n"
        "from exactlog.journal.stores.store_url import journal_store\n"
        "journal_store('memory:')\n"
        "try: journal_store('cassandra://host/journal')\n"
        "except Exception as error: print(error.code, '|', error.hint)\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert told == "driver-missing | pip install 'exactlog[cassandra]'\n"
