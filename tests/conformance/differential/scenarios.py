"""Everything that is asked: the scenarios written by hand, and those made from the declarations."""

from exactlog.core.codec.wire_types import parse_versions
from exactlog.core.protocol.api_keys import APIS, ApiKey
from tests.conformance.differential import (
    scenarios_of_configs,
    scenarios_of_groups,
    scenarios_of_offsets,
    scenarios_of_produce,
    scenarios_of_reading,
    scenarios_of_topics,
    scenarios_of_transactional_groups,
    scenarios_of_transactional_reading,
    scenarios_of_transactions,
)
from tests.conformance.differential.hostile import mutations, sampled
from tests.conformance.differential.scenario import HANDWRITTEN, Scenario
from tests.conformance.differential.valid import FRESH, VALID

MODULES = (
    scenarios_of_configs,
    scenarios_of_groups,
    scenarios_of_offsets,
    scenarios_of_produce,
    scenarios_of_reading,
    scenarios_of_topics,
    scenarios_of_transactional_groups,
    scenarios_of_transactional_reading,
    scenarios_of_transactions,
)
"""Where scenarios are written: to import them is to register them."""

SHARE = 4
"""Of what is asked in versions between the first and the last, one in so many is in a usual run."""

LEFT_UNANSWERED = {
    (ApiKey.PRODUCE, "topic_data[0].partition_data[0].records null"): "3+",
    (ApiKey.JOIN_GROUP, "protocols twice"): "0-3",
    (ApiKey.ALTER_CONFIGS, "resources twice"): "0+",
}
"""What Apache Kafka never answers in those versions: to wait for it in the first of them is enough."""


def planned(comparison, api_key, *, is_long):
    """Yields each scenario about an API with each version to run it in; the valid request is in all of them."""
    versions = comparison.common_versions[api_key]
    shares = {version: 1 if is_long or version in {versions[0], versions[-1]} else SHARE for version in versions}
    for version in versions:
        yield _generated(api_key, share=shares[version], lowest=versions[0]), version
    for scenario in HANDWRITTEN[api_key]:
        for version in comparison.versions_of(scenario):
            is_left_out = scenario.is_one_of_many and not is_long and version != versions[-1]
            if sampled(scenario.name, version, share=SHARE if is_left_out else shares[version]):
                yield scenario, version


def _generated(api_key, *, share, lowest):
    """The valid request, and then each chosen hostile one as a part of its own."""

    def script(peer):
        peer.begin("valid")
        request = VALID[api_key](peer)
        peer.ask(request)
        for name, _ in mutations(request, peer.version, unknown="nobody"):
            if not sampled(name, peer.version, share=share) or _is_left_unanswered(api_key, name, peer.version, lowest):
                continue
            peer.begin(name)
            if api_key in FRESH:
                request = VALID[api_key](peer)
            hostile = dict(mutations(request, peer.version, unknown=peer.name("nobody")))
            peer.ask(hostile.get(name, request))

    return Scenario(api_key, "generated", APIS[api_key].versions, script)


def _is_left_unanswered(api_key, name, version, lowest):
    versions = LEFT_UNANSWERED.get((api_key, name))
    return versions is not None and version != lowest and version in parse_versions(versions)
