"""A broker for the tests of journals, topics of their own, and journals on both."""

import itertools

import pytest

from exactlog.journal import Journals, JournalSettings
from exactlog.journal.stores.memory_store import MemoryJournalStore

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker():
    from exactlog.testing import Broker

    with Broker(config={"in.memory": True}) as broker:
        yield broker


@pytest.fixture
def topic(broker):
    name = f"journals-{next(_numbers)}"
    broker.create_topic(name, partitions=1)
    return name


@pytest.fixture
def log_url(broker):
    return f"kafka://{broker.bootstrap_servers}"


@pytest.fixture
def store():
    return MemoryJournalStore()


@pytest.fixture
async def journals(log_url, store):
    async with Journals.open(log_url, store=store, settings=JournalSettings()) as journals:
        yield journals


@pytest.fixture
def journal(journals, topic):
    return journals[topic, "order-7"]
