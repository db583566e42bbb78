"""Members of a group share its partitions: they come, leave, die and come back, and every record is consumed once."""

import contextlib
import time

import pytest

from tests.conformance.clients.face import PATIENCE_S, SESSION_TIMEOUT_MS, Sent
from tests.conformance.clients.kafka_python_adapter import kafka

PARTITIONS = 4


class SharedTopic:
    """A topic of four partitions, and the group of its name whose members share them."""

    def __init__(self, name, client_name, members, join, control):
        self.name = name
        self.partitions = {(name, partition) for partition in range(PARTITIONS)}
        self._client_name, self._members, self._join, self._control = client_name, members, join, control
        self._sent = 0
        control.create_topic(name, partitions=PARTITIONS)

    def join(self, client_id, **membership):
        """Starts a member with the client under test."""
        return self._join(self._client_name, client_id, [self.name], **membership)

    def wait_until_shared(self, *owners):
        """These members have all partitions between them, each of them as many."""
        share = PARTITIONS // len(owners)
        self._members.wait_until(
            lambda: (
                all(len(member.owned) == share for member in owners)
                and set.union(*(member.owned for member in owners)) == self.partitions
            )
        )

    def send_and_wait_until_consumed(self, count):
        """Sends numbered records to all partitions in turn; they are handed out, and the group commits them."""
        numbers = range(self._sent, self._sent + count)
        self._control.produce(self.name, [Sent(b"%d" % number, partition=number % PARTITIONS) for number in numbers])
        self._sent += count
        self._members.wait_until(lambda: len(self._members.records) >= self._sent)
        ends = {partition: self._control.ends(self.name, partition=partition)[1] for partition in range(PARTITIONS)}
        self._members.wait_until(lambda: self.committed() == ends)

    def committed(self):
        """The offset that the group has committed in each partition."""
        found = self._control.committed(self.name, self.name)
        return {partition: offset for partition, (offset, _) in found.items()}

    def described(self):
        """The group as the broker describes it."""
        return self._control.describe_group(self.name)

    def wait_until_described_with(self, protocol):
        """The group is stable and has that protocol: two rebalances follow each other where partitions move by one."""
        self._members.wait_until(lambda: self.described().protocol == protocol)

    def was_consumed_once(self):
        """Whether all that was sent was handed out exactly once, to whomever."""
        return sorted(int(value) for *_, value in self._members.records) == list(range(self._sent))


@pytest.fixture
def shared(new_name, client_name, members, join, control):
    """A topic and the group of its members."""
    return SharedTopic(new_name, client_name, members, join, control)


@pytest.mark.needs("member")
def test_members_share_the_partitions_and_who_leaves_hands_them_over(shared):
    first = shared.join("first")
    shared.wait_until_shared(first)
    second = shared.join("second")
    shared.wait_until_shared(first, second)
    shared.send_and_wait_until_consumed(40)
    assert len(first.records) == len(second.records) == 20

    first.leave()
    shared.wait_until_shared(second)
    shared.send_and_wait_until_consumed(40)

    assert len(second.records) == 60
    assert shared.was_consumed_once()
    second.leave()
    assert shared.described().state == "Empty"


@pytest.mark.slow
@pytest.mark.needs("member")
def test_what_a_dead_member_had_goes_to_the_others_and_nothing_is_lost_or_shown_twice(shared):
    survivor, victim = shared.join("survivor"), shared.join("victim")
    shared.wait_until_shared(survivor, victim)
    shared.send_and_wait_until_consumed(40)

    victim.kill()
    shared.send_and_wait_until_consumed(40)

    assert survivor.owned == shared.partitions
    assert shared.was_consumed_once()
    assert set(shared.described().members) == {"survivor"}


@pytest.mark.needs("member", "static member")
def test_a_static_member_that_comes_back_in_time_finds_its_partitions_and_nobody_rebalances(shared, members):
    lasting = shared.join("lasting", instance_id="a", session_timeout_ms=30_000)
    restarted = shared.join("restarted", instance_id="b", session_timeout_ms=30_000)
    shared.wait_until_shared(lasting, restarted)
    shared.send_and_wait_until_consumed(40)
    had, rebalances = set(restarted.owned), len(lasting.rebalances)

    restarted.kill()
    again = shared.join("again", instance_id="b", session_timeout_ms=30_000)
    members.wait_until(lambda: again.owned == had)
    shared.send_and_wait_until_consumed(40)

    assert len(lasting.rebalances) == rebalances
    assert shared.was_consumed_once()


@pytest.mark.needs("member", "cooperative")
def test_cooperative_members_give_up_only_what_moves(shared):
    first = shared.join("first", assignor="cooperative-sticky")
    shared.wait_until_shared(first)
    second = shared.join("second", assignor="cooperative-sticky")
    shared.wait_until_shared(first, second)

    shared.wait_until_described_with("cooperative-sticky")
    assert [partitions for what, partitions in first.rebalances if what != "assigned" and partitions] == [second.owned]
    shared.send_and_wait_until_consumed(40)
    assert shared.was_consumed_once()


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
@pytest.mark.needs("member")
def test_each_member_gets_what_the_assignor_of_its_leader_decided(shared, members, assignor):
    both = [shared.join(name, assignor=assignor) for name in ("one", "other")]

    shared.wait_until_shared(*both)

    described = shared.described()
    assert described.protocol == assignor
    assert described.members == {member.client_id: member.owned for member in both}


@pytest.mark.peer
@pytest.mark.slow
def test_members_of_all_clients_are_one_group(members, join, control, new_name):
    names = ["confluent-kafka", "kafka-python", "aiokafka", "java-4.4", "java-3.9", "franz-go", "kafka-go", "kcat"]
    count = len(names)
    control.create_topic(new_name, partitions=count)
    everyone = [join(name, name, [new_name]) for name in names]

    members.wait_until(lambda: [len(member.owned) for member in everyone] == [1] * count)
    control.produce(new_name, [Sent(b"%d" % number, partition=number % count) for number in range(10 * count)])
    members.wait_until(lambda: len(members.records) >= 10 * count)

    assert sorted(int(value) for *_, value in members.records) == list(range(10 * count))
    assert {member.client_id: len(member.records) for member in everyone} == dict.fromkeys(names, 10)


class ToldOfRebalances(kafka.ConsumerRebalanceListener):
    """What a kafka-python consumer was given and lost, in order."""

    def __init__(self):
        self.told = []

    def on_partitions_assigned(self, assigned):
        self.told.append(("assigned", {partition.partition for partition in assigned}))

    def on_partitions_revoked(self, revoked):
        self.told.append(("revoked", {partition.partition for partition in revoked}))


def poll_until(consumer, condition, *, timeout_ms):
    """Polls until the condition is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        consumer.poll(timeout_ms=timeout_ms)


@pytest.mark.slow
def test_a_kafka_python_leader_that_learns_of_new_partitions_takes_no_answer_and_falls_silent(
    control, bootstrap_servers, new_name, found
):
    def consumer(client_id):
        made = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap_servers,
            group_id=new_name,
            client_id=client_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=200,
            enable_auto_commit=False,
        )
        listener = ToldOfRebalances()
        made.subscribe([new_name], listener=listener)
        assert found(lambda: new_name in made.topics())
        return contextlib.closing(made), listener.told

    control.create_topic(new_name)
    closing, told = consumer("leader")
    with closing as leader:
        poll_until(leader, lambda: ("assigned", {0}) in told, timeout_ms=100)
        control.create_partitions(new_name, 3)

        # The broker answers its rejoin and gives it all partitions. The poll that asked had no time to take the answer;
        # the next one compares what it knows with what it has just assigned, and sees nothing to rejoin for.
        everything = {"leader": {(new_name, partition) for partition in range(3)}}
        poll_until(leader, lambda: control.describe_group(new_name).members == everything, timeout_ms=0)
        # It goes on polling, and does not live for the broker.
        poll_until(leader, lambda: control.describe_group(new_name).state == "Empty", timeout_ms=100)
        assert told == [("revoked", set()), ("assigned", {0}), ("revoked", {0})]

    closing, told = consumer("other")
    with closing as other:
        poll_until(other, lambda: ("assigned", {0, 1, 2}) in told, timeout_ms=100)
