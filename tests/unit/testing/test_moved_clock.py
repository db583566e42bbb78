"""When the clock of a broker is moved, what it waits for by its clock ends."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from exactlog.testing import Broker
from tests.support.raw_client import RawClient, batch_of, fetch_request
from tests.support.raw_groups import SESSION_TIMEOUT_MS, Member, describe, form_group
from tests.support.watching import RequestCount, wait_until

HOUR_MS = 3_600_000


@pytest.fixture
def broker():
    with Broker(config={"in.memory": True}) as broker:
        yield broker


@pytest.fixture
def raw(broker):
    with RawClient(broker.port) as client:
        yield client


def test_a_long_poll_ends(broker, raw):
    topic = raw.create_topic()
    raw.produce(topic, batch_of(b"v"))
    fetches = RequestCount(broker, "Fetch")
    raw.send(fetch_request(topic, 1, max_wait_ms=HOUR_MS), 12)
    fetches.wait_for(1)
    assert not raw.has_answer()

    broker.clock.advance_ms(HOUR_MS)

    (told,) = raw.receive().responses[0].partitions
    assert (told.error_code, told.high_watermark, len(told.records)) == (0, 1, 0)


def test_a_member_that_has_not_been_heard_of_is_expelled(broker, raw):
    form_group(Member(raw, "group"))

    broker.clock.advance_ms(SESSION_TIMEOUT_MS - 10_000)
    assert describe(raw, "group").group_state == "Stable"

    broker.clock.advance_ms(10_000)
    assert describe(raw, "group").members == ()


def test_a_rebalance_that_waits_for_a_member_ends_without_it(broker, raw):
    with RawClient(broker.port) as other_raw:
        silent, comes = Member(raw, "group"), Member(other_raw, "group")
        form_group(silent)
        comes.ask_to_join()
        wait_until(lambda: describe(raw, "group").group_state == "PreparingRebalance")

        broker.clock.advance_ms(SESSION_TIMEOUT_MS)

        assert comes.receive_join().error_code == ErrorCode.NONE
        assert [member.member_id for member in comes.joined.members] == [comes.member_id]


def test_a_connection_that_was_quiet_for_too_long_is_closed(broker, raw):
    raw.create_topic()

    broker.clock.advance_ms(60_000)
    assert not raw.has_answer()
    raw.create_topic()
    broker.clock.advance_ms(HOUR_MS)

    assert raw.is_closed()


def test_records_that_are_too_old_go(broker):
    with RawClient(broker.port) as raw:
        topic = raw.create_topic(retention_ms=60_000, segment_bytes=1_048_576)
        raw.produce(topic, batch_of(b"old", timestamp_ms=broker.clock.now_ms()))

    broker.clock.advance_ms(HOUR_MS)

    with RawClient(broker.port) as raw:
        wait_until(lambda: raw.list_offset(topic, -2).offset == 1)
