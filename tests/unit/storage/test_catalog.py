"""The catalog outlives its process, gives nothing twice, and says when it cannot be read."""

import sqlite3
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from exactlog.core.model.errors import DamageError
from exactlog.core.model.limits import PRODUCER_ID_BLOCK_SIZE
from exactlog.storage.catalog import Catalog, CatalogRefusedError, CatalogTopic, TopicState


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
