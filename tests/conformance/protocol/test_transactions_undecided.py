"""A start at which a shard of the coordinator cannot be loaded: what is open in partitions, and whose fate that shard
knows, stays open and untouched until it is.
"""

import pytest
from msgspec.structs import replace

from exactlog.broker.coordinator import shards
from exactlog.broker.coordinator.shards import UNASKED_LOAD_DELAY_MS
from exactlog.client import connect
from exactlog.client.hanging_transactions import find_hanging
from exactlog.client.ports import ClientSettings
from exactlog.core.model.coordinator_partition import coordinator_partition
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.model.topic_name import TRANSACTION_STATE
from exactlog.core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from exactlog.testing import Broker
from tests.support.forgotten_commits import forget
from tests.support.isolated_reader import COMMITTED, read_on, values
from tests.support.raw_client import RawClient
from tests.support.raw_transactions import ABORT, COMMIT, TransactionalProducer, write_marker
from tests.support.transaction_steps import ENDED, no_markers, state_of
from tests.support.watching import wait_until

NONE = ErrorCode.NONE
SHARDS = 2
UNDECIDED = "exactlog_transactions_undecided"


def id_in(shard):
    """A transactional id that a shard has."""
    return next(name for name in map("id-{}".format, range(100)) if coordinator_partition(name, SHARDS) == shard)


AWAY, THERE = 0, 1
"""The shard that cannot be loaded, and the other one."""


class World:
    """A broker of two shards, one of which can be made impossible to load."""

    def __init__(self, broker, monkeypatch):
        self.broker = broker
        self._is_away = False
        load_shard = shards.load_shard

        async def load_unless_away(partition, machine, *, is_wanted):
            if self._is_away and partition.topic_partition == (TRANSACTION_STATE, AWAY):
                raise OSError("ordered")
            return await load_shard(partition, machine, is_wanted=is_wanted)

        monkeypatch.setattr(shards, "load_shard", load_unless_away)

    def begin(self, shard, *indexes):
        """A topic that an open transaction of a shard's id has a value in."""
        with RawClient(self.broker.port) as raw:
            self.topic = raw.create_topic("topic", partitions=2) if not hasattr(self, "topic") else self.topic
            producer = TransactionalProducer(raw, id_in(shard))
            assert producer.init() is NONE
            assert producer.produce(*[(self.topic, index, b"value") for index in indexes]) == [NONE] * len(indexes)
        return producer

    def restart_without(self, *, engine="journal"):
        """Starts again, and nothing is to be had of one of the shards."""
        self._is_away = True
        self.broker._config = replace(self.broker._config, commit_engine=engine)
        self.broker.restart()

    def bring_back(self):
        """The shard can be loaded again, and time passes until somebody tries; waits until all is decided."""
        self._is_away = False
        assert self.broker.metrics()[UNDECIDED]
        self.broker.clock.advance_ms(UNASKED_LOAD_DELAY_MS)
        wait_until(lambda: not self.broker.metrics()[UNDECIDED])

    def raw(self):
        return RawClient(self.broker.port)


@pytest.fixture
def world(tmp_path, monkeypatch):
    config = {"commit.engine": "files", "transaction.state.log.num.partitions": str(SHARDS)}
    with Broker(data_dir=tmp_path, config=config) as broker:
        yield World(broker, monkeypatch)


@pytest.fixture(params=["files", "journal"])
def engine(request):
    return request.param


def stable_offset(raw, group_id, topic):
    """The error and the offset that a member of a group is told."""
    asked = OffsetFetchRequestTopic(name=topic.name, partition_indexes=(0,))
    answer = raw.ask(OffsetFetchRequest(group_id=group_id, topics=(asked,), require_stable=True), 7)
    (partition,) = answer.topics[0].partitions
    return partition.error_code, partition.committed_offset


def assert_untouched(world, producer):
    """It is open, holds readers back, and takes nothing of its producer."""
    with world.raw() as raw:
        assert values(read_on(raw, world.topic)) == []
        assert raw.list_offset(world.topic, -1, isolation_level=COMMITTED).offset == 0
        assert raw.list_offset(world.topic, -1).offset == 1, "there is no marker"
        producer.raw = raw
        producer.skip_to(world.topic, 0, sequence=0)
        for value in (b"value", b"more"):  # a resend, and what follows
            assert producer.produce((world.topic, 0, value)) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert world.broker.metrics()[UNDECIDED] == 1


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_transaction_that_its_coordinator_knows_goes_on_once_the_shard_is_loaded(world, engine, outcome, caplog):
    producer = world.begin(AWAY, 0)
    world.broker.kill()
    world.restart_without(engine=engine)
    assert_untouched(world, producer)
    assert "topic-0: 1 open transactions stay undecided" in caplog.text
    assert f"{TRANSACTION_STATE}-{AWAY}" in caplog.text

    world.bring_back()

    with world.raw() as raw:
        producer.raw = raw
        producer.skip_to(world.topic, 0, sequence=1)
        assert producer.produce((world.topic, 0, b"more")) == [NONE]
        assert producer.end(outcome) is NONE
        wait_until(lambda: state_of(raw, producer.transactional_id) in ENDED)
        assert values(read_on(raw, world.topic)) == ([b"value", b"more"] if outcome is COMMIT else [])


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_an_outcome_that_was_decided_is_carried_out_once_the_shard_is_loaded(world, engine, outcome):
    producer = world.begin(AWAY, 0)
    with world.raw() as raw, no_markers():
        producer.raw = raw
        identity = producer.identity
        assert producer.end(outcome) is NONE
        assert state_of(raw, producer.transactional_id).startswith("Prepare")
        world.broker.kill()
    world.restart_without(engine=engine)
    assert_untouched(world, producer.become(*identity))

    world.bring_back()

    with world.raw() as raw:
        wait_until(lambda: state_of(raw, producer.transactional_id) in ENDED)
        assert values(read_on(raw, world.topic)) == ([b"value"] if outcome is COMMIT else [])


@pytest.mark.parametrize("lost", [1, 2], ids=["its partition", "its producer"])
def test_a_transaction_that_its_coordinator_never_came_to_know_of_is_aborted_once_the_shard_is_loaded(
    world, engine, lost
):
    producer = world.begin(AWAY, 0)
    world.broker.kill()
    forget(world.broker, TRANSACTION_STATE, versions=lost, partition=AWAY)
    world.restart_without(engine=engine)
    assert_untouched(world, producer)

    world.bring_back()

    with world.raw() as raw:
        producer.raw = raw
        producer.skip_to(world.topic, 0, sequence=0)
        wait_until(lambda: raw.list_offset(world.topic, -1, isolation_level=COMMITTED).offset == 2)
        fenced = ErrorCode.INVALID_PRODUCER_EPOCH if lost == 1 else ErrorCode.INVALID_PRODUCER_ID_MAPPING
        while (resent := producer.produce((world.topic, 0, b"value"))) == [ErrorCode.NOT_ENOUGH_REPLICAS]:
            producer.skip_to(world.topic, 0, sequence=0)
        assert resent == [fenced]
        assert producer.init() is NONE
        assert producer.produce((world.topic, 0, b"again")) == [NONE]
        assert producer.end(COMMIT) is NONE
        wait_until(lambda: state_of(raw, producer.transactional_id) in ENDED)
        assert values(read_on(raw, world.topic)) == [b"again"]


def test_an_orphan_whose_shard_is_loaded_is_aborted_though_another_shard_is_not(world, engine):
    world.begin(AWAY, 1)
    orphan = world.begin(THERE, 0)
    world.broker.kill()
    forget(world.broker, TRANSACTION_STATE, versions=1, partition=THERE)
    world.restart_without(engine=engine)

    with world.raw() as raw:
        orphan.raw = raw
        assert raw.list_offset(world.topic, -1, isolation_level=COMMITTED).offset == 2
        orphan.skip_to(world.topic, 0, sequence=0)
        assert orphan.produce((world.topic, 0, b"value")) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert raw.list_offset(world.topic, -1, partition=1, isolation_level=COMMITTED).offset == 0


def test_the_other_shards_are_looked_after_though_one_cannot_be_loaded(world):
    """Whichever comes first: an outcome that was decided in another one is carried out at the start."""
    world.begin(AWAY, 1)
    producer = world.begin(THERE, 0)
    with world.raw() as raw, no_markers():
        producer.raw = raw
        assert producer.end(COMMIT) is NONE
        assert state_of(raw, producer.transactional_id) == "PrepareCommit"
        world.broker.kill()
    world.restart_without()

    wait_until(lambda: world.broker.metrics()["exactlog_transactions_committed_total"] == 1)


def test_offsets_of_a_transaction_stay_pending(world):
    with world.raw() as raw:
        world.topic = raw.create_topic("topic", partitions=2)
        producer = TransactionalProducer(raw, id_in(AWAY))
        assert producer.init() is NONE
        assert producer.commit_offsets("group", world.topic, 7) is NONE
    world.broker.kill()
    world.restart_without()

    with world.raw() as raw:
        producer.raw = raw
        assert stable_offset(raw, "group", world.topic) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert producer.commit_offsets("group", world.topic, 8) is ErrorCode.NOT_COORDINATOR
    world.bring_back()

    with world.raw() as raw:
        producer.raw = raw
        assert producer.commit_offsets("group", world.topic, 8) is NONE
        assert producer.end(COMMIT) is NONE
        wait_until(lambda: stable_offset(raw, "group", world.topic) == (NONE, 8))


def test_other_producers_write_into_the_partition_meanwhile(world):
    world.begin(AWAY, 0)
    world.broker.kill()
    world.restart_without()

    with world.raw() as raw:
        other = TransactionalProducer(raw, id_in(THERE))
        assert other.init() is NONE
        assert other.produce((world.topic, 0, b"other")) == [NONE]
        assert other.end(COMMIT) is NONE
        assert values(read_on(raw, world.topic)) == [], "they wait behind the one that is undecided"


async def test_it_is_found_by_who_looks_for_transactions_that_hang(world):
    world.begin(AWAY, 0)
    world.broker.kill()
    world.restart_without()

    async with connect(f"kafka://127.0.0.1:{world.broker.port}", ClientSettings(deadline_ms=500)) as client:
        (found,) = await find_hanging(client, [TopicPartition(world.topic.name, 0)])

    assert (found.start_offset, found.is_undecided, found.hangs) == (0, True, False)


def test_an_administrator_may_end_it_meanwhile(world):
    producer = world.begin(AWAY, 0)
    world.broker.kill()
    world.restart_without()

    with world.raw() as raw:
        assert raw.list_offset(world.topic, -1, isolation_level=COMMITTED).offset == 0
        assert write_marker(raw, world.topic, *producer.identity, ABORT, coordinator_epoch=99) is NONE
        assert raw.list_offset(world.topic, -1, isolation_level=COMMITTED).offset == 2
    world.bring_back()

    with world.raw() as raw:
        assert raw.list_offset(world.topic, -1).offset == 2, "nothing was added"
