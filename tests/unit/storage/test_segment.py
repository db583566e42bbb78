"""Looking things up in segments, and that a damaged index costs a rebuild and never a wrong answer."""

import random

import pytest

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.log.index_format import (
    INDEX_ROW_SIZE,
    TIME_INDEX_ROW_SIZE,
    OffsetIndex,
    TimeIndex,
    decode_sealed_rows,
)
from exactlog.core.model.errors import DamageError
from exactlog.core.record.batch_format import decode_header, iter_headers
from exactlog.core.record.record_format import decode_records
from exactlog.storage.log_reading import FoundRecord
from tests.support.partitions import (
    DIRECTORY,
    FIRST_MS,
    DataDirectory,
    batch_of,
    copy_of,
    remove_checkpoints,
    replace_file,
    state_of,
    values_of,
)
from tests.support.transactions import TransactionalWriter

CONFIG = TopicConfig(index_interval_bytes=200, segment_bytes=6_000)
CONFIG_OF_ONE_SEGMENT = TopicConfig(index_interval_bytes=200)


def batch_at(number, *, records=2):
    """Batches whose times rise, but for every seventh, which is late, and every fifth, which repeats the last one."""
    time_ms = FIRST_MS + number * 10
    if number % 7 == 0:
        time_ms -= 35
    elif number % 5 == 0:
        time_ms -= 10
    return batch_of(*(b"%d.%d" % (number, index) for index in range(records)), timestamp_ms=time_ms)


def fill(disk, partition, count, *, first=0):
    for number in range(first, first + count):
        disk.append(partition, batch_at(number, records=1 + number % 3))
        disk.run_round()


@pytest.fixture(scope="module")
def filled():
    """A log of several segments with a checkpoint at its end, so that every index row is in a file."""
    with DataDirectory(config=CONFIG) as disk:
        partition = disk.make()
        fill(disk, partition, 200)
        assert partition.table.version == 200
        assert len(partition.segments) >= 3
        return copy_of(disk.filesystem)


@pytest.fixture
def disk(filled):
    with DataDirectory(copy_of(filled), config=CONFIG) as directory:
        yield directory


def all_records(partition):
    """Every record with its time, found by walking all batches."""
    return [
        (record.offset, record.timestamp_ms)
        for segment in partition.segments
        for position, header in segment.headers_from(0)
        for record in decode_records(segment.read_batch(position, header))
    ]


def check_every_look_up(partition):
    """By offset, by time, by size: all of them against a walk over everything."""
    records = all_records(partition)
    assert [offset for offset, _ in records] == list(range(partition.high_watermark))
    end = partition.high_watermark
    for offset in range(end):
        content = partition.committed.read(offset, end_offset=end, bytes_max=700, at_least_one_batch=True)
        headers = [header for _, header in iter_headers(content)]
        assert headers[0].base_offset <= offset <= headers[0].last_offset
        assert sum(header.size_bytes for header in headers) == len(content) <= 700
    times = sorted({time_ms for _, time_ms in records})
    for time_ms in [times[0] - 1, *times, *(time_ms + 1 for time_ms in times)]:
        expected = next(((offset, at) for offset, at in records if at >= time_ms), None)
        found = partition.committed.find_by_time(time_ms, end_offset=end)
        assert (found and (found.offset, found.timestamp_ms)) == expected, time_ms
    latest = max(records, key=lambda record: (record[1], -record[0]))
    found = partition.committed.find_latest_in_time(end_offset=end)
    assert (found.offset, found.timestamp_ms) == latest


# --- looking up --------------------------------------------------------------------------------------------------


def test_every_offset_and_every_time_is_found_while_rows_are_in_memory():
    with DataDirectory(config=CONFIG) as disk:
        partition = disk.make()
        fill(disk, partition, 97)

        check_every_look_up(partition)


def test_every_offset_and_every_time_is_found_when_rows_are_read_from_files(disk, caplog):
    check_every_look_up(disk.open())

    assert "rebuilt" not in caplog.text


def test_every_look_up_is_right_when_some_rows_are_in_files_and_some_in_memory(disk, caplog):
    partition = disk.open()
    fill(disk, partition, 55, first=200)

    check_every_look_up(partition)
    assert "rebuilt" not in caplog.text


def test_a_time_is_found_below_the_end_it_is_told_only(disk):
    partition = disk.open()
    latest = partition.committed.find_latest_in_time(end_offset=partition.high_watermark)

    assert partition.committed.find_by_time(latest.timestamp_ms, end_offset=latest.offset) is None
    assert partition.committed.find_by_time(latest.timestamp_ms + 1, end_offset=partition.high_watermark) is None


def test_an_empty_log_holds_no_time():
    with DataDirectory() as disk:
        partition = disk.make()

        assert partition.committed.find_by_time(0, end_offset=10) is None
        assert partition.committed.find_latest_in_time(end_offset=10) is None
        assert partition.committed.read(0, end_offset=10, bytes_max=100, at_least_one_batch=True) == b""


def test_of_several_records_with_the_latest_time_it_is_the_first():
    with DataDirectory() as disk:
        partition = disk.make()
        disk.commit(partition, *(batch_of(b"x", timestamp_ms=at) for at in (5, 9, 9, 3)))

        assert partition.committed.find_latest_in_time(end_offset=4) == FoundRecord(1, 9, 0)


def test_records_without_a_time_are_never_the_latest():
    with DataDirectory() as disk:
        partition = disk.make()
        disk.commit(partition, batch_of(b"x", timestamp_ms=-1))

        assert partition.committed.find_latest_in_time(end_offset=1) is None


def test_bytes_that_are_no_batches_are_damage_that_names_the_place(disk):
    partition = disk.open()
    segment = partition.segments[1]
    disk.filesystem.open(segment.path).write_at((bytes(500),), 0)

    with pytest.raises(DamageError, match=rf"{segment.name}, byte 0"):
        partition.committed.read(
            segment.base_offset, end_offset=partition.high_watermark, bytes_max=9, at_least_one_batch=True
        )
    assert values_of(partition, partition.segments[2].base_offset)


# --- the files ---------------------------------------------------------------------------------------------------


def index_rows(disk, segment, *, is_sealed):
    rows = []
    for end, row_size, index in (("index", INDEX_ROW_SIZE, OffsetIndex), ("timeindex", TIME_INDEX_ROW_SIZE, TimeIndex)):
        content = disk.filesystem.read_file(segment.path.replace(".log", f".{end}"))
        rows.append(index.decode(decode_sealed_rows(content, row_size=row_size) if is_sealed else content))
    return rows


def check_sealed_files(disk, partition):
    """The files of every sealed segment are whole, rise strictly, and say what is so."""
    for segment in partition.segments[:-1]:
        offsets, times = index_rows(disk, segment, is_sealed=True)
        assert (len(offsets), len(times)) == segment.index.row_counts
        headers = dict(segment.headers_from(0))
        for row in (offsets[number] for number in range(len(offsets))):
            assert headers[row.position].base_offset - segment.base_offset == row.relative_offset
        for row in (times[number] for number in range(len(times))):
            upto = [h for h in headers.values() if h.last_offset - segment.base_offset <= row.relative_offset]
            assert max(header.max_timestamp for header in upto) == row.timestamp
            assert (upto[-1].last_offset - segment.base_offset, upto[-1].max_timestamp) == row[::-1]


def test_a_sealed_segment_has_whole_index_files(disk):
    partition = disk.open()

    check_sealed_files(disk, partition)
    assert len(index_rows(disk, partition.segments[0], is_sealed=True)[0]) > 10


def test_the_index_files_of_the_active_segment_hold_what_the_checkpoint_says(disk):
    partition = disk.open()
    segment = partition.segments[-1]
    offsets, times = index_rows(disk, segment, is_sealed=False)

    assert (len(offsets), len(times)) == segment.index.row_counts
    assert len(offsets) > 3


def test_a_segment_that_is_sealed_after_a_restart_has_whole_files_too(disk):
    """Its rows come from three places: the files, the replay behind the checkpoint, and what was appended since."""
    partition = disk.open()
    fill(disk, partition, 5, first=200)
    disk.restart()
    partition = disk.open()
    fill(disk, partition, 100, first=205)

    check_sealed_files(disk, partition)
    check_every_look_up(partition)


def test_time_rows_rise_over_a_restart_even_when_times_do_not():
    with DataDirectory(config=TopicConfig(index_interval_bytes=100, segment_bytes=3_000)) as disk:
        partition = disk.make()
        for part in range(3):
            for _ in range(10 if part < 2 else 60):
                disk.commit(partition, batch_of(b"x", timestamp_ms=FIRST_MS))
            disk.restart()
            partition = disk.open()

        assert len(partition.segments) >= 2
        check_sealed_files(disk, partition)


def test_a_checkpoint_and_a_seal_that_meet_leave_whole_files():
    """The one writes the rows up to itself, the other those behind and the trailer."""
    with DataDirectory(config=CONFIG_OF_ONE_SEGMENT) as disk:
        partition = disk.make()
        fill(disk, partition, 39)
        disk.background.is_held = True
        fill(disk, partition, 1, first=39)
        disk.append(partition, batch_of(bytes(300)))
        partition.committed._seal(partition.segments[-1])
        assert len(disk.background.pending) == 2
        disk.background.run()

        offsets, times = index_rows(disk, partition.segments[0], is_sealed=True)
        assert (len(offsets), len(times)) == partition.segments[0].index.row_counts


# --- damage ------------------------------------------------------------------------------------------------------


def scrambled(content, seed):
    rows = bytearray(content)
    random.Random(seed).shuffle(rows)
    return bytes(rows)


DAMAGES = {
    "removed": lambda content: None,
    "empty": lambda content: b"",
    "cut in the middle": lambda content: content[: len(content) // 2],
    "cut within a row": lambda content: content[:13],
    "zeros": lambda content: bytes(len(content)),
    "ones": lambda content: b"\xff" * len(content),
    "sevens": lambda content: b"\x07" * len(content),
    "random bytes": lambda content: random.Random(1).randbytes(len(content)),
    "scrambled": lambda content: scrambled(content, 2),
    "backwards": lambda content: content[::-1],
    "shifted by a byte": lambda content: b"\0" + content[:-1],
    "shifted by a row": lambda content: content[24:] + content[:24],
    "the first rows again and again": lambda content: (content[:24] * len(content))[: len(content)],
    "the last row damaged": lambda content: content[:-12] + b"\xee" * 12,
    "a row in the middle damaged": lambda content: content[:48] + b"\xee" * 24 + content[72:],
    "later times": lambda content: b"".join(
        (int.from_bytes(content[at : at + 8], "big") + 7).to_bytes(8, "big") + content[at + 8 : at + 12]
        for at in range(0, len(content) // 12 * 12, 12)
    ),
    "earlier times": lambda content: b"".join(
        (int.from_bytes(content[at : at + 8], "big") - 7).to_bytes(8, "big") + content[at + 8 : at + 12]
        for at in range(0, len(content) // 12 * 12, 12)
    ),
    "longer": lambda content: content + bytes(100),
}


@pytest.mark.parametrize("kinds", [("index",), ("timeindex",), ("index", "timeindex")], ids=" and ".join)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_never_gives_a_wrong_answer(disk, damage, kinds):
    for name in disk.filesystem.list_names(DIRECTORY):
        path = f"{DIRECTORY}/{name}"
        if name.rpartition(".")[2] in kinds:
            content = DAMAGES[damage](disk.filesystem.read_file(path))
            if content is None:
                disk.filesystem.remove(path)
            else:
                replace_file(disk.filesystem, path, content)

    check_every_look_up(disk.open())


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_log_with_a_damaged_index_takes_appends_and_opens_again(disk, damage):
    fill(disk, disk.open(), 7, first=200)  # behind the checkpoint: replayed onto the damaged rows
    for name in disk.filesystem.list_names(DIRECTORY):
        path = f"{DIRECTORY}/{name}"
        if name.endswith("index"):
            content = DAMAGES[damage](disk.filesystem.read_file(path))
            if content is None:
                disk.filesystem.remove(path)
            else:
                replace_file(disk.filesystem, path, content)
    disk.restart()
    partition = disk.open()
    fill(disk, partition, 60, first=207)
    check_every_look_up(partition)
    before = state_of(partition)
    disk.restart()

    partition = disk.open()

    assert state_of(partition) == before
    check_every_look_up(partition)


def test_a_damaged_index_is_rebuilt_once_and_says_so(disk, caplog):
    partition = disk.open()
    segment = partition.segments[1]
    replace_file(disk.filesystem, segment.path.replace(".log", ".index"), b"\xff" * 400)
    for offset in range(segment.base_offset, segment.next_offset):
        partition.committed.read(offset, end_offset=segment.next_offset, bytes_max=100, at_least_one_batch=True)

    assert caplog.text.count("the index is rebuilt") == 1
    assert segment.path in caplog.text


def test_an_index_with_too_few_rows_is_rebuilt(caplog):
    with DataDirectory(config=CONFIG_OF_ONE_SEGMENT) as disk:
        partition = disk.make()
        fill(disk, partition, 100)
        segment = partition.segments[0]
        segment.index.clear()

        partition.committed.read(150, end_offset=151, bytes_max=100, at_least_one_batch=True)

        assert "too few rows" in caplog.text
        assert segment.index.row_counts[0] > 20
        check_every_look_up(partition)


def test_decoding_a_header_of_what_was_read_finds_the_batch_that_holds_the_offset(disk):
    partition = disk.open()
    content = partition.committed.read(101, end_offset=102, bytes_max=1, at_least_one_batch=True)

    header = decode_header(content)
    assert header.base_offset <= 101 <= header.last_offset


# --- markers ------------------------------------------------------------------------------------------------------


MARKED = TopicConfig(segment_bytes=4_000, index_interval_bytes=300)


def filled_with_transactions(disk, rng):
    """Records of times that rise and fall, in transactions whose markers are younger than all of them."""
    writer = TransactionalWriter(disk, disk.make())
    disk.clock.time_ms = FIRST_MS + 1_000_000
    for number in range(120):
        times = rng.randint(0, 500) if rng.random() < 0.3 else number * 4
        writer.write(number % 3, b"x" * rng.randint(1, 80), timestamp_ms=FIRST_MS + times)
        if rng.random() < 0.4:
            writer.end(number % 3, is_commit=rng.random() < 0.5)
        disk.run_round()
    return writer.partition


def check_times(partition):
    """Every search by time, up to several ends, against a walk over all records that are data."""
    records = [
        (record.offset, record.timestamp_ms, header.next_offset)
        for segment in partition.segments
        for position, header in segment.headers_from(0)
        if not header.is_control
        for record in decode_records(segment.read_batch(position, header))
    ]
    ends = [0, *sorted({end for _, _, end in records})]
    for end in [*ends[::7], ends[-1], partition.high_watermark]:
        below = [(offset, at) for offset, at, _ in records if partition.log_start_offset <= offset < end]
        latest = max(below, key=lambda record: (record[1], -record[0]), default=None)
        found = partition.committed.find_latest_in_time(end_offset=end)
        assert (found and (found.offset, found.timestamp_ms)) == latest, end
        for time_ms in range(FIRST_MS - 1, FIRST_MS + 500, 41):
            expected = next(((offset, at) for offset, at in below if at >= time_ms), None)
            found = partition.committed.find_by_time(time_ms, end_offset=end)
            assert (found and (found.offset, found.timestamp_ms)) == expected, (time_ms, end)


@pytest.mark.parametrize("seed", range(4))
def test_times_are_those_of_records_whatever_the_markers_say(seed, caplog):
    with DataDirectory(config=MARKED) as disk:
        partition = filled_with_transactions(disk, random.Random(seed))
        assert len(partition.segments) > 3
        check_times(partition)

        disk.restart()
        reopened = disk.open()
        check_times(reopened)
        assert "rebuilt" not in caplog.text

        remove_checkpoints(disk.filesystem)
        disk.restart()
        check_times(disk.open())


@pytest.mark.parametrize("seed", range(2))
def test_times_are_found_from_any_log_start_on(seed):
    with DataDirectory(config=MARKED) as disk:
        partition = filled_with_transactions(disk, random.Random(10 + seed))
        for start in range(3, partition.high_watermark, 9):
            disk.move_log_start(partition, start)
            check_times(partition)


def test_records_that_come_after_a_restart_are_found_by_time_behind_the_markers_before_it():
    with DataDirectory(config=MARKED) as disk:
        filled_with_transactions(disk, random.Random(5))
        disk.restart()
        partition = disk.open()
        for number in range(40):
            disk.commit(partition, batch_of(b"y" * 50, timestamp_ms=FIRST_MS + 600 + number))

        check_times(partition)


def test_a_record_that_comes_after_a_restart_does_not_pass_for_the_youngest_one():
    """What was in the segment before is not walked through; no row of times may claim what was not looked at."""
    with DataDirectory(config=MARKED, checkpoint_interval=1) as disk:
        partition = disk.make()
        disk.commit(partition, batch_of(b"a", timestamp_ms=FIRST_MS + 90))
        disk.restart()
        partition = disk.open()
        for number in range(20):
            disk.commit(partition, batch_of(b"y" * 50, timestamp_ms=FIRST_MS + number))

        check_times(partition)


def test_a_marker_keeps_its_segment_as_long_as_a_record_would():
    """As in Kafka, retention goes by the youngest batch of any kind."""
    with DataDirectory() as disk:
        writer = TransactionalWriter(disk, disk.make())
        disk.clock.time_ms = FIRST_MS + 77
        writer.write(1, b"a", timestamp_ms=FIRST_MS)
        writer.in_a_round(writer.commit, 1)

        assert [segment.max_timestamp for segment in writer.partition.segments] == [FIRST_MS + 77]


@pytest.mark.parametrize("bytes_max", [1, 300, 700, 100_000])
def test_the_end_of_what_was_read_is_where_its_last_batch_ends(disk, bytes_max):
    partition = disk.open()
    end = partition.high_watermark
    for offset in range(end):
        content = partition.committed.read(offset, end_offset=end, bytes_max=bytes_max, at_least_one_batch=True)
        expected = [header for _, header in iter_headers(content)][-1].next_offset
        assert partition.committed.end_of_batches(offset, content) == expected
    assert partition.committed.end_of_batches(end, b"") == end


def test_bytes_between_two_offsets_are_those_of_the_batches_there(disk):
    partition = disk.open()
    sizes = [
        (header.base_offset, header.next_offset, header.size_bytes)
        for segment in partition.segments
        for _, header in segment.headers_from(0)
    ]
    for start in range(0, partition.high_watermark, 3):
        for end in [next_offset for _, next_offset, _ in sizes[::5]]:
            expected = sum(size for base, following, size in sizes if following > start and base < end)
            assert partition.committed.bytes_between(start, end) == (expected if start < end else 0)
