"""Every API and version that both serve, with valid and invalid arguments: Apache Kafka answers the same.

Where it does not, the difference is known: `known_differences.py` names the fields, `docs/differences.md` the reason.
"""

import uuid

import pytest

from exactlog.broker.api_table import API_TABLE
from exactlog.core.codec.wire_types import parse_versions
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.testing import Broker as Exactlog
from tests.conformance.differential.comparison import Comparison
from tests.conformance.differential.held_markers import overtake_markers, stop_markers
from tests.conformance.differential.known_differences import KNOWN_DIFFERENCES
from tests.conformance.differential.peer import Broker, NotServedError
from tests.conformance.differential.scenario import Scenario
from tests.conformance.differential.scenarios import planned
from tests.conformance.differential.scenarios_of_transactional_reading import after_a_crash
from tests.conformance.differential.valid import VALID
from tests.peers import PROJECT
from tests.peers.apache_kafka import ApacheKafka, kafka_jars
from tests.peers.gate import skip_without_peer

OUR_SETTINGS = {"offsets.topic.num.partitions": 3, "check_interval_ms": 100, "min_timeout_ms": 1}
THEIR_SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
"""Groups are in the same partitions; a transaction that takes too long is aborted soon."""

SHOWN_MAX = 60


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """Two brokers that nobody else has ever asked: what is in the one is in the other."""
    with skip_without_peer():
        kafka_jars()
    directory = tmp_path_factory.mktemp("differential")
    with (
        ApacheKafka(properties=THEIR_SETTINGS) as apache_kafka,
        Exactlog(config={"data.dir": str(directory), **OUR_SETTINGS}) as exactlog,
    ):
        yield Comparison(
            ours=Broker(
                "exactlog",
                exactlog.port,
                hold_markers=stop_markers,
                kill_and_restart=lambda: _kill_and_restart(exactlog),
            ),
            theirs=Broker(
                "Apache Kafka",
                apache_kafka.port,
                hold_markers=overtake_markers,
                kill_and_restart=apache_kafka.kill_and_restart,
            ),
            run=uuid.uuid4().hex[:6],
        )


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


def test_every_api_that_is_served_is_asked():
    assert set(API_TABLE) <= set(VALID)


def test_every_known_difference_has_its_row_on_the_page():
    page = (PROJECT / "docs" / "differences.md").read_text()
    rows = [line.removeprefix("| ") for line in page.splitlines() if line.startswith("| ")]

    assert [known for known in KNOWN_DIFFERENCES if not any(row.startswith(known.row) for row in rows)] == []


@pytest.mark.peer
def test_after_a_crash_both_go_on_in_the_same_way(comparison):
    crash = Scenario(ApiKey.END_TXN, "after a crash", parse_versions("5+"), after_a_crash)

    differences = comparison.differences(crash, comparison.versions_of(crash)[-1])

    assert not differences, _told(differences)


def _kill_and_restart(exactlog):
    exactlog.kill()
    exactlog.restart()


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
