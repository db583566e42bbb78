"""Bad peers on raw sockets: whatever one of them does, it is answered or closed, and nobody else notices."""

import asyncio
import struct
import tracemalloc

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.network.harness import framed, serving

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
CLAIMED_BYTES = 100 * 1024 * 1024


@pytest.fixture(params=LOOPS)
def run(request):
    """Run a coroutine on each event loop."""

    def run_story(story):
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(story)

    return run_story


def size(value: int) -> bytes:
    return struct.pack(">i", value)


GARBAGE = {
    "nothing at all": b"",
    "half a size": b"\x00\x00",
    "a size and nothing": size(10),
    "a size and half a frame": size(10) + b"12345",
    "the largest size allowed, without bytes": size(CLAIMED_BYTES),
    "one above the largest size": size(CLAIMED_BYTES + 1),
    "the largest 32-bit size": size(2**31 - 1),
    "an empty frame": size(0),
    "a negative size": size(-1),
    "the smallest 32-bit size": size(-(2**31)),
    "an HTTP request": b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
    "an SSH greeting": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a little-endian size": struct.pack("<i", 60) + bytes(60),
    "a good frame, then garbage": framed(b"good") + b"\xff" * 100,
    "line noise": bytes(range(255, 0, -1)) * 40,
}


@pytest.mark.parametrize("how", ["half-close", "reset", "stay"])
@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_hurts_nobody_else(run, garbage, how):
    async def story():
        async with serving() as served:
            other, bad = await served.connect(), await served.connect()
            await other.ask(b"before")
            bad.send_raw(garbage)
            match how:
                case "half-close":
                    bad.half_close()
                    await bad.until_closed()
                case "reset":
                    bad.reset()
            assert await other.ask(b"after") == b"after"
            assert served.metric("handler_error_total") == 0

    run(story())


@given(st.lists(st.binary(max_size=40), max_size=10), st.sampled_from(sorted(LOOPS)))
def test_any_bytes_in_any_pieces_hurt_nobody_else(pieces, loop_name):
    async def story():
        async with serving(frame_bytes_max=1_000) as served:
            other, bad = await served.connect(), await served.connect()
            for piece in pieces:
                bad.send_raw(piece)
                assert await other.ask(b"between") == b"between"
            bad.half_close()
            await bad.until_closed()
            assert await other.ask(b"after") == b"after"
            assert served.metric("handler_error_total") == 0

    with asyncio.Runner(loop_factory=LOOPS[loop_name]) as runner:
        runner.run(story())


def test_a_frame_sent_byte_by_byte_is_a_frame(run):
    async def story():
        async with serving() as served:
            other, slow = await served.connect(), await served.connect()
            for index in range(20):
                slow.send_raw(framed(b"sixteen bytes it")[index : index + 1])
                assert await other.ask(b"between") == b"between"
            assert await slow.receive() == b"sixteen bytes it"

    run(story())


def test_claims_without_bytes_hold_hardly_any_memory(run):
    async def story():
        async with serving() as served:
            other = await served.connect()
            await other.ask(b"warm")
            liars = [await served.connect() for _ in range(50)]
            tracemalloc.start()
            try:
                for liar in liars:
                    liar.send_raw(size(CLAIMED_BYTES) + b"a few bytes")
                await served.settle(other)
                held_bytes, peak_bytes = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert held_bytes < len(liars) * 64 * 1024
            assert peak_bytes < CLAIMED_BYTES

    run(story())


def test_a_thousand_connections_with_one_request_each_are_all_answered(run):
    async def story():
        async with serving() as served:
            peers = await asyncio.gather(*(served.connect() for _ in range(1_000)))
            answers = await asyncio.gather(*(peer.ask(b"%d" % index) for index, peer in enumerate(peers)))
            assert answers == [b"%d" % index for index in range(1_000)]
            assert served.server.connection_count == 1_000

    run(story())


def test_connections_beyond_the_bound_are_closed_cleanly_and_the_others_served(run):
    async def story():
        async with serving(connections_max=20) as served:
            kept = [await served.connect() for _ in range(20)]
            for peer in kept:
                await peer.ask(b"in")
            refused = await asyncio.gather(*(served.connect() for _ in range(50)))
            for peer in refused:
                peer.send(b"let me in")
            assert await asyncio.gather(*(peer.until_closed() for peer in refused)) == [b""] * 50
            assert await asyncio.gather(*(peer.ask(b"still here") for peer in kept)) == [b"still here"] * 20

    run(story())


def test_a_flood_of_tiny_frames_is_answered_in_order(run):
    async def story():
        async with serving() as served:
            flooder, other = await served.connect(), await served.connect()
            sent = [b"%05d" % index for index in range(20_000)]
            flooder.send(*sent)
            assert await other.ask(b"meanwhile") == b"meanwhile"
            assert [await flooder.receive() for _ in sent] == sent

    run(story())


def test_a_peer_that_vanishes_amid_a_large_answer_hurts_nobody(run):
    async def story():
        async with serving(
            lambda _, frame, reply: reply.send([bytes(8_000_000)] if frame == b"big" else [frame])
        ) as served:
            reader, other = await served.connect(receive_buffer_bytes=64 * 1024), await served.connect()
            reader.send(*[b"big"] * 5)
            await served.settle(other)
            reader.reset()
            await served.handler.until(lambda: served.handler.closed)
            await served.settle(other)
            assert served.server.pending_bytes == 0
            assert served.server.connection_count == 1

    run(story())
