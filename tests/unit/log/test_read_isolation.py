"""What `open_partition(...).read` shows of transactions that clients of a broker wrote: beside it, stopped, as of N."""

import pytest

from exactlog.core.record.control_record_format import decode_marker
from exactlog.log import InvalidArgumentError, open_partition
from exactlog.testing import Broker
from tests.support.transactions import BrokerWriter


@pytest.fixture
def broker(tmp_path):
    with Broker(tmp_path) as running:
        running.create_topic("orders")
        yield running


@pytest.fixture
def writer(broker):
    return BrokerWriter(broker, "orders")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "topic=orders-part=0"


def values(table, **options):
    return [record.value for record in table.read(**options)]


def test_beside_a_broker_a_transaction_is_seen_once_it_is_committed(writer, path):
    writer.plain(b"a")
    writer.write(1, b"b")
    with open_partition(path, read_only=True) as table:
        assert (values(table), values(table, isolation="read_uncommitted")) == ([b"a"], [b"a", b"b"])

        writer.commit(1)

        assert values(table) == [b"a", b"b"]


def test_beside_a_broker_what_is_aborted_is_never_seen(writer, path):
    writer.write(1, b"a")
    writer.write(2, b"b")
    writer.abort(1)
    writer.commit(2)

    with open_partition(path, read_only=True) as table:
        assert values(table) == [b"b"]
        assert values(table, isolation="read_uncommitted") == [b"a", b"b"]


def test_a_transaction_that_was_open_as_of_a_version_is_invisible_there_for_ever(broker, writer, path):
    writer.write(1, b"a")
    writer.plain(b"b")
    with open_partition(path, read_only=True) as table:
        version = table.current_version()
    writer.commit(1)
    broker.stop()

    with open_partition(path) as table:
        assert values(table, as_of_version=version) == []
        assert values(table, as_of_version=version, isolation="read_uncommitted") == [b"a", b"b"]
        assert values(table) == [b"a", b"b"]
        table.append([b"c"])
        assert values(table, as_of_version=version) == []
        assert values(table) == [b"a", b"b", b"c"]


def test_markers_come_on_request_only(writer, path):
    writer.write(1, b"a")
    writer.abort(1)
    writer.write(1, b"b")
    writer.commit(1)

    with open_partition(path, read_only=True) as table:
        assert [record.offset for record in table.read()] == [2]
        found = list(table.read(include_control=True))
        assert [record.offset for record in found] == [1, 2, 3]
        assert [decode_marker(record).is_commit for record in (found[0], found[2])] == [False, True]


def test_what_is_stable_is_told_with_the_table(writer, path):
    writer.plain(b"a")
    writer.write(1, b"b")

    with open_partition(path, read_only=True) as table:
        state = table.load_state()
        assert (state.last_stable_offset, state.next_offset) == (1, 2)


@pytest.mark.parametrize("isolation", ["dirty", "READ_COMMITTED", "", None, 1])
def test_an_isolation_there_is_not_is_refused(writer, path, isolation):
    with (
        open_partition(path, read_only=True) as table,
        pytest.raises(InvalidArgumentError, match="is none of read_committed, read_uncommitted"),
    ):
        table.read(isolation=isolation)
