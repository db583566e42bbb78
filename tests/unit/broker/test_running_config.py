"""What the broker runs with can be changed, one change after the other, and outlives it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from exactlog.broker.running_config import RunningConfig
from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DamageError, KafkaError
from exactlog.storage.catalog import BrokerScope, Catalog, CatalogRefusedError

STARTED_WITH = BrokerConfig(retention_ms=1)


@pytest.fixture
def catalog():
    catalog = Catalog(None)
    yield catalog
    catalog.close()


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def running(catalog, executor):
    return RunningConfig(STARTED_WITH, catalog, executor)


def setting(**values):
    """A change that sets keys, spelled with underscores, beside what is set."""
    return lambda before: {**before, **{key.replace("_", "."): value for key, value in values.items()}}


async def test_the_broker_alone_comes_before_all_brokers_and_those_before_the_start(running, catalog, executor):
    assert running.current.retention_ms == 1

    await running.alter(BrokerScope.CLUSTER, setting(retention_ms="2", segment_bytes="200"))
    await running.alter(BrokerScope.NODE, setting(retention_ms="3"))

    assert (running.current.retention_ms, running.current.segment_bytes) == (3, 200)
    assert RunningConfig(STARTED_WITH, catalog, executor).current == running.current
    await running.alter(BrokerScope.NODE, lambda _: {})
    assert running.current.retention_ms == 2


async def test_changes_at_once_are_made_one_after_the_other(running):
    changes = [setting(retention_ms="2"), setting(segment_bytes="200"), setting(retention_bytes="20")]

    await asyncio.gather(*(running.alter(BrokerScope.NODE, change) for change in changes))

    assert running.layers.node == {"retention.ms": "2", "segment.bytes": "200", "retention.bytes": "20"}


async def test_who_wants_to_know_has_been_told_when_a_change_is_done(running):
    told = []

    async def tell(config):
        await asyncio.sleep(0)
        told.append(config.retention_ms)

    running.when_changed(tell)
    await running.alter(BrokerScope.NODE, setting(retention_ms="2"))

    assert told == [2]


async def test_a_value_that_cannot_be_is_refused_and_changes_nothing(running):
    before = running.layers

    for work in (running.check, running.alter):
        with pytest.raises(KafkaError, match="Not a number of type LONG") as refused:
            await (work(BrokerScope.NODE, setting(retention_ms="soon")) or asyncio.sleep(0))
        assert refused.value.error_code == ErrorCode.INVALID_REQUEST
    assert running.layers is before


async def test_a_change_that_is_only_checked_is_not_made(running):
    running.check(BrokerScope.NODE, setting(retention_ms="2"))

    assert running.current.retention_ms == 1


async def test_what_the_catalog_refuses_is_not_in_force(running, catalog, monkeypatch):
    def refuse(*args):
        raise CatalogRefusedError("database or disk is full")

    monkeypatch.setattr(catalog, "set_broker_config", refuse)
    with pytest.raises(KafkaError) as refused:
        await running.alter(BrokerScope.NODE, setting(retention_ms="2"))

    assert refused.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert running.current.retention_ms == 1


def test_a_catalog_with_settings_that_cannot_be_is_damage(catalog, executor):
    catalog.set_broker_config(BrokerScope.NODE, {"retention.ms": "soon"})

    with pytest.raises(DamageError, match=r"retention\.ms"):
        RunningConfig(STARTED_WITH, catalog, executor)
