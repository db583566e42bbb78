"""How a directory is measured for a stream, against its batches as they were written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.ids import TopicPartition
from exactlog.pipeline.read_options import ReadOptions
from exactlog.pipeline.source import Slice
from exactlog.pipeline.stream_offsets import Position
from exactlog.pipeline.stream_source import StreamedBroker, StreamedDirectory, open_stream_source
from exactlog.storage.filesystem import OsFilesystem
from tests.support.partitions import ORDERS, DataDirectory, batch_of

COUNTS = (1, 3, 2, 7, 1, 1, 5, 2, 40, 1, 1, 1, 6, 3)
END = sum(COUNTS)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A partition of these batches in several segments, and each batch as its first offset, its end and its size."""
    root = tmp_path_factory.mktemp("data")
    config = TopicConfig(segment_bytes=600, index_interval_bytes=150)
    spans, start = [], 0
    with DataDirectory(OsFilesystem(), root=str(root), config=config) as disk:
        partition = disk.make()
        for count in COUNTS:
            batch = batch_of(*(b"%d" % number for number in range(count)))
            disk.commit(partition, batch)
            spans.append((start, start + count, len(batch)))
            start += count
    source = StreamedDirectory(ReadOptions(path=str(root)), ("offset",))
    source.extents()
    return source, spans


def piece(start, end):
    return Slice("orders", 0, start, end)


RANGES = st.tuples(st.integers(0, END), st.integers(0, END)).map(sorted)


@given(RANGES)
def test_a_piece_is_as_large_as_all_batches_that_it_has_a_part_of(directory, bounds):
    source, spans = directory
    start, end = bounds
    expected = sum(size for first, behind, size in spans if first < end and start < behind) if start < end else 0
    assert source.size(piece(start, end)) == expected


@given(RANGES, st.integers(0, 1_500), st.none() | st.integers(0, len(COUNTS)))
def test_the_end_within_a_limit_is_that_of_the_last_batch_that_fits(directory, bounds, bytes_max, just):
    source, spans = directory
    start, end = bounds
    if just is not None:  # a limit that so many batches meet to the byte
        bytes_max = sum(size for _, _, size in [span for span in spans if start < span[1]][:just])
    reached, left = start, bytes_max
    for first, behind, size in spans:
        if first < end and start < behind:
            left -= size
            if left < 0:
                break
            reached = min(behind, end)
    assert source.end_within(piece(start, end), bytes_max) == reached


@given(st.integers(0, END - 1), st.integers(1, END))
def test_the_first_end_is_that_of_the_batch_at_the_start(directory, start, length):
    source, spans = directory
    end = min(END, start + length)
    expected = next(min(behind, end) for first, behind, _ in spans if first <= start < behind)
    assert source.first_end(piece(start, end)) == expected


@given(st.integers(1, END))
def test_a_position_lies_in_the_version_of_the_last_offset_before_it(directory, offset):
    source, spans = directory
    (extent,) = source.extents().values()
    version = next(number for number, (first, behind, _) in enumerate(spans, 1) if first < offset <= behind)
    assert source.stand(ORDERS, extent, offset, 5) == Position(offset, version, 5)


def test_the_options_name_the_source():
    directory = open_stream_source(ReadOptions(path="/nowhere", starting_version=3), ("offset",))
    assert isinstance(directory, StreamedDirectory)
    assert directory.cluster_id is None
    assert isinstance(open_stream_source(ReadOptions(bootstrap="127.0.0.1:1"), ("offset",)), StreamedBroker)


def test_a_broker_has_no_versions():
    broker = StreamedBroker(ReadOptions(bootstrap="127.0.0.1:1"))
    place = TopicPartition("orders", 0)
    broker.check_versions(place, Position(7))
    assert broker.stand(place, None, 7, None) == Position(7)
