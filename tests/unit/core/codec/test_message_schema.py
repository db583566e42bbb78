"""How declarations are read, and which are refused."""

from typing import Annotated
from uuid import UUID

import msgspec
import pytest

from exactlog.core.codec.message_schema import (
    ArrayOf,
    Message,
    Structure,
    StructureOf,
    fields_of,
    holds_records,
    is_flexible,
    versions_of,
)
from exactlog.core.codec.wire_types import (
    NO_VERSIONS,
    Bytes,
    Field,
    Fixed,
    Int16,
    Int32,
    Records,
    Sized,
    String,
    Uuid,
    Versions,
    parse_versions,
)
from exactlog.core.model.errors import InvariantError

ALL = Versions(0, 32_767)


class Place(Structure):
    street: String = ""
    number: Annotated[Int16, Field("2+")] = -1


class Letter(Message):
    api_key = 99
    versions = "1-5"
    flexible = "3+"

    sender: String | None = None
    sent_to: Annotated[Place, Field("2-4", ignorable=True)] = Place()
    via: Annotated[tuple[Place, ...] | None, Field(nullable="3+")] = ()
    numbers: tuple[Int32, ...] = ()
    label: Annotated[Uuid, Field("3+", tag=7, tagged="4+")] = UUID(int=0)
    content: Records = b""


@pytest.mark.parametrize(
    ("text", "versions"),
    [("3", Versions(3, 3)), ("0-5", Versions(0, 5)), ("3+", Versions(3, 32_767)), ("none", NO_VERSIONS)],
)
def test_ranges_are_written_as_kafka_writes_them(text, versions):
    assert parse_versions(text) == versions


def test_a_range_holds_both_its_ends():
    assert [version in Versions(2, 4) for version in range(1, 6)] == [False, True, True, True, False]
    assert 0 not in NO_VERSIONS


def test_ranges_overlap_in_the_versions_of_both():
    assert Versions(2, 9).within(Versions(4, 32_767)) == Versions(4, 9)


def test_a_message_knows_its_versions():
    assert versions_of(Letter) == Versions(1, 5)
    assert [is_flexible(Letter, version) for version in (2, 3)] == [False, True]


def test_fields_are_read_in_the_order_of_the_wire():
    sender, sent_to, via, numbers, label, content = fields_of(Letter)

    assert (sender.name, sender.type, sender.versions, sender.nullable) == ("sender", Sized("string"), ALL, ALL)
    assert (sent_to.type, sent_to.versions, sent_to.ignorable) == (StructureOf(Place), Versions(2, 4), True)
    assert (via.type, via.nullable, via.default) == (ArrayOf(StructureOf(Place)), Versions(3, 32_767), ())
    assert (numbers.type, numbers.nullable) == (ArrayOf(Fixed("int32", "i")), NO_VERSIONS)
    assert (label.type, label.tag, label.tagged) == (Fixed("uuid", "16s"), 7, Versions(4, 32_767))
    assert (content.type, content.tag, content.tagged) == (Sized("records"), None, NO_VERSIONS)


def test_a_message_that_holds_records_somewhere_says_so():
    class Envelope(Structure):
        letters: tuple[Letter, ...] = ()

    assert holds_records(Envelope)
    assert not holds_records(Place)


def test_structures_are_frozen_and_take_keywords_only():
    with pytest.raises(AttributeError):
        Place().street = "High Street"
    with pytest.raises(TypeError):
        Place("High Street")


def test_structures_are_compared_and_copied_by_value():
    place = Place(street="High Street", number=3)

    assert msgspec.structs.replace(place, number=4) == Place(street="High Street", number=4) != place


class NoDefault(Structure):
    name: String


class NotOfTheProtocol(Structure):
    name: str = ""


class ListInPlaceOfTuple(Structure):
    names: list[String] = ()


class NullInKafkaOnly(Structure):
    name: Annotated[String, Field(nullable="0+")] = ""


class TaggedWithoutTag(Structure):
    name: Annotated[String, Field(tagged="0+")] = ""


class TwoTypes(Structure):
    name: String | Bytes = ""


@pytest.mark.parametrize(
    ("structure", "reason"),
    [
        (NoDefault, "NoDefault.name has no default"),
        (NotOfTheProtocol, "NotOfTheProtocol.name has no type of the protocol"),
        (ListInPlaceOfTuple, "ListInPlaceOfTuple.names has no type of the protocol"),
        (NullInKafkaOnly, "NullInKafkaOnly.name may be null"),
        (TaggedWithoutTag, "TaggedWithoutTag.name is tagged"),
        (TwoTypes, "TwoTypes.name has no type of the protocol"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused_by_name(structure, reason):
    with pytest.raises(InvariantError, match=reason):
        fields_of(structure)
