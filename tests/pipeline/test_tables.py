"""A log as tables of Spark SQL, and what they are said to hold."""

import pytest
from pyspark.errors import PySparkException

from exactlog.core.model.errors import NotFoundError, VersionUnknownError
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline import explain, profile, register_tables
from exactlog.pipeline.partition_profile import COUNTS
from exactlog.testing import Broker
from tests.support.generated_logs import write_log
from tests.support.naive_reader import NaiveTable, naive_rows
from tests.support.transactions import BrokerWriter

pytestmark = pytest.mark.peer

PLACES = (TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("pay.ments", 0))


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    root = tmp_path_factory.mktemp("log")
    write_log(root, seed=11, places=PLACES)
    return root


@pytest.fixture
def broker():
    with Broker() as running:
        running.create_topic("orders", partitions=2)
        yield running


def directory_of(log, place):
    return log / f"topic={place.topic}-part={place.partition}"


def naive_profile(directory, *, version=None):
    """The counts of a partition, batch by batch: slow and plain."""
    table = NaiveTable(directory)
    version = table.newest if version is None else version
    commit = table.commits[version]
    start, stable = commit["log_start_offset"], commit["last_stable_offset"]
    seen = table.rows(version=version, committed=False, control=True)
    markers = [row for row in seen if row["control"]]
    counts = dict.fromkeys(COUNTS, 0) | {"markers": len(markers)}
    for row in seen:
        if row["control"]:
            continue
        fate = "committed"
        if row["transactional"]:
            own = [each for each in markers if each["producer_id"] == row["producer_id"]]
            after = next((each for each in own if each["offset"] > row["offset"]), None)
            fate = "open" if after is None else "committed" if after["key"] == b"\x00\x00\x00\x01" else "aborted"
        counts[fate] += 1
        counts["waiting"] += fate == "committed" and row["offset"] >= stable
    return {
        "version": version,
        "log_start_offset": start,
        "last_stable_offset": stable,
        "end_offset": commit["end_offset"],
        "records": counts["committed"] + counts["aborted"] + counts["open"],
        **counts,
    }


def profiled(frame):
    """The rows of a profile by partition, without sizes, which are about right."""
    found = {}
    for row in frame.collect():
        fields = row.asDict()
        assert fields.pop("bytes") >= 0
        found[TopicPartition(fields.pop("topic"), fields.pop("partition"))] = fields
    return found


# --- views ------------------------------------------------------------------------------------------------------------


def test_each_topic_is_a_view_with_all_its_partitions(spark, log):
    names = register_tables(spark, path=log, prefix="t1_")

    assert names == {"orders": "t1_orders", "pay.ments": "t1_pay_ments"}
    for topic, name in names.items():
        rows = naive_rows(log, [topic])
        found = spark.sql(f"SELECT partition, offset FROM {name} ORDER BY partition, offset").collect()
        assert [tuple(row) for row in found] == [(row["partition"], row["offset"]) for row in rows]


def test_tables_can_be_joined_and_filtered(spark, log):
    register_tables(spark, path=log, prefix="t2_")

    (row,) = spark.sql(
        "SELECT count(*) AS n FROM t2_orders o ANTI JOIN t2_pay_ments p ON o.offset = p.offset WHERE o.partition = 0"
    ).collect()
    offsets = {place: {row["offset"] for row in NaiveTable(directory_of(log, place)).rows()} for place in PLACES}
    assert row["n"] == len(offsets[PLACES[0]] - offsets[PLACES[2]])


@pytest.mark.parametrize("kind", ["path", "bootstrap"])
def test_a_view_shows_what_was_there_when_it_was_registered_and_queries_agree(spark, broker, kind):
    where = {"path": broker.data_dir} if kind == "path" else {"bootstrap": broker.bootstrap_servers}
    writer = BrokerWriter(broker, "orders")
    writer.plain(b"a", b"b")
    writer.write(1, b"open")
    register_tables(spark, prefix=f"t3_{kind}_", **where)

    def counts():
        queries = ("", "WHERE partition = 0", "WHERE offset >= 0", "WHERE partition = 0 AND offset > 0")
        return [spark.sql(f"SELECT count(*) FROM t3_{kind}_orders {query}").first()[0] for query in queries]

    assert counts() == [2, 2, 2, 1]
    writer.commit(1)
    writer.plain(b"c")
    BrokerWriter(broker, "orders", partition=1).plain(b"d")
    assert counts() == [2, 2, 2, 1]

    register_tables(spark, prefix=f"t3_{kind}_", **where)
    assert counts() == [5, 4, 5, 3]


def test_views_as_of_a_time_stay_as_they_were(spark, broker):
    writer = BrokerWriter(broker, "orders")
    writer.plain(b"a")
    then = broker.clock.now_ms()
    broker.clock.advance_ms(60_000)
    writer.plain(b"b")

    register_tables(spark, path=broker.data_dir, prefix="t4_", options={"timestampAsOf": str(then)})
    assert [bytes(row[0]) for row in spark.sql("SELECT value FROM t4_orders").collect()] == [b"a"]


def test_a_broker_can_be_registered_as_well(spark, broker):
    BrokerWriter(broker, "orders").plain(b"a")

    assert register_tables(spark, bootstrap=broker.bootstrap_servers, prefix="t5_") == {"orders": "t5_orders"}
    assert spark.sql("SELECT count(*) FROM t5_orders").first()[0] == 1


def test_what_cannot_be_read_registers_nothing(spark, log, tmp_path):
    with pytest.raises(NotFoundError):
        register_tables(spark, path=tmp_path)
    with pytest.raises(NotFoundError, match="holds no topic order"):
        register_tables(spark, path=log, topics=["order"], prefix="t6_")
    with pytest.raises(VersionUnknownError):
        register_tables(spark, path=log, options={"versionAsOf": "9999"}, prefix="t6_")
    assert [table.name for table in spark.catalog.listTables() if table.name.startswith("t6_")] == []


def test_a_column_that_is_not_there_is_one_sentence(spark, log):
    register_tables(spark, path=log, prefix="t7_")

    with pytest.raises(PySparkException) as raised:
        spark.sql("SELECT ofset FROM t7_orders")
    assert "`ofset` cannot be resolved. Did you mean one of the following?" in str(explain(raised.value))


# --- profiles ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_profile_counts_what_the_naive_reader_counts(spark, tmp_path, seed):
    write_log(tmp_path, seed=seed, places=PLACES)

    found = profiled(profile(spark, path=tmp_path))

    assert found == {place: naive_profile(directory_of(tmp_path, place)) for place in PLACES}
    assert any(fields["aborted"] and fields["open"] and fields["waiting"] for fields in found.values()) or seed != 11


def test_a_profile_of_any_version_counts_what_was_there_then(spark, log):
    directory = directory_of(log, PLACES[0])
    table = NaiveTable(directory)
    oldest = table.commits[table.newest]["log_start_offset"]
    for version in [each for each, commit in table.commits.items() if commit["log_start_offset"] >= oldest][::6]:
        found = profiled(profile(spark, path=directory, options={"versionAsOf": str(version)}))
        assert found == {PLACES[0]: naive_profile(directory, version=version)}


def test_counted_in_many_pieces_the_numbers_are_the_same(spark, log):
    whole = profiled(profile(spark, path=log))
    assert profiled(profile(spark, path=log, options={"maxBytesPerPartition": "600"})) == whole


def test_a_broker_is_profiled_as_its_directory_is_but_for_versions(spark, broker):
    writer = BrokerWriter(broker, "orders")
    writer.plain(b"a")
    writer.write(1, b"committed", b"too")
    writer.commit(1)
    writer.write(2, b"aborted")
    writer.abort(2)
    writer.write(3, b"open")
    writer.plain(b"waits")
    writer.write(4, b"waits too")
    writer.commit(4)
    writer.write(5, b"aborted behind it")
    writer.abort(5)

    found = profiled(profile(spark, bootstrap=broker.bootstrap_servers))
    by_path = profiled(profile(spark, path=broker.data_dir, topics=["orders"]))

    assert found == {place: fields | {"version": None} for place, fields in by_path.items()}
    first = found[TopicPartition("orders", 0)]
    assert {name: first[name] for name in ("records", *COUNTS)} == {
        "records": 8,
        "committed": 5,
        "waiting": 2,
        "aborted": 2,
        "open": 1,
        "markers": 4,
    }
    assert found[TopicPartition("orders", 1)]["records"] == 0


def test_an_empty_data_directory_has_an_empty_profile(spark, tmp_path):
    with Broker(data_dir=tmp_path / "empty"):
        pass
    assert profile(spark, path=tmp_path / "empty").count() == 0
