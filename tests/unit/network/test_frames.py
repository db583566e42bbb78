"""Cutting bytes into frames, without a socket."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.network.frames import FrameReceiver, FrameSizeError, name_foreign_protocol
from tests.unit.network.harness import framed

SHARED_BYTES = 64


def receiver(shared: bytearray | None = None, *, frame_bytes_max: int = 1_000_000) -> FrameReceiver:
    return FrameReceiver(memoryview(shared or bytearray(SHARED_BYTES)), frame_bytes_max=frame_bytes_max)


def feed(target: FrameReceiver, received: bytes) -> list[bytearray]:
    """What an event loop does with bytes that have arrived, as often as the buffer's size asks for."""
    frames = []
    while received:
        buffer = target.get_buffer()
        count = min(len(buffer), len(received))
        buffer[:count] = received[:count]
        target.advance(count)
        while (frame := target.next_frame()) is not None:
            frames.append(frame)
        received = received[count:]
    return frames


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[low:high] for low, high in pairwise(bounds)]


@given(
    st.lists(st.binary(min_size=1, max_size=200), max_size=20),
    st.lists(st.integers(min_value=0), max_size=20),
)
def test_any_chunking_of_any_frames_gives_the_same_frames(frames, cuts):
    target = receiver()
    assert [frame for chunk in cut(framed(*frames), cuts) for frame in feed(target, chunk)] == frames


@given(st.data())
def test_connections_that_share_a_buffer_do_not_touch_each_others_frames(data):
    shared = bytearray(SHARED_BYTES)
    targets = [receiver(shared) for _ in range(3)]
    sent = [data.draw(st.lists(st.binary(min_size=1, max_size=100), max_size=6)) for _ in targets]
    chunks = [cut(framed(*frames), data.draw(st.lists(st.integers(min_value=0), max_size=6))) for frames in sent]
    received: list[list[bytearray]] = [[] for _ in targets]
    while any(chunks):
        turn = data.draw(st.sampled_from([index for index, left in enumerate(chunks) if left]))
        received[turn] += feed(targets[turn], chunks[turn].pop(0))
    assert received == sent


def test_frames_may_be_left_uncut_and_cut_later():
    target = receiver()
    buffer = target.get_buffer()
    stream = framed(b"one", b"two", b"three")
    buffer[: len(stream)] = stream
    target.advance(len(stream))
    assert target.next_frame() == b"one"
    target.put_aside()
    buffer[:] = bytes(len(buffer))  # another connection receives
    assert [target.next_frame(), target.next_frame(), target.next_frame()] == [b"two", b"three", None]


def test_a_claim_without_bytes_gets_little_memory():
    target = receiver(frame_bytes_max=100_000_000)
    feed(target, (100_000_000).to_bytes(4, "big"))
    assert len(target.get_buffer()) <= 16 * 1024


def test_memory_follows_the_bytes_that_arrive():
    size = 3_000_000
    target = receiver(frame_bytes_max=size)
    frame = bytes(range(256)) * (size // 256 + 1)
    stream = framed(frame[:size])
    received = 0
    frames = []
    while received < len(stream):
        assert received + len(target.get_buffer()) <= max(64 * 1024, 4 * received + 4)
        frames += feed(target, stream[received : received + 10_000])
        received += 10_000
    assert frames == [frame[:size]]


def test_a_frame_at_the_limit_is_taken():
    assert feed(receiver(frame_bytes_max=5), framed(b"12345")) == [b"12345"]


@pytest.mark.parametrize("size", [0, -1, -(2**31), 6, 2**31 - 1])
def test_a_size_no_frame_may_have_is_refused(size):
    with pytest.raises(FrameSizeError, match=f"a frame of {size} bytes; a frame has between 1 and 5") as refused:
        feed(receiver(frame_bytes_max=5), size.to_bytes(4, "big", signed=True))
    assert refused.value.foreign_protocol is None


@pytest.mark.parametrize(
    ("first_bytes", "name"),
    [
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"POST", "an HTTP request"),
        (b"PRI * HTTP/2.0", "an HTTP/2 preface"),
        (b"SSH-2.0-OpenSSH_9.6", "an SSH greeting"),
        (b"PROXY TCP4 ", "a PROXY protocol header"),
        (b"\x16\x03\x01\x02\x00", "a TLS hello"),
    ],
)
def test_a_foreign_protocol_is_named_and_never_within_the_default_limit(first_bytes, name):
    assert name_foreign_protocol(first_bytes) == name
    with pytest.raises(FrameSizeError, match=name):
        feed(receiver(frame_bytes_max=100 * 1024 * 1024), first_bytes)


def test_after_clear_nothing_is_left():
    target = receiver()
    feed(target, framed(b"x" * 100)[:50])
    target.clear()
    assert target.next_frame() is None
    assert feed(target, framed(b"new")) == [b"new"]
