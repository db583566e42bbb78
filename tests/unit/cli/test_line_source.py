import asyncio
import io
import os

import pytest

from exactlog.cli import line_source
from exactlog.cli.errors import InvalidUsageError
from exactlog.cli.line_source import read_line_chunks


async def all_lines(stream):
    return [line async for chunk in read_line_chunks(stream) for line in chunk]


@pytest.mark.parametrize(
    ("content", "lines"),
    [(b"", []), (b"a", [b"a"]), (b"a\n", [b"a"]), (b"\n", [b""]), (b"a\r\n\nb", [b"a\r", b"", b"b"])],
)
async def test_lines_come_without_their_ends(content, lines):
    assert await all_lines(io.BytesIO(content)) == lines


async def test_lines_longer_than_a_chunk_are_put_together(monkeypatch):
    monkeypatch.setattr(line_source, "CHUNK_BYTES", 3)

    assert await all_lines(io.BytesIO(b"abcdefgh\nij\nk")) == [b"abcdefgh", b"ij", b"k"]


async def test_a_line_without_end_is_refused_before_it_fills_memory(monkeypatch):
    monkeypatch.setattr(line_source, "CHUNK_BYTES", 3)
    monkeypatch.setattr(line_source, "LINE_BYTES_MAX", 10)

    with pytest.raises(InvalidUsageError, match="a line of more than 10 bytes"):
        await all_lines(io.BytesIO(b"x" * 100))


async def test_a_file_is_read_to_its_end(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\n")

    with path.open("rb") as stream:
        assert await all_lines(stream) == [b"a", b"b"]


async def test_lines_of_a_pipe_come_as_they_are_written():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        chunks = read_line_chunks(stream)
        os.write(writing, b"a\nb\nc")
        assert await anext(chunks) == [b"a", b"b"]

        waiting = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0)
        assert not waiting.done()
        os.write(writing, b"d\n")
        assert await waiting == [b"cd"]
        os.close(writing)
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)


async def test_waiting_for_a_pipe_can_be_given_up():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        waiting = asyncio.ensure_future(anext(read_line_chunks(stream)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not asyncio.get_running_loop().remove_reader(reading)
    os.close(writing)


async def test_the_null_device_is_empty():
    with os.fdopen(os.open(os.devnull, os.O_RDONLY), "rb") as stream:
        assert await all_lines(stream) == []
