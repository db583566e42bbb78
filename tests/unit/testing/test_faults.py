import errno

import pytest
from confluent_kafka import Producer

from exactlog.core.model.errors import ConfigError
from exactlog.storage.fault_points import CREATE_AFTER_RENAME
from exactlog.testing import Broker
from exactlog.testing.faults import armed, points


class Crash(BaseException):
    pass


def test_the_points_are_listed_with_what_has_happened_there():
    listed = {point.name: point.description for point in points()}

    assert listed["storage.create.after_rename"] == "a new partition has its name, which is not synced yet"


def test_an_exception_is_raised_at_the_point_and_only_within_the_block():
    with armed(CREATE_AFTER_RENAME.name, Crash("here"), at=2) as order:
        CREATE_AFTER_RENAME.reach()
        assert not order.has_fired
        with pytest.raises(Crash, match="here"):
            CREATE_AFTER_RENAME.reach()
        assert order.has_fired

    CREATE_AFTER_RENAME.reach()


def test_a_function_is_called_at_the_point():
    called = []
    with armed(CREATE_AFTER_RENAME.name, lambda: called.append(1)):
        CREATE_AFTER_RENAME.reach()

    assert called == [1]


def test_what_was_not_reached_is_disarmed_when_the_block_ends_whatever_ends_it():
    with pytest.raises(Crash, match="of the test"), armed(CREATE_AFTER_RENAME.name, Crash("of the point")):
        raise Crash("of the test")

    CREATE_AFTER_RENAME.reach()


def test_an_unknown_point_is_refused():
    with pytest.raises(ConfigError, match=r"storage\.create"), armed("storage.create", Crash()):
        pass


def test_a_disk_that_refuses_at_a_point_is_told_to_the_client_of_a_test_broker():
    errors = []
    with Broker() as broker:
        broker.create_topic("orders")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "retries": 0, "log_level": 0})
        with armed("storage.round.before_write", OSError(errno.ENOSPC, "No space left on device")) as order:
            producer.produce("orders", b"refused", on_delivery=lambda error, _: errors.append(error))
            producer.flush()
        producer.produce("orders", b"taken", on_delivery=lambda error, _: errors.append(error))
        producer.flush()

    assert order.has_fired
    assert errors[0] is not None
    assert errors[1] is None
