"""Members of a group share its partitions: they come, leave, die and come back, and every record is consumed once."""

import pytest

from tests.conformance.clients.face import Sent

PARTITIONS = 4


@pytest.fixture
def shared_topic(control, new_name):
    """A topic of four partitions."""
    control.create_topic(new_name, partitions=PARTITIONS)
    return new_name


@pytest.fixture
def send(control, shared_topic):
    """Sends numbered records to all partitions in turn; returns their number so far."""
    count = 0

    def send_more(more):
        nonlocal count
        numbers = range(count, count + more)
        control.produce(shared_topic, [Sent(b"%d" % number, partition=number % PARTITIONS) for number in numbers])
        count += more
        return count

    return send_more


def partitions_of(topic, count=PARTITIONS):
    return {(topic, partition) for partition in range(count)}


def wait_until_consumed(members, control, group, topic, count):
    """All records were handed out, and the group has committed them."""
    members.wait_until(lambda: len(members.records) >= count)
    each = {partition: control.ends(topic, partition=partition)[1] for partition in range(PARTITIONS)}
    members.wait_until(
        lambda: {partition: offset for partition, (offset, _) in control.committed(group, topic).items()} == each
    )


def wait_until_shared(members, *owners, partitions):
    """These members have all partitions between them, each of them some."""
    members.wait_until(
        lambda: (
            all(member.owned for member in owners)
            and set.union(*(member.owned for member in owners)) == partitions
            and sum(len(member.owned) for member in owners) == len(partitions)
        )
    )


@pytest.mark.needs("member")
def test_members_share_the_partitions_and_who_leaves_hands_them_over(
    client_name, members, join, control, shared_topic, send
):
    group = shared_topic
    first = join(client_name, "first", [shared_topic])
    members.wait_until(lambda: first.owned == partitions_of(shared_topic))
    second = join(client_name, "second", [shared_topic])
    wait_until_shared(members, first, second, partitions=partitions_of(shared_topic))
    wait_until_consumed(members, control, group, shared_topic, send(40))
    assert len(first.records) == len(second.records) == 20

    first.leave()
    members.wait_until(lambda: second.owned == partitions_of(shared_topic))
    count = send(40)
    wait_until_consumed(members, control, group, shared_topic, count)

    assert len(second.records) == 60
    assert sorted(int(value) for *_, value in members.records) == list(range(count))
    second.leave()
    assert control.describe_group(group).state == "Empty"


@pytest.mark.slow
@pytest.mark.needs("member")
def test_what_a_dead_member_had_goes_to_the_others_and_nothing_is_lost_or_shown_twice(
    client_name, members, join, control, shared_topic, send
):
    group = shared_topic
    survivor = join(client_name, "survivor", [shared_topic])
    victim = join(client_name, "victim", [shared_topic])
    wait_until_shared(members, survivor, victim, partitions=partitions_of(shared_topic))
    wait_until_consumed(members, control, group, shared_topic, send(40))

    victim.kill()
    count = send(40)
    members.wait_until(lambda: survivor.owned == partitions_of(shared_topic))
    wait_until_consumed(members, control, group, shared_topic, count)

    assert sorted(int(value) for *_, value in members.records) == list(range(count))
    assert set(control.describe_group(group).members) == {"survivor"}


@pytest.mark.needs("member", "static member")
def test_a_static_member_that_comes_back_in_time_finds_its_partitions_and_nobody_rebalances(
    client_name, members, join, control, shared_topic, send
):
    group = shared_topic
    lasting = join(client_name, "lasting", [shared_topic], instance_id="a", session_timeout_ms=30_000)
    restarted = join(client_name, "restarted", [shared_topic], instance_id="b", session_timeout_ms=30_000)
    wait_until_shared(members, lasting, restarted, partitions=partitions_of(shared_topic))
    wait_until_consumed(members, control, group, shared_topic, send(40))
    had, rebalances = set(restarted.owned), len(lasting.rebalances)

    restarted.kill()
    again = join(client_name, "again", [shared_topic], instance_id="b", session_timeout_ms=30_000)
    members.wait_until(lambda: again.owned == had)
    count = send(40)
    wait_until_consumed(members, control, group, shared_topic, count)

    assert len(lasting.rebalances) == rebalances
    assert sorted(int(value) for *_, value in members.records) == list(range(count))


@pytest.mark.needs("member", "cooperative")
def test_cooperative_members_give_up_only_what_moves(client_name, members, join, control, shared_topic, send):
    group = shared_topic
    first = join(client_name, "first", [shared_topic], assignor="cooperative-sticky")
    members.wait_until(lambda: first.owned == partitions_of(shared_topic))
    second = join(client_name, "second", [shared_topic], assignor="cooperative-sticky")
    wait_until_shared(members, first, second, partitions=partitions_of(shared_topic))

    assert control.describe_group(group).protocol == "cooperative-sticky"
    revoked = [partitions for what, partitions in first.rebalances if what != "assigned" and partitions]
    assert revoked == [second.owned]
    wait_until_consumed(members, control, group, shared_topic, send(40))
    assert len(members.records) == 40


@pytest.mark.parametrize(
    ("assignor", "first_has"),
    [("range", {"1": {0, 1}, "2": {0, 1}}), ("roundrobin", {"1": {0, 2}, "2": {1}})],
)
@pytest.mark.needs("member", "roundrobin")
def test_eager_assignors_divide_two_topics_as_they_are_defined_to(
    client_name, members, join, control, new_name, assignor, first_has
):
    topics = [f"{new_name}-1", f"{new_name}-2"]
    for topic in topics:
        control.create_topic(topic, partitions=3)
    everything = {(topic, partition) for topic in topics for partition in range(3)}
    both = [join(client_name, name, topics, assignor=assignor) for name in ("one", "other")]

    wait_until_shared(members, *both, partitions=everything)

    described = control.describe_group(new_name)
    assert described.protocol == assignor
    assert described.members == {member.client_id: member.owned for member in both}
    wanted = {(topic, partition) for topic in topics for partition in first_has[topic[-1]]}
    assert wanted in described.members.values()


@pytest.mark.peer
@pytest.mark.slow
def test_members_of_all_clients_are_one_group(members, join, control, new_name):
    names = ["confluent-kafka", "kafka-python", "aiokafka", "java-4.4", "java-3.9", "franz-go", "kafka-go", "kcat"]
    count = len(names)
    control.create_topic(new_name, partitions=count)
    everyone = [join(name, name, [new_name]) for name in names]

    wait_until_shared(members, *everyone, partitions=partitions_of(new_name, count))
    control.produce(new_name, [Sent(b"%d" % number, partition=number % count) for number in range(10 * count)])
    members.wait_until(lambda: len(members.records) >= 10 * count)

    assert sorted(int(value) for *_, value in members.records) == list(range(10 * count))
    assert {member.client_id: len(member.records) for member in everyone} == dict.fromkeys(names, 10)
