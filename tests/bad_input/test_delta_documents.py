"""Damaged, forged and half-written documents of the delta log: each is refused, and the refusal says which and why."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from exactlog.core.deltalog.checkpoint_format import decode_checkpoint, encode_checkpoint
from exactlog.core.deltalog.commit_format import decode_commit, encode_commit
from exactlog.core.model.errors import DamageError
from tests.unit.core.deltalog.histories import METADATA, History, details_of, history_of, replayed, seal, spell

COMMIT_PATH = "topic=orders-part=0/_delta_log/00000000000000000001.json"
CHECKPOINT_PATH = "topic=orders-part=0/_delta_log/00000000000000000001.checkpoint.json"


def a_history() -> History:
    history = history_of(versions=0)
    history.commit(history.add(txn_id="payment-93", payload_crc="9090a0ae"), metadata=METADATA)
    return history


def a_commit() -> bytes:
    return a_history().documents[1]


def a_checkpoint() -> bytes:
    snapshot = replayed(a_history().commits).freeze()
    return encode_checkpoint(snapshot.to_checkpoint(segment_details=details_of(snapshot)))


def refuse_commit(document: bytes) -> str:
    return _refuse(decode_commit, document, COMMIT_PATH)


def refuse_checkpoint(document: bytes) -> str:
    return _refuse(decode_checkpoint, document, CHECKPOINT_PATH)


def _refuse(decode: Callable[..., Any], document: bytes, path: str) -> str:
    with pytest.raises(DamageError) as damage:
        decode(document, path_hint=path)
    assert str(damage.value).startswith(f"{path}: ")
    return str(damage.value).removeprefix(f"{path}: ")


both = pytest.mark.parametrize(
    ("refuse", "document"),
    [(refuse_commit, a_commit()), (refuse_checkpoint, a_checkpoint())],
    ids=["commit", "checkpoint"],
)


@both
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"\n", "not a JSON document"),
        (b" \n\n", "not a JSON document"),
        (b"\0" * 484, "not a JSON document"),  # what a file is after a crash that lost its content, not its size
        (b"{", "not a JSON document"),
        (b"{}\n", "no crc"),
        (b"[]\n", "not a JSON object"),
        (b"null\n", "not a JSON object"),
        (b'"crc"\n', "not a JSON object"),
        (b"11\n", "not a JSON object"),
        (b"\xff\xfe{\0}\0", "not a JSON document"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b'{"crc":' * 100_000, "nested too deeply"),
        (b'{"crc":"00000000"}\n', "missing required field"),
    ],
)
def test_what_is_no_document_is_refused(refuse, document, content, reason):
    assert reason in refuse(content)


@both
def test_every_way_to_cut_a_document_short_is_noticed(refuse, document):
    for size in range(len(document)):
        assert refuse(document[:size])


@both
def test_every_single_flipped_bit_is_noticed(refuse, document):
    for position in range(len(document)):
        for bit in range(8):
            damaged = bytearray(document)
            damaged[position] ^= 1 << bit
            assert refuse(bytes(damaged))


@both
def test_a_document_without_its_newline_is_cut_short(refuse, document):
    assert "cut short" in refuse(document[:-1])


@both
def test_anything_behind_the_document_is_refused(refuse, document):
    assert "not a JSON document" in refuse(document + b"{}")
    assert "not a JSON document" in refuse(document + document)
    assert "not a JSON document" in refuse(document + b"\0")


@both
def test_a_byte_order_mark_is_refused(refuse, document):
    assert "not a JSON document" in refuse(b"\xef\xbb\xbf" + document)


@both
def test_text_that_is_not_utf_8_is_refused(refuse, document):
    assert "not a JSON document" in refuse(document.replace(b"payment-93", b"payment-\xff3"))


@both
@pytest.mark.parametrize("crc", ["00000000", "", "0", 0, None, True, [], "ABCDEF00", "0x12345678"])
def test_a_crc_of_something_else_is_refused_with_both_named(refuse, document, crc):
    found = json.loads(document)
    right = found["crc"]

    assert refuse(spell(found | {"crc": crc})) == f"the document says crc {crc!r}, its content has {right!r}"


@both
def test_a_crc_in_upper_case_is_refused(refuse, document):
    found = json.loads(document)
    number = 0
    while found["crc"].upper() == found["crc"]:  # until it has a letter
        number += 1
        found = json.loads(seal(found, unknown={"note": number}))

    assert "its content has" in refuse(spell(found | {"crc": found["crc"].upper()}))


@both
def test_a_key_that_stands_twice_is_refused(refuse, document):
    assert "stands twice" in refuse(document.replace(b'{"version":1,', b'{"version":0,"version":1,', 1))
    assert "stands twice" in refuse(document.replace(b'{"version":1,', b'{"version":1,"version":1,', 1))


@both
def test_a_value_spelled_another_way_is_refused(refuse, document):
    assert "not spelled as" in refuse(document.replace(b'"payment-93"', b'"\\u0070ayment-93"', 1))
    assert "not spelled as" in refuse(document.replace(b'"offset_start":0', b'"offset_start":-0', 1))


@both
def test_every_key_is_required(refuse, document):
    found = json.loads(document)
    optional = {"metadata"} if refuse is refuse_commit else set()

    for key in found.keys() - {"crc"} - optional:
        rest = {name: value for name, value in found.items() if name != key}
        assert f"missing required field `{key}`" in refuse(seal(rest))


def wrong_values(value: object) -> list[object]:
    """Values of other types than this one, and of its own where the range ends."""
    others = {"bool": True, "int": 1, "float": 1.5, "str": "x", "null": None, "list": [1], "dict": {"x": 1}}
    if isinstance(value, bool):
        return [others[name] for name in others if name != "bool"] + [0]
    if isinstance(value, int):
        return [others[name] for name in others if name != "int"] + [-(2**63) - 1, 2**63, 2**80, 1.0, "1"]
    if isinstance(value, str):
        return [others[name] for name in others if name != "str"]
    if isinstance(value, list):
        return [others[name] for name in others if name != "list"] + [[1], [None], [[]], {}]
    return [others[name] for name in others if name != "dict"] + [{}, []]


@both
def test_every_value_of_a_wrong_type_or_out_of_range_is_refused_at_its_place(refuse, document):
    found = json.loads(document)
    for key, value in found.items():
        if key == "crc":
            continue
        for wrong in wrong_values(value):
            message = refuse(seal(found | {key: wrong}))
            assert f"$.{key}" in message, (key, wrong, message)


@pytest.mark.parametrize("key", list(json.loads(a_commit())["operations"][0]))
def test_every_value_of_an_operation_is_checked(key):
    found = json.loads(a_commit())
    operation = found["operations"][0]

    for wrong in wrong_values(operation[key]):
        message = refuse_commit(seal(found | {"operations": [operation | {key: wrong}]}))
        assert f"$.operations[0].{key}" in message or f"`{key}`" in message, (wrong, message)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("operations", 0, "type"), "update"),
        (("operations", 0, "size"), 0),
        (("operations", 0, "offset_start"), -1),
        (("operations", 0, "payload_crc"), "9090A0AE"),
        (("operations", 0, "payload_crc"), "9090a0ae\n"),
        (("metadata", "topic_id"), "not a uuid"),
        (("metadata", "config"), {"retention.ms": 1}),
        (("metadata", "format_version"), 0),
        (("metadata", "partition"), -1),
        (("prev_crc",), "123"),
        (("data_crc",), "0000000g"),
        (("leader_epoch",), -1),
        (("leader_epoch",), 2**31),
    ],
)
def test_a_value_that_no_writer_would_write_is_refused(path, value):
    found = json.loads(a_commit())
    place: Any = found
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value

    assert f"- at `$.{path[0]}" in refuse_commit(seal(found))


@pytest.mark.parametrize(
    "timestamp", ["", "2025-11-07", "2025-11-07T18:15:02Z", "2025-02-30T00:00:00.000Z", "2025-11-07T18:15:02.883+00:00"]
)
def test_a_timestamp_that_is_none_is_refused(timestamp):
    found = json.loads(a_commit())

    assert "is not a timestamp" in refuse_commit(seal(found | {"timestamp": timestamp}))
    assert "is not a timestamp" in refuse_commit(seal(found | {"metadata": found["metadata"] | {"created": timestamp}}))


def test_a_commit_under_another_versions_name_is_refused():
    with pytest.raises(DamageError, match=r"00000000000000000002\.json: the document is of version 1, its name says 2"):
        decode_commit(a_commit(), path_hint="_delta_log/00000000000000000002.json")


def test_a_checkpoint_is_no_commit_and_a_commit_no_checkpoint():
    assert "missing required field" in refuse_commit(a_checkpoint())
    assert "missing required field" in refuse_checkpoint(a_commit())


def test_a_commit_with_no_operations_where_it_needs_some_stops_the_replay():
    """Elsewhere a version without actions opens as if nothing had happened."""
    history = a_history()
    empty = decode_commit(encode_commit(history.build()).document, path_hint="_delta_log/00000000000000000002.json")

    with pytest.raises(DamageError, match="delta version 2 does not follow: it has no operations and changes nothing"):
        replayed([*history.commits, empty])
