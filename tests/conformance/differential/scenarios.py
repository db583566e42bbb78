"""Everything that is asked: the scenarios written by hand, and those made from the declarations."""

from itertools import count, islice

from exactlog.core.protocol.api_keys import APIS
from tests.conformance.differential import scenarios_of_groups, scenarios_of_records, scenarios_of_topics
from tests.conformance.differential.hostile import mutations, sampled
from tests.conformance.differential.scenario import HANDWRITTEN, Scenario
from tests.conformance.differential.valid import FRESH, VALID

MODULES = (scenarios_of_groups, scenarios_of_records, scenarios_of_topics)
"""Where scenarios are written: to import them is to register them."""

SHARE = 4
"""Of the hostile requests in versions between the first and the last, one in so many is made in a usual run."""


def planned(comparison, api_key, *, is_long):
    """Yields each scenario about an API with each version to run it in."""
    versions = comparison.common_versions[api_key]
    for version in versions:
        is_end = version in {versions[0], versions[-1]}
        yield _generated(api_key, share=1 if is_long or is_end else SHARE), version
    for scenario in HANDWRITTEN[api_key]:
        for version in comparison.versions_of(scenario):
            yield scenario, version


def _generated(api_key, *, share):
    """The valid request, and then each chosen hostile one as a part of its own."""

    def script(peer):
        peer.begin("valid")
        request = VALID[api_key](peer)
        peer.ask(request)
        for index in count():
            peer.begin("next")
            if api_key in FRESH:
                request = VALID[api_key](peer)
            changed = mutations(request, peer.version, unknown=peer.name("nobody"))
            found = next(islice(changed, index, None), None)
            if found is None:
                return
            name, hostile = found
            if sampled(name, peer.version, share=share):
                peer.part = name
                peer.ask(hostile)

    return Scenario(api_key, "generated", APIS[api_key].versions, script)
