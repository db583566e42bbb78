"""What recorders on journals promise beyond the library's own tests."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest
from eventsourcing.persistence import (
    DatabaseError,
    DataError,
    InfrastructureFactory,
    IntegrityError,
    InterfaceError,
    OperationalError,
    StoredEvent,
    Tracking,
)
from eventsourcing.popo import POPOApplicationRecorder
from eventsourcing.utils import Environment
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import encode as msgpack

from exactlog.client.adapters import connect
from exactlog.client.transactions import OutcomeUnknownError
from exactlog.core.journal.keys import JournalKey
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DecodeError, KafkaError, UnavailableError
from exactlog.journal import (
    NO_STREAM,
    Conflict,
    Fenced,
    ForkedJournalError,
    HeadLost,
    JournalInputError,
    Journals,
    Retriable,
)
from exactlog.journal.eventsourcing import Factory, recorders
from exactlog.journal.eventsourcing.notification_format import decode_notification, encode_notification
from exactlog.journal.eventsourcing.open_logs import close_open_logs
from exactlog.journal.eventsourcing.persistence_errors import persistence_errors
from exactlog.testing import Broker
from tests.conformance.eventsourcing.places import MODULE


def event(originator_id, version, topic="happened", state=b"{}"):
    return StoredEvent(originator_id, version, topic, state)


def env_of(url, **others):
    return {"PERSISTENCE_MODULE": MODULE, "EXACTLOG_URL": url, **others}


def factory_of(env):
    return InfrastructureFactory.construct(env)


@pytest.fixture(autouse=True)
def _nothing_stays_open():
    yield
    close_open_logs()


@pytest.fixture
def env():
    return env_of("memory:")


@pytest.fixture
def broker():
    with Broker(config={"in.memory": True}) as broker:
        yield broker
        close_open_logs()


@pytest.fixture
def programs(broker, tmp_path):
    """Environments of two programs on one broker: they share nothing but the log."""
    url = f"kafka://{broker.bootstrap_servers}"
    return [env_of(url, EXACTLOG_STORE_URL=f"sqlite:{tmp_path / name}.db") for name in ("one", "other")]


# --- one winner -------------------------------------------------------------------------------------------------------


def outcomes_of_a_race(*recorders):
    """What became of the same version of the same aggregate, inserted by each of them at the same time."""
    originator_id = uuid4()
    started = threading.Barrier(len(recorders))

    def insert(number, recorder):
        started.wait()
        try:
            recorder.insert_events([event(originator_id, 1, state=str(number).encode())])
        except IntegrityError:
            return "refused"
        return str(number)

    with ThreadPoolExecutor(len(recorders)) as threads:
        outcomes = list(threads.map(insert, range(len(recorders)), recorders))
    (recorded,) = recorders[0].select_events(originator_id)
    return outcomes, recorded.state.decode()


def test_of_two_threads_that_record_one_version_one_is_refused(env):
    recorder = factory_of(env).application_recorder()
    for _ in range(10):
        outcomes, recorded = outcomes_of_a_race(recorder, recorder)

        assert sorted(outcomes) == sorted([recorded, "refused"])
    assert recorder.max_notification_id() == 10


def test_of_two_programs_that_record_one_version_one_is_refused(programs):
    one, other = (factory_of(env).application_recorder() for env in programs)
    for _ in range(10):
        outcomes, recorded = outcomes_of_a_race(one, other)

        assert sorted(outcomes) == sorted([recorded, "refused"])
    assert one.max_notification_id() == other.max_notification_id() == 10


def test_programs_that_record_at_once_give_every_notification_id_once(programs):
    def insert(recorder):
        return [recorder.insert_events([event(uuid4(), 1), event(uuid4(), 1)]) for _ in range(15)]

    both = [factory_of(env).application_recorder() for env in programs]
    with ThreadPoolExecutor(2) as threads:
        told = [ids for of_one in threads.map(insert, both) for ids in of_one]

    assert all(second == first + 1 for first, second in told)
    assert sorted(number for ids in told for number in ids) == list(range(1, 61))
    for recorder in both:
        assert [notification.id for notification in recorder.select_notifications(1, 100)] == list(range(1, 61))


def test_a_reader_sees_notifications_without_gaps_while_they_are_written(env):
    recorder = factory_of(env).application_recorder()
    done = threading.Event()

    def write():
        try:
            for number in range(30):
                recorder.insert_events([event(uuid4(), 1), event(uuid4(), 1)])
                if number % 3 == 0:  # what is refused leaves no gap either
                    with pytest.raises(IntegrityError):
                        recorder.insert_events([event(uuid4(), 1), *[event("taken", 1)] * 2])
        finally:
            done.set()

    seen = [0]
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        while not done.is_set():
            ids = [notification.id for notification in recorder.select_notifications(1, 100)]
            assert ids == list(range(1, len(ids) + 1))
            assert len(ids) >= seen[-1]
            seen.append(len(ids))
        writing.result()

    assert recorder.max_notification_id() == 60


# --- all or nothing ---------------------------------------------------------------------------------------------------


def test_an_insert_of_several_aggregates_of_which_one_is_late_records_nothing(env):
    recorder = factory_of(env).process_recorder()
    recorder.insert_events([event("a", 1)], tracking=Tracking("upstream", 1))

    with pytest.raises(IntegrityError):
        recorder.insert_events([event("b", 1), event("a", 1)], tracking=Tracking("upstream", 2))
    with pytest.raises(IntegrityError):
        recorder.insert_events([event("c", 1)], tracking=Tracking("upstream", 1))

    assert recorder.select_events("b") == recorder.select_events("c") == []
    assert recorder.max_tracking_id("upstream") == 1
    assert recorder.insert_events([event("b", 1)], tracking=Tracking("upstream", 2)) == [2]


def test_an_insert_may_be_larger_than_a_record_of_the_log(env):
    recorder = factory_of(env).application_recorder()
    events = [event("large", number, state=bytes([number]) * 200_000) for number in range(1, 16)]

    assert recorder.insert_events(events) == list(range(1, 16))

    assert recorder.select_events("large") == events
    assert [n.state for n in recorder.select_notifications(1, 20)] == [one.state for one in events]


def test_an_event_that_no_record_can_hold_is_refused_and_nothing_of_its_insert_recorded(env):
    recorder = factory_of(env).application_recorder()

    with pytest.raises(DataError, match="too large"):
        recorder.insert_events([event("a", 1), event("b", 1, state=bytes(3_000_000))])

    assert recorder.select_events("a") == []
    assert recorder.insert_events([event("a", 1)]) == [1]


@pytest.mark.parametrize(
    "refused", [event("$notifications", 1), event("a", -1), event("a", 2**63)], ids=["id", "negative", "too great"]
)
def test_an_event_that_cannot_be_recorded_is_refused(env, refused):
    recorder = factory_of(env).application_recorder()

    with pytest.raises(DataError):
        recorder.insert_events([event("b", 1), refused])

    assert recorder.max_notification_id() is None


def test_ids_come_back_as_what_they_were(env):
    recorder = factory_of(env).application_recorder()
    ids = [uuid4(), "order-7", str(uuid4()), UUID(int=0), "Ω/ ü"]
    recorder.insert_events([event(originator_id, 1) for originator_id in ids])

    assert [n.originator_id for n in recorder.select_notifications(1, 10)] == ids
    for originator_id in ids:
        (recorded,) = recorder.select_events(originator_id)
        assert recorded.originator_id == originator_id


def test_snapshots_are_kept_apart_from_events_and_their_versions_rise(env):
    factory = factory_of(env)
    events, snapshots = factory.application_recorder(), factory.aggregate_recorder("snapshots")
    events.insert_events([event("a", version) for version in range(1, 6)])
    snapshots.insert_events([event("a", 2, topic="snapshot")])
    snapshots.insert_events([event("a", 5, topic="snapshot")])

    with pytest.raises(IntegrityError):
        snapshots.insert_events([event("a", 3, topic="snapshot")])

    assert [one.originator_version for one in snapshots.select_events("a")] == [2, 5]
    assert [one.originator_version for one in snapshots.select_events("a", lte=4, desc=True, limit=1)] == [2]
    assert len(events.select_events("a")) == events.max_notification_id() == 5


# --- like the library's own -------------------------------------------------------------------------------------------

RECORDED = [
    event("a", 0, "t1"),
    event("b", 1, "t2"),
    event("a", 1, "t2"),
    event("a", 5, "t1"),
    event("b", 2, "t3"),
    event("a", 40, "t3"),
    event("a", 41, "t1"),
]
BOUNDS = st.none() | st.integers(-2, 45)


@pytest.fixture(scope="class")
def alike():
    """Two recorders with the same events, ours and the library's in memory."""
    ours, theirs = factory_of(env_of("memory:")).application_recorder(), POPOApplicationRecorder()
    for recorder in (ours, theirs):
        for one in RECORDED:
            recorder.insert_events([one])
    return ours, theirs


class TestAlike:
    @pytest.fixture(autouse=True)
    def _nothing_stays_open(self):
        """The recorders of this class are for all of its tests."""

    @given(
        originator_id=st.sampled_from(["a", "b", "c"]),
        query=st.fixed_dictionaries(
            {"gt": BOUNDS, "lte": BOUNDS, "desc": st.booleans(), "limit": st.none() | st.integers(1, 8)}
        ),
    )
    def test_events_are_selected_as_by_the_library(self, alike, originator_id, query):
        ours, theirs = (recorder.select_events(originator_id, **query) for recorder in alike)
        assert ours == theirs

    @given(
        query=st.fixed_dictionaries(
            {
                "start": st.none() | st.integers(-2, 9),
                "limit": st.integers(1, 9),
                "stop": st.none() | st.integers(0, 9),
                "topics": st.lists(st.sampled_from(["t1", "t2", "t3", "t4"]), max_size=2),
                "inclusive_of_start": st.booleans(),
            }
        )
    )
    def test_notifications_are_selected_as_by_the_library(self, alike, query):
        ours, theirs = (recorder.select_notifications(**query) for recorder in alike)
        assert ours == theirs


# --- opening and closing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replicated", ["y", "n"])
@pytest.mark.parametrize("store", ["memory:", "sqlite"])
def test_what_was_recorded_is_there_when_the_log_is_opened_again(tmp_path, store, replicated):
    store_url = store if store == "memory:" else f"sqlite:{tmp_path / 'journals.db'}"
    env = env_of(f"embedded:{tmp_path / 'log'}", EXACTLOG_STORE_URL=store_url, EXACTLOG_REPLICATE=replicated)
    for version in (1, 2):
        factory = factory_of(env)
        recorder = factory.process_recorder()
        assert recorder.insert_events([event("a", version)], tracking=Tracking("up", version)) == [version]
        factory.close()

    recorder = factory_of(env).process_recorder()
    assert [one.originator_version for one in recorder.select_events("a")] == [1, 2]
    assert recorder.max_tracking_id("up") == 2


def test_factories_of_one_directory_share_the_log_until_the_last_is_closed(tmp_path):
    env = env_of(f"embedded:{tmp_path / 'log'}")
    one, other = factory_of(env), factory_of(env)
    written, read = one.application_recorder(), other.application_recorder()
    written.insert_events([event("a", 1)])
    one.close()

    assert len(read.select_events("a")) == 1
    with pytest.raises(InterfaceError):
        written.insert_events([event("a", 2)])

    other.close()
    with pytest.raises(InterfaceError):
        read.max_notification_id()
    with Broker(tmp_path / "log"):  # the directory is free again
        pass


CLOSES_NOTHING = """
import os
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate
application = Application(os.environ)
application.save(Aggregate())
subscription = application.recorder.subscribe(gt=0)
next(subscription)
subscription.stop()
"""


def test_a_program_that_closes_nothing_ends_in_order(tmp_path):
    env = env_of(f"embedded:{tmp_path / 'log'}")
    for number in (1, 2):
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-c", CLOSES_NOTHING],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
        assert Factory(Environment("Application", env)).application_recorder().max_notification_id() == number
        close_open_logs()


def test_a_log_whose_recorders_are_forgotten_is_closed(tmp_path):
    recorder = factory_of(env_of(f"embedded:{tmp_path / 'log'}")).application_recorder()
    gc.collect()
    assert recorder.insert_events([event("a", 1)]) == [1]  # the factory is forgotten, the recorder is not

    del recorder
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "exactlog-recorders-close":
            thread.join()
    with Broker(tmp_path / "log"):  # the directory is free again
        pass


def test_a_directory_that_another_has_open_is_told(tmp_path):
    with Broker(tmp_path / "log"), pytest.raises(InterfaceError, match="in use"):
        factory_of(env_of(f"embedded:{tmp_path / 'log'}")).application_recorder()


def test_an_environment_without_a_log_is_told_with_the_names_of_its_keys():
    with pytest.raises(OSError, match="ORDERS_EXACTLOG_URL, EXACTLOG_URL"):
        Factory(Environment("Orders", {}))


def test_a_log_that_is_none_is_told():
    with pytest.raises(DatabaseError, match="nowhere:"):
        factory_of(env_of("nowhere:")).application_recorder()


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (Conflict(JournalKey("t", "a"), expected=NO_STREAM, actual=1), IntegrityError),
        (ForkedJournalError("two"), IntegrityError),
        (JournalInputError("number"), DataError),
        (Retriable("later"), OperationalError),
        (Fenced("another"), OperationalError),
        (UnavailableError("no answer"), OperationalError),
        (OutcomeUnknownError("no answer"), OperationalError),
        (KafkaError(ErrorCode.MESSAGE_TOO_LARGE), DataError),
        (KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), OperationalError),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), DatabaseError),
        (HeadLost("gone"), DatabaseError),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else one.__name__,
)
def test_refusals_are_told_as_the_library_tells_them(refusal, told):
    with pytest.raises(told) as raised, persistence_errors():
        raise refusal

    assert type(raised.value) is told
    assert raised.value.__cause__ is refusal


async def described(url, topic):
    async with connect(url) as client:
        return await client.describe_topic(topic)


def test_applications_have_topics_of_their_own_that_are_kept_for_ever(broker):
    url = f"kafka://{broker.bootstrap_servers}"
    for name in ("Orders", "Payments"):
        Factory(Environment(name, env_of(url))).application_recorder().insert_events([event("a", 1)])

    with Journals.open_sync(url) as journals:
        for topic in ("orders", "payments"):
            assert [(record.seq_nr, record.event, record.tags) for record in journals[topic, "a"].read()] == [
                (2, b"{}", {"happened"})
            ]
    settings = {entry.name: entry.value for entry in asyncio.run(described(url, "orders")).configs}
    assert (settings["retention.ms"], settings["retention.bytes"]) == ("-1", "-1")


# --- following --------------------------------------------------------------------------------------------------------


def test_a_subscription_sees_what_other_programs_record(programs):
    one, other = (factory_of(env).application_recorder() for env in programs)
    one.insert_events([event("a", 1)])
    with one.subscribe(gt=0) as subscription:
        assert next(subscription).id == 1
        other.insert_events([event("b", 1), event("b", 2)])
        assert [next(subscription).id, next(subscription).id] == [2, 3]


def test_a_subscription_to_a_rare_topic_reads_each_notification_once(env, monkeypatch):
    recorder = factory_of(env).application_recorder()
    select, starts = recorder.select_notifications, []

    def counted(*, start, **others):
        starts.append(start)
        return select(start, **others)

    monkeypatch.setattr(recorder, "select_notifications", counted)
    recorder.insert_events([event("a", version) for version in range(1, 1_201)])
    with recorder.subscribe(gt=0, topics=["rare"]) as subscription:
        recorder.insert_events([event("b", 1, topic="rare")])
        assert next(subscription).id == 1_201
        recorder.insert_events([event("b", 2), event("b", 3, topic="rare")])
        assert next(subscription).id == 1_203

    assert {0, 500, 1_000} <= set(starts)
    assert starts == sorted(starts)
    assert starts.count(0) == starts.count(500) == 1


def test_older_positions_are_deleted_now_and_then_and_the_last_one_stands(env, monkeypatch):
    monkeypatch.setattr(recorders, "_TRACKINGS_KEPT_MAX", 5)
    recorder = factory_of(env).tracking_recorder()
    for position in range(0, 26, 2):
        recorder.insert_tracking(Tracking("upstream", position))

    assert recorder.max_tracking_id("upstream") == 24
    kept = recorder.recorded.events("$tracking/upstream", first=1, last=None)
    assert [record.seq_nr - 1 for record in kept] == [18, 20, 22, 24]
    with pytest.raises(IntegrityError):
        recorder.insert_tracking(Tracking("upstream", 24))


def test_the_environment_of_an_application_does_not_disturb_a_broker():
    from exactlog.node.config import load_config

    named = {name: "x" for name in vars(Factory) if name.startswith("EXACTLOG_")}
    assert len(named) == 5
    load_config(environment={**os.environ, **named})


# --- the layout of a notification -------------------------------------------------------------------------------------


@given(st.uuids() | st.text(), st.integers(0, 2**63 - 1), st.binary())
def test_a_notification_comes_back_as_it_was_written(originator_id, version, state):
    found = decode_notification(encode_notification(originator_id, version, state))

    assert (found.originator, found.originator_version, found.state) == (originator_id, version, state)


@pytest.mark.parametrize("payload", [None, "text", b"", b"\xc1", b"\x90", msgpack(["x", True, 1, b""]), msgpack({})])
def test_what_is_no_notification_is_told(payload):
    with pytest.raises(DecodeError):
        decode_notification(payload)
