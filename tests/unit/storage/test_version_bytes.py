"""Bytes of segments, batch by batch: what is committed must be there, what is behind it may be adopted."""

import pytest
from crc32c import crc32c

from exactlog.core.deltalog.canonical_json import print_crc
from exactlog.core.deltalog.checkpoint_format import SegmentEntry
from exactlog.core.deltalog.commit_format import DeltaCommit, Operation
from exactlog.core.model.errors import DecodeError
from exactlog.core.record.batch_format import BATCH_OVERHEAD, decode_header, place
from exactlog.storage.filesystem import MemoryFilesystem
from exactlog.storage.open_files import OpenFiles
from exactlog.storage.segment import SegmentFiles
from exactlog.storage.version_bytes import (
    UnusableBytesError,
    check_added_bytes,
    find_torn_batch,
    find_valid_tail,
    walk_batches,
)
from tests.support.counting_filesystem import CountingFilesystem
from tests.support.partitions import batch_of

DIRECTORY = "/orders"
SEGMENT = f"{0:020d}.log"
PATH = f"{DIRECTORY}/{SEGMENT}"


def placed(*batches, offset=0, leader_epoch=0):
    """Batches as they stand in a segment, one record each."""
    for number, batch in enumerate(batches):
        place(batch, decode_header(batch), base_offset=offset + number, leader_epoch=leader_epoch)
    return list(map(bytes, batches))


def file_of(content, filesystem=None):
    filesystem = filesystem or MemoryFilesystem()
    filesystem.make_directories(DIRECTORY)
    file = filesystem.open(PATH, create=True)
    file.write_at([content], 0)
    return file


def walked(file, start, end):
    return [
        (found.position, found.header.base_offset, bytes(found.content)) for found in walk_batches(file, start, end)
    ]


# --- walking -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[10], [10, 20, 30], [600_000] * 5, [3_000_000, 10, 3_000_000], [1_048_515, 10]])
def test_every_batch_comes_with_its_place_and_its_bytes(sizes):
    batches = placed(*(batch_of(bytes(size)) for size in sizes))
    file = file_of(b"".join(batches))

    found = walked(file, 0, file.size())

    assert [content for _, _, content in found] == batches
    assert [position for position, _, _ in found] == [sum(map(len, batches[:number])) for number in range(len(batches))]
    assert [offset for _, offset, _ in found] == list(range(len(batches)))


def test_no_more_is_read_at_once_than_a_window_or_a_batch():
    batches = placed(*(batch_of(bytes(100_000)) for _ in range(50)), batch_of(bytes(2_000_000)))
    filesystem = CountingFilesystem(MemoryFilesystem())
    file = file_of(b"".join(batches), filesystem)
    size = file.size()
    filesystem.clear()

    assert len(walked(file, 0, size)) == 51

    reads = [operation.size for operation in filesystem.operations]
    assert max(reads) == len(batches[-1])
    assert sum(reads) < 1.2 * size


@pytest.mark.parametrize("missing", [1, 20, 61, 70])
def test_a_batch_that_is_not_whole_ends_the_walk(missing):
    whole, cut = placed(batch_of(b"whole"), batch_of(b"cut"))
    content = whole + cut

    assert [offset for _, offset, _ in walked(file_of(content), 0, len(content) - missing)] == [0]
    assert [offset for _, offset, _ in walked(file_of(content[:-missing]), 0, len(content) - missing)] == [0]


def test_something_else_than_a_batch_is_no_end():
    content = placed(batch_of(b"whole"))[0] + bytes(BATCH_OVERHEAD)

    with pytest.raises(DecodeError):
        walked(file_of(content), 0, len(content))


def test_a_file_that_is_shorter_than_was_said_is_no_end():
    content = placed(batch_of(b"whole"))[0]

    with pytest.raises(DecodeError, match="could be read"):
        walked(file_of(content), 0, 10 * len(content))


# --- what is committed ---------------------------------------------------------------------------------------------


def add_of(content, *, offset=0, records=1, position=0, segment=SEGMENT):
    return Operation(
        type="add",
        origin_id=1,
        origin_seq=offset + 1,
        offset_start=offset,
        offset_end=offset + records - 1,
        segment=segment,
        position=position,
        size=len(content),
    )


def commit_of(*adds, content):
    return DeltaCommit(
        version=1,
        timestamp="2025-11-07T18:15:02.883Z",
        txn_id="broker-1:1:1",
        operations=adds,
        checkpoint_hint=False,
        end_offset=0,
        last_stable_offset=0,
        log_start_offset=0,
        leader_epoch=0,
        data_crc=print_crc(crc32c(content)),
        prev_crc="00000000",
    )


def check(commit, *contents):
    filesystem = MemoryFilesystem()
    filesystem.make_directories(DIRECTORY)
    for name, content in contents:
        filesystem.open(f"{DIRECTORY}/{name}", create=True).write_at([content], 0)
    return check_added_bytes(SegmentFiles(filesystem, OpenFiles(filesystem, files_max=10)), DIRECTORY, commit)


def test_the_batches_of_all_adds_are_given_in_order():
    batches = placed(*(batch_of(b"%d" % number) for number in range(3)))
    first, second = batches[0] + batches[1], batches[2]
    adds = add_of(first, records=2), add_of(second, offset=2, segment=f"{2:020d}.log")

    found = check(commit_of(*adds, content=first + second), (SEGMENT, first + b"behind"), (f"{2:020d}.log", second))

    assert [(batch.segment, batch.position, batch.header.base_offset) for batch in found] == [
        (SEGMENT, 0, 0),
        (SEGMENT, len(batches[0]), 1),
        (f"{2:020d}.log", 0, 2),
    ]


def test_a_version_without_bytes_needs_none():
    remove = Operation(
        type="remove",
        origin_id=1,
        origin_seq=0,
        offset_start=0,
        offset_end=0,
        segment=SEGMENT,
        position=0,
        size=1,
    )

    assert check(commit_of(remove, content=b"")) == []


BATCHES = placed(batch_of(b"first"), batch_of(b"second"))
CONTENT = b"".join(BATCHES)


def changed(content, position):
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (CONTENT[:-1], f"bytes 0 to {len(CONTENT)}: only {len(CONTENT) - 1} bytes are there"),
        (b"", "only 0 bytes are there"),
        (changed(CONTENT, 7), "a batch has offset 1, not 0"),
        (changed(CONTENT, len(BATCHES[0]) + 7), "a batch has offset 0, not 1"),
        (changed(CONTENT, len(CONTENT) - 1), "they have CRC"),
        (changed(CONTENT, 16), "magic 3"),
        (changed(CONTENT, 10), "the batch at byte 0 is not whole"),
        (bytes(len(CONTENT)), "magic 0"),
        (BATCHES[0] + placed(batch_of(b"second", b""), offset=1)[0], "the batches end before offset 3, not with 1"),
    ],
    ids=["cut", "empty", "offset", "offset of the second", "CRC", "magic", "length", "zeros", "records"],
)
def test_other_bytes_than_were_committed_are_told_with_their_file(content, reason):
    size = max(len(content), len(CONTENT))
    add = add_of(bytes(size) if reason.startswith("the batches end") else CONTENT, records=2)

    with pytest.raises(UnusableBytesError) as caught:
        check(commit_of(add, content=CONTENT), (SEGMENT, content))

    assert reason in str(caught.value)
    assert PATH in str(caught.value)
    assert caught.value.missing_segment is None


def test_a_missing_segment_is_told_by_its_name():
    with pytest.raises(UnusableBytesError, match=f"{PATH} is missing") as caught:
        check(commit_of(add_of(CONTENT, records=2), content=CONTENT))

    assert caught.value.missing_segment == SEGMENT


@pytest.mark.parametrize(("position", "size"), [(0, 2**63 - 1), (2**63 - 1, 2**63 - 1), (2**40, 61)])
def test_a_size_that_nobody_has_room_for_is_only_compared(position, size):
    add = Operation(
        type="add",
        origin_id=1,
        origin_seq=1,
        offset_start=0,
        offset_end=1,
        segment=SEGMENT,
        position=position,
        size=size,
    )

    with pytest.raises(UnusableBytesError, match="bytes are there"):
        check(commit_of(add, content=CONTENT), (SEGMENT, CONTENT))


# --- what is behind it ---------------------------------------------------------------------------------------------


def adopted(content, *, next_offset=0, leader_epoch=0, start=0):
    tail = find_valid_tail(file_of(content), start, next_offset=next_offset, leader_epoch=leader_epoch)
    return [found.header.base_offset for found in tail]


def test_a_valid_tail_is_found_whole_from_where_it_begins():
    assert adopted(CONTENT) == [0, 1]
    assert adopted(b"?" * 100 + CONTENT, start=100) == [0, 1]
    assert adopted(b"") == []


@pytest.mark.parametrize("position", [7, 16, 17, 21, 30, 60, len(BATCHES[1]) - 1])
def test_the_tail_ends_before_the_first_batch_that_is_not_as_it_was_written(position):
    assert adopted(changed(CONTENT, len(BATCHES[0]) + position)) == [0]


@pytest.mark.parametrize("rest", [b"", b"\0", bytes(100), BATCHES[0], b"{" * 200])
def test_the_tail_ends_where_something_else_begins(rest):
    assert adopted(CONTENT + rest) == [0, 1]


def test_a_tail_of_other_offsets_is_none():
    assert adopted(CONTENT, next_offset=1) == []


def test_a_tail_of_an_earlier_leader_was_cut_off_before_and_has_come_back():
    """A power cut may undo a truncation; what an older start dropped is not to be had again."""
    assert adopted(CONTENT, leader_epoch=1) == []
    older, newer = placed(batch_of(b"older"), leader_epoch=1), placed(batch_of(b"newer"), offset=1, leader_epoch=2)
    assert adopted(b"".join(older + newer), leader_epoch=1) == [0, 1]
    assert adopted(b"".join(placed(batch_of(b"x"), leader_epoch=2) + placed(batch_of(b"y"), offset=1))) == [0]


def test_a_batch_without_records_is_not_adopted():
    empty = bytearray(BATCHES[0])
    empty[57:61] = bytes(4)
    empty[17:21] = crc32c(bytes(empty[21:])).to_bytes(4, "big")

    assert adopted(bytes(empty)) == []


# --- what a checkpoint counts --------------------------------------------------------------------------------------


def torn_of(content, *, next_offset=2, newest_epoch=0):
    entry = SegmentEntry(
        name=SEGMENT,
        base=0,
        next_offset=next_offset,
        size=len(CONTENT),
        max_timestamp=-1,
        index_entries=0,
        time_index_entries=0,
    )
    return find_torn_batch(file_of(content), entry, newest_epoch=newest_epoch)


def test_whole_batches_are_not_torn():
    assert torn_of(CONTENT + b"behind") is None
    assert torn_of(CONTENT, newest_epoch=3) is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (changed(CONTENT, len(CONTENT) - 1), f"the batch at byte {len(BATCHES[0])} does not match its checksum"),
        (BATCHES[0] + bytes(len(BATCHES[1])), f"behind byte {len(BATCHES[0])}: "),
        (changed(CONTENT, 10), "the batch at byte 0 is not whole"),
        (changed(CONTENT, len(BATCHES[0]) + 7), f"the batch at byte {len(BATCHES[0])} has offsets 0 to 0"),
        (changed(CONTENT, 15), "the batch at byte 0 is of leader epoch 1"),
    ],
    ids=["CRC", "zeros", "length", "offset", "leader epoch"],
)
def test_a_torn_batch_is_told_with_its_place(content, told):
    assert told in torn_of(content)


def test_a_gap_that_a_rewriting_left_is_not_torn():
    content = BATCHES[0] + placed(batch_of(b"second"), offset=7)[0]

    assert torn_of(content, next_offset=8) is None
    assert "has offsets 7 to 7" in torn_of(content, next_offset=7)
