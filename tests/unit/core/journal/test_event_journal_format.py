"""Actions as records: the rules by which kafka-journal's readers know them, and what ours add."""

import re
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.journal.actions import ActionRecord, Append, Delete, Mark, PayloadType, Purge
from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.event_journal_format import (
    ACTION_HEADER,
    decode_action,
    decode_action_header,
    decode_row_metadata,
    encode_action,
    encode_action_header,
    encode_row_metadata,
)
from exactlog.core.journal.event_rows import payload_of, rows_of
from exactlog.core.journal.events import RecordMetadata
from exactlog.core.journal.expectation import ANY, EXISTS, NO_STREAM, Expectation
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.keys import JournalKey, Place, SeqRange
from exactlog.core.model.errors import DecodeError
from exactlog.core.model.ids import NO_TIMESTAMP, TopicPartition
from exactlog.core.record.record_format import Record
from tests.support.event_journals import append

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "event_journal_format.md"
KEY = JournalKey("orders", "order-7")
ORDERS = TopicPartition("orders", 3)
LIFE = UUID("00000000-0000-0000-0000-0000000000ff")
APPEND = Append(range=SeqRange(1, 3), payload_type=PayloadType.JSON, payload=b"{}")

HEADERS = [
    (APPEND, '{"append":{"range":{"from":1,"to":3},"payloadType":"json","metadata":{}}}'),
    (
        Append(
            range=SeqRange(4, 4),
            payload_type=PayloadType.BINARY,
            payload=b"{}",
            origin="host",
            version="1.2",
            header_data='{"by":"a"}',
            event_ids=("e1",),
            expect=Expectation(seq_nr=3),
        ),
        (
            '{"append":{"range":{"from":4,"to":4},"origin":"host","version":"1.2","payloadType":"binary",'
            '"metadata":{"data":{"by":"a"}},"eventIds":["e1"],"expect":{"seqNr":3}}}'
        ),
    ),
    (Mark(id="m"), '{"mark":{"id":"m"}}'),
    (Mark(id="m", origin="host", version="1.2"), '{"mark":{"id":"m","origin":"host","version":"1.2"}}'),
    (Delete(to=3), '{"delete":{"to":3}}'),
    (Delete(to=3, expect=EXISTS), '{"delete":{"to":3,"expect":{"exists":true}}}'),
    (Purge(), '{"purge":{}}'),
    (
        Purge(origin="host", expect=Expectation(exists=True, seq_nr=9, record_id=LIFE)),
        f'{{"purge":{{"origin":"host","expect":{{"exists":true,"seqNr":9,"recordId":"{LIFE}"}}}}}}',
    ),
    (Purge(expect=NO_STREAM), '{"purge":{"expect":{"exists":false}}}'),
]


def a_record(header, *, key=b"order-7", value=b"{}", timestamp_ms=7, more=(), before=()):
    headers = (*before, *(() if header is None else ((ACTION_HEADER, header),)), *more)
    return Record(12, timestamp_ms, key, value, tuple(headers))


# --- the header -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("action", "header"), HEADERS)
def test_the_header_of_an_action_is_this_json(action, header):
    assert encode_action_header(action).decode() == header
    assert decode_action_header(header.encode(), payload=b"{}") == action


def test_older_appends_have_no_metadata_and_null_is_nothing():
    older = b'{"append":{"range":{"from":1,"to":3},"payloadType":"json"}}'
    nulls = b'{"append":{"range":{"from":1,"to":3},"payloadType":"json","metadata":{"data":null},"origin":null}}'

    assert decode_action_header(older, payload=b"{}") == APPEND
    assert decode_action_header(nulls, payload=b"{}") == APPEND


def test_what_a_header_has_besides_is_passed_over():
    assert decode_action_header(b'{"mark":{"id":"m","new":[1]},"more":{}}', payload=None) == Mark(id="m")


def test_of_several_actions_the_first_of_append_mark_delete_purge_counts():
    names = {
        "append": '{"range":{"from":1,"to":3},"payloadType":"json"}',
        "mark": '{"id":"m"}',
        "delete": '{"to":1}',
        "purge": "{}",
    }
    kinds = [Append, Mark, Delete, Purge]
    for number, kind in enumerate(kinds):
        fields = [f'"{name}":{body}' for name, body in reversed(list(names.items())[number:])]

        assert isinstance(decode_action_header(f"{{{','.join(fields)}}}".encode(), payload=b"{}"), kind)


@pytest.mark.parametrize("header", [b"{}", b'{"tick":{"id":"m"}}', b'{"append":null}'])
def test_an_action_of_a_kind_that_is_not_known_is_none(header):
    assert decode_action_header(header, payload=b"{}") is None


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"append",
        b"[]",
        b"null",
        b"\xff",
        b'{"append":{}}',
        b'{"append":{"range":{"from":3,"to":1},"payloadType":"json"}}',
        b'{"append":{"range":{"from":0,"to":1},"payloadType":"json"}}',
        b'{"append":{"range":{"from":1,"to":9223372036854775808},"payloadType":"json"}}',
        b'{"append":{"range":{"from":1,"to":1},"payloadType":"xml"}}',
        b'{"append":{"range":{"from":1,"to":1},"payloadType":"json","expect":{"moon":"full"}}}',
        b'{"mark":{}}',
        b'{"delete":{"to":0}}',
        b'{"delete":{"to":"1"}}',
        b'{"delete":3}',
        b'{"purge":{"expect":{"recordId":"x"}}}',
    ],
)
def test_a_header_that_is_there_and_makes_no_sense_is_an_error(header):
    with pytest.raises(DecodeError):
        decode_action_header(header, payload=b"{}")


# --- records ----------------------------------------------------------------------------------------------------------


def test_a_record_is_keyed_by_the_id_and_carries_its_action_first():
    action = Append(
        range=SeqRange(1, 1), payload_type=PayloadType.JSON, payload=b"events", headers={"trace": "é", "b": ""}
    )

    written = encode_action(KEY, action, timestamp_ms=7)

    assert (written.key, written.value, written.timestamp_ms) == (b"order-7", b"events", 7)
    assert [name for name, _ in written.headers] == [ACTION_HEADER, "trace", "b"]
    read = decode_action(ORDERS, Record(12, 7, written.key, written.value, written.headers))
    assert read == ActionRecord(KEY, Place(3, 12), 7, action)


@pytest.mark.parametrize("action", [Mark(id="m"), Delete(to=3), Purge()])
def test_only_an_append_has_a_value(action):
    written = encode_action(KEY, action, timestamp_ms=7)

    assert (written.value, len(written.headers)) == (None, 1)


@pytest.mark.parametrize(
    "record",
    [
        a_record(HEADERS[0][1].encode(), key=None),
        a_record(HEADERS[0][1].encode(), timestamp_ms=NO_TIMESTAMP),
        a_record(None, more=(("other", b"{}"),)),
        a_record(b'{"tick":{}}'),
        a_record(HEADERS[0][1].encode(), value=None),
    ],
    ids=["no key", "no timestamp", "no action header", "unknown action", "append without a value"],
)
def test_a_record_that_is_no_action_is_nothing_to_a_journal(record):
    assert decode_action(ORDERS, record) is None


def test_a_record_that_cannot_be_read_is_named_by_its_place():
    with pytest.raises(DecodeError, match=r"orders-3 offset 12: journal\.action is not an action") as told:
        decode_action(ORDERS, a_record(b"{"))
    assert told.value.hint

    with pytest.raises(DecodeError, match="orders-3 offset 12"):
        decode_action(ORDERS, a_record(HEADERS[2][1].encode(), key=b"\xff"))


def test_the_headers_of_a_writer_are_text_whatever_bytes_they_are():
    record = a_record(HEADERS[0][1].encode(), before=(("first", b"1"),), more=(("blob", b"\xff"), ("null", None)))

    assert decode_action(ORDERS, record).action.headers == {"first": "1", "blob": "�", "null": ""}


def test_metadata_that_is_no_json_is_refused_before_anything_is_written():
    action = Append(range=SeqRange(1, 1), payload_type=PayloadType.JSON, payload=b"", header_data="{")

    with pytest.raises(JournalInputError):
        encode_action(KEY, action, timestamp_ms=7)


# --- rows -------------------------------------------------------------------------------------------------------------


def test_the_rows_of_an_append_say_what_it_says():
    record = append(12, 4, 5, event_ids=("e4", "e5"), origin="host", expire_after=ExpireAfter.of_ms(1))

    rows = rows_of(record)

    assert [(row.seq_nr, row.event_id, row.event.payload.content) for row in rows] == [
        (4, "e4", "4@12"),
        (5, "e5", "5@12"),
    ]
    assert {(row.place, row.origin, row.metadata.expire_after) for row in rows} == {
        (Place(0, 12), "host", ExpireAfter.of_ms(1))
    }


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (append(12, None, numbers=(1, 2)), None),
        (append(12, None, numbers=(1, 3, 7)), None),
        (append(12, None, numbers=(3, 2, 4)), "do not grow"),
        (append(12, None, numbers=(1, 1, 2)), "do not grow"),
        (append(12, 1, 2, event_ids=("a",)), "2 events have 1 ids"),
    ],
)
def test_the_events_of_an_append_have_growing_numbers(record, what):
    if what is None:
        assert len(payload_of(record).events) == len(rows_of(record))
    else:
        with pytest.raises(DecodeError, match=f"orders-0 offset 12, journal order-7: .*{what}"):
            rows_of(record)


def test_events_that_are_not_those_of_the_header_are_refused():
    honest = append(12, 1, 3)
    lying = Append(range=SeqRange(1, 4), payload_type=honest.action.payload_type, payload=honest.action.payload)

    with pytest.raises(DecodeError, match="says events 1 to 4, there are from 1 to 3"):
        rows_of(ActionRecord(KEY, Place(0, 12), 7, lying))


# --- the metadata column ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "column"),
    [
        (RecordMetadata(), '{"header":{},"payload":{}}'),
        (RecordMetadata('{"a":1}'), '{"header":{"data":{"a":1}},"payload":{}}'),
        (
            RecordMetadata("1", "[2]", ExpireAfter.of_ms(60_000)),
            '{"header":{"data":1},"payload":{"expireAfter":"1 minute","data":[2]}}',
        ),
    ],
)
def test_the_metadata_column_holds_both_parts(metadata, column):
    assert encode_row_metadata(metadata) == column
    assert decode_row_metadata(column) == metadata


def test_older_rows_hold_the_metadata_of_the_header_alone():
    assert decode_row_metadata('{"data":{"a":1}}') == RecordMetadata('{"a":1}')
    assert decode_row_metadata("{}") == decode_row_metadata("") == decode_row_metadata(None) == RecordMetadata()


def test_a_metadata_column_that_makes_no_sense_is_an_error():
    for column in ("{", '{"payload":{"expireAfter":"soon"}}', '{"header":3}'):
        with pytest.raises(DecodeError):
            decode_row_metadata(column)


# --- any action, and the page -----------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
expectations = st.builds(
    Expectation,
    exists=st.none() | st.booleans(),
    seq_nr=st.none() | st.integers(1, 2**63 - 1),
    record_id=st.none() | st.uuids(),
)
who = {"origin": st.none() | texts, "version": st.none() | texts}
any_action = st.one_of(
    st.builds(
        Append,
        range=st.lists(st.integers(1, 2**63 - 1), min_size=2, max_size=2).map(sorted).map(lambda pair: SeqRange(*pair)),
        payload_type=st.sampled_from(PayloadType),
        payload=st.binary(max_size=8),
        header_data=st.none() | st.sampled_from(['{"a":[1.50,null]}', "0", '""']),
        headers=st.dictionaries(texts.filter(lambda name: name != ACTION_HEADER), texts, max_size=2),
        event_ids=st.lists(texts, max_size=2).map(tuple),
        expect=expectations,
        **who,
    ),
    st.builds(Mark, id=texts, **who),
    st.builds(Delete, to=st.integers(1, 2**63 - 1), expect=expectations, **who),
    st.builds(Purge, expect=expectations, **who),
)


@given(any_action, texts)
def test_what_is_written_is_what_is_read(action, key_id):
    key = JournalKey("orders", key_id)
    written = encode_action(key, action, timestamp_ms=7)

    read = decode_action(ORDERS, Record(12, 7, written.key, written.value, tuple(written.headers)))

    assert read == ActionRecord(key, Place(3, 12), 7, action)
    assert (b'"expect"' in dict(written.headers)[ACTION_HEADER]) >= (getattr(action, "expect", ANY) != ANY)


@given(st.binary(max_size=40))
def test_no_header_does_anything_but_be_read_or_be_refused(header):
    with suppress(DecodeError):
        decode_action_header(header, payload=b"{}")


def test_the_examples_of_the_page_are_read_and_written_as_they_stand():
    examples = re.findall(r"^journal\.action  (\{.*\})$", PAGE.read_text(), re.MULTILINE)

    assert len(examples) == 5
    for example in examples:
        assert encode_action_header(decode_action_header(example.encode(), payload=b"{}")).decode() == example
