"""What compares two brokers sees what differs, and masks no more than it says."""

import time
import uuid
from types import MappingProxyType

import pytest

from exactlog.core.codec.message_codec import encode_bytes
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from exactlog.core.protocol.messages.describe_transactions import DescribedTransaction, TransactionTopic
from exactlog.core.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from exactlog.core.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from exactlog.core.protocol.messages.produce import PartitionProduceResponse
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch
from tests.conformance.differential.comparison import MISSING, Comparison, Difference
from tests.conformance.differential.hostile import mutations
from tests.conformance.differential.known_differences import KnownDifference
from tests.conformance.differential.normal_form import Normaliser
from tests.conformance.differential.peer import fitting
from tests.conformance.differential.scenario import Scenario
from tests.support.raw_client import batch_of

ONE, OTHER = uuid.UUID(int=11), uuid.UUID(int=12)
REQUEST = CreateTopicsRequest(topics=(CreatableTopic(name="a", num_partitions=1, replication_factor=1),))


def normaliser(**own):
    return Normaliser(own=own, epoch=3, prefix="dabcdef-1-")


class FakeBroker:
    """Stands for a broker that a scenario's script asks."""

    own = MappingProxyType({})
    epoch = coordinator_epoch = 0

    def __init__(self, form):
        self.name = "fake"
        self.form = form
        self.versions = {ApiKey.METADATA: (0, 13)}


def compare(theirs, ours):
    comparison = Comparison(ours=FakeBroker(ours), theirs=FakeBroker(theirs), run="abcdef")
    script = Scenario(ApiKey.METADATA, "one", None, lambda peer: peer.take_down("Metadata", peer.broker.form))
    return [(found.path, found.theirs, found.ours) for found in comparison.differences(script, 12)]


# --- differences --------------------------------------------------------------------------------------------------


def test_equal_answers_do_not_differ():
    assert compare({"a": {"b": 1}}, {"a": {"b": 1}}) == []


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ("1.Metadata/a/b", 1, 2)),
        ({"a": {}}, {"a": None}, ("1.Metadata/a", {}, None)),
        ({"a": None}, {"a": ""}, ("1.Metadata/a", None, "")),
        ({"a": 1}, {"a": True}, ("1.Metadata/a", 1, True)),
        ({"a": {"b": 1}}, {"a": {}}, ("1.Metadata/a/b", 1, MISSING)),
        ({}, {"a": 0}, ("1.Metadata/a", MISSING, 0)),
        ("the connection is closed", {"a": 0}, ("1.Metadata", "the connection is closed", {"a": 0})),
    ],
)
def test_a_field_that_differs_is_found(theirs, ours, found):
    assert compare(theirs, ours) == [found]


def test_a_question_that_only_one_was_asked_is_found():
    asked_twice = Scenario(
        ApiKey.METADATA, "one", None, lambda peer: [peer.take_down("Metadata", {}) for _ in range(peer.broker.form)]
    )
    comparison = Comparison(ours=FakeBroker(1), theirs=FakeBroker(2), run="abcdef")

    assert [found.path for found in comparison.differences(asked_twice, 12)] == ["2.Metadata"]


# --- the normal form ----------------------------------------------------------------------------------------------


def test_a_brokers_own_address_is_masked_and_no_other():
    brokers = tuple(MetadataResponseBroker(node_id=port, host="h", port=port) for port in (9, 10))

    form = normaliser(host="h", port=9).tree(MetadataResponse(brokers=brokers))

    assert [(of["host"], of["port"]) for of in form["brokers"].values()] == [("<host>", "<port>"), ("<host>", 10)]


def test_ids_are_told_apart_and_known_again():
    normal = normaliser()

    assert [normal.tree((topic_id,)) for topic_id in (ONE, OTHER, ONE)] == [
        {"0": "id 1"},
        {"0": "id 2"},
        {"0": "id 1"},
    ]


def test_an_id_beside_a_name_is_that_of_the_name():
    form = normaliser().tree(MetadataResponseTopic(name="dabcdef-1-0-topic", topic_id=ONE))

    assert (form["name"], form["topic_id"]) == ("~topic", "id of ~topic")


def test_leader_epochs_are_counted_from_that_of_a_new_topic():
    batches = batch_of(b"x", leader_epoch=4)
    data = PartitionData(records=batches, high_watermark=4)
    (topic,) = (
        normaliser().tree(FetchResponse(responses=(FetchableTopicResponse(partitions=(data,)),)))["responses"].values()
    )

    assert topic["partitions"]["0"]["records"]["0"]["leader_epoch"] == "epoch 1"
    assert topic["partitions"]["0"]["high_watermark"] == 4


def test_only_times_of_now_are_masked():
    now_ms = round(time.time() * 1000)
    times = [normaliser().tree(PartitionProduceResponse(log_append_time_ms=at)) for at in (now_ms, -1, 1_700_000_000)]

    assert [form["log_append_time_ms"] for form in times] == ["<now>", -1, 1_700_000_000]


def test_error_messages_are_there_or_not():
    forms = [normaliser().tree(PartitionProduceResponse(error_message=text)) for text in ("oops", "", None)]

    assert [form["error_message"] for form in forms] == ["<text>", "", None]


def test_topics_of_other_scenarios_are_left_out_unless_somebody_asked_for_them():
    topics = tuple(MetadataResponseTopic(name=name) for name in ("dabcdef-1-0-mine", "dabcdef-2-0-other", "__internal"))
    asked = MetadataRequest(topics=(MetadataRequestTopic(name="dabcdef-2-0-other"),))

    assert list(normaliser().tree(MetadataResponse(topics=topics))["topics"]) == ["~mine"]
    assert list(normaliser().tree(MetadataResponse(topics=topics), of=asked)["topics"]) == [
        "~mine",
        "dabcdef-2-0-other",
    ]


@pytest.mark.parametrize(("epoch", "told"), [(5, 0), (7, 2)])
def test_markers_carry_the_epoch_of_their_coordinator_as_counted_from_the_present_one(epoch, told):
    marker = TransactionMarker(is_commit=True, coordinator_epoch=epoch)
    batch = build_marker_batch(marker, producer_id=9, producer_epoch=1, timestamp_ms=1)
    answer = FetchResponse(responses=(FetchableTopicResponse(partitions=(PartitionData(records=batch),)),))

    (topic,) = Normaliser(own={}, epoch=3, coordinator_epoch=5, prefix="d").tree(answer)["responses"].values()

    (record,) = topic["partitions"]["0"]["records"]["0"]["records"].values()
    assert (record["key"], record["value"]) == (b"\0\0\0\1", b"\0\0\0\0\0%c" % told)


def test_the_partitions_of_a_transaction_are_a_set_and_internal_topics_are_among_them():
    topics = (TransactionTopic(topic="__consumer_offsets", partitions=(2, 0)),)
    form = normaliser().tree(DescribedTransaction(transactional_id="one", topics=topics))

    assert form["topics"] == {"__consumer_offsets": {"topic": "__consumer_offsets", "partitions": {"0": 0, "1": 2}}}


def test_two_of_a_name_are_two():
    topics = (MetadataResponseTopic(name="a"), MetadataResponseTopic(name="a", error_code=3))

    assert list(normaliser().tree(MetadataResponse(topics=topics))["topics"]) == ["a", "a'"]


# --- hostile requests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(8))
def test_every_hostile_request_differs_and_can_be_sent(version):
    valid = fitting(REQUEST, version)
    changed = list(mutations(valid, version, unknown="nobody"))

    assert len({name for name, _ in changed}) == len(changed)
    assert all(encode_bytes(request, version) != encode_bytes(valid, version) for _, request in changed)


def test_hostile_values_go_into_every_field_that_the_version_has():
    def fields(version):
        return {name.rsplit(" ", 1)[0] for name, _ in mutations(fitting(REQUEST, version), version, unknown="nobody")}

    assert {"topics", "topics[0].name", "topics[0].num_partitions", "topics[0].replication_factor"} <= fields(0)
    assert fields(1) - fields(0) == {"validate_only"}


# --- what is known ------------------------------------------------------------------------------------------------


def test_a_known_difference_covers_its_own_fields_and_values_only():
    known = KnownDifference("Fetch", "all *", "*/topics[0]/x", "1", "*", "a row", "4-6")
    found = Difference("Fetch", 5, "all of it", "1.Fetch/topics[0]/x", 1, 2)

    assert known.covers(found)
    for other in (
        found._replace(api="Produce"),
        found._replace(version=7),
        found._replace(scenario="some of it"),
        found._replace(path="1.Fetch/topics0/x"),
        found._replace(theirs=2),
    ):
        assert not known.covers(other)
