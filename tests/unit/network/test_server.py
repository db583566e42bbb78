"""The server on real sockets, on both event loops."""

import asyncio
import logging
import socket
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactlog.core.model.errors import InvariantError
from exactlog.network import ListenError
from tests.unit.network.harness import answer_later, framed, serving

MIB = 1024 * 1024


# --- frames and answers ---------------------------------------------------------------------------------------


async def test_a_frame_split_at_any_byte_is_one_frame():
    async with serving() as served:
        stream = framed(b"first frame", b"second")
        for split in range(1, len(stream)):
            peer = await served.connect()
            peer.send_raw(stream[:split])
            await served.settle(await served.connect())
            peer.send_raw(stream[split:])
            assert await peer.receive() == b"first frame"
            assert await peer.receive() == b"second"


@settings(max_examples=15)
@given(
    frames=st.lists(
        st.binary(min_size=1, max_size=50) | st.sampled_from([bytes(300_000), bytes(1_500_000)]), max_size=8
    )
)
async def test_many_frames_in_one_go_are_answered_in_order(frames):
    async with serving() as served:
        peer = await served.connect()
        peer.send(*frames)
        assert [await peer.receive() for _ in frames] == frames


async def test_a_large_answer_in_parts_arrives_whole_and_in_order():
    async with serving(answer_later) as served:
        peer = await served.connect()
        peer.send(b"fetch")
        await served.handler.until(lambda: served.handler.frames)
        large = bytes(range(256)) * 40_000
        served.handler.replies[0].send([b"head", memoryview(large), b"middle", bytearray(large), b"tail"])
        assert await peer.receive() == b"head" + large + b"middle" + large + b"tail"


async def test_answers_leave_in_the_order_of_their_frames_whatever_the_order_of_completion():
    async with serving(answer_later) as served:
        peer = await served.connect()
        peer.send(b"a", b"b", b"c")
        await served.handler.until(lambda: len(served.handler.frames) == 3)
        for position in (1, 2, 0):
            served.handler.replies[position].send([served.handler.frames[position].upper()])
        assert [await peer.receive() for _ in range(3)] == [b"A", b"B", b"C"]


async def test_a_skipped_frame_stalls_nobody():
    async with serving(lambda _, frame, reply: reply.skip() if frame == b"acks=0" else reply.send([frame])) as served:
        peer = await served.connect()
        peer.send(b"acks=0", b"acks=0", b"metadata")
        assert await peer.receive() == b"metadata"
        assert await peer.ask(b"again") == b"again"


async def test_a_frame_handled_on_one_connection_may_answer_another():
    def on_frame(connection, frame, reply):
        if frame == b"produce":
            served.handler.replies[0].send([b"woken"])
            reply.send([b"produced"])

    async with serving(on_frame) as served:
        consumer, producer = await served.connect(), await served.connect()
        consumer.send(b"fetch")
        await served.handler.until(lambda: served.handler.frames)
        assert await producer.ask(b"produce") == b"produced"
        assert await consumer.receive() == b"woken"


async def test_a_handler_may_keep_its_frames():
    kept = []

    def on_frame(connection, frame, reply):
        kept.append(frame)
        reply.send([b"ok"])

    async with serving(on_frame) as served:
        peers = [await served.connect(), await served.connect()]
        for letter in (b"a", b"b", b"c"):
            for peer in peers:
                await peer.ask(letter * 1_000)
        assert kept == [letter * 1_000 for letter in (b"a", b"b", b"c") for _ in peers]
        kept[0][:1] = b"x"
        assert kept[1][:1] == b"a"


# --- pausing --------------------------------------------------------------------------------------------------


async def test_frames_that_arrive_while_held_wait_until_release():
    def on_frame(connection, frame, reply):
        if frame == b"create topic":
            connection.hold()
        else:
            reply.send([frame])

    async with serving(on_frame) as served:
        peer, other = await served.connect(), await served.connect()
        peer.send(b"create topic", b"produce")
        await served.settle(other)
        peer.send(b"fetch")
        await served.settle(other)
        assert b"produce" not in served.handler.frames
        served.handler.replies[0].send([b"created"])
        served.handler.opened[0].release()
        assert [await peer.receive() for _ in range(3)] == [b"created", b"produce", b"fetch"]


async def test_frames_above_the_in_flight_limit_wait_until_half_are_answered():
    def on_frame(connection, frame, reply):
        if frame == b"settle":
            reply.send([frame])
        else:
            waiting.append((frame, reply))

    waiting: list = []
    async with serving(on_frame, requests_in_flight_max=4) as served:
        peer, other = await served.connect(), await served.connect()
        sent = [b"%d" % index for index in range(10)]
        peer.send(*sent)
        await served.settle(other)
        assert [frame for frame, _ in waiting] == sent[:4]
        waiting[0][1].send([b"answer"])
        await served.settle(other)
        assert len(waiting) == 4
        waiting[1][1].send([b"answer"])
        await served.settle(other)
        assert [frame for frame, _ in waiting] == sent[:6]
        for index in range(2, 10):
            await served.handler.until(lambda index=index: len(waiting) > index)
            waiting[index][1].send([b"answer"])
        assert [await peer.receive() for _ in sent] == [b"answer"] * 10


async def test_a_peer_that_does_not_read_is_not_read_from_and_stalls_nobody():
    answer = bytes(MIB)

    def on_frame(connection, frame, reply):
        reply.send([frame] if frame == b"settle" else [answer])

    async with serving(on_frame, pending_bytes_max=2 * MIB) as served:
        slow, other = await served.connect(receive_buffer_bytes=64 * 1024), await served.connect()
        slow.send(*[b"fetch"] * 50)
        await served.settle(other)
        answered_at_first = served.handler.frames.count(b"fetch")
        assert 2 <= answered_at_first < 50
        assert 2 * MIB < served.server.pending_bytes == served.metric("pending_bytes")
        for _ in range(50):
            assert await slow.receive() == answer
        await served.settle(other)
        assert served.server.pending_bytes == 0


async def test_answers_that_wait_for_an_earlier_one_count_as_pending():
    def on_frame(connection, frame, reply):
        if frame != b"long poll":
            reply.send([frame])

    async with serving(on_frame, pending_bytes_max=10_000) as served:
        peer, other = await served.connect(), await served.connect()
        sent = [bytes([index]) * 3_000 for index in range(8)]
        peer.send(b"long poll", *sent)
        await served.settle(other)
        assert [frame for frame in served.handler.frames if len(frame) == 3_000] == sent[:4]
        served.handler.replies[0].send([b"polled"])
        assert await peer.receive() == b"polled"
        assert [await peer.receive() for _ in sent] == sent


async def test_the_server_reads_from_nobody_while_reading_is_paused():
    def on_frame(connection, frame, reply):
        reply.send([frame])
        if frame == b"the last straw":
            served.server.pause_reading()

    async with serving(on_frame) as served:
        busy, quiet = await served.connect(), await served.connect()
        await busy.ask(b"hello")
        await busy.ask(b"the last straw")
        busy.send(b"more")
        quiet.send(b"from the quiet one")  # its first frame is taken, for it was not known to send
        assert await quiet.receive() == b"from the quiet one"
        quiet.send(b"second")
        late = await served.connect()
        assert await late.ask(b"late") == b"late"
        assert b"more" not in served.handler.frames
        assert b"second" not in served.handler.frames
        served.server.resume_reading()
        assert await busy.receive() == b"more"
        assert await quiet.receive() == b"second"
        assert await late.ask(b"later") == b"later"


# --- limits and ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -1, 1_001, 2**31 - 1])
async def test_an_impossible_size_closes_that_connection_after_the_answers_before_it(size, caplog):
    async with serving(frame_bytes_max=1_000) as served:
        peer, other = await served.connect(), await served.connect()
        peer.send_raw(framed(b"good") + size.to_bytes(4, "big", signed=True) + b"rest")
        assert await peer.until_closed() == framed(b"good")
        assert await other.ask(b"still here") == b"still here"
        await served.handler.until(lambda: served.handler.closed)
        assert served.metric('connection_close_total{reason="frame-size"}') == 1
    assert f"a frame of {size} bytes; a frame has between 1 and 1000" in caplog.text


@pytest.mark.parametrize(
    ("hello", "name"),
    [(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "an HTTP request"), (b"\x16\x03\x01\x02\x00\x01", "a TLS hello")],
)
async def test_a_foreign_protocol_is_named_at_debug_level_only(hello, name, caplog):
    caplog.set_level(logging.DEBUG, logger="exactlog.network")
    async with serving() as served:
        peer = await served.connect()
        peer.send_raw(hello)
        assert await peer.until_closed() == b""
    (record,) = [record for record in caplog.records if name in record.getMessage()]
    assert record.levelno == logging.DEBUG


async def test_one_connection_too_many_is_closed_and_a_place_that_becomes_free_is_taken(caplog):
    async with serving(connections_max=2) as served:
        peers = [await served.connect(), await served.connect()]
        for peer in peers:
            await peer.ask(b"in")
        for _ in range(2):
            refused = await served.connect()
            assert await refused.until_closed() == b""
        assert [await peer.ask(b"still in") for peer in peers] == [b"still in"] * 2
        assert served.metric('connection_close_total{reason="connections-max"}') == 2
        assert caplog.text.count("connections.max=2 reached") == 1
        await peers[0].close()
        await served.handler.until(lambda: served.handler.closed)
        assert await (await served.connect()).ask(b"in") == b"in"
        assert len(served.handler.opened) == 3


async def test_an_idle_connection_is_closed_one_that_waits_for_an_answer_is_not():
    def on_frame(connection, frame, reply):
        if frame != b"long poll":
            reply.send([frame])

    async with serving(on_frame, idle_ms_max=1_000) as served:
        idle, stalled, active, polling = [await served.connect() for _ in range(4)]
        await idle.ask(b"hello")
        stalled.send_raw(framed(b"half a frame")[:9])
        polling.send(b"long poll")
        await active.ask(b"hello")
        served.clock.time_ms += 600
        served.server.sweep()
        await active.ask(b"hello")
        await served.handler.until(lambda: b"long poll" in served.handler.frames)
        served.clock.time_ms += 999
        served.server.sweep()
        assert served.server.connection_count == 4
        served.clock.time_ms += 1
        await active.ask(b"hello")
        served.server.sweep()
        assert await idle.until_closed() == b""
        assert await stalled.until_closed() == b""
        served.handler.replies[served.handler.frames.index(b"long poll")].send([b"polled"])
        assert await polling.receive() == b"polled"
        assert await active.ask(b"still here") == b"still here"
        await served.handler.until(lambda: len(served.handler.closed) == 2)
        assert served.metric('connection_close_total{reason="idle"}') == 2


async def test_the_server_looks_for_idle_connections_by_itself():
    async with serving(idle_ms_max=4) as served:
        peer = await served.connect()
        await served.handler.until(lambda: served.handler.opened)
        served.clock.time_ms += 10
        assert await peer.until_closed() == b""


async def test_a_closing_connection_whose_peer_takes_nothing_is_dropped_after_a_while():
    async with serving(answer_later, close_linger_ms=500) as served:
        peer = await served.connect(receive_buffer_bytes=64 * 1024)
        peer.send(b"fetch")
        await served.handler.until(lambda: served.handler.replies)
        served.handler.replies[0].send([bytes(32 * MIB)])
        served.handler.opened[0].close("enough")
        served.clock.time_ms += 499
        served.server.sweep()
        for _ in range(3):
            await asyncio.sleep(0)
        assert served.server.connection_count == 1
        served.clock.time_ms += 1
        served.server.sweep()
        await served.handler.until(lambda: served.handler.closed)
        assert served.metric('connection_close_total{reason="enough"}') == 1


async def test_a_handler_that_fails_closes_its_connection_alone(caplog):
    def on_frame(connection, frame, reply):
        if frame == b"bad":
            raise ValueError("the story of the failure")
        reply.send([frame])

    async with serving(on_frame) as served:
        peer, other = await served.connect(), await served.connect()
        peer.send(b"good", b"bad", b"after")
        assert await peer.until_closed() == framed(b"good")
        assert await other.ask(b"still here") == b"still here"
        assert served.handler.frames == [b"good", b"bad", b"still here"]
        assert served.metric("handler_error_total") == 1
        await served.handler.until(lambda: served.handler.closed)
        assert served.metric('connection_close_total{reason="handler-error"}') == 1
    assert "the story of the failure" in caplog.text
    assert "Traceback" in caplog.text


async def test_a_handler_that_fails_when_a_connection_opens_or_closes_hurts_nobody(caplog):
    async with serving() as served:
        other = await served.connect()
        await other.ask(b"hello")

        def fail(connection):
            raise ValueError("no")

        served.handler.connection_opened = fail
        peer = await served.connect()
        assert await peer.until_closed() == b""
        del served.handler.connection_opened
        served.handler.connection_closed = fail
        leaver = await served.connect()
        await leaver.ask(b"hello")
        leaver.reset()
        while served.metric("handler_error_total") < 2:
            await served.settle(other)
        assert served.server.connection_count == 1
        del served.handler.connection_closed
    assert caplog.text.count("its handler failed") == 2


async def test_a_peer_that_leaves_or_vanishes_is_forgotten():
    async with serving(answer_later) as served:
        leaver, vanisher = await served.connect(), await served.connect()
        for peer in (leaver, vanisher):
            peer.send(b"long poll")
        await served.handler.until(lambda: len(served.handler.replies) == 2)
        await leaver.close()
        vanisher.reset()
        await served.handler.until(lambda: len(served.handler.closed) == 2)
        for reply in served.handler.replies:
            reply.send([b"too late"])
        assert served.server.connection_count == 0
        assert served.metric("connection_count") == 0


async def test_what_a_peer_sent_before_it_left_is_handled():
    async with serving(lambda _, frame, reply: reply.skip()) as served:
        peer = await served.connect()
        peer.send(b"acks=0", b"acks=0")
        await peer.close()
        await served.handler.until(lambda: served.handler.closed)
        assert served.handler.frames == [b"acks=0", b"acks=0"]


async def test_a_connection_has_a_peer_an_id_and_room_for_a_session():
    async with serving() as served:
        first, second = await served.connect(), await served.connect()
        await first.ask(b"x")
        await second.ask(b"x")
        connections = served.handler.opened
        assert [connection.peer for connection in connections] == [
            peer.writer.get_extra_info("sockname") for peer in (first, second)
        ]
        assert connections[0].id != connections[1].id
        connections[0].session = "mine"
        assert connections[1].session is None


async def test_bytes_frames_and_answers_are_counted():
    async with serving() as served:
        peer = await served.connect()
        await peer.ask(b"12345")
        assert served.metric("incoming_byte_total") == 9
        assert served.metric("outgoing_byte_total") == 9
        assert served.metric("request_total") == 1
        assert served.metric("response_total") == 1
        assert served.metric("connection_creation_total") == 1
        assert served.metric("connection_count") == 1


# --- start, stop, abort ---------------------------------------------------------------------------------------


async def test_stop_answers_what_is_in_flight_and_takes_nothing_new():
    async with serving(answer_later) as served:
        busy, idle = await served.connect(), await served.connect()
        busy.send(b"a", b"b")
        await served.handler.until(lambda: len(served.handler.replies) == 2)
        await served.handler.until(lambda: len(served.handler.opened) == 2)
        stopping = asyncio.create_task(served.server.stop(drain_ms=60_000))
        assert await idle.until_closed() == b""
        await idle.close()
        busy.send(b"too late")
        with pytest.raises(ConnectionError):
            await served.connect()
        served.handler.replies[1].send([b"B"])
        served.handler.replies[0].send([b"A"])
        assert await busy.until_closed() == framed(b"A", b"B")
        await busy.close()
        await stopping
        assert served.handler.frames == [b"a", b"b"]
        assert len(served.handler.closed) == 2


async def test_stop_ends_connections_that_their_peers_have_reset_a_moment_ago(caplog):
    async with serving() as served:
        sockets = [socket.create_connection(served.address) for _ in range(3)]
        await served.handler.until(lambda: len(served.handler.opened) == 3)
        for peer in sockets:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
        await served.server.stop(drain_ms=60_000)  # before the loop has heard of it
        assert served.server.connection_count == 0
    assert caplog.text == ""


async def test_stop_gives_up_on_what_is_not_answered_in_time(caplog):
    async with serving(answer_later) as served:
        peer = await served.connect()
        peer.send(b"never answered")
        await served.handler.until(lambda: served.handler.replies)
        await served.server.stop(drain_ms=1)
        assert await peer.until_closed() == b""
        assert served.server.connection_count == 0
        assert served.metric('connection_close_total{reason="shutdown"}') == 1
    assert "1 connections dropped with requests in flight" in caplog.text


async def test_stop_does_not_wait_for_a_peer_that_stays_although_it_has_its_answers(monkeypatch, caplog):
    monkeypatch.setattr("exactlog.network.server.SHUTDOWN_LINGER_MS", 1)
    async with serving() as served:
        peer = await served.connect()
        await peer.ask(b"x")
        await served.server.stop(drain_ms=3_600_000)
        assert served.server.connection_count == 0
    assert caplog.text == ""


async def test_abort_drops_every_socket_without_answers(caplog):
    async with serving(answer_later) as served:
        peer, other = await served.connect(), await served.connect()
        peer.send(b"a", b"b")
        other.send(b"c")
        await served.handler.until(lambda: len(served.handler.replies) == 3)
        served.handler.replies[0].send([b"ready, but it may not leave"])
        served.server.abort()
        for reply in served.handler.replies[1:]:
            reply.send([b"too late"])
        assert await peer.until_closed() == b""
        assert await other.until_closed() == b""
        with pytest.raises(ConnectionError):
            await served.connect()
        await served.server.stop(drain_ms=0)
        assert len(served.handler.closed) == 2
    assert caplog.text == ""


async def test_a_port_that_is_taken_is_a_clear_error_and_free_again_after_stop():
    async with serving() as served:
        port = served.address[1]
        peer = await served.connect()
        await peer.ask(b"x")
        async with serving() as second:
            with pytest.raises(InvariantError, match="started once"):
                await second.server.start("127.0.0.1", 0)
        with pytest.raises(ListenError, match=rf"cannot listen on 127.0.0.1:{port}: Address already in use") as refused:
            await served.another_server().start("127.0.0.1", port)
        assert "0 takes a free one" in refused.value.hint
        await served.server.stop(drain_ms=0)
        successor = served.another_server()
        assert await successor.start("127.0.0.1", port) == ("127.0.0.1", port)
        await successor.stop(drain_ms=0)


async def test_a_name_is_listened_on_by_its_ipv4_address():
    async with serving() as served:
        server = served.another_server()
        host, port = await server.start("localhost", 0)
        assert host == "127.0.0.1"
        assert port > 0
        await server.stop(drain_ms=0)
        with pytest.raises(ListenError, match=r"no\.such\.host\.invalid") as refused:
            await served.another_server().start("no.such.host.invalid", 0)
        assert "address of this machine" in refused.value.hint
