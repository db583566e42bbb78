"""One connection over a transport that the test plays: writes are counted, and every order of events is possible."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.model.errors import InvariantError
from exactlog.core.model.metrics import Registry
from exactlog.network import Connection, NetworkLimits, Reply
from exactlog.network.network_metrics import NetworkMetrics
from tests.unit.network.harness import ToyHandler, answer_later, echo, framed


class PlayedTransport:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_reading = True
        self.closed_by = ""
        self.unwritten_bytes = 0

    def get_extra_info(self, name):
        return {"peername": ("10.0.0.1", 5000)}[name]

    def set_write_buffer_limits(self, high, low):
        assert high >= low

    def get_write_buffer_size(self):
        return self.unwritten_bytes

    def write(self, chunk):
        assert not self.closed_by
        self.writes.append(bytes(chunk))

    def writelines(self, chunks):
        self.write(b"".join(chunks))

    def pause_reading(self):
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self):
        assert not self.is_reading
        self.is_reading = True

    def is_closing(self):
        return bool(self.closed_by)

    def close(self):
        self.closed_by = "close"

    def abort(self):
        self.closed_by = "abort"


class PlayedOwner:
    """A server whose event loop is `run_turns`."""

    def __init__(self, handler, **limits) -> None:
        self.handler = handler
        self.limits = NetworkLimits(**limits)
        self.metrics = NetworkMetrics(Registry(), read_connection_count=int, read_pending_bytes=int)
        self.receive_buffer = memoryview(bytearray(256))
        self.is_vectored = True
        self.is_reading_paused = False
        self.turns: list[Connection] = []
        self.paused: list[Connection] = []
        self.transport = PlayedTransport()
        self.connection = Connection(self, 1, now_ms=0)
        self.connection.connection_made(self.transport)

    def admit(self, connection):
        return True

    def forget(self, connection, reason):
        self.forgotten_for = reason

    def schedule(self, connection):
        self.turns.append(connection)

    def note_paused(self, connection):
        self.paused.append(connection)

    def note_unwritten(self, connection):
        pass

    def note_closing(self, connection):
        pass

    def run_turns(self) -> None:
        while self.turns:
            self.turns.pop(0).take_turn()

    def receive(self, chunk: bytes) -> bytes:
        """Deliver as much of the chunk as the connection reads; gives the rest."""
        while chunk and self.transport.is_reading and not self.transport.closed_by:
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(chunk))
            buffer[:count] = chunk[:count]
            self.connection.buffer_updated(count)
            chunk = chunk[count:]
        return chunk

    def resume_server_wide(self) -> None:
        self.is_reading_paused = False
        while self.paused:
            self.paused.pop().resume_server_wide()

    def answers(self) -> list[bytes]:
        stream, answers = b"".join(self.transport.writes), []
        while stream:
            (size,) = struct.unpack_from(">i", stream)
            answers.append(stream[4 : 4 + size])
            stream = stream[4 + size :]
        return answers


def test_answers_to_one_read_leave_in_one_write():
    owner = PlayedOwner(ToyHandler(echo))
    owner.receive(framed(b"a", b"bb", b"ccc"))
    assert owner.transport.writes == [framed(b"a", b"bb", b"ccc")]
    assert owner.turns == []


def test_answers_that_become_ready_in_one_turn_leave_in_one_write():
    owner = PlayedOwner(handler := ToyHandler(answer_later))
    owner.receive(framed(b"a", b"b", b"c"))
    handler.replies[0].send([b"A"])
    handler.replies[1].send([b"B"])
    assert owner.transport.writes == []
    owner.run_turns()
    assert owner.transport.writes == [framed(b"A", b"B")]


def test_an_answer_waits_for_the_earlier_ones_and_then_leaves_with_them():
    owner = PlayedOwner(handler := ToyHandler(answer_later))
    owner.receive(framed(b"a", b"b", b"c"))
    handler.replies[2].send([b"C"])
    handler.replies[1].send([b"B"])
    assert owner.turns == []
    handler.replies[0].send([b"A"])
    owner.run_turns()
    assert owner.transport.writes == [framed(b"A", b"B", b"C")]


def test_the_parts_of_an_answer_leave_in_order_and_their_size_in_front():
    owner = PlayedOwner(handler := ToyHandler(answer_later))
    owner.receive(framed(b"a"))
    large = bytes(range(256)) * 256
    handler.replies[0].send([b"head", memoryview(large), bytearray(b"tail")])
    owner.run_turns()
    assert owner.answers() == [b"head" + large + b"tail"]


def test_a_large_answer_does_not_wait_for_the_end_of_the_read():
    writes_seen = []

    def on_frame(connection, frame, reply):
        writes_seen.append(len(owner.transport.writes))
        reply.send([bytes(600_000)])

    owner = PlayedOwner(ToyHandler(on_frame))
    owner.receive(framed(b"a", b"b", b"c"))
    assert writes_seen == [0, 0, 1]
    assert len(owner.answers()) == 3


def test_a_frame_is_answered_once():
    owner = PlayedOwner(handler := ToyHandler(echo))
    owner.receive(framed(b"a"))
    with pytest.raises(InvariantError, match=r"10\.0\.0\.1:5000 was answered twice"):
        handler.replies[0].send([b"again"])
    with pytest.raises(InvariantError, match="answered twice"):
        handler.replies[0].skip()
    assert owner.answers() == [b"a"]


def test_an_answer_too_large_for_its_size_is_refused():
    class Huge(bytes):
        def __len__(self):
            return 2**31

    owner = PlayedOwner(handler := ToyHandler(answer_later))
    owner.receive(framed(b"a"))
    with pytest.raises(InvariantError, match="31 bits"):
        handler.replies[0].send([Huge()])


def test_answers_after_the_end_are_ignored():
    owner = PlayedOwner(handler := ToyHandler(answer_later))
    owner.receive(framed(b"a", b"b"))
    handler.replies[0].send([b"A"])
    owner.connection.close("done-with-you")
    handler.replies[1].send([b"B"])
    owner.run_turns()
    owner.connection.connection_lost(None)
    assert owner.answers() == [b"A"]
    assert owner.transport.closed_by == "close"
    assert owner.forgotten_for == "done-with-you"
    assert handler.closed == [owner.connection]


def test_answers_above_the_pending_limit_leave_at_once_and_only_those_that_must_wait_stop_the_reading():
    def on_frame(connection, frame, reply):
        if frame != b"later":
            reply.send([bytes(frame) * 50])

    owner = PlayedOwner(handler := ToyHandler(on_frame), pending_bytes_max=100)
    owner.receive(framed(b"abc", b"def", b"later", b"ghi", b"jkl"))
    assert owner.transport.writes == [framed(b"abc" * 50), framed(b"def" * 50)]
    assert handler.frames == [b"abc", b"def", b"later", b"ghi"]
    assert not owner.transport.is_reading
    handler.replies[2].send([])
    owner.run_turns()
    assert owner.answers()[2:] == [b"", b"ghi" * 50, b"jkl" * 50]
    assert owner.transport.is_reading


def test_a_quiet_connection_with_unread_answers_is_idle_but_not_while_its_peer_takes_some():
    owner = PlayedOwner(ToyHandler(echo), idle_ms_max=100)
    owner.transport.unwritten_bytes = 1_000
    owner.connection.expire(now_ms=50)
    owner.transport.unwritten_bytes = 900
    owner.connection.expire(now_ms=120)
    owner.connection.expire(now_ms=219)
    assert owner.transport.closed_by == ""
    owner.connection.expire(now_ms=220)
    assert owner.transport.closed_by == "abort"


class Story:
    """A connection under load: frames whose handling is drawn, and the events that can happen next."""

    ACTIONS = ("now", "now_large", "later", "skip", "hold", "park", "pause_server")
    PARKED_BYTES = 70
    LARGE = bytes(100)

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        self.sent = [b"%d" % index for index in range(self.draw(st.integers(1, 25)))]
        self.actions = {frame: self.draw(st.sampled_from(self.ACTIONS)) for frame in self.sent}
        self.in_flight_max = self.draw(st.integers(1, 6))
        self.handler = ToyHandler(self.on_frame)
        bytes_max = self.draw(st.sampled_from([10, 150, 1_000_000]))
        self.owner = PlayedOwner(self.handler, requests_in_flight_max=self.in_flight_max, pending_bytes_max=bytes_max)
        self.unsent = framed(*self.sent)
        self.waiting: list[tuple[Reply, bytes]] = []

    def on_frame(self, connection, frame, reply):
        assert len(self.waiting) < self.in_flight_max
        match self.actions[bytes(frame)]:
            case "now":
                reply.send([frame])
            case "now_large":
                reply.send([frame, self.LARGE])
            case "skip":
                reply.skip()
            case "later":
                self.waiting.append((reply, bytes(frame)))
            case "hold":
                connection.hold()
                self.waiting.append((reply, bytes(frame)))
            case "park":
                assert self.parked_bytes <= self.owner.limits.pending_bytes_max
                connection.park(self.PARKED_BYTES)
                self.waiting.append((reply, bytes(frame)))
            case "pause_server":
                self.owner.is_reading_paused = True
                reply.send([frame])

    @property
    def parked_bytes(self) -> int:
        return self.PARKED_BYTES * sum(self.actions[frame] == "park" for _, frame in self.waiting)

    def expected_answers(self) -> list[bytes]:
        endings = {frame: self.LARGE if action == "now_large" else b"" for frame, action in self.actions.items()}
        return [frame + endings[frame] for frame in self.sent if self.actions[frame] != "skip"]

    def is_over(self) -> bool:
        return len(self.handler.frames) == len(self.sent) and not self.events()

    def events(self) -> list:
        possible = {
            self.receive: self.unsent and self.owner.transport.is_reading,
            self.answer: self.waiting,
            self.owner.run_turns: self.owner.turns,
            self.owner.resume_server_wide: self.owner.is_reading_paused,
        }
        return [event for event, is_possible in possible.items() if is_possible]

    def receive(self) -> None:
        count = self.draw(st.integers(1, len(self.unsent)))
        self.unsent = self.owner.receive(self.unsent[:count]) + self.unsent[count:]

    def answer(self) -> None:
        reply, frame = self.waiting.pop(self.draw(st.integers(0, len(self.waiting) - 1)))
        reply.send([frame])
        if self.actions[frame] == "hold":
            self.owner.connection.release()
        if self.actions[frame] == "park":
            self.owner.connection.unpark(self.PARKED_BYTES)


@given(st.data())
def test_whatever_the_order_of_events_every_frame_is_handed_out_once_and_answered_in_order(data):
    story = Story(data)
    while not story.is_over():
        events = story.events()
        assert events, "the connection has stalled"
        data.draw(st.sampled_from(events))()
    assert story.handler.frames == story.sent
    assert story.owner.answers() == story.expected_answers()
    assert story.owner.connection.pending_bytes == 0
    assert story.owner.transport.is_reading
