import threading

import msgspec
import pytest

from exactlog.testing.history import NEVER, Recorder, join, load
from exactlog.testing.history_format import (
    OUTCOMES,
    Done,
    End,
    Event,
    Failed,
    Header,
    HistoryError,
    Note,
    PlaceOffset,
    Poll,
    Polled,
    Send,
    Sent,
    Unknown,
    decode_event,
    encode_event,
)
from tests.peers import PROJECT

HEADER = b'{"type":"history","format":1}\n'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.jsonl"


def send(op, value="x"):
    return Send(op=op, worker="w", topic="t", partition=0, values=(value,))


def test_a_history_has_a_header_and_a_line_for_each_event(path):
    with Recorder(path) as recorder:
        op = recorder.request(send(recorder.next_op()))
        recorder.outcome(Sent(op=op, base_offset=0))
        recorder.note("crash")

    assert path.read_bytes().splitlines() == [
        HEADER.strip(),
        b'{"type":"send","op":1,"worker":"w","topic":"t","partition":0,"values":["x"]}',
        b'{"type":"sent","op":1,"base_offset":0}',
        b'{"type":"note","text":"crash"}',
    ]


def test_a_request_and_its_outcome_are_put_together_with_their_lines(path):
    with Recorder(path) as recorder:
        recorder.request(send(1))
        recorder.request(send(2, "y"))
        recorder.outcome(Sent(op=2, base_offset=7))
        recorder.outcome(Failed(op=1))

    first, second = load(path).operations
    assert (first.began, first.ended, first.has_failed) == (2, 5, True)
    assert (second.began, second.ended, second.has_succeeded) == (3, 4, True)


def test_a_request_without_an_outcome_has_an_unknown_one_that_never_came(path):
    with Recorder(path) as recorder:
        recorder.request(send(1))
        recorder.request(send(2, "y"))
        recorder.outcome(Unknown(op=2))

    assert [(found.is_unknown, found.ended) for found in load(path).operations] == [(True, NEVER)] * 2


def test_what_is_recorded_is_in_the_file_before_the_recorder_is_closed(path):
    recorder = Recorder(path)
    recorder.request(send(1))

    assert len(load(path).operations) == 1
    recorder.close()


def test_lines_of_many_threads_stay_whole(path):
    with Recorder(path) as recorder:

        def work():
            for _ in range(50):
                op = recorder.next_op()
                recorder.request(send(op, str(op)))
                recorder.outcome(Sent(op=op))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sum(found.has_succeeded for found in load(path).operations) == 200


def test_a_last_line_that_is_cut_is_passed_over(path):
    path.write_bytes(HEADER + encode_event(send(1)) + encode_event(Sent(op=1))[:-5])

    assert [found.is_unknown for found in load(path).operations] == [True]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (encode_event(send(1)), "line 1: a history has its header"),
        (HEADER + HEADER, "line 2: a history has its header"),
        (b'{"type":"history","format":2}\n', "format 2 is not known"),
        (HEADER + b"send\n" + encode_event(send(1)), "line 2"),
        (HEADER + b'{"type":"sending","op":1}\n', "line 2"),
        (HEADER + b'{"type":"sent"}\n', "line 2"),
        (HEADER + encode_event(Sent(op=1)), "line 2: op 1 ends, but has not begun"),
        (HEADER + encode_event(send(1)) + encode_event(Done(op=1)), "Send cannot end as Done"),
        (HEADER + encode_event(send(1)) * 2, "line 3: op 1 has been used in line 2"),
        (HEADER + encode_event(send(1)) + encode_event(Sent(op=1)) + encode_event(Sent(op=1)), "in line 3 already"),
    ],
)
def test_what_is_no_history_is_refused_with_its_line(path, content, message):
    path.write_bytes(content)

    with pytest.raises(HistoryError, match=message):
        load(path)


def test_unknown_fields_are_passed_over():
    assert decode_event(b'{"type":"note","text":"a","colour":"red"}', number=1) == Note(text="a")


def test_every_request_has_an_outcome_and_every_kind_of_line_its_own_type():
    kinds = [*Event.__args__, Header]

    assert len({kind.__struct_config__.tag for kind in kinds}) == len(kinds)
    assert len(OUTCOMES) == 8


@pytest.mark.parametrize(
    "event",
    [
        Poll(op=1, worker="w", session="s", topic="t", partition=0, is_committed=True),
        Polled(op=1, records=((3, "a"), (4, None)), aborted=((1, 2),)),
        End(op=1, worker="w", transaction="a", is_commit=False),
        Send(
            op=1, worker="w", topic="t", partition=0, values=("a",), transaction="a", sources=(PlaceOffset("s", 1, 2),)
        ),
    ],
)
def test_an_event_is_read_as_it_was_written(event):
    assert decode_event(encode_event(event), number=1) == event


def test_the_page_of_the_format_shows_a_history_that_can_be_read():
    page = (PROJECT / "docs" / "formats" / "history_format.md").read_text()
    shown = page.split("```json\n")[1].split("```")[0]
    events = [decode_event(line, number=number) for number, line in enumerate(shown.encode().splitlines(), start=1)]

    assert isinstance(events[0], Header)
    assert join(enumerate(events[1:], start=2)).operations


def test_the_page_of_the_format_names_every_field():
    page = (PROJECT / "docs" / "formats" / "history_format.md").read_text()
    named = [
        (kind.__struct_config__.tag, field.encode_name)
        for kind in (*Event.__args__, Header)
        for field in msgspec.structs.fields(kind)
    ]

    assert [(tag, field) for tag, field in named if f"`{tag}`" not in page or f"`{field}`" not in page] == []
