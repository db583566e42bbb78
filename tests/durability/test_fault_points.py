"""A broker dies by SIGKILL at a named point, as a process of its own, and its clients go on with the next one.

Every point that a small load can reach in a served broker is reached here, some of them in more than one place. After
each death what was acknowledged is there once, a topic is there whole or not at all, and everything goes on.
"""

from concurrent.futures import TimeoutError as NotYetError
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from demo.served_broker import ServedBroker
from demo.story import DemoFailedError
from exactlog.core.model.topic_name import CONSUMER_OFFSETS
from exactlog.testing.faults import points
from tests.support.idempotent_load import PATIENCE_S, IdempotentLoad, consume, read_directory

KEPT = "kept"
DOOMED = "doomed"
TRIMMED = "trimmed"
PARTITIONS = 2
PRODUCERS = 2
SEGMENT_BYTES = 4_096


class Death(NamedTuple):
    """Where a life of the broker ends, and how it was started."""

    point: str
    at: int = 1
    flush_mode: str = "commit"
    segment_bytes: int = SEGMENT_BYTES
    commit_engine: str = "files"

    def __str__(self):
        return f"{self.point}:{self.at}"


# One death after the other, and then a life that lasts.
DEATHS = [
    # the first partition of a topic; the second, when the first has its name
    [Death("storage.create.before_rename")],
    [Death("storage.create.before_rename", 2)],
    [Death("storage.create.after_rename")],
    [Death("storage.create.after_rename", 2)],
    # under load; the first four commits are those that make the partitions of two topics
    [Death("storage.round.before_write", 7)],
    [Death("storage.round.after_segment_write", 8)],
    [Death("storage.round.after_segment_sync", 9)],
    [Death("storage.round.after_directory_sync")],
    [Death("storage.round.after_directory_sync", 4)],
    [Death("storage.publish.after_write")],
    [Death("storage.publish.after_write", 11)],
    [Death("storage.publish.before_link", 12)],
    [Death("storage.publish.after_link", 2)],
    [Death("storage.publish.after_link", 13)],
    [Death("storage.publish.after_unlink", 14)],
    [Death("storage.publish.after_directory_sync", 15)],
    [Death("storage.checkpoint.before_rename", 2)],
    [Death("storage.checkpoint.after_rename", 2)],
    [Death("storage.checkpoint.after_directory_sync", 3)],
    # the first partition of a topic; the second, when the first is gone
    [Death("storage.delete.before_rename")],
    [Death("storage.delete.before_rename", 2)],
    [Death("storage.delete.after_rename")],
    [Death("storage.delete.before_files", 2)],
    # while it recovers from an earlier death
    [
        Death("storage.round.after_segment_write", 9, segment_bytes=1_000_000),
        Death("storage.recovery.before_truncate"),
        Death("storage.recovery.after_truncate"),
    ],
    [
        Death("storage.round.after_segment_write", 10, flush_mode="none"),
        Death("storage.recovery.before_publish", flush_mode="none"),
        Death("storage.recovery.before_publish", 2),
    ],
    # through a commit journal; the last life is on plain files
    [Death("storage.journal.after_create", commit_engine="journal")],
    [Death("storage.journal.before_write", 9, commit_engine="journal")],
    [Death("storage.journal.after_write", 10, commit_engine="journal")],
    [Death("storage.journal.after_sync", 11, commit_engine="journal")],
    [
        Death("storage.journal.after_sync", 12, commit_engine="journal"),
        Death("storage.journal.before_redo_sync", commit_engine="journal"),
        Death("storage.journal.before_redo_sync"),
        Death("storage.journal.after_write", 13, commit_engine="journal"),
    ],
]

AT_START = {"storage.journal.before_redo_sync"}
"""Where a broker dies before it serves anybody."""

DEATHS_IN_REMOVAL = [Death("storage.removal.before_unlink", 2), Death("storage.removal.after_unlink", 3)]

# What a small load does not reach, and why; tests inside one process reach it.
OUT_OF_REACH = {
    "storage.pack.before_rename": "commits are packed once a partition has more than 1,000 of them",
    "storage.pack.after_rename": "commits are packed once a partition has more than 1,000 of them",
    "storage.pack.before_unlink": "commits are packed once a partition has more than 1,000 of them",
    "storage.vacuum.before_unlink": "vacuum runs without a broker",
    "storage.vacuum.after_unlink": "vacuum runs without a broker",
    "storage.journal.before_settle_sync": "a file of the journal goes when it is long or old, or at an orderly end",
    "storage.journal.before_remove": "a file of the journal goes when it is long or old, or at an orderly end",
}


class Clients:
    """What clients do to a broker again and again: each step makes sure of something, or ends when the broker does."""

    def __init__(self, address):
        self._config = {"bootstrap.servers": address, "log_level": 0, "reconnect.backoff.max.ms": 100}
        self.kept = self._load(KEPT)
        self._to_doomed = Producer(self._config)

    def live(self, broker):
        """Every step once, as far as the broker lets them."""
        admin = AdminClient(self._config)
        self._create(admin, KEPT, broker)
        self._create(admin, DOOMED, broker)
        self._send(self.kept, broker)
        self._fill_doomed(broker)
        self._delete(admin, DOOMED, broker)

    def _load(self, topic):
        address = self._config["bootstrap.servers"]
        return IdempotentLoad(
            address, topic, partitions=PARTITIONS, producers=PRODUCERS, in_flight_max=40, batch_size=10
        )

    def _create(self, admin, topic, broker, **config):
        if not broker.has_ended:
            (future,) = admin.create_topics([NewTopic(topic, PARTITIONS, config=config)]).values()
            assert error_of(future, broker) in (None, KafkaError.TOPIC_ALREADY_EXISTS)

    def _delete(self, admin, topic, broker):
        if not broker.has_ended:
            (future,) = admin.delete_topics([topic]).values()
            assert error_of(future, broker) is None

    def _send(self, load, broker):
        load.go_on(until=len(load.acknowledged) + 400, is_over=lambda: broker.has_ended)

    def _fill_doomed(self, broker):
        for number in range(20):
            self._to_doomed.produce(DOOMED, b"%d" % number, partition=number % PARTITIONS)
        while self._to_doomed.flush(0.05) > 0 and not broker.has_ended:
            pass


class ClientsOfTrimmed(Clients):
    """The same to a topic of which not much is kept."""

    def __init__(self, address):
        super().__init__(address)
        self.trimmed = self._load(TRIMMED)

    def live(self, broker):
        self._create(AdminClient(self._config), TRIMMED, broker, **{"retention.bytes": str(2 * SEGMENT_BYTES)})
        self._send(self.trimmed, broker)


def error_of(future, broker):
    """The error that a request ends with; None for success, and when the broker ends before it answers."""
    for _ in range(PATIENCE_S * 20):
        if broker.has_ended:
            return None
        try:
            future.result(timeout=0.05)
        except NotYetError:
            continue
        except KafkaException as error:
            code = error.args[0].code()
            if code != KafkaError._TRANSPORT:
                return code
            broker.wait_killed()
        return None
    raise AssertionError("no answer")


def broker_in(directory, *, port, flush_mode="commit", segment_bytes=SEGMENT_BYTES, commit_engine="files"):
    settings = {
        "auto.create.topics.enable": "false",  # a topic is there because it was created, or it is not
        "flush.mode": flush_mode,
        "commit.engine": commit_engine,
        "segment.bytes": segment_bytes,
        "delta.checkpoint.min.interval.ms": 0,
        "retention.check.interval.ms": 100,
        "file.delete.delay.ms": 0,
    }
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return ServedBroker(directory / "data", log=directory / "broker.log", options=options, port=port)


def check_topics(broker, data_dir, *, among):
    """Each of some topics is there with all its partitions, or not at all: for clients and on disk."""
    listed = AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=PATIENCE_S).topics
    topics = {name: topic for name, topic in listed.items() if name != CONSUMER_OFFSETS}
    assert topics.keys() <= among
    for topic in topics.values():
        assert topic.error is None
        assert sorted(topic.partitions) == list(range(PARTITIONS))
    on_disk = {path.name for path in data_dir.glob("topic=*") if CONSUMER_OFFSETS not in path.name}
    assert on_disk == {f"topic={topic}-part={number}" for topic in topics for number in range(PARTITIONS)}
    assert list((data_dir / ".creating").iterdir()) == []


def die(directory, deaths, clients_of):
    """Lives up to each of the deaths, with the same clients; their broker's port, and the clients."""
    port, clients = 0, None
    for death in deaths:
        modes = {"flush_mode": death.flush_mode, "commit_engine": death.commit_engine}
        broker = broker_in(directory, port=port, segment_bytes=death.segment_bytes, **modes)
        if death.point in AT_START:
            with pytest.raises(DemoFailedError, match="did not start"):
                broker.start(kill_at=str(death))
            continue
        try:
            broker.start(kill_at=str(death))
            port = broker.port
            clients = clients or clients_of(broker.address)
            while not broker.has_ended:
                clients.live(broker)
            broker.wait_killed()
        finally:
            broker.kill()
    return port, clients


@pytest.mark.slow
@pytest.mark.parametrize("deaths", DEATHS, ids=lambda deaths: str(deaths[-1]))
def test_after_a_death_nothing_is_lost_nothing_is_double_and_topics_are_whole(tmp_path, deaths):
    port, clients = die(tmp_path, deaths, Clients)

    with broker_in(tmp_path, port=port) as broker:
        check_topics(broker, tmp_path / "data", among={KEPT, DOOMED})
        leftovers = list(tmp_path.glob("data/.deleted/*"))
        clients.live(broker)
        while any(path.exists() for path in leftovers):
            clients.live(broker)
        clients.kept.finish()
        found = consume(broker.address, KEPT, partitions=PARTITIONS)
        clients.kept.check_complete(found)
        check_topics(broker, tmp_path / "data", among={KEPT})
        assert not broker.has_ended
    assert read_directory(tmp_path / "data") == found
    assert len(list(tmp_path.glob(f"data/topic={KEPT}-part=0/*.log"))) > 2


@pytest.mark.slow
@pytest.mark.parametrize("death", DEATHS_IN_REMOVAL, ids=str)
def test_after_a_death_among_removed_files_they_go_and_the_rest_is_there(tmp_path, death):
    port, clients = die(tmp_path, [death], ClientsOfTrimmed)
    oldest = [min(path.glob("*.log")) for path in tmp_path.glob("data/topic=*")]

    with broker_in(tmp_path, port=port) as broker:
        while any(path.exists() for path in oldest):
            clients.live(broker)
        clients.trimmed.finish()
        found = consume(broker.address, TRIMMED, partitions=PARTITIONS)
        clients.trimmed.check(found, may_be_trimmed=True)
        assert not broker.has_ended
    kept = read_directory(tmp_path / "data")
    clients.trimmed.check(kept, may_be_trimmed=True)
    for number in range(PARTITIONS):
        assert kept[number][0][0] > 0
        assert kept[number] == found[number][-len(kept[number]) :]


def test_every_point_is_died_at_or_says_why_not():
    died_at = {death.point for deaths in [*DEATHS, DEATHS_IN_REMOVAL] for death in deaths}

    assert died_at.isdisjoint(OUT_OF_REACH)
    of_storage = {point.name for point in points() if point.name.startswith("storage.")}
    assert died_at | OUT_OF_REACH.keys() == of_storage
