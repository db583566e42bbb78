"""The catalog outlives its process, gives nothing twice, and says when it cannot be read."""

import sqlite3
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from exactlog.core.model.errors import DamageError
from exactlog.core.model.limits import PRODUCER_ID_BLOCK_SIZE
from exactlog.storage.catalog import BrokerScope, Catalog, CatalogRefusedError, CatalogTopic, TopicState


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "catalog.db")


@pytest.fixture
def open_catalog(path):
    """Opens the catalog anew each time, as the next start does."""
    opened = []

    def open_again():
        if opened:
            opened[-1].close()
        opened.append(Catalog(path))
        return opened[-1]

    yield open_again
    if opened:
        opened[-1].close()


def topic(name="orders", *, topic_id=None, state=TopicState.LIVE, **config):
    return CatalogTopic(name, topic_id or uuid4(), 3, config, state, 1_762_539_302_883)


def test_settings_outlive_a_restart(open_catalog):
    catalog = open_catalog()
    assert catalog.get("cluster_id") is None
    catalog.put("cluster_id", "abc")
    catalog.put("cluster_id", "def")

    assert open_catalog().get("cluster_id") == "def"


def test_the_owner_epoch_is_one_higher_at_every_start(open_catalog):
    assert [open_catalog().advance_owner_epoch() for _ in range(4)] == [0, 1, 2, 3]


def test_no_producer_id_is_given_twice(open_catalog):
    blocks = [open_catalog().reserve_producer_ids(), open_catalog().reserve_producer_ids(5)]
    blocks.append(open_catalog().reserve_producer_ids())

    assert blocks == [
        range(PRODUCER_ID_BLOCK_SIZE),
        range(PRODUCER_ID_BLOCK_SIZE, PRODUCER_ID_BLOCK_SIZE + 5),
        range(PRODUCER_ID_BLOCK_SIZE + 5, 2 * PRODUCER_ID_BLOCK_SIZE + 5),
    ]


def test_topics_outlive_a_restart_whatever_their_state(open_catalog):
    topics = [topic(state.value, state=state, **{"retention.ms": "1", "cleanup.policy": "ü"}) for state in TopicState]
    catalog = open_catalog()
    for each in reversed(topics):
        catalog.add_topic(each)

    assert open_catalog().topics() == sorted(topics, key=lambda each: each.name)


def test_a_topic_moves_from_state_to_state_and_is_forgotten(open_catalog):
    orders, others = topic("orders", state=TopicState.CREATING), topic("others")
    catalog = open_catalog()
    catalog.add_topic(orders)
    catalog.add_topic(others)
    catalog.set_topic_state(orders.topic_id, TopicState.LIVE)
    assert [each.state for each in open_catalog().topics()] == [TopicState.LIVE, TopicState.LIVE]

    catalog = open_catalog()
    catalog.remove_topic(orders.topic_id)

    assert open_catalog().topics() == [others]


def test_the_configuration_of_a_topic_is_replaced(open_catalog):
    orders, others = topic("orders", **{"retention.ms": "1", "segment.bytes": "2"}), topic("others")
    catalog = open_catalog()
    catalog.add_topic(orders)
    catalog.add_topic(others)

    catalog.set_topic_config(orders.topic_id, {"retention.bytes": "3"})

    assert [each.config for each in open_catalog().topics()] == [{"retention.bytes": "3"}, {}]


def test_a_plan_to_grow_is_carried_out_or_dropped_or_forgotten_with_its_topic(open_catalog):
    topics = [topic(name) for name in ("a", "b", "c", "d")]
    catalog = open_catalog()
    for each in topics:
        catalog.add_topic(each)
        catalog.plan_partitions(each.topic_id, 5)
    assert open_catalog().partition_plans() == {each.topic_id: 5 for each in topics}

    catalog = open_catalog()
    catalog.carry_out_plan(topics[0].topic_id)
    catalog.drop_plan(topics[1].topic_id)
    catalog.remove_topic(topics[2].topic_id)
    catalog.plan_partitions(topics[3].topic_id, 7)

    catalog = open_catalog()
    assert {each.name: each.partition_count for each in catalog.topics()} == {"a": 5, "b": 3, "d": 3}
    assert catalog.partition_plans() == {topics[3].topic_id: 7}


def test_a_plan_that_there_is_not_cannot_be_carried_out_and_changes_nothing(open_catalog):
    catalog, orders = open_catalog(), topic("orders")
    catalog.add_topic(orders)

    with pytest.raises(CatalogRefusedError):
        catalog.carry_out_plan(orders.topic_id)
    assert open_catalog().topics() == [orders]


def test_a_catalog_from_before_there_were_plans_is_opened(open_catalog, path):
    catalog = open_catalog()
    catalog.add_topic(topic("orders"))
    catalog._connection.execute("DROP TABLE partition_plans")

    assert open_catalog().partition_plans() == {}


def test_what_is_set_on_brokers_outlives_a_restart_each_scope_for_itself(open_catalog):
    catalog = open_catalog()
    assert catalog.broker_config(BrokerScope.NODE) == {}
    catalog.set_broker_config(BrokerScope.NODE, {"retention.ms": "1"})
    catalog.set_broker_config(BrokerScope.CLUSTER, {"retention.ms": "2", "segment.bytes": "3"})
    catalog.set_broker_config(BrokerScope.NODE, {"retention.bytes": "4"})

    catalog = open_catalog()
    assert catalog.broker_config(BrokerScope.NODE) == {"retention.bytes": "4"}
    assert catalog.broker_config(BrokerScope.CLUSTER) == {"retention.ms": "2", "segment.bytes": "3"}


@pytest.mark.parametrize("which", ["name", "id"])
def test_a_name_and_an_id_are_there_once(open_catalog, which):
    catalog = open_catalog()
    first = topic("orders")
    catalog.add_topic(first)
    second = topic("orders") if which == "name" else topic("others", topic_id=first.topic_id)

    with pytest.raises(CatalogRefusedError):
        catalog.add_topic(second)
    assert open_catalog().topics() == [first]


def test_a_catalog_in_memory_leaves_nothing(tmp_path):
    catalog = Catalog(None)
    catalog.add_topic(topic())
    assert catalog.advance_owner_epoch() == 0
    catalog.close()

    assert Catalog(None).topics() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"not a database at all", b"SQLite format 3\0" + bytes(4_000)])
def test_a_file_that_is_no_catalog_is_damage_that_names_it(path, content):
    Path(path).write_bytes(content)

    with pytest.raises(DamageError, match=r"catalog\.db") as caught:
        Catalog(path)
    assert caught.value.hint


def test_a_place_where_no_file_can_be_is_damage_too(tmp_path):
    with pytest.raises(DamageError, match="missing"):
        Catalog(str(tmp_path / "missing" / "catalog.db"))


def test_a_catalog_of_a_newer_format_is_not_touched(open_catalog, path):
    open_catalog().put("format_version", "2")
    with pytest.raises(DamageError, match="format 2 is newer"):
        open_catalog()

    connection = sqlite3.connect(path)
    assert connection.execute("SELECT value FROM settings WHERE name = 'format_version'").fetchone() == ("2",)
    connection.close()


def test_a_change_is_durable_when_its_call_returns(open_catalog):
    """SQLite's rules: below EXTRA the unlinking of the journal, which is what commits, is not synced."""
    catalog = open_catalog()

    assert catalog._connection.execute("PRAGMA synchronous").fetchone() == (3,)
    assert catalog._connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_ids_come_back_as_ids(open_catalog):
    catalog = open_catalog()
    catalog.add_topic(topic(topic_id=UUID(int=7)))

    assert catalog.topics()[0].topic_id == UUID(int=7)


def test_what_the_disk_refuses_is_an_os_error_that_names_the_catalog(tmp_path):
    catalog = Catalog(str(tmp_path / "catalog.db"))
    catalog._connection.execute("PRAGMA max_page_count = 1")  # as good as a full disk
    big = "x" * 1_000_000

    with pytest.raises(CatalogRefusedError, match=r"catalog\.db.*full"):
        catalog.put("name", big)

    assert catalog.get("name") is None
    catalog.close()
