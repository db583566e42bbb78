"""A follower is killed while it records: events and the position they come from are both there, or neither is."""

import os
import signal
import subprocess
import sys

import pytest
from eventsourcing.persistence import InfrastructureFactory

from exactlog.journal.eventsourcing.open_logs import close_open_logs
from exactlog.testing import Broker
from tests.conformance.eventsourcing.dying_follower import AGGREGATES
from tests.conformance.eventsourcing.places import MODULE

# Three partitions: the records of one transaction are produced in up to three steps, each durable on its own.
PARTITIONS = 3
STEPS = ["before_produce_0", "before_produce_1", "before_produce_2", "before_commit", "after_commit"]


def run_until_it_dies(env, last, step):
    ended = subprocess.run(
        [sys.executable, "-m", "tests.conformance.eventsourcing.dying_follower", str(last), step],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stdout + ended.stderr


def assert_events_stand_with_their_position(env, *, at_least, at_most):
    recorder = InfrastructureFactory.construct(env).process_recorder()
    position = recorder.max_tracking_id("upstream") or 0
    assert at_least <= position <= at_most
    for name in AGGREGATES:
        assert [event.originator_version for event in recorder.select_events(name)] == list(range(1, position + 1))
    notifications = recorder.select_notifications(1, 1_000)
    assert [notification.id for notification in notifications] == list(range(1, 3 * position + 1))
    assert [(n.originator_id, n.originator_version) for n in notifications] == [
        (name, number) for number in range(1, position + 1) for name in AGGREGATES
    ]
    close_open_logs()
    return position


@pytest.mark.parametrize("step", STEPS)
def test_a_follower_that_dies_has_recorded_events_and_position_or_neither(step, tmp_path):
    with Broker(tmp_path / "broker") as broker:
        broker.create_topic("follower", partitions=PARTITIONS)
        env = {
            "PERSISTENCE_MODULE": MODULE,
            "EXACTLOG_URL": f"kafka://{broker.bootstrap_servers}",
            "EXACTLOG_STORE_URL": f"sqlite:{tmp_path / 'journals.db'}",
            "EXACTLOG_TOPIC": "follower",
            "EXACTLOG_TRANSACTIONAL_ID": "follower",
        }
        run_until_it_dies(env, 3, step)
        run_until_it_dies(env, 5, step)

        counted = step == "after_commit"
        assert_events_stand_with_their_position(env, at_least=5 if counted else 4, at_most=5 if counted else 4)


@pytest.mark.parametrize("step", ["before_produce_0", "before_commit", "after_commit"])
def test_a_follower_that_dies_with_its_own_log_finds_events_and_position_or_neither(step, tmp_path):
    env = {
        "PERSISTENCE_MODULE": MODULE,
        "EXACTLOG_URL": f"embedded:{tmp_path / 'log'}",
        "EXACTLOG_STORE_URL": f"sqlite:{tmp_path / 'journals.db'}",
        "EXACTLOG_TOPIC": "follower",
    }
    run_until_it_dies(env, 3, step)
    run_until_it_dies(env, 5, step)

    counted = step == "after_commit"
    assert_events_stand_with_their_position(env, at_least=5 if counted else 4, at_most=5 if counted else 4)
