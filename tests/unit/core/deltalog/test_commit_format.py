import json

import msgspec
import pytest
from msgspec import UNSET

from exactlog.core.deltalog.canonical_json import print_crc
from exactlog.core.deltalog.commit_format import (
    DecodedCommit,
    DeltaCommit,
    Operation,
    TableMetadata,
    decode_commit,
    encode_commit,
    print_round_txn_id,
)
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.model.errors import DamageError
from tests.unit.core.deltalog.histories import History, page_blocks, page_keys, seal

PATH = "topic=orders-part=0/_delta_log/00000000000000000001.json"


def a_commit(**changes) -> DeltaCommit:
    history = History()
    history.commit()
    operation = history.add(records=8, size=384, origin_id=7001, txn_id="payment-93", payload_crc="9090a0ae")
    return history.build(operation, **changes)


def page_functions() -> dict:
    """The functions that the page gives to compute the checksums."""
    (program,) = page_blocks("commit_format.md", "python")
    functions: dict = {}
    exec(program, functions)
    return functions


def as_dict(commit: DeltaCommit) -> dict:
    return json.loads(encode_commit(commit).document)


def test_a_document_is_one_line_without_spaces():
    assert encode_commit(a_commit()).document == (
        b'{"version":1,"timestamp":"2025-11-07T18:15:02.883Z","txn_id":"broker-1:1762539302883:1",'
        b'"operations":[{"type":"add","origin_id":7001,"origin_seq":1,"offset_start":0,"offset_end":7,'
        b'"segment":"00000000000000000000.log","position":0,"size":384,"txn_id":"payment-93",'
        b'"payload_crc":"9090a0ae"}],"checkpoint_hint":false,"end_offset":8,"last_stable_offset":8,'
        b'"log_start_offset":0,"leader_epoch":0,"data_crc":"00000000","prev_crc":"d6b78179","crc":"4fa78d16"}\n'
    )


@pytest.mark.parametrize(
    ("heading", "struct", "of_the_bytes"),
    [
        ("## Document", DeltaCommit, ["crc"]),
        ("### `operations[]`", Operation, []),
        ("### `metadata`", TableMetadata, []),
    ],
)
def test_the_page_lists_every_key_in_order(heading, struct, of_the_bytes):
    keys = [name for name in struct.__struct_encode_fields__ if name != "*unknown*"]

    assert page_keys("commit_format.md", heading) == keys + of_the_bytes


def test_the_page_computes_both_checksums_of_its_examples_without_this_package():
    functions = page_functions()
    version_0, version_1 = (json.loads(block) for block in page_blocks("commit_format.md", "json"))

    assert functions["document_crc"](version_0) == version_0["crc"]
    assert functions["document_crc"](version_1) == version_1["crc"]
    assert functions["chain_crc"](version_0) == version_1["prev_crc"]
    assert decode_commit(seal(version_1), path_hint=PATH).chain_crc == functions["chain_crc"](version_1)


def test_the_examples_of_the_page_can_be_replayed_as_they_stand():
    state = TableState(table="orders-0")

    for version, block in enumerate(page_blocks("commit_format.md", "json")):
        state.replay(decode_commit(block.encode(), path_hint=f"{version:020d}.json"))

    assert (state.version, state.next_offset, state.segments[0].size) == (1, 10, 526)


@pytest.mark.parametrize("indent", [None, 0, 1, 4, "\t"])
def test_a_document_with_other_spacing_is_as_good(indent):
    commit = a_commit()
    spaced = json.dumps(as_dict(commit), indent=indent, separators=(" , ", " : ")) + "\n"

    assert decode_commit(spaced.encode(), path_hint=PATH) == decode_commit(
        encode_commit(commit).document, path_hint=PATH
    )


def test_a_document_with_its_known_keys_in_another_order_is_as_good():
    commit = a_commit()
    shuffled = json.dumps(as_dict(commit), sort_keys=True) + "\n"

    assert decode_commit(shuffled.encode(), path_hint=PATH).commit == commit


def test_a_text_is_counted_as_the_standard_library_spells_it():
    text = "".join(map(chr, range(0x20, 0x100))) + '\0\x01\b\t\n\x0b\f\r\x1f\u2028\ufeff\U0001f600"\\/'
    document = as_dict(a_commit(txn_id=text))

    assert document["txn_id"] == text
    assert seal(document) == encode_commit(a_commit(txn_id=text)).document


def test_unknown_keys_of_every_object_survive_in_their_order_and_count():
    history = History()
    document = json.loads(encode_commit(history.build(history.add())).document)
    document["operations"][0] |= {"zeta": [1, {"b": None, "a": 1.5}], "alpha": "x"}
    document["metadata"] |= {"owner": {"team": "sales"}}
    written = seal(document, unknown={"later": True, "*unknown*": {"even": "this"}, "and": []})

    decoded = decode_commit(written, path_hint="00000000000000000000.json")

    assert decoded.commit.operations[0].unknown == {"zeta": [1, {"b": None, "a": 1.5}], "alpha": "x"}
    assert decoded.commit.unknown == {"later": True, "*unknown*": {"even": "this"}, "and": []}
    assert encode_commit(decoded.commit).document == written
    assert encode_commit(decoded.commit).chain_crc == decoded.chain_crc
    assert decoded.chain_crc == page_functions()["chain_crc"](json.loads(written))


def test_a_setting_may_be_called_as_a_key_of_ours():
    history = History()
    metadata = msgspec.structs.replace(history.build().metadata, config={"*unknown*": "a", "crc": "b"})
    commit = history.build(metadata=metadata)

    document = encode_commit(commit).document

    assert document == seal(json.loads(document))
    assert decode_commit(document, path_hint="00000000000000000000.json").commit == commit


def test_where_the_bytes_lie_and_whether_a_checkpoint_is_due_are_not_in_the_chain():
    commit = a_commit()
    operation = msgspec.structs.replace(commit.operations[0], segment="00000000000000000400.log", position=77)

    other = msgspec.structs.replace(commit, checkpoint_hint=True, operations=(operation,))

    assert encode_commit(other).chain_crc == encode_commit(commit).chain_crc
    assert encode_commit(other).document != encode_commit(commit).document


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"timestamp": "2025-11-07T18:15:02.884Z"},
        {"txn_id": "broker-2:1:1"},
        {"end_offset": 9},
        {"last_stable_offset": 7},
        {"log_start_offset": 1},
        {"leader_epoch": 1},
        {"data_crc": "00000001"},
        {"prev_crc": "00000001"},
        {"unknown": {"x": 1}},
        {"operations": ()},
    ],
)
def test_every_logical_field_is_in_the_chain(changes):
    assert encode_commit(a_commit(**changes)).chain_crc != encode_commit(a_commit()).chain_crc


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "remove"},
        {"origin_id": 1},
        {"origin_seq": 2},
        {"offset_start": 1},
        {"offset_end": 8},
        {"size": 385},
        {"txn_id": UNSET},
        {"payload_crc": "9090a0af"},
        {"unknown": {"x": 1}},
    ],
)
def test_every_logical_field_of_an_operation_is_in_the_chain(changes):
    commit = a_commit()
    operation = msgspec.structs.replace(commit.operations[0], **changes)

    other = msgspec.structs.replace(commit, operations=(operation,))

    assert encode_commit(other).chain_crc != encode_commit(commit).chain_crc


def test_a_document_read_from_elsewhere_than_its_own_file_is_known_by_its_content_alone():
    commit = a_commit()
    document = encode_commit(commit).document

    for path_hint in ("00000000000000000000.00000000000000000009.compacted.json", "standard input", ""):
        assert decode_commit(document, path_hint=path_hint) == DecodedCommit(commit, encode_commit(commit).chain_crc)


def test_a_directory_in_a_newer_format_is_refused_by_name():
    metadata = msgspec.structs.replace(History().build().metadata, format_version=2)
    document = encode_commit(History().build(metadata=metadata)).document

    with pytest.raises(DamageError, match="format version 2, this exactlog reads versions up to 1") as refused:
        decode_commit(document, path_hint="00000000000000000000.json")

    assert "newer exactlog" in refused.value.hint


def test_the_id_of_a_round_says_who_when_and_which():
    assert print_round_txn_id(node_id=1, now_ms=1730993702883, sequence=42) == "broker-1:1730993702883:42"


def test_a_crc_has_eight_digits_however_small():
    assert print_crc(0) == "00000000"
    assert print_crc(0xABCDEF) == "00abcdef"
