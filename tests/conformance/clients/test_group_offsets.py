"""What a group has committed is read back, changed and taken away; groups are listed, described and deleted."""

import pytest

from tests.conformance.clients.face import Sent, refused


@pytest.fixture
def group(new_name):
    """The name of a group that is not there yet."""
    return f"{new_name}-group"


@pytest.fixture
def filled(control, new_name):
    """A topic of two partitions with ten records in each."""
    control.create_topic(new_name, partitions=2)
    control.produce(new_name, [Sent(b"%d" % (index // 2), partition=index % 2) for index in range(20)])
    return new_name


def offsets_of(committed):
    return {partition: offset for partition, (offset, _) in committed.items()}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["waiting", "asynchronous"])
@pytest.mark.needs("commit", "committed")
def test_offsets_are_committed_and_read_back(client, filled, group, asynchronous):
    client.commit(group, filled, {0: (3, ""), 1: (10, "")}, asynchronous=asynchronous)
    assert offsets_of(client.committed(group, filled)) == {0: 3, 1: 10}

    client.commit(group, filled, {0: (7, "")}, asynchronous=asynchronous)
    assert offsets_of(client.committed(group, filled)) == {0: 7, 1: 10}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["waiting", "asynchronous"])
@pytest.mark.needs("commit", "committed", "metadata")
def test_a_commit_keeps_its_metadata(client, filled, group, asynchronous):
    offsets = {0: (3, "by hand \u00e9"), 1: (10, "")}

    client.commit(group, filled, offsets, asynchronous=asynchronous)

    assert client.committed(group, filled) == offsets


@pytest.mark.needs("committed")
def test_a_group_that_never_committed_has_no_offsets(client, filled, group):
    assert client.committed(group, filled) == {}


@pytest.mark.needs("consume_in_group")
def test_a_consumer_goes_on_where_its_group_stopped(client, control, topic, group):
    client.produce(topic, [Sent(b"%d" % number) for number in range(10)])

    first = client.consume_in_group(group, topic, 4)
    assert control.committed(group, topic)[0][0] == 4
    rest = client.consume_in_group(group, topic, 6)

    assert [int(record.value) for record in first + rest] == list(range(10))
    assert [record.offset for record in first + rest] == list(range(10))
    assert control.committed(group, topic)[0][0] == 10


@pytest.mark.needs("alter_group_offsets", "consume_in_group")
def test_an_empty_group_is_reset_and_consumes_again_from_there(client, control, topic, group):
    client.produce(topic, [Sent(b"%d" % number) for number in range(10)])
    client.consume_in_group(group, topic, 10)

    client.alter_group_offsets(group, topic, {0: 3})

    assert control.committed(group, topic)[0][0] == 3
    assert [int(record.value) for record in client.consume_in_group(group, topic, 7)] == list(range(3, 10))


@pytest.mark.needs("delete_group_offsets", "commit", "committed")
def test_offsets_of_a_partition_are_deleted(client, filled, group):
    client.commit(group, filled, {0: (3, ""), 1: (4, "")})

    client.delete_group_offsets(group, filled, [0])

    assert offsets_of(client.committed(group, filled)) == {1: 4}


@pytest.mark.needs("groups", "commit")
def test_groups_are_listed(client, filled, group):
    assert group not in client.groups()

    client.commit(group, filled, {0: (3, "")})

    assert client.groups()[group] in {"", "Empty"}  # not every client asks for the state


@pytest.mark.needs("delete_group", "commit")
def test_an_empty_group_is_deleted_with_its_offsets(client, control, filled, group):
    client.commit(group, filled, {0: (3, "")})

    client.delete_group(group)

    assert group not in client.groups()
    assert control.committed(group, filled) == {}
    with refused("GROUP_ID_NOT_FOUND"):
        client.delete_group(group)


@pytest.fixture
def lively(client_name, members, join, filled, new_name):
    """A group with two members that have joined it; kafka-go cannot read what others say of themselves."""
    name_of_members = client_name if client_name == "kafka-go" else "confluent-kafka"
    both = [join(name_of_members, name, [filled]) for name in ("one", "other")]
    members.wait_until(lambda: {len(member.owned) for member in both} == {1})
    members.wait_until(lambda: sum(member.committed for member in both) == 20)
    return new_name


@pytest.mark.needs("describe_group")
def test_a_group_is_described_with_its_members_and_their_partitions(client, filled, lively):
    described = client.describe_group(lively)

    assert described.state == "Stable"
    assert described.protocol in {"range", None}  # one client leaves it out
    assert described.members.keys() == {"one", "other"}
    assert sorted(map(sorted, described.members.values())) == [[(filled, 0)], [(filled, 1)]]


@pytest.mark.needs("groups", "group states")
def test_a_group_with_members_is_listed_as_stable(client, lively):
    assert client.groups()[lively] == "Stable"


@pytest.mark.needs("delete_group")
def test_a_group_with_members_is_not_deleted(client, control, lively):
    with refused("NON_EMPTY_GROUP"):
        client.delete_group(lively)

    assert control.describe_group(lively).state == "Stable"


@pytest.mark.needs("alter_group_offsets")
def test_offsets_of_a_group_with_members_are_not_altered_from_outside(client, control, filled, lively):
    before = control.committed(lively, filled)

    with refused("UNKNOWN_MEMBER_ID"):
        client.alter_group_offsets(lively, filled, {0: 0})

    assert control.committed(lively, filled) == before


@pytest.mark.needs("delete_group_offsets")
def test_offsets_of_a_topic_that_members_subscribe_to_are_not_deleted(client, control, filled, lively):
    before = control.committed(lively, filled)

    with refused("GROUP_SUBSCRIBED_TO_TOPIC"):
        client.delete_group_offsets(lively, filled, [0])

    assert control.committed(lively, filled) == before


@pytest.mark.needs("describe_group")
def test_a_group_that_is_not_there_is_described_as_dead_or_not_found(client, group):
    try:
        state = client.describe_group(group).state
    except Exception as error:  # noqa: BLE001  newer clients ask in a version that has an error for it
        assert getattr(error, "name", "") == "GROUP_ID_NOT_FOUND"  # noqa: PT017  either answer is Kafka's
    else:
        assert state == "Dead"
