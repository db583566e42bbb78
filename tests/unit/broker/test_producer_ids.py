"""Producer ids are given once, in blocks that the catalog has set aside."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from exactlog.broker.apis import init_producer_id
from exactlog.broker.producer_ids import ProducerIds
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest
from exactlog.storage.catalog import CatalogRefusedError


class FakeCatalog:
    """Sets blocks of ten aside."""

    def __init__(self):
        self.blocks = 0
        self.is_broken = False

    def reserve_producer_ids(self):
        if self.is_broken:
            raise CatalogRefusedError("disk I/O error")
        self.blocks += 1
        return range(10 * (self.blocks - 1), 10 * self.blocks)


@pytest.fixture
def catalog():
    return FakeCatalog()


@pytest.fixture
def producer_ids(catalog):
    with ThreadPoolExecutor(1) as executor:
        yield ProducerIds(catalog, executor, least_in_hand=0)


async def test_ids_are_given_in_order_and_a_block_is_taken_only_when_it_is_needed(producer_ids, catalog):
    assert [await producer_ids.take() for _ in range(10)] == list(range(10))
    assert catalog.blocks == 1
    assert await producer_ids.take() == 10
    assert catalog.blocks == 2


async def test_many_who_ask_at_once_get_ids_of_their_own_and_no_block_is_wasted(producer_ids, catalog):
    taken = await asyncio.gather(*(producer_ids.take() for _ in range(35)))

    assert sorted(taken) == list(range(35))
    assert catalog.blocks == 4


async def test_a_catalog_that_fails_fails_those_who_asked_and_the_next_ones_get_ids(producer_ids, catalog):
    catalog.is_broken = True
    outcomes = await asyncio.gather(*(producer_ids.take() for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [CatalogRefusedError] * 3

    catalog.is_broken = False
    assert await producer_ids.take() == 0


async def test_who_cannot_wait_finds_an_id_since_the_next_block_is_fetched_before_this_one_ends(catalog):
    with ThreadPoolExecutor(1) as executor:
        producer_ids = ProducerIds(catalog, executor, least_in_hand=3)
        await producer_ids.fill()
        for expected in range(7):
            assert producer_ids.take_now() == expected
        assert catalog.blocks == 1

        assert producer_ids.take_now() == 7
        while catalog.blocks == 1 or producer_ids.is_refilling:  # noqa: ASYNC110  nothing else tells
            await asyncio.sleep(0)

        assert [producer_ids.take_now() for _ in range(5)] == [8, 9, 10, 11, 12]


async def test_who_cannot_wait_is_told_that_there_is_no_id_and_finds_one_later(catalog, producer_ids):
    catalog.is_broken = True
    assert producer_ids.take_now() is None
    with pytest.raises(CatalogRefusedError):
        await producer_ids.fill()
    catalog.is_broken = False
    await producer_ids.fill()

    assert not producer_ids.is_empty
    assert producer_ids.take_now() == 0


async def test_without_ids_a_producer_is_told_to_try_again(producer_ids, catalog):
    catalog.is_broken = True
    context = SimpleNamespace(broker=SimpleNamespace(producer_ids=producer_ids), allows=lambda *_: True)

    response = await init_producer_id.handle(InitProducerIdRequest(transactional_id=None), context)

    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert response.producer_id == -1
