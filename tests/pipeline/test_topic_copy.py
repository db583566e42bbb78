"""A copy of topics: each committed record once and in its order, wherever a run is stopped, and whatever fails."""

import pytest

from exactlog.cli.exit_codes import ExitCode, exit_code_of
from exactlog.core.model.errors import ExactlogError
from exactlog.pipeline import copy_topics
from exactlog.pipeline.read_options import InvalidOptionError
from exactlog.pipeline.topic_copy import CopyLoopError
from exactlog.testing import Broker, ErrorCode
from tests.support.transactions import BrokerWriter
from tests.support.written_topics import committed_in

pytestmark = pytest.mark.peer


@pytest.fixture
def source():
    with Broker() as running:
        running.create_topic("orders", partitions=2)
        yield running


@pytest.fixture
def target():
    with Broker() as running:
        for topic in ("orders", "all"):
            running.create_topic(topic, partitions=2)
        yield running


@pytest.fixture
def copy(spark, source, target, tmp_path):
    """Copies from the one broker's directory to the other broker, on and on by one checkpoint."""

    def run(**more):
        given = {"path": source.data_dir, "to": target.bootstrap_servers, "txn_app_id": "copy"}
        return copy_topics(spark, checkpoint=tmp_path / "checkpoint", **given | more)

    return run


def write(source, count, *, first=0):
    for partition in (0, 1):
        writer = BrokerWriter(source, "orders", partition=partition)
        for number in range(first, first + count):
            writer.plain(b"%d" % number)


def numbers(target, topic="orders"):
    """The numbers in each partition, in their order."""
    found = committed_in(target.bootstrap_servers, topic)
    return [[int(each.record.value) for each in found.get(partition, ())] for partition in (0, 1)]


def test_a_copy_in_many_transactions_keeps_the_order_of_each_partition(copy, source, target):
    write(source, 40)

    report = copy(bytes_per_batch=1_000)

    assert report.rows == 80
    assert report.batches > 3
    assert numbers(target) == [list(range(40))] * 2


def test_a_copy_that_is_stopped_between_batches_ends_well_and_goes_on(copy, source, target, capfd):
    write(source, 40)
    told = []

    first = copy(bytes_per_batch=1_000, progress=told.append, is_stopping=lambda: len(told) >= 2)

    assert first.is_stopped
    assert 0 < first.rows < 80
    assert first.lag > 0
    copied = numbers(target)
    assert [found == list(range(len(found))) for found in copied] == [True, True]

    write(source, 10, first=40)
    second = copy()
    assert not second.is_stopped
    assert second.lag == 0
    assert numbers(target) == [list(range(50))] * 2
    said = capfd.readouterr()
    assert "Exception" not in said.err + said.out
    assert "Traceback" not in said.err + said.out


def test_a_batch_that_fails_is_copied_by_the_next_run_once(copy, source, target):
    write(source, 20)
    with target.faults.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED), pytest.raises(ExactlogError) as raised:
        copy()
    assert exit_code_of(raised.value) is ExitCode.NOT_ALLOWED
    assert "\n" not in str(raised.value)
    write(source, 5, first=20)

    copy()

    assert numbers(target) == [list(range(25))] * 2


def test_all_may_go_into_one_topic_by_keys(copy, source, target):
    write(source, 10)

    copy(target_topic="all", keep_partitions=False)

    assert sorted(number for found in numbers(target, "all") for number in found) == sorted([*range(10), *range(10)])


def test_a_topic_is_never_copied_into_itself(copy, source):
    write(source, 1)

    for to_itself in ({}, {"path": None, "bootstrap": source.bootstrap_servers}):
        with pytest.raises(CopyLoopError, match="topic orders would be copied into itself"):
            copy(to=source.bootstrap_servers, **to_itself)


def test_what_does_not_go_together_is_refused_before_anything_runs(copy):
    with pytest.raises(InvalidOptionError, match="reads from a broker, not from a path"):
        copy(connector="kafka")
    with pytest.raises(InvalidOptionError, match="connector must be exactlog or kafka"):
        copy(connector="pulsar")
    with pytest.raises(InvalidOptionError, match="no broker says where to copy to"):
        copy(to="")
