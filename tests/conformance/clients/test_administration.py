"""Topics come, are described and go by way of each client's administration, or by being written to."""

import pytest

from tests.conformance.clients.face import Received, Sent, refused


@pytest.mark.needs("create_topic")
def test_a_topic_is_created_listed_described_and_deleted(client, new_name, found):
    client.create_topic(new_name, partitions=3, config={"retention.ms": "12345", "cleanup.policy": "compact"})

    assert found(lambda: client.partition_counts().get(new_name) == 3)
    settings = client.settings(new_name)
    assert (settings["retention.ms"], settings["cleanup.policy"]) == ("12345", "compact")
    assert settings["segment.bytes"] == "1073741824"

    client.delete_topic(new_name)
    assert found(lambda: new_name not in client.partition_counts())


@pytest.mark.needs("create_topic")
def test_a_topic_that_is_there_is_not_created_again(client, topic):
    client.produce(topic, [Sent(b"v")])

    with refused("TOPIC_ALREADY_EXISTS"):
        client.create_topic(topic, partitions=5)

    assert client.partition_counts()[topic] == 1
    assert client.ends(topic) == (0, 1)


@pytest.mark.needs("create_topic")
def test_a_topic_that_was_deleted_can_be_made_anew_and_is_empty(client, topic, found):
    client.produce(topic, [Sent(b"old")] * 5, idempotent=True)
    client.delete_topic(topic)

    client.create_topic(topic, partitions=2)

    assert found(lambda: client.partition_counts().get(topic) == 2)
    assert client.ends(topic) == (0, 0)
    assert client.produce(topic, [Sent(b"new")], idempotent=True) == [0]


@pytest.mark.needs("delete_records")
def test_records_below_an_offset_are_deleted_and_the_rest_is_read_on(client, topic):
    client.produce(topic, [Sent(b"%d" % index) for index in range(5)])

    assert client.delete_records(topic, 3) == 3

    assert client.ends(topic) == (3, 5)
    assert [record.value for record in client.consume(topic, 3, 2)] == [b"3", b"4"]
    with refused("OFFSET_OUT_OF_RANGE"):
        client.consume(topic, 2, 1)


@pytest.mark.needs("delete_records")
def test_all_records_are_deleted_and_the_next_one_follows(client, topic):
    client.produce(topic, [Sent(b"old")] * 5)
    high_watermark = -1

    assert client.delete_records(topic, high_watermark) == 5

    assert client.ends(topic) == (5, 5)
    assert client.produce(topic, [Sent(b"new")]) == [5]


@pytest.mark.needs("delete_records")
def test_records_that_are_not_there_cannot_be_deleted(client, topic):
    client.produce(topic, [Sent(b"v")])

    with refused("OFFSET_OUT_OF_RANGE"):
        client.delete_records(topic, 2)
    assert client.ends(topic) == (0, 1)


@pytest.mark.needs("produce")
def test_writing_to_an_unknown_topic_makes_it(client, new_name):
    sent = Sent(b"first", b"k")

    assert client.produce(new_name, [sent]) == [0]

    assert client.partition_counts()[new_name] == 1
    assert client.consume(new_name, 0, 1) == [Received(0, sent.value, sent.key, (), sent.timestamp_ms)]


def chosen(settings):
    return settings["retention.ms"], settings["max.message.bytes"]


@pytest.mark.needs("alter_settings", "incremental settings")
def test_a_setting_is_changed_and_goes_back_to_its_default(client, new_name, found):
    client.create_topic(new_name, config={"cleanup.policy": "compact"})
    default = client.settings(new_name)["retention.ms"]

    client.alter_settings(new_name, {"retention.ms": "12345", "max.message.bytes": "20000"})
    assert found(lambda: chosen(client.settings(new_name)) == ("12345", "20000"))
    assert client.settings(new_name)["cleanup.policy"] == "compact"  # what was not named stays

    client.alter_settings(new_name, {"retention.ms": None})
    assert found(lambda: chosen(client.settings(new_name)) == (default, "20000"))


@pytest.mark.needs("alter_settings")
def test_a_changed_setting_acts(client, topic, found):
    client.alter_settings(topic, {"max.message.bytes": "1000"})

    assert found(lambda: client.settings(topic)["max.message.bytes"] == "1000")
    with pytest.raises(Exception, match=r"(?i)too.?large|larger"):
        raise_first(client.produce(topic, [Sent(bytes(range(256)) * 10)]))
    assert client.ends(topic) == (0, 0)


def raise_first(offsets):
    """One client hands out the error in the place of an offset."""
    raise RuntimeError(offsets[0])


@pytest.mark.needs("alter_settings")
def test_a_setting_that_is_not_valid_is_refused(client, topic):
    before = client.settings(topic)

    for name, value in {"retention.ms": "soon", "segment.bytes": "-7"}.items():
        with refused("INVALID_CONFIG"):
            client.alter_settings(topic, {name: value})

    assert client.settings(topic) == before


@pytest.mark.needs("create_partitions")
def test_partitions_are_added_and_written_to(client, topic, found):
    client.produce(topic, [Sent(b"before")])

    client.create_partitions(topic, 3)

    assert found(lambda: client.partition_counts()[topic] == 3)
    assert client.produce(topic, [Sent(b"after", partition=2)]) == [0]
    assert client.ends(topic, partition=0) == (0, 1)
    assert [record.value for record in client.consume(topic, 0, 1, partition=2)] == [b"after"]


@pytest.mark.needs("create_partitions")
def test_partitions_are_never_taken_away(client, new_name):
    client.create_topic(new_name, partitions=3)

    for count in (3, 2):
        with refused("INVALID_PARTITIONS"):
            client.create_partitions(new_name, count)

    assert client.partition_counts()[new_name] == 3


@pytest.mark.needs("create_topic")
def test_a_topic_name_that_is_not_valid_is_refused(client):
    with refused("INVALID_TOPIC_EXCEPTION"):
        client.create_topic("not/valid")


@pytest.mark.needs("delete_topic")
def test_a_topic_that_is_not_there_cannot_be_deleted(client, new_name):
    with refused("UNKNOWN_TOPIC_OR_PARTITION"):
        client.delete_topic(new_name)


@pytest.mark.needs("describe_cluster")
def test_the_cluster_is_one_broker_at_the_address_that_clients_know(client, control, bootstrap_servers):
    cluster = client.describe_cluster()

    assert cluster["brokers"] == [bootstrap_servers]
    assert cluster == control.describe_cluster()


@pytest.mark.needs("log_sizes")
def test_the_size_of_a_log_is_told_for_each_partition(client, new_name):
    client.create_topic(new_name, partitions=2)
    client.produce(new_name, [Sent(bytes(10_000), partition=1)])

    sizes = client.log_sizes(new_name)

    assert sizes.keys() == {0, 1}
    assert sizes[0] == 0
    assert 10_000 < sizes[1] < 11_000


@pytest.mark.needs("list_offset")
def test_offsets_are_listed_by_every_specification(client, topic):
    client.produce(topic, [Sent(b"v", timestamp_ms=ms) for ms in (1_000, 9_000, 5_000)])

    assert client.list_offset(topic, "earliest")[0] == 0
    assert client.list_offset(topic, "latest")[0] == 3
    assert client.list_offset(topic, "max_timestamp") == (1, 9_000)


@pytest.mark.needs("list_offset", "tiers")
def test_a_log_that_is_on_no_other_tier_begins_here_and_has_no_end_there(client, topic):
    client.produce(topic, [Sent(b"v")] * 3)

    assert client.list_offset(topic, "earliest_local")[0] == 0
    assert client.list_offset(topic, "latest_tiered")[0] == -1


@pytest.mark.needs("producers")
def test_the_producers_of_a_partition_are_described(client, topic):
    client.produce(topic, [Sent(b"v")] * 3, idempotent=True)

    ((_, epoch, last_sequence),) = client.producers(topic)

    assert (epoch, last_sequence) == (0, 2)
