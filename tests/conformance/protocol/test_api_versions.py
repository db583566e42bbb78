"""ApiVersions: what a client finds out first, whatever it asks in (KIP-511)."""

import struct

import pytest

from exactlog.broker.api_table import API_TABLE
from exactlog.core.codec.message_codec import decoder
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from exactlog.core.protocol.messages.metadata import MetadataRequest
from tests.support.raw_client import frame

NAMED = {"client_software_name": "raw-client", "client_software_version": "1.0"}


def ranges_of(response):
    return {served.api_key: (served.min_version, served.max_version) for served in response.api_keys}


@pytest.mark.parametrize("version", range(6))
def test_every_version_names_every_api_that_is_served(raw, version):
    response = raw.ask(ApiVersionsRequest(**NAMED), version)

    assert response.error_code == 0
    assert ranges_of(response) == {api.key: (api.min_version, api.max_version) for api in API_TABLE.values()}


def test_produce_is_named_from_version_0_so_that_old_clients_compress(raw):
    """B089 (librdkafka #4956, KAFKA-18659): without Produce 0 old clients did not compress."""
    assert ranges_of(raw.ask(ApiVersionsRequest(), 0))[ApiKey.PRODUCE] == (0, 13)


@pytest.mark.parametrize("version", [6, 7, 100, 32767, -1])
def test_an_unknown_version_is_answered_in_version_0_and_the_connection_goes_on(raw, version):
    flexible_header_and_anything = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 99, -1) + b"\x00\x01\x02\x03"

    raw.send_bytes(frame(flexible_header_and_anything))
    answer = raw.receive_frame()

    assert struct.unpack_from(">i", answer) == (99,)
    response, end = decoder(ApiVersionsResponse, 0)(answer, 4)
    assert end == len(answer)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ranges_of(response)[ApiKey.API_VERSIONS] == (0, 5)
    assert raw.ask(ApiVersionsRequest(**NAMED), 3).error_code == 0


@pytest.mark.parametrize("text", ["", "-", "-x", "x-", "a b", "ä", "x" * 10 + "\n", "librdkafka/2"])
@pytest.mark.parametrize("field", ["client_software_name", "client_software_version"])
def test_a_client_that_gives_no_proper_name_is_told_so(raw, field, text):
    response = raw.ask(ApiVersionsRequest(**NAMED | {field: text}), 3)

    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, ())


@pytest.mark.parametrize("text", ["x", "apache-kafka-java", "4.4.0", "A.b-9"])
def test_proper_names_are_taken(raw, text):
    response = raw.ask(ApiVersionsRequest(client_software_name=text, client_software_version=text), 3)

    assert response.error_code == 0


def test_a_client_that_means_another_cluster_or_node_must_look_for_it_anew(raw):
    cluster_id = raw.ask(MetadataRequest(topics=()), 12).cluster_id

    errors = [
        raw.ask(ApiVersionsRequest(**NAMED, cluster_id=cluster, node_id=node), 5).error_code
        for cluster, node in ((None, -1), (cluster_id, 1), (cluster_id, 7), ("another", 1))
    ]

    assert errors == [0, 0, ErrorCode.REBOOTSTRAP_REQUIRED, ErrorCode.REBOOTSTRAP_REQUIRED]


@pytest.mark.parametrize(("cluster_id", "node_id"), [("another", -1), (None, 1), (None, 7)])
def test_a_client_means_a_cluster_and_a_node_or_neither(raw, cluster_id, node_id):
    response = raw.ask(ApiVersionsRequest(**NAMED, cluster_id=cluster_id, node_id=node_id), 5)

    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, ())


@pytest.mark.parametrize("version", [3, 4, 5])
def test_features_are_named_and_one_whose_lowest_level_is_0_only_to_who_understands_it(raw, version):
    response = raw.ask(ApiVersionsRequest(**NAMED), version)

    appends = SupportedFeatureKey(name="exactlog.append", min_version=1, max_version=1)
    transactions = SupportedFeatureKey(name="transaction.version", min_version=0, max_version=2)
    assert response.supported_features == ((appends, transactions) if version >= 4 else (appends,))


@pytest.mark.parametrize("version", [3, 4, 5])
def test_the_transaction_version_in_force_is_named(raw, version):
    response = raw.ask(ApiVersionsRequest(**NAMED), version)

    in_force = FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=2)
    assert response.finalized_features == (in_force,)
    assert response.finalized_features_epoch >= 0
