"""The value of an append, in both forms: bytes and JSON as the page of the format has them."""

import json
import re
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.journal.actions import PayloadType
from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.event_payload_format import AppendPayload, decode_payload, encode_payload
from exactlog.core.journal.events import Event
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.payload import BinaryPayload, JsonPayload, TextPayload
from exactlog.core.model.errors import DecodeError

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "event_payload_format.md"
BINARY, JSON = PayloadType.BINARY, PayloadType.JSON
DAY = ExpireAfter.of_ms(86_400_000)
WORKED_EXAMPLE = "01 00000001 00000018 0000000000000007 00000005 0000000161 03 00000002 6869 7b7d"

json_texts = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=4,
).map(json.dumps)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
payloads = st.one_of(
    st.none(),
    st.builds(BinaryPayload, st.binary(max_size=8)),
    st.builds(TextPayload, texts),
    st.builds(JsonPayload, json_texts),
)
events = st.builds(Event, st.integers(1, 2**63 - 1), payloads, st.frozensets(texts, max_size=3))
append_payloads = st.builds(
    AppendPayload,
    st.lists(events, min_size=1, max_size=4).map(tuple),
    st.none() | json_texts.filter(lambda text: text != "null"),
    st.none() | st.builds(ExpireAfter, st.integers(0, 2**62)),
)


def hexadecimal(value):
    return bytes.fromhex(value.replace(" ", ""))


# --- binary -----------------------------------------------------------------------------------------------------------


def test_the_worked_example_of_the_binary_form_is_read():
    payload = decode_payload(BINARY, hexadecimal(WORKED_EXAMPLE))

    assert payload == AppendPayload((Event(7, TextPayload("hi"), frozenset({"a"})),))


def test_one_event_with_bytes_makes_the_whole_append_binary():
    text, blob = Event(7, TextPayload("hi"), frozenset({"a"})), Event(8, BinaryPayload(b"\x00\xff"))

    payload_type, value = encode_payload(AppendPayload((text, blob)))

    assert payload_type is BINARY
    of_text = hexadecimal(WORKED_EXAMPLE)[5:-2]
    of_blob = hexadecimal("00000013 0000000000000008 00000000 01 00000002 00ff")
    assert value == hexadecimal("01 00000002") + of_text + of_blob + b"{}"


def test_the_metadata_of_the_binary_form_is_json_to_the_end():
    _, value = encode_payload(AppendPayload((Event(1, BinaryPayload(b"")),), '{"by":"a"}', DAY))

    assert value.endswith(b'{"expireAfter":"1 day","data":{"by":"a"}}')
    assert decode_payload(BINARY, value).expire_after == DAY


@pytest.mark.parametrize("first", ["00", "02", "07", "ff"])
def test_any_other_first_byte_is_read_as_a_version_without_metadata(first):
    value = hexadecimal(first) + hexadecimal(WORKED_EXAMPLE)[1:]

    assert decode_payload(BINARY, value) == AppendPayload((Event(7, TextPayload("hi"), frozenset({"a"})),))
    assert decode_payload(BINARY, value[:-2]) == decode_payload(BINARY, value)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("", "cannot be read"),
        ("01", "cannot be read"),
        ("01 00000001", "claims 1 events"),
        ("01 7fffffff 00000018", "claims 2147483647 events"),
        ("01 ffffffff 00000018", "claims -1 events"),
        (WORKED_EXAMPLE[:-12], "are claimed"),  # cut inside the payload
        (WORKED_EXAMPLE.replace("00000018", "00000088"), "are claimed"),
        (WORKED_EXAMPLE.replace("00000018", "fffffff8"), "are claimed"),
        (WORKED_EXAMPLE.replace("0000000000000007", "0000000000000000"), "number 0"),
        (WORKED_EXAMPLE.replace("0000000000000007", "8000000000000000"), "number -9223372036854775808"),
        (WORKED_EXAMPLE.replace(" 03 ", " 04 "), "of kind 4"),
        (WORKED_EXAMPLE.replace("6869", "ff69"), "cannot be read"),
        (WORKED_EXAMPLE.replace("7b7d", "7b"), "cannot be read"),
    ],
)
def test_bytes_that_are_no_append_are_refused_in_words(value, what):
    with pytest.raises(DecodeError, match=what):
        decode_payload(BINARY, hexadecimal(value))


@given(st.binary(max_size=60))
def test_no_bytes_do_anything_but_be_read_or_be_refused(value):
    for payload_type in PayloadType:
        with suppress(DecodeError):
            decode_payload(payload_type, value)


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_the_json_form_names_the_type_of_a_payload_and_always_the_tags():
    written = (
        Event(1, JsonPayload('{"total":12.50}'), frozenset({"b", "a"})),
        Event(2, TextPayload("ten")),
        Event(3),
    )

    payload_type, value = encode_payload(AppendPayload(written, "[1]", DAY))

    assert payload_type is JSON
    assert value == (
        b'{"events":[{"seqNr":1,"tags":["a","b"],"payloadType":"json","payload":{"total":12.50}},'
        b'{"seqNr":2,"tags":[],"payloadType":"text","payload":"ten"},{"seqNr":3,"tags":[]}],'
        b'"metadata":{"expireAfter":"1 day","data":[1]}}'
    )


def test_a_payload_without_a_type_is_json_and_older_records_have_no_metadata():
    payload = decode_payload(JSON, b'{"events":[{"seqNr":5,"payload":{"a":1.0}}]}')

    assert payload == AppendPayload((Event(5, JsonPayload('{"a":1.0}')),))


def test_a_payload_of_null_without_a_type_is_none_at_all():
    assert decode_payload(JSON, b'{"events":[{"seqNr":5,"tags":[],"payload":null}]}').events == (Event(5),)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"null",
        b'{"events":[{"seqNr":0,"tags":[]}]}',
        b'{"events":[{"seqNr":9223372036854775808,"tags":[]}]}',
        b'{"events":[{"seqNr":1,"tags":[],"payloadType":"xml","payload":"a"}]}',
        b'{"events":[{"seqNr":1,"tags":[],"payloadType":"text","payload":{}}]}',
        b'{"events":[],"metadata":{"expireAfter":"soon"}}',
        b'{"events":[],"metadata":{"expireAfter":[]}}',
        b'{"events":[{"seqNr":1,"tags":["\xff"]}]}',
    ],
)
def test_json_that_is_no_append_is_refused(value):
    with pytest.raises(DecodeError):
        decode_payload(JSON, value)


def test_an_event_that_is_no_json_is_refused_before_anything_is_written():
    for payload in (JsonPayload("{"), JsonPayload(""), JsonPayload("1 2"), JsonPayload("\ud800")):
        with pytest.raises(JournalInputError, match="event 1 is not JSON"):
            encode_payload(AppendPayload((Event(1, payload),)))


def test_a_value_without_a_json_form_is_refused():
    with pytest.raises(JournalInputError, match="no JSON form"):
        JsonPayload.of(object())
    assert JsonPayload.of({"total": 1}).value() == {"total": 1}


# --- both -------------------------------------------------------------------------------------------------------------


@given(append_payloads)
def test_what_is_written_is_what_is_read(payload):
    assert decode_payload(*encode_payload(payload)) == payload


@given(append_payloads)
def test_the_json_form_is_json(payload):
    payload_type, value = encode_payload(payload)

    if payload_type is JSON:
        assert [event["seqNr"] for event in msgspec.json.decode(value)["events"]] == [
            event.seq_nr for event in payload.events
        ]


def test_the_examples_of_the_page_are_read_and_written_as_they_stand():
    page = PAGE.read_text()
    (json_example,) = re.findall(r"^json    (.*)$", page, re.MULTILINE)
    (binary_example,) = re.findall(r"^binary  (.*)$", page, re.MULTILINE)

    assert decode_payload(BINARY, hexadecimal(binary_example)).events == (
        Event(7, TextPayload("hi"), frozenset({"a"})),
        Event(8, BinaryPayload(b"\x00\xff")),
    )
    for payload_type, example in ((JSON, json_example.encode()), (BINARY, hexadecimal(binary_example))):
        assert encode_payload(decode_payload(payload_type, example)) == (payload_type, example)
