"""A region whose commits get no answer, on every broker: each write counts once or not, for whoever owns it then."""

import pytest

from exactlog.client import ClientSettings, connect
from exactlog.client.wire.connection import WireConnection
from exactlog.core.model.errors import ExactlogError, UnavailableError
from exactlog.core.protocol.messages.end_txn import EndTxnRequest
from exactlog.wal import RegionFenced, Wal, WriteOutcomeUnknownError
from exactlog.wal.client_backend import ClientBackend
from tests.contract.wal_backends import BROKERS, WIRE_BACKENDS, new_namespace

SETTINGS = ClientSettings(deadline_ms=2_000, backoff_ms=20)
WAYS = ("unsent", "unanswered")


@pytest.fixture(params=WIRE_BACKENDS)
def url(request):
    return f"kafka://{request.getfixturevalue(BROKERS[request.param]).bootstrap_servers}"


@pytest.fixture
async def backend(url):
    async with ClientBackend(connect(url, SETTINGS)) as found:
        yield found


@pytest.fixture
def namespace():
    return new_namespace()


@pytest.fixture
async def wal(url, backend, namespace):
    async with Wal.open(
        url, namespace=namespace
    ) as patient:  # whoever asks a broker first may wait for its coordinator
        await patient.open_region(1, create=True)
    async with Wal.open(backend, namespace=namespace, clean_interval_s=None) as found:
        yield found


@pytest.fixture
async def region(wal):
    found = await wal.open_region(1)
    await found.write(3, [b"first"])
    return found


@pytest.fixture
async def other(url, namespace):
    async with Wal.open(url, namespace=namespace, clean_interval_s=None) as found:
        yield found


@pytest.fixture
def lose(monkeypatch):
    """Lets requests that end transactions get lost, or their answers, so many times."""
    exchange = WireConnection._exchange
    left = {"unsent": 0, "unanswered": 0}

    async def losing(self, request, **options):
        if not isinstance(request, EndTxnRequest):
            return await exchange(self, request, **options)
        if left["unsent"]:
            left["unsent"] -= 1
            raise UnavailableError("the request was lost")
        answer = await exchange(self, request, **options)
        if left["unanswered"]:
            left["unanswered"] -= 1
            raise UnavailableError("the answer was lost")
        return answer

    monkeypatch.setattr(WireConnection, "_exchange", losing)

    def order(way, times):
        left[way] = times

    return order


async def payloads(region):
    return [(entry.sequence, entry.payload) async for entry in region.scan()]


@pytest.mark.parametrize("way", WAYS)
async def test_a_commit_that_is_lost_once_is_tried_again_and_counts_once(lose, region, way):
    lose(way, 1)

    assert await region.write(3, [b"second"]) == 2
    assert await region.write(3, [b"third"]) == 3
    assert await payloads(region) == [(1, b"first"), (2, b"second"), (3, b"third")]


@pytest.mark.parametrize("way", WAYS)
async def test_a_commit_of_which_nothing_is_known_is_found_out_about_and_counts_once(lose, region, way):
    lose(way, 1_000_000)
    with pytest.raises(WriteOutcomeUnknownError):
        await region.write(3, [b"second"])
    with pytest.raises(ExactlogError):
        await region.write(3, [b"third"])
    lose(way, 0)

    assert await region.sequence_num(3) == 2
    assert await region.write(3, [b"third"]) == 3
    assert await payloads(region) == [(1, b"first"), (2, b"second"), (3, b"third")]


@pytest.mark.parametrize("way", WAYS)
async def test_whoever_takes_a_region_decides_what_became_of_a_commit_that_was_left_open(lose, other, wal, region, way):
    last = {"unsent": 1, "unanswered": 2}[way]
    lose(way, 1_000_000)
    with pytest.raises(WriteOutcomeUnknownError):
        await region.write(3, [b"second"])
    lose(way, 0)

    b = await other.open_region(1)
    assert await b.sequence_num(3) == last
    with pytest.raises(RegionFenced):
        await region.write(3, [b"late"])
    assert await b.write(3, [b"of b"]) == last + 1
    await other.close_region(1)

    again = await wal.open_region(1)
    assert await again.write(3, [b"of a"]) == last + 2
    expected = [*[b"first", b"second"][:last], b"of b", b"of a"]
    assert await payloads(again) == list(enumerate(expected, start=1))


async def test_a_region_moves_to_and_fro_and_every_owner_before_is_fenced(url, namespace, other):
    async with Wal.open(url, namespace=namespace, clean_interval_s=None) as a:
        region = await a.open_region(1, create=True)
        for turn in range(1, 7):
            assert await region.write(3, [b"%d" % turn]) == turn
            before, region = region, await (other if turn % 2 else a).open_region(1)
            with pytest.raises(RegionFenced):
                await before.write(3, [b"late"])
            with pytest.raises(RegionFenced):
                await before.clean()
            if turn == 3:
                await region.mark_deleted(3, 2)
                assert (await region.clean()).deleted_before is not None

        assert await region.write(3, [b"7"]) == 7
        assert await payloads(region) == [(number, b"%d" % number) for number in range(3, 8)]
