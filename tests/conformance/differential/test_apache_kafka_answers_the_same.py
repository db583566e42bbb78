"""Every API and version that both serve, with valid and invalid arguments: Apache Kafka answers the same.

Where it does not, the difference is known: `known_differences.py` names the fields, `docs/differences.md` the reason.
"""

import pytest

from exactlog.broker.api_table import API_TABLE
from exactlog.core.codec.wire_types import parse_versions
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.transaction.states import TransactionState
from tests.conformance.differential.known_differences import KNOWN_DIFFERENCES
from tests.conformance.differential.peer import NotServedError
from tests.conformance.differential.scenario import Scenario
from tests.conformance.differential.scenarios import planned
from tests.conformance.differential.states_of_transactions import STATES
from tests.conformance.differential.two_brokers import two_brokers
from tests.conformance.differential.valid import VALID
from tests.peers import PROJECT

SHOWN_MAX = 60


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """Two brokers that nobody else has ever asked: what is in the one is in the other."""
    with two_brokers(tmp_path_factory.mktemp("differential")) as comparison:
        yield comparison


@pytest.mark.peer
@pytest.mark.parametrize("api_key", [key for key in API_TABLE if key in VALID], ids=lambda key: API_TABLE[key].name)
def test_answers_are_the_same_or_known_to_differ(comparison, api_key, request):
    differences = []
    for scenario, version in planned(comparison, api_key, is_long=request.config.getoption("--long")):
        try:
            differences += comparison.differences(scenario, version)
        except NotServedError:
            continue  # it is run as soon as the API is in the table

    unknown = [found for found in differences if not any(known.covers(found) for known in KNOWN_DIFFERENCES)]
    assert not unknown, _told(unknown)
    assert _stale(API_TABLE[api_key].name, differences) == []


@pytest.mark.peer
def test_every_state_of_a_transaction_is_brought_about_in_both(comparison):
    seen = []

    def look(peer):
        peer.state = name
        seen.append(STATES[name](peer, "one").described().transaction_state)

    for name in STATES:
        comparison.differences(Scenario(ApiKey.DESCRIBE_TRANSACTIONS, name, parse_versions("0+"), look), 0)

    nobody_sees = {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}
    unknown_id = ""
    assert set(seen[::2]) == {state.kafka_name for state in set(TransactionState) - nobody_sees} | {unknown_id}
    assert seen[::2] == seen[1::2]


def test_every_api_that_is_served_is_asked():
    assert set(API_TABLE) <= set(VALID)


def test_every_known_difference_has_its_row_on_the_page():
    page = (PROJECT / "docs" / "differences.md").read_text()
    rows = [line.removeprefix("| ") for line in page.splitlines() if line.startswith("| ")]

    assert [known for known in KNOWN_DIFFERENCES if not any(row.startswith(known.row) for row in rows)] == []


def _stale(api, differences):
    """Known differences of an API that are none any more."""
    return [known for known in KNOWN_DIFFERENCES if known.api == api and not any(map(known.covers, differences))]


def _told(differences):
    """The differences, those that are the same in many versions together."""
    versions = {}
    for found in differences:
        versions.setdefault(found._replace(version=None, theirs=str(found.theirs), ours=str(found.ours)), []).append(
            found.version
        )
    lines = [
        f"{found.api} v{min(of)}-{max(of)} [{found.scenario}] {found.path}:\n"
        f"    Apache Kafka {found.theirs[:200]}\n    exactlog     {found.ours[:200]}"
        for found, of in versions.items()
    ]
    rest = [f"... and {len(lines) - SHOWN_MAX} more"] if len(lines) > SHOWN_MAX else []
    return "\n".join([f"{len(lines)} unknown differences", *lines[:SHOWN_MAX], *rest])
