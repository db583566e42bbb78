"""Whatever a document holds, it comes back; whatever happens to its bytes, it is noticed."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import UNSET

from exactlog.core.deltalog.checkpoint_format import (
    Checkpoint,
    LeaderEpochEntry,
    OpenTransactionEntry,
    OriginEntry,
    ProducerBatchEntry,
    ProducerEntry,
    SegmentEntry,
    TxnIdEntry,
    decode_checkpoint,
    encode_checkpoint,
)
from exactlog.core.deltalog.commit_format import DeltaCommit, Operation, TableMetadata, decode_commit, encode_commit
from exactlog.core.deltalog.log_path import print_segment_file_name
from exactlog.core.deltalog.timestamps import TIMESTAMP_MS_MAX, format_timestamp, parse_timestamp
from exactlog.core.model.errors import DamageError
from tests.unit.core.deltalog.histories import seal, spell

counts = st.integers(0, 2**63 - 1)
crcs = st.integers(0, 2**32 - 1).map("{:08x}".format)
times = st.integers(0, TIMESTAMP_MS_MAX).map(format_timestamp)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def is_spelled_alike(document: object) -> bool:
    """Not so where a number has a fraction that two writers spell differently: the page says to use none."""
    return msgspec.json.encode(document) + b"\n" == spell(document)


def unknown_beside(struct: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    known = {*struct.__struct_encode_fields__, "crc"} - {"*unknown*"}
    keys = st.sampled_from(["note", "*unknown*", "\x1f", "x-é"]) | texts.filter(lambda key: key not in known)
    return st.just(UNSET) | st.dictionaries(keys, json_values, min_size=1, max_size=2)


def built(struct: type[msgspec.Struct], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(struct, **fields, unknown=unknown_beside(struct))


metadata = built(
    TableMetadata,
    topic=texts,
    partition=st.integers(0, 2**31 - 1),
    topic_id=st.uuids(),
    created=times,
    format_version=st.just(1),
    config=st.dictionaries(texts | st.just("*unknown*"), texts, max_size=3),
)
operations = built(
    Operation,
    type=st.sampled_from(["add", "remove"]),
    origin_id=counts,
    origin_seq=counts,
    offset_start=counts,
    offset_end=counts,
    segment=texts,
    position=counts,
    size=st.integers(1, 2**63 - 1),
    txn_id=st.just(UNSET) | texts,
    payload_crc=st.just(UNSET) | crcs,
)
commits = built(
    DeltaCommit,
    version=counts,
    timestamp=times,
    txn_id=texts,
    operations=st.lists(operations, max_size=3).map(tuple),
    checkpoint_hint=st.booleans(),
    end_offset=counts,
    last_stable_offset=counts,
    log_start_offset=counts,
    leader_epoch=st.integers(0, 2**31 - 1),
    data_crc=crcs,
    metadata=st.just(UNSET) | metadata,
    prev_crc=crcs,
)
timestamps = st.integers(-(2**63), 2**63 - 1)
producer_ids = st.integers(0, 2**63 - 1)
producer_epochs = st.integers(-1, 2**15 - 1)
producer_batches = built(
    ProducerBatchEntry,
    first_sequence=st.integers(-1, 2**31 - 1),
    last_sequence=st.integers(-1, 2**31 - 1),
    offset_start=counts,
    offset_end=counts,
    timestamp=timestamps,
)
producers = built(
    ProducerEntry,
    producer_id=producer_ids,
    producer_epoch=producer_epochs,
    coordinator_epoch=st.integers(-1, 2**31 - 1),
    last_timestamp=timestamps,
    batches=st.lists(producer_batches, max_size=5).map(tuple),
    txn_start_offset=st.none() | counts,
)
origins = built(
    OriginEntry,
    origin_id=counts,
    last_seq=counts,
    payload_crc=st.just(UNSET) | crcs,
    version=counts,
    offset_start=counts,
    offset_end=counts,
)
txn_ids = built(
    TxnIdEntry,
    txn_id=texts,
    payload_crc=st.just(UNSET) | crcs,
    version=counts,
    offset_start=counts,
    offset_end=counts,
)
open_transactions = built(
    OpenTransactionEntry, producer_id=producer_ids, producer_epoch=producer_epochs, first_offset=counts
)
leader_epochs = built(LeaderEpochEntry, epoch=st.integers(0, 2**31 - 1), start_offset=counts)


@st.composite
def checkpoints(draw) -> Checkpoint:
    offsets = sorted(draw(st.lists(st.integers(0, 2**62), min_size=1, max_size=4, unique=True)))
    segments = [
        draw(
            built(
                SegmentEntry,
                name=st.sampled_from([print_segment_file_name(base), print_segment_file_name(base, generation=3)]),
                base=st.just(base),
                next_offset=st.just(end),
                size=st.integers(1, 2**63 - 1),
                max_timestamp=timestamps,
                index_entries=counts,
                time_index_entries=counts,
            )
        )
        for base, end in pairwise(offsets)
    ]
    return draw(
        built(
            Checkpoint,
            version=counts,
            timestamp=times,
            last_offset=st.just(offsets[-1] - 1),
            segments=st.just(tuple(segments)),
            origins=st.lists(origins, max_size=2).map(tuple),
            next_offset=st.just(offsets[-1]),
            log_start_offset=st.integers(offsets[0], offsets[-1]),
            last_stable_offset=st.integers(0, offsets[-1]),
            leader_epoch=st.integers(0, 2**31 - 1),
            producers=st.lists(producers, max_size=2).map(tuple),
            open_transactions=st.lists(open_transactions, max_size=2).map(tuple),
            leader_epochs=st.lists(leader_epochs, max_size=2).map(tuple),
            txn_ids=st.lists(txn_ids, max_size=2).map(tuple),
            metadata=metadata,
            chain_crc=crcs,
        )
    )


@given(commits)
def test_a_commit_comes_back_as_it_was_written(commit):
    encoded = encode_commit(commit)

    decoded = decode_commit(encoded.document, path_hint="x")

    assert decoded.commit == commit
    assert decoded.chain_crc == encoded.chain_crc


@given(checkpoints())
def test_a_checkpoint_comes_back_as_it_was_written(checkpoint):
    assert decode_checkpoint(encode_checkpoint(checkpoint), path_hint="x") == checkpoint


@given(commits, st.sampled_from([None, 0, 2, "\t"]), st.booleans())
def test_spacing_and_the_order_of_known_keys_do_not_matter(commit, indent, is_sorted):
    encoded = encode_commit(commit)
    document = json.loads(encoded.document)
    assume(is_spelled_alike(document))
    if is_sorted and commit.unknown is UNSET:
        document = dict(sorted(document.items()))
    spelled = json.dumps(document, ensure_ascii=False, indent=indent) + "\n"

    assert decode_commit(spelled.encode(), path_hint="x").chain_crc == encoded.chain_crc


@given(commits, st.data())
def test_a_flipped_bit_is_damage(commit, data):
    document = bytearray(encode_commit(commit).document)
    bit = data.draw(st.integers(0, len(document) * 8 - 1))

    document[bit // 8] ^= 1 << bit % 8

    with pytest.raises(DamageError):
        decode_commit(bytes(document), path_hint="x")


@given(checkpoints(), st.data())
def test_a_flipped_bit_in_a_checkpoint_is_damage(checkpoint, data):
    document = bytearray(encode_checkpoint(checkpoint))
    bit = data.draw(st.integers(0, len(document) * 8 - 1))

    document[bit // 8] ^= 1 << bit % 8

    with pytest.raises(DamageError):
        decode_checkpoint(bytes(document), path_hint="x")


@given(commits, st.data())
def test_a_document_cut_short_is_damage(commit, data):
    document = encode_commit(commit).document
    size = data.draw(st.integers(0, len(document) - 1))

    with pytest.raises(DamageError):
        decode_commit(document[:size], path_hint="x")


@given(checkpoints(), st.data())
def test_a_checkpoint_cut_short_is_damage(checkpoint, data):
    document = encode_checkpoint(checkpoint)
    size = data.draw(st.integers(0, len(document) - 1))

    with pytest.raises(DamageError):
        decode_checkpoint(document[:size], path_hint="x")


@given(commits, json_values, json_values)
def test_an_unknown_key_counts(commit, value, other):
    encoded = encode_commit(msgspec.structs.replace(commit, unknown={"note": value}))
    document = json.loads(encoded.document)
    assume(is_spelled_alike(document) and value != other)

    document["note"] = other

    with pytest.raises(DamageError, match="crc"):
        decode_commit(spell(document), path_hint="x")
    assert encode_commit(msgspec.structs.replace(commit, unknown={"note": other})).chain_crc != encoded.chain_crc


@given(commits)
def test_a_document_is_spelled_as_the_standard_library_spells_it(commit):
    document = encode_commit(commit).document
    found = json.loads(document)
    assume(is_spelled_alike(found))
    unknown = {} if commit.unknown is UNSET else commit.unknown

    assert seal({key: value for key, value in found.items() if key not in unknown}, unknown=unknown) == document


@given(st.integers(0, TIMESTAMP_MS_MAX), st.integers(0, TIMESTAMP_MS_MAX))
def test_timestamps_come_back_and_their_texts_compare_as_they_do(first, second):
    assert parse_timestamp(format_timestamp(first)) == first
    assert (format_timestamp(first) < format_timestamp(second)) == (first < second)
