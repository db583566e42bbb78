"""Any damage to any file of a partition is met with what was committed, or with an error that says so."""

from hypothesis import given, settings
from hypothesis import strategies as st

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.errors import DamageError, DecodeError
from exactlog.core.record.batch_format import crc_is_valid, iter_headers
from exactlog.core.record.record_format import decode_records
from exactlog.storage.settings import FlushMode
from exactlog.storage.table_reader import TableReader
from tests.support.partitions import (
    DELTA_LOG,
    DIRECTORY,
    FIRST_MS,
    DataDirectory,
    copy_of,
    replace_file,
    sequenced,
    state_of,
)

CONFIG = TopicConfig(segment_bytes=900, index_interval_bytes=150)
BATCHES = 33
MAY_FAIL = (DamageError, DecodeError, OSError)


def written(flush_mode):
    with DataDirectory(config=CONFIG, flush_mode=flush_mode) as disk:
        partition = disk.make()
        for number in range(BATCHES):
            batch = sequenced(number % 2, number // 2, b"%06d" % number, timestamp_ms=FIRST_MS + number)
            disk.commit(partition, batch)
            disk.publish(partition)
        return copy_of(disk.filesystem), state_of(partition)


LOGS = {flush_mode: written(flush_mode) for flush_mode in (FlushMode.COMMIT, FlushMode.NONE)}


@st.composite
def damage(draw, content):
    """What becomes of a file: gone, cut, longer, some bytes changed, or others altogether. None: gone."""
    kind = draw(st.sampled_from(["gone", "cut", "longer", "bytes", "others"]))
    match kind:
        case "gone":
            return None
        case "cut":
            return content[: draw(st.integers(0, max(0, len(content) - 1)))]
        case "longer":
            return content + draw(st.binary(min_size=1, max_size=100))
        case "others":
            return draw(st.binary(max_size=300))
    changed = bytearray(content or b"\0")
    for _ in range(draw(st.integers(1, 4))):
        changed[draw(st.integers(0, len(changed) - 1))] = draw(st.integers(0, 255))
    return bytes(changed)


def damaged_copy(data, flush_mode, wanted):
    filesystem = copy_of(LOGS[flush_mode][0])
    paths = sorted(path for path in filesystem._files if wanted(path))
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=3, unique=True), "files"):
        content = data.draw(damage(filesystem.read_file(path)), "content")
        if content is None:
            filesystem.remove(path)
        else:
            replace_file(filesystem, path, content)
    return filesystem


def read_everything(partition):
    """Every batch that a reader would believe, by its offset; reads from every offset, to every limit."""
    found = {}
    end = partition.high_watermark
    for offset in range(partition.log_start_offset, end):
        for bytes_max in (1, 300):
            try:
                content = partition.committed.read(offset, end_offset=end, bytes_max=bytes_max, at_least_one_batch=True)
                for position, header in iter_headers(content, may_be_cut=True):
                    if crc_is_valid(content, position):
                        for record in decode_records(content, position, header=header):
                            found.setdefault(record.value, set()).add(record.offset)
            except MAY_FAIL:
                continue
    return found


def look_up_every_time(partition):
    for time_ms in range(FIRST_MS - 1, FIRST_MS + BATCHES + 1):
        try:
            yield time_ms, partition.committed.find_by_time(time_ms, end_offset=partition.high_watermark)
        except MAY_FAIL:
            continue


@given(data=st.data())
def test_damaged_indexes_and_checkpoints_change_nothing(data):
    flush_mode = data.draw(st.sampled_from(sorted(LOGS)))
    filesystem = damaged_copy(data, flush_mode, lambda path: path.endswith((".index", ".timeindex", "checkpoint.json")))
    with DataDirectory(filesystem, config=CONFIG, flush_mode=flush_mode) as disk:
        partition = disk.open()

        assert state_of(partition) == LOGS[flush_mode][1]
        assert read_everything(partition) == {b"%06d" % number: {number} for number in range(BATCHES)}
        for time_ms, found in look_up_every_time(partition):
            expected = max(0, time_ms - FIRST_MS)
            assert (found.offset if found else BATCHES) == expected


@given(data=st.data())
def test_damaged_commits_are_met_with_an_error_or_with_an_earlier_version(data):
    filesystem = damaged_copy(data, FlushMode.COMMIT, lambda path: path.startswith(DELTA_LOG))
    with DataDirectory(filesystem, config=CONFIG) as disk:
        try:
            partition = disk.open()
        except DamageError:
            return
        values = read_everything(partition)
        assert values == {b"%06d" % number: {number} for number in range(len(values))}
        assert len(values) == partition.high_watermark


@settings(max_examples=3 * settings.default.max_examples)
@given(data=st.data())
def test_whatever_is_damaged_no_record_is_served_that_was_not_committed(data):
    """Offsets of batches are not covered by their checksums: no more than that may be wrong."""
    flush_mode = data.draw(st.sampled_from(sorted(LOGS)))
    filesystem = damaged_copy(data, flush_mode, lambda path: path.startswith(DIRECTORY))
    committed = {b"%06d" % number for number in range(BATCHES)}
    with DataDirectory(copy_of(filesystem), config=CONFIG, flush_mode=flush_mode) as disk:
        try:
            partition = disk.open()
        except (DamageError, OSError):
            pass
        else:
            assert read_everything(partition).keys() <= committed
            list(look_up_every_time(partition))
    try:
        values = [record.value for record in TableReader(filesystem, DIRECTORY).read()]
    except (DamageError, OSError):
        return
    assert set(values) <= committed
