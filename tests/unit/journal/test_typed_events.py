"""Events as objects: what goes in comes back, and what cannot is told."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.payload import BinaryPayload, JsonPayload, TextPayload
from exactlog.core.model.errors import DecodeError
from exactlog.journal import TypedEvents


class Tagged(msgspec.Struct, tag="tagged-event", tag_field="kind"):
    total: Decimal


class Plain(msgspec.Struct):
    at: datetime
    names: list[str]


@dataclass
class Point:
    x: int
    y: int = field(default=0)


class Model:
    """Has what models of pydantic have."""

    def __init__(self, amount):
        self.amount = amount

    def __eq__(self, other):
        return isinstance(other, Model) and self.amount == other.amount

    __hash__ = None

    def model_dump(self, *, mode):
        assert mode == "json"
        return {"amount": self.amount}

    @classmethod
    def model_validate(cls, value):
        if not isinstance(value.get("amount"), int):
            raise ValueError("amount is a number")  # noqa: TRY004  as pydantic
        return cls(value["amount"])


CODEC = TypedEvents([Tagged, Plain, Point, Model])
JSON = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "event",
    [
        Tagged(Decimal("1.50")),
        Plain(datetime(2026, 1, 2, tzinfo=UTC), ["a"]),
        Point(1, 2),
        Model(3),
        {"type": "unheard of", "x": 1},
        [1, 2],
        3,
        True,
        "text",
        b"\x00bytes",
        None,
        "",
        b"",
    ],
)
def test_what_goes_in_comes_back(event):
    assert CODEC.decode(CODEC.encode(event)) == event


@given(st.lists(JSON) | st.dictionaries(st.text(), JSON) | st.text() | st.binary())
def test_json_text_and_bytes_come_back(event):
    assert TypedEvents().decode(TypedEvents().encode(event)) == event


def test_each_kind_of_object_has_its_kind_of_payload():
    assert CODEC.encode("a") == TextPayload("a")
    assert CODEC.encode(bytearray(b"a")) == BinaryPayload(b"a")
    assert CODEC.encode(Point(1)) == JsonPayload('{"type":"Point","x":1,"y":0}')
    assert CODEC.encode(Tagged(Decimal(2))) == JsonPayload('{"kind":"tagged-event","total":"2"}')
    assert CODEC.encode(JsonPayload("1")) == JsonPayload("1")


def test_a_type_that_was_not_named_comes_back_as_a_dict():
    assert TypedEvents().decode(CODEC.encode(Point(1))) == {"type": "Point", "x": 1, "y": 0}


@dataclass
class Typed:
    type: str


@pytest.mark.parametrize("event", [object(), {1, object()}, Typed("a"), {"a": object()}])
def test_what_has_no_form_is_refused(event):
    with pytest.raises(JournalInputError):
        CODEC.encode(event)


@pytest.mark.parametrize("text", ['{"type":"Point","x":"no number"}', '{"type":"Model"}', '{"kind":"tagged-event"}'])
def test_what_is_not_what_it_says_is_told(text):
    with pytest.raises(DecodeError):
        CODEC.decode(JsonPayload(text))


def test_two_types_of_one_name_are_refused():
    other = type("Point", (msgspec.Struct,), {})
    with pytest.raises(JournalInputError, match="Point"):
        TypedEvents([Point, other])
    with pytest.raises(JournalInputError, match="int"):
        TypedEvents([int])
