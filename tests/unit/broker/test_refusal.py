"""A refusal tells its error wherever an answer has a place for one, in every API and version."""

import uuid

import pytest

from exactlog.broker.refusal import Refusal, refuse
from exactlog.core.codec.message_codec import decoder, encode_bytes
from exactlog.core.codec.message_schema import ArrayOf, Structure, StructureOf, fields_of
from exactlog.core.codec.wire_types import Fixed
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from exactlog.core.protocol.messages.metadata import MetadataRequest
from exactlog.core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

VERSIONS = [(api, version) for api in APIS.values() for version in range(api.versions.lowest, api.versions.highest + 1)]
ENTRIES = 2
REFUSED = ErrorCode.KAFKA_STORAGE_ERROR


def filled(structure, version, number=1):
    """A structure in which everything is said: arrays have two entries, with different keys."""
    return structure(
        **{
            field.name: value(field.type, version, number)
            for field in fields_of(structure)
            if version in field.versions
        }
    )


def value(wire_type, version, number):
    match wire_type:
        case ArrayOf(element):
            return tuple(value(element, version, number + index) for index in range(ENTRIES))
        case StructureOf(structure):
            return filled(structure, version, number)
        case Fixed("uuid"):
            return uuid.UUID(int=number)
        case Fixed("bool"):
            return True
        case Fixed():
            return number
        case _:
            return str(number) if wire_type.name == "string" else b"bytes"


def errors_in(structure):
    """Every error code in an answer, as (where, code)."""
    found = []
    for field in fields_of(type(structure)):
        inside = getattr(structure, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.append((field.name, inside))
        for entry in inside if isinstance(inside, tuple) else ():
            if isinstance(entry, Structure):
                found += [(f"{field.name}.{where}", code) for where, code in errors_in(entry)]
    return found


def refused(request, version, error_code=REFUSED):
    """What a client reads of the refusal of a request."""
    answer = refuse(request, Refusal(error_code, "because", version))
    read, _ = decoder(type(answer), version)(encode_bytes(answer, version), 0)
    return read


def is_there(structure, where, version):
    """Whether an answer of a version has the place of an error."""
    name, _, rest = where.partition(".")
    (field,) = (field for field in fields_of(structure) if field.name == name)
    return version in field.versions and (not rest or is_there(field.type.element.structure, rest, version))


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda of: getattr(of, "name", of))
def test_every_error_code_of_an_answer_is_the_error(api, version):
    told = [
        (where, code)
        for where, code in errors_in(refused(filled(api.request, version), version))
        if is_there(api.response, where, version)
    ]
    at_top = ("error_code", ErrorCode.NONE)

    if api.key == ApiKey.DESCRIBE_LOG_DIRS and version < 3:
        assert told == []  # it told errors of directories only, which no request names
    elif api.key == ApiKey.FETCH and version >= 7:
        assert told.pop(0) == at_top
        assert {code for _, code in told} == {REFUSED}
    else:
        assert {code for _, code in told} == {REFUSED}


@pytest.mark.parametrize("version", [3, 8, 12, 13])
def test_each_partition_of_a_produce_is_told_by_its_own_names(version):
    named = {"topic_id": uuid.UUID(int=7)} if version >= 13 else {"name": "orders"}
    parts = tuple(PartitionProduceData(index=index, records=None) for index in (0, 3))
    request = ProduceRequest(acks=-1, topic_data=(TopicProduceData(**named, partition_data=parts),))

    (topic,) = refused(request, version).responses

    assert (topic.name, topic.topic_id) == (named.get("name", ""), named.get("topic_id", ZERO_UUID))
    assert [(part.index, part.error_code, part.base_offset) for part in topic.partition_responses] == [
        (0, REFUSED, -1),
        (3, REFUSED, -1),
    ]
    assert topic.partition_responses[0].error_message == ("because" if version >= 8 else None)


def test_what_a_request_asks_of_a_partition_is_not_told_back():
    part = FetchPartition(partition=2, fetch_offset=7, high_watermark=5, log_start_offset=3)
    request = FetchRequest(topics=(FetchTopic(topic_id=uuid.UUID(int=7), partitions=(part,)),))

    (topic,) = refused(request, 18).responses
    (told,) = topic.partitions

    assert (told.partition_index, told.error_code) == (2, REFUSED)
    assert (told.high_watermark, told.log_start_offset) == (-1, -1)


def test_a_fetch_that_names_no_partition_and_an_error_of_its_session_are_told_at_the_top():
    part = FetchPartition(partition=2)
    request = FetchRequest(topics=(FetchTopic(topic="orders", partitions=(part,)),))

    assert refused(FetchRequest(session_id=1, session_epoch=2), 12).error_code == REFUSED
    assert refused(request, 12).error_code == ErrorCode.NONE
    assert refused(request, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH).error_code == 71


def test_entries_that_are_plain_names_are_told_by_them():
    answer = refused(FindCoordinatorRequest(key_type=0, coordinator_keys=("a", "b")), 4)

    assert [(found.key, found.error_code, found.node_id) for found in answer.coordinators] == [
        ("a", REFUSED, -1),
        ("b", REFUSED, -1),
    ]


def test_each_member_that_leaves_is_told():
    request = LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id="m", group_instance_id="i"),))

    (member,) = refused(request, 5).members

    assert (member.member_id, member.group_instance_id, member.error_code) == ("m", "i", REFUSED)


def test_a_request_for_everything_names_nothing():
    assert refused(MetadataRequest(topics=None), 12).topics == ()
