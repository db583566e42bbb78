"""Our declarations say what Apache Kafka's own descriptors say: field by field, in every version.

Version 3.9.2 is where our versions begin, 4.4.0 where they end; a version that both know must agree with both.
"""

from collections.abc import Iterator

import pytest

from exactlog.core.codec.message_schema import is_flexible, versions_of
from exactlog.core.codec.wire_types import Versions
from exactlog.core.protocol.api_keys import APIS, ApiKey
from tests.conformance.wire.descriptors import Descriptor, Jar, declared_absent, declared_present
from tests.peers.gate import skip_without_peer
from tests.peers.jars import kafka_clients_jar
from tests.unit.core.codec.message_strategies import MESSAGES

pytestmark = pytest.mark.peer

OLDEST, NEWEST = "3.9.2", "4.4.0"
# Kafka 3.9 still served record formats that we do not.
FLOORS_OF_OUR_OWN = {ApiKey.PRODUCE: 3, ApiKey.FETCH: 4}
# What had another name in 3.9: the message, and its fields.
FORMER_NAMES = {
    "ListConfigResourcesRequest": "ListClientMetricsResourcesRequest",
    "ListConfigResourcesResponse": "ListClientMetricsResourcesResponse",
}
RENAMED_FIELDS = {
    "ListConfigResourcesResponse": {"client_metrics_resources": "config_resources", "name": "resource_name"},
    "TxnOffsetCommitRequest": {"generation_id": "generation_id_or_member_epoch"},
}


@pytest.fixture(scope="module")
def jars() -> Iterator[dict[str, Jar]]:
    with skip_without_peer():
        paths = {version: kafka_clients_jar(version) for version in (OLDEST, NEWEST)}
    with Jar(paths[OLDEST]) as oldest, Jar(paths[NEWEST]) as newest:
        yield {OLDEST: oldest, NEWEST: newest}


def described(jars: dict[str, Jar], kafka: str, name: str) -> Descriptor:
    if kafka == OLDEST:
        return jars[kafka].descriptor(FORMER_NAMES.get(name, name), renamed=RENAMED_FIELDS.get(name, {}))
    return jars[kafka].descriptor(name)


@pytest.mark.parametrize("kafka", [OLDEST, NEWEST])
@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_every_version_has_kafkas_fields(jars, kafka, message):
    descriptor = described(jars, kafka, message.__name__)
    declared = versions_of(message)
    both = declared.within(descriptor.versions)

    for version in range(both.lowest, both.highest + 1):
        ours = list(declared_present(message, version))
        lacking = {field for field in declared_absent(message, version, declared) if field.path in descriptor.paths()}

        assert ours == descriptor.present(version), f"{message.__name__} v{version}"
        assert lacking == descriptor.absent(version, declared), f"{message.__name__} v{version}"
        assert is_flexible(message, version) == (version in descriptor.flexible)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_range_of_versions_is_kafkas(jars, api):
    oldest = described(jars, OLDEST, f"{api.name}Request")
    newest = described(jars, NEWEST, f"{api.name}Request")

    assert api.key == oldest.api_key == newest.api_key
    assert api.versions == Versions(FLOORS_OF_OUR_OWN.get(api.key, oldest.versions.lowest), newest.stable.highest)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_every_declared_version_is_in_one_of_the_descriptors(jars, message):
    known = [described(jars, kafka, message.__name__).versions for kafka in (OLDEST, NEWEST)]
    declared = versions_of(message)

    for version in range(declared.lowest, declared.highest + 1):
        assert any(version in versions for versions in known), f"v{version}"
