import json

import msgspec
import pytest

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
from exactlog.core.deltalog.commit_format import TableMetadata, decode_commit
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.model.errors import DamageError
from tests.unit.core.deltalog.histories import FIRST_MS, History, details_of, page_blocks, page_keys, replayed, seal

PRODUCER = ProducerEntry(
    producer_id=1000,
    producer_epoch=3,
    coordinator_epoch=-1,
    last_timestamp=FIRST_MS,
    batches=(ProducerBatchEntry(first_sequence=0, last_sequence=2, offset_start=0, offset_end=2, timestamp=FIRST_MS),),
    txn_start_offset=0,
)
OPEN_TRANSACTION = OpenTransactionEntry(producer_id=1000, producer_epoch=3, first_offset=0)


def a_checkpoint() -> Checkpoint:
    history = History()
    history.commit()
    history.commit(history.add(records=3), history.add(origin_id=7001, txn_id="a", payload_crc="9090a0ae"))
    history.commit(history.add(records=2, new_segment=True))
    snapshot = replayed(history.commits).freeze()
    return snapshot.to_checkpoint(
        segment_details=details_of(snapshot), producers=[PRODUCER], open_transactions=[OPEN_TRANSACTION]
    )


PATH = "topic=orders-part=0/_delta_log/00000000000000000002.checkpoint.json"


def test_a_checkpoint_reads_back_as_it_was_written():
    checkpoint = a_checkpoint()

    document = encode_checkpoint(checkpoint)

    assert decode_checkpoint(document, path_hint=PATH) == checkpoint
    assert document == seal(json.loads(document))


def test_the_last_offset_is_inclusive_and_below_the_first_record_before_there_is_one():
    history = History()
    history.commit()

    empty = replayed(history.commits).freeze().to_checkpoint(segment_details={})

    assert (empty.last_offset, empty.next_offset) == (-1, 0)
    assert (a_checkpoint().last_offset, a_checkpoint().next_offset) == (5, 6)
    assert decode_checkpoint(encode_checkpoint(empty), path_hint="x") == empty


@pytest.mark.parametrize(
    ("heading", "struct", "of_the_bytes"),
    [
        ("## Document", Checkpoint, ["crc"]),
        ("### `segments[]`", SegmentEntry, []),
        ("### `origins[]`", OriginEntry, []),
        ("### `producers[]`", ProducerEntry, []),
    ],
)
def test_the_page_lists_every_key_in_order(heading, struct, of_the_bytes):
    keys = [name for name in struct.__struct_encode_fields__ if name != "*unknown*"]

    assert page_keys("checkpoint_format.md", heading) == keys + of_the_bytes


@pytest.mark.parametrize(
    ("struct", "keys"),
    [
        (OpenTransactionEntry, ["producer_id", "producer_epoch", "first_offset"]),
        (LeaderEpochEntry, ["epoch", "start_offset"]),
        (TxnIdEntry, ["txn_id", "payload_crc", "version", "offset_start", "offset_end"]),
        (ProducerBatchEntry, ["first_sequence", "last_sequence", "offset_start", "offset_end", "timestamp"]),
        (TableMetadata, page_keys("commit_format.md", "### `metadata`")),
    ],
)
def test_smaller_entries_have_the_keys_of_the_page(struct, keys):
    assert [name for name in struct.__struct_encode_fields__ if name != "*unknown*"] == keys


def test_the_example_of_the_page_is_the_table_after_the_example_commits():
    (block,) = page_blocks("checkpoint_format.md", "json")
    commits = [decode_commit(text.encode(), path_hint="page") for text in page_blocks("commit_format.md", "json")]

    checkpoint = decode_checkpoint(block.encode(), path_hint="00000000000000000001.checkpoint.json")

    assert TableState.from_checkpoint(checkpoint, table="orders-0").freeze() == replayed(commits).freeze()
    assert seal(json.loads(block)) == encode_checkpoint(checkpoint)


def test_unknown_keys_are_kept_at_every_level():
    document = json.loads(encode_checkpoint(a_checkpoint()))
    document["segments"][1]["codec"] = "zstd"
    document["producers"][0]["batches"][0]["x"] = [1]
    document["metadata"]["owner"] = None
    written = seal(document, unknown={"later": 1})

    checkpoint = decode_checkpoint(written, path_hint=PATH)

    assert checkpoint.unknown == {"later": 1}
    assert checkpoint.producers[0].batches[0].unknown == {"x": [1]}
    assert encode_checkpoint(checkpoint) == written


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"last_offset": 6}, "last_offset 6 is not one below next_offset 6"),
        ({"log_start_offset": 7}, "lies above next_offset 6"),
        ({"last_stable_offset": 7}, "lies above next_offset 6"),
        ({"segments": ()}, "log_start_offset 0 lies below the first segment, 6"),
        ({"next_offset": 7, "last_offset": 6}, "the segments end at 6, the table at 7"),
        ({"timestamp": "yesterday"}, "is not a timestamp"),
    ],
)
def test_a_checkpoint_that_contradicts_itself_is_damage(changes, reason):
    document = encode_checkpoint(msgspec.structs.replace(a_checkpoint(), **changes))

    with pytest.raises(DamageError, match=reason) as damage:
        decode_checkpoint(document, path_hint=PATH)

    assert PATH in str(damage.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "00000000000000000003.log"}, "is not the name of one with base 4"),
        ({"name": "00000000000000000004.index"}, "is not the name of one with base 4"),
        ({"name": "4.log"}, "is not the name of one with base 4"),
        ({"name": "00000000000000000005.log", "base": 5}, "does not begin at 4, or is empty"),
        ({"name": "00000000000000000003.log", "base": 3}, "does not begin at 4, or is empty"),
        ({"next_offset": 4}, "does not begin at 4, or is empty"),
    ],
)
def test_segments_that_do_not_follow_each_other_are_damage(changes, reason):
    checkpoint = a_checkpoint()
    first, second = checkpoint.segments
    document = encode_checkpoint(
        msgspec.structs.replace(checkpoint, segments=(first, msgspec.structs.replace(second, **changes)))
    )

    with pytest.raises(DamageError, match=reason):
        decode_checkpoint(document, path_hint=PATH)


def test_a_checkpoint_under_another_versions_name_is_damage():
    document = encode_checkpoint(a_checkpoint())

    with pytest.raises(DamageError, match="is of version 2, its name of 10"):
        decode_checkpoint(document, path_hint="00000000000000000010.checkpoint.json")
