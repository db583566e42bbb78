"""One connection: negotiation, pipelining, and every way in which a broker can fail to answer."""

import asyncio
import contextlib
import struct

import pytest

from exactlog.client.ports import ClientSettings
from exactlog.client.wire.addresses import Address
from exactlog.client.wire.broker_versions import BrokerVersions
from exactlog.client.wire.connection import WireConnection
from exactlog.core.codec.wire_types import Versions
from exactlog.core.model.errors import DecodeError, UnavailableError, UnsupportedError
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.client.toy_broker import HangUpError, ToyCluster, running
from tests.unit.network.harness import answer_later, serving

SETTINGS = ClientSettings(request_timeout_ms=10_000)
HASTY = ClientSettings(request_timeout_ms=20)


@contextlib.asynccontextmanager
async def connected(cluster: ToyCluster, settings: ClientSettings = SETTINGS):
    async with running(cluster):
        connection = await WireConnection.open(Address("127.0.0.1", cluster.brokers[0].port), settings)
        try:
            yield connection
        finally:
            await connection.close()


async def ask_metadata(connection: WireConnection) -> MetadataResponse:
    return await connection.request(MetadataRequest(topics=()), MetadataResponse, version=12)


# --- versions -------------------------------------------------------------------------------------------------


async def test_a_broker_tells_its_versions_and_learns_who_asks():
    cluster = ToyCluster()
    async with connected(cluster) as connection:
        assert connection.versions.served[ApiKey.PRODUCE] == Versions(3, 13)
    (request,) = cluster.requests_of(ApiVersionsRequest)
    assert request.client_software_name == "exactlog"
    assert cluster.versions_of(ApiVersionsRequest) == [4]


@pytest.mark.parametrize(("highest", "then"), [(3, [3]), (0, [0])])
async def test_a_broker_of_older_versions_is_asked_again_in_the_highest_it_knows(highest, then):
    cluster = ToyCluster(versions={ApiKey.API_VERSIONS: Versions(0, highest)})
    async with connected(cluster) as connection:
        assert connection.versions.served[ApiKey.PRODUCE] == Versions(3, 13)
        await ask_metadata(connection)
    assert cluster.versions_of(ApiVersionsRequest) == then


async def test_a_broker_tells_its_features():
    cluster = ToyCluster()
    cluster.features = {"transaction.version": Versions(0, 2)}
    async with connected(cluster) as connection:
        assert connection.versions.features == {"transaction.version": Versions(0, 2)}
        connection.versions.check_feature("transaction.version", level=2)
        with pytest.raises(UnsupportedError, match="level 0 to 2; needed is 3"):
            connection.versions.check_feature("transaction.version", level=3)


async def test_a_broker_that_is_too_old_to_tell_features_has_none():
    cluster = ToyCluster(versions={ApiKey.API_VERSIONS: Versions(0, 2)})
    async with connected(cluster) as connection:
        assert connection.versions.features == {}


def test_the_highest_version_of_both_sides_is_spoken():
    versions = BrokerVersions("b:1", {ApiKey.FETCH: Versions(0, 11), ApiKey.PRODUCE: Versions(0, 99)})
    assert versions.pick(ApiKey.FETCH) == 11
    assert versions.pick(ApiKey.PRODUCE) == 13
    assert versions.pick(ApiKey.PRODUCE, at_most=12) == 12
    assert versions.serves(ApiKey.FETCH)
    assert not versions.serves(ApiKey.METADATA)


@pytest.mark.parametrize(
    ("served", "bounds", "message"),
    [
        (Versions(0, 2), {}, "b:1 serves Produce 0 to 2; needed is 3 to 13"),
        (Versions(14, 20), {}, "b:1 serves Produce 14 to 20; needed is 3 to 13"),
        (Versions(0, 6), {"at_least": 7}, "b:1 serves Produce 0 to 6; needed is 7 to 13"),
        (Versions(13, 13), {"at_most": 12}, "b:1 serves Produce 13 to 13; needed is 3 to 12"),
        (None, {}, "b:1 does not serve Produce"),
    ],
)
def test_without_a_common_version_the_error_names_both_ranges(served, bounds, message):
    versions = BrokerVersions("b:1", {} if served is None else {ApiKey.PRODUCE: served})
    with pytest.raises(UnsupportedError, match=message):
        versions.pick(ApiKey.PRODUCE, **bounds)


# --- requests -------------------------------------------------------------------------------------------------


async def test_requests_are_pipelined_and_answers_find_them():
    cluster = ToyCluster()
    for name in ("first", "second"):
        cluster.scripts[ApiKey.METADATA].append(lambda *_, name=name: MetadataResponse(cluster_id=name))
    async with connected(cluster) as connection:
        answers = await asyncio.gather(ask_metadata(connection), ask_metadata(connection))
    assert [answer.cluster_id for answer in answers] == ["first", "second"]


async def test_a_request_without_an_answer_times_out_and_takes_the_connection_with_it():
    cluster = ToyCluster()
    async with connected(cluster, HASTY) as connection:
        cluster.scripts[ApiKey.METADATA].append(lambda *_: None)
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:\d+: no answer to Metadata within 20 ms"):
            await ask_metadata(connection)
        assert connection.is_closed
        with pytest.raises(UnavailableError, match="connection lost: no answer to Metadata"):
            await ask_metadata(connection)


async def test_a_request_that_is_given_up_closes_the_connection():
    cluster = ToyCluster()
    async with connected(cluster) as connection:
        cluster.scripts[ApiKey.METADATA].append(lambda *_: None)
        asking = asyncio.create_task(ask_metadata(connection))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert connection.is_closed


async def test_everybody_who_waits_learns_that_the_connection_is_lost():
    def hang_up(*_):
        raise HangUpError

    cluster = ToyCluster()
    cluster.scripts[ApiKey.METADATA].extend([lambda *_: None, hang_up])
    async with connected(cluster) as connection:
        endings = await asyncio.gather(ask_metadata(connection), ask_metadata(connection), return_exceptions=True)
    assert [type(ending) for ending in endings] == [UnavailableError] * 2
    assert "connection lost" in str(endings[0])


async def test_a_malformed_answer_is_an_error_that_names_it():
    cluster = ToyCluster()
    cluster.scripts[ApiKey.METADATA].append(lambda *_: b"\x00\x00\x00")
    async with connected(cluster) as connection:
        with pytest.raises(DecodeError, match="malformed answer to Metadata version 12"):
            await ask_metadata(connection)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (struct.pack(">ii", 4, 77), "it answered request 77, which was not asked; is it a Kafka broker"),
        (struct.pack(">i", -1), "it sent a frame of -1 bytes; is it a Kafka broker"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", r"it sent a frame of \d+ bytes; is it a Kafka broker"),
        (b"\x00\x00", "the broker closed the connection"),
        (b"", "the broker closed the connection"),
    ],
)
async def test_an_answer_that_is_none_is_not_waited_for(raw, message):
    async def serve(reader, writer):
        await reader.read(1)
        writer.write(raw)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        with pytest.raises(UnavailableError, match=message):
            await WireConnection.open(Address("127.0.0.1", server.sockets[0].getsockname()[1]), SETTINGS)


async def test_a_broker_that_accepts_and_says_nothing_times_out():
    async with serving(answer_later) as served:
        with pytest.raises(UnavailableError, match="no answer to ApiVersions within 20 ms"):
            await WireConnection.open(Address(*served.address), HASTY)


async def test_nobody_listening_is_an_error_that_says_what_to_do():
    async with serving() as served:
        address = Address(*served.address)
        await served.server.stop(drain_ms=0)
        with pytest.raises(UnavailableError, match=rf"{address}: .*refused") as refused:
            await WireConnection.open(address, SETTINGS)
    assert "exactlog serve" in refused.value.hint
    assert refused.value.retryable
