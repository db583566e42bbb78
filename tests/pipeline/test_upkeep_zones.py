"""Purging where more than one is at it, days late: stores that follow the same topic, and machines of any time zone."""

import time
from datetime import UTC, date, datetime

import pytest

from exactlog.testing import Broker
from tests.support.journal_zones import Zone, check_two_zones, create_topic, write

pytestmark = pytest.mark.peer

LAST_DAY = date(2026, 3, 2)
LATE_IN_THE_DAY = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
EARLY_IN_THE_DAY = datetime(2026, 3, 1, 0, 30, tzinfo=UTC)


@pytest.fixture
def broker():
    with Broker() as running:
        create_topic(running)
        yield running


@pytest.fixture
def zone_named(spark, broker, tmp_path):
    return lambda name: Zone(spark, broker, store=f"sqlite:{tmp_path}/{name}.db", checkpoint=tmp_path / name)


def test_jobs_of_two_zones_harm_no_journal_that_lives_and_leave_none_that_is_expired(broker, zone_named):
    check_two_zones(broker, zone_named("east"), zone_named("west"))


@pytest.mark.parametrize("name", ["Pacific/Kiritimati", "Pacific/Pago_Pago"], ids=["ahead of UTC", "behind UTC"])
def test_a_journal_is_due_on_one_day_wherever_the_machines_are(spark, broker, zone_named, monkeypatch, name):
    """There it is another day than in UTC for fourteen hours, or eleven."""
    for at, key_id in ((LATE_IN_THE_DAY, "late"), (EARLY_IN_THE_DAY, "early")):
        write(broker, zone_named("there").store, {key_id: "1 day"}, at=at)
    monkeypatch.setenv("TZ", name)
    monkeypatch.setitem(spark.sparkContext.environment, "TZ", name)  # of workers that start from now on
    time.tzset()
    try:
        assert spark.sparkContext.parallelize([0], 1).map(time.localtime).first().tm_hour not in {0, 1}
        zone = zone_named("there")
        zone.replicate()
        found = [zone.purge(day).due for day in (date(2026, 3, 1), LAST_DAY)]
    finally:
        monkeypatch.undo()
        time.tzset()

    assert {head.expiry.on for head in zone.contents()["heads"].values()} == {LAST_DAY}
    assert found == [0, 2]
