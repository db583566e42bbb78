"""Twenty members come, leave and die; when they stay, the group settles, and every record was consumed once."""

import json
import subprocess

import pytest

from tests.conformance.clients.adapters import CLIENTS
from tests.peers.gate import skip_without_peer

MEMBERS, PARTITIONS = 20, 40
REBALANCE_TIMEOUT_MS = 20_000
SESSION_TIMEOUT_MS = 6_000
SAMPLE_S, WHOLE_S = 12, 60


@pytest.fixture
def churn(request, control, bootstrap_servers, new_name):
    """Lets members churn, and tells what came of it."""
    with skip_without_peer():
        *command, _ = CLIENTS["franz-go"].member_command(bootstrap_servers)
    control.create_topic(new_name, partitions=PARTITIONS)

    def run(assignor, seed):
        settings = {
            "topic": new_name,
            "group": new_name,
            "assignor": assignor,
            "partitions": PARTITIONS,
            "members": MEMBERS,
            "seconds": WHOLE_S if request.config.getoption("--long") else SAMPLE_S,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "seed": seed,
        }
        output = subprocess.run([*command, "churn", json.dumps(settings)], stdout=subprocess.PIPE, check=True).stdout
        return json.loads(output)["result"]

    return run


def check(result):
    assert result["has_settled"], result
    assert result["not_once"] == [], result
    assert result["not_owned_once"] == []
    assert (result["state"], result["members"], result["assigned_once"]) == ("Stable", MEMBERS, PARTITIONS)
    assert result["settled_after_ms"] <= REBALANCE_TIMEOUT_MS, result
    assert min(result["joins"] - MEMBERS, result["leaves"], result["deaths"]) > 0


@pytest.mark.peer
@pytest.mark.slow
def test_members_come_leave_and_die_and_every_record_is_consumed_once(churn):
    check(churn("cooperative-sticky", seed=1))


@pytest.mark.peer
@pytest.mark.long
def test_members_of_an_eager_group_come_leave_and_die_and_every_record_is_consumed_once(churn):
    check(churn("range", seed=2))
