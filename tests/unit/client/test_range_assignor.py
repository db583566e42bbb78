"""The assignor `range`, as Kafka's consumer has it."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from exactlog.client.wire.range_assignor import Candidate, assign_ranges
from exactlog.core.model.ids import TopicPartition

TOPICS = ("a", "b", "c")


def candidate(member_id, *topics, instance=None):
    return Candidate(member_id, instance, frozenset(topics))


def partitions(assigned, member_id, topic):
    return [place.partition for place in assigned[member_id] if place.topic == topic]


def test_each_member_gets_a_stretch_and_the_first_ones_one_more():
    assigned = assign_ranges([candidate("y", "a"), candidate("x", "a"), candidate("z", "a")], {"a": 7})

    assert [partitions(assigned, member, "a") for member in "xyz"] == [[0, 1, 2], [3, 4], [5, 6]]


def test_every_topic_is_dealt_out_to_those_who_want_it():
    assigned = assign_ranges([candidate("x", "a", "b"), candidate("y", "b")], {"a": 2, "b": 3})

    assert assigned["x"] == (*(TopicPartition("a", n) for n in (0, 1)), *(TopicPartition("b", n) for n in (0, 1)))
    assert assigned["y"] == (TopicPartition("b", 2),)


def test_static_members_come_first_in_the_order_of_their_names():
    members = [candidate("a-dynamic", "a"), candidate("b", "a", instance="2"), candidate("c", "a", instance="1")]

    assigned = assign_ranges(members, {"a": 3})

    assert [assigned[member][0].partition for member in ("c", "b", "a-dynamic")] == [0, 1, 2]


def test_who_comes_late_gets_nothing_when_there_is_no_more():
    assert assign_ranges([candidate("x", "a"), candidate("y", "a")], {"a": 1})["y"] == ()


def test_a_topic_nobody_has_gives_nothing():
    assert assign_ranges([candidate("x", "gone")], {"gone": 0}) == {"x": ()}


members = st.lists(
    st.builds(Candidate, st.uuids().map(str), st.none(), st.frozensets(st.sampled_from(TOPICS))),
    max_size=6,
    unique_by=lambda member: member.member_id,
)


@given(members, st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS}))
def test_every_partition_that_is_wanted_has_one_reader_and_nobody_much_more_than_another(members, counts):
    assigned = assign_ranges(members, counts)

    wanted = {topic for member in members for topic in member.topics}
    given_out = Counter(place for places in assigned.values() for place in places)
    assert given_out == Counter(TopicPartition(topic, n) for topic in wanted for n in range(counts[topic]))
    for topic in TOPICS:
        sizes = [len(partitions(assigned, member.member_id, topic)) for member in members if topic in member.topics]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
