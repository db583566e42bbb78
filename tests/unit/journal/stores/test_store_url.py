"""Urls of stores."""

from pathlib import Path

import pytest

from exactlog.core.journal.errors import JournalInputError
from exactlog.journal.stores.errors import StoreUrlError
from exactlog.journal.stores.memory_store import MemoryJournalStore
from exactlog.journal.stores.sqlite_store import SqliteJournalStore
from exactlog.journal.stores.store_url import cassandra_place, journal_store


def test_memory_is_a_store_of_its_own_each_time():
    first, second = journal_store("memory:"), journal_store("memory:")

    assert isinstance(first, MemoryJournalStore)
    assert first is not second


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:journals.db", Path.cwd() / "journals.db"),
        ("sqlite:///journals.db", Path.cwd() / "journals.db"),
        ("sqlite:./a/b c.db", Path.cwd() / "a" / "b c.db"),
        ("sqlite:/tmp/journals.db", Path("/tmp/journals.db")),
        ("sqlite:////tmp/journals.db", Path("/tmp/journals.db")),
    ],
)
def test_a_sqlite_url_names_a_file(url, path):
    store = journal_store(url)

    assert isinstance(store, SqliteJournalStore)
    assert store._path == path


async def test_a_store_is_opened_by_entering_it(tmp_path):
    url = f"sqlite:///{tmp_path / 'a?b#c%20.db'}"
    async with journal_store(url, segment_size=7) as store:
        assert await store.topics() == frozenset()

    assert (tmp_path / "a?b#c%20.db").exists()


def test_a_cassandra_url_names_hosts_and_a_keyspace():
    place = cassandra_place(
        "cassandra://a:9043,b,[::1]:9044/journal?local_dc=dc1&replication_factor=3&user=u&password=p%26"
    )

    assert place.contact_points == (("a", 9043), ("b", 9042), ("::1", 9044))
    assert (place.keyspace, place.local_dc, place.replication_factor) == ("journal", "dc1", 3)
    assert (place.user, place.password) == ("u", "p&")
    assert "p&" not in repr(place)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "memory:somewhere",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/journals.db",
        "postgres://host/db",
        "cassandra:host/journal",
        "cassandra://host",
        "cassandra://host/",
        "cassandra:///journal",
        "cassandra://host:0/journal",
        "cassandra://host:port/journal",
        "cassandra://host/no-keyspace",
        "cassandra://host/journal?datacenter=dc1",
        "cassandra://host/journal?replication_factor=none",
        "cassandra://host/journal?replication_factor=0",
        "cassandra://host/journal; DROP KEYSPACE journal",
    ],
)
def test_what_is_no_url_of_a_store_is_refused(url):
    with pytest.raises(StoreUrlError) as refused:
        journal_store(url)

    assert refused.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "cassandra://user:secret@host/journal",
        "cassandra://host/journal?password=secret&datacenter=dc1",
        "cassandra://host/no-keyspace?password=secret",
        "cassandra://host/journal?password=secret&replication_factor=0",
        "casandra://user:secret@host/journal",
    ],
)
def test_a_password_is_in_no_message(url):
    with pytest.raises(StoreUrlError) as refused:
        journal_store(url)

    assert "secret" not in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize("segment_size", [-1, 0, 1, 2**31])
def test_a_segment_size_out_of_range_is_refused(segment_size):
    for url in ("memory:", "sqlite:journals.db"):
        with pytest.raises(JournalInputError, match="a segment holds"):
            journal_store(url, segment_size=segment_size)
