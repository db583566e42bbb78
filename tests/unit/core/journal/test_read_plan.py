"""What to read of a journal, from where: each question of a read, and each path."""

import pytest
from msgspec.structs import replace

from exactlog.core.journal.errors import HeadLost, Repartitioned, Retriable
from exactlog.core.journal.expectation import NO_STREAM, Expectation
from exactlog.core.journal.head_summary import settle, summarize
from exactlog.core.journal.keys import SEQ_NR_MAX, Place, SeqRange
from exactlog.core.journal.read_plan import (
    LogPart,
    LogReader,
    ReadPath,
    Stretch,
    held_offset,
    needed_stretch,
    plan_read,
)
from exactlog.core.journal.rows import HeadRow
from exactlog.core.journal.state import JournalState
from exactlog.core.model.errors import DecodeError
from tests.support.event_journals import (
    KEY,
    TOPIC_PARTITION,
    append,
    delete,
    life_at,
    mark,
    purge,
    record,
    seq,
)

EVERYTHING = SeqRange(1, SEQ_NR_MAX)
HEAD = HeadRow(
    place=Place(0, 10), segment_size=3, seq_nr=5, delete_to=2, created_ms=1, updated_ms=1, record_id=life_at(4)
)


def plan(head, *records, wanted=EVERYTHING, start=11, end=20):
    return plan_read(KEY, wanted, head=head, summary=summarize(TOPIC_PARTITION, records, start=start, end=end))


def streamed(planned, *records, next_seq_nr=1, times=1):
    """The events of the part from the log, each action delivered so many times."""
    reader = LogReader(planned, planned.log, next_seq_nr=next_seq_nr)
    return [row.event.payload.content for each in records for _ in range(times) for row in reader.take(each)]


# --- which stretch of the log is needed -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pointer", "end", "expected"),
    [
        (None, 0, None),
        (None, 4, Stretch(0, 4)),
        (1, 4, Stretch(2, 4)),
        (2, 4, Stretch(3, 4)),
        (3, 4, None),
        (9, 4, None),
    ],
)
def test_the_log_is_needed_from_what_is_replicated_to_the_mark(pointer, end, expected):
    assert needed_stretch(TOPIC_PARTITION, pointer=pointer, end=end, log_start=0) == expected


@pytest.mark.parametrize(("pointer", "log_start"), [(None, 1), (3, 5), (3, 9)])
def test_a_head_that_retention_took_is_lost_and_said_to_be(pointer, log_start):
    with pytest.raises(HeadLost, match="neither replicated nor in the log") as told:
        needed_stretch(TOPIC_PARTITION, pointer=pointer, end=20, log_start=log_start)
    assert told.value.hint


def test_what_is_replicated_may_go_from_the_log():
    assert needed_stretch(TOPIC_PARTITION, pointer=3, end=20, log_start=4) == Stretch(4, 20)
    assert needed_stretch(TOPIC_PARTITION, pointer=19, end=20, log_start=50) is None


@pytest.mark.parametrize(
    ("pointer", "head", "expected"), [(None, None, -1), (7, None, 7), (7, HEAD, 10), (12, HEAD, 12), (None, HEAD, 10)]
)
def test_a_head_row_holds_everything_up_to_the_pointer_or_its_own_offset(pointer, head, expected):
    assert held_offset(TOPIC_PARTITION, pointer=pointer, head=head) == expected


def test_a_head_row_of_another_partition_is_refused():
    with pytest.raises(Repartitioned, match="of partition 3 now belongs to orders-0"):
        held_offset(TOPIC_PARTITION, pointer=7, head=replace(HEAD, place=Place(3, 10)))


# --- from where -------------------------------------------------------------------------------------------------------


def test_what_is_replicated_comes_from_the_store_alone():
    planned = plan(HEAD)

    assert (planned.path, planned.store, planned.log) == (ReadPath.STORE, SeqRange(3, 5), None)
    assert planned.state == HEAD.state


def test_what_is_not_comes_from_the_log_behind_it_from_its_first_action_on():
    planned = plan(HEAD, append(14, 6), append(16, 7))

    assert (planned.path, planned.wanted, planned.store) == (ReadPath.STORE_THEN_LOG, SeqRange(3, 7), SeqRange(3, 7))
    assert planned.log == LogPart(stretch=Stretch(14, 20), before=HEAD.state)


def test_a_journal_of_which_nothing_is_replicated_comes_from_the_log():
    planned = plan(None, append(14, 1, 3), delete(15, 1), start=0)

    assert (planned.path, planned.wanted) == (ReadPath.LOG, SeqRange(2, 3))
    assert streamed(planned, append(14, 1, 3), delete(15, 1)) == ["2@14", "3@14"]


def test_deletes_in_the_head_count_before_anything_is_streamed():
    assert plan(HEAD, delete(14, 4)).store == SeqRange(5, 5)
    assert plan(HEAD, append(12, 6), delete(14, 5)).wanted == SeqRange(6, 6)
    assert plan(HEAD, delete(14, 5)).path is ReadPath.NOTHING
    assert plan(HEAD, delete(14, SEQ_NR_MAX)).state.seq_nr == 5


def test_behind_a_purge_nothing_of_the_store_counts():
    purged, anew = plan(HEAD, purge(14)), plan(HEAD, append(12, 6), purge(14), append(16, 1, 2), append(17, 3))

    assert (purged.path, purged.state) == (ReadPath.NOTHING, None)
    assert (anew.path, anew.wanted, anew.store) == (ReadPath.LOG, SeqRange(1, 3), None)
    assert anew.log == LogPart(stretch=Stretch(16, 20), before=None)


@pytest.mark.parametrize(
    ("wanted", "path", "numbers"),
    [
        (SeqRange(1, 2), ReadPath.NOTHING, None),
        (SeqRange(1, 3), ReadPath.STORE, SeqRange(3, 3)),
        (SeqRange(5, 5), ReadPath.STORE, SeqRange(5, 5)),
        (SeqRange(5, 6), ReadPath.STORE_THEN_LOG, SeqRange(5, 6)),
        (SeqRange(6, 99), ReadPath.LOG, SeqRange(6, 7)),
        (SeqRange(8, 99), ReadPath.NOTHING, None),
        (SeqRange(SEQ_NR_MAX, SEQ_NR_MAX), ReadPath.NOTHING, None),
    ],
)
def test_only_what_is_wanted_is_read(wanted, path, numbers):
    planned = plan(HEAD, append(14, 6, 7), wanted=wanted)

    assert (planned.path, planned.wanted) == (path, numbers)
    assert planned.state.seq_nr == 7


def test_a_journal_that_was_reset_has_no_rows():
    reset = replace(HEAD, seq_nr=9, delete_to=9, is_reset=True)

    planned = plan(reset, append(14, 1, 2))

    assert (planned.path, planned.wanted) == (ReadPath.LOG, SeqRange(1, 2))


def test_once_the_store_has_caught_up_no_second_consumer_is_needed():
    planned = plan(HEAD, append(14, 6))

    assert planned.log_after(6) is None
    assert planned.log_after(5) is planned.log_after(None) is planned.log


# --- from the log -----------------------------------------------------------------------------------------------------


def test_the_part_from_the_log_is_what_the_store_did_not_give_yet():
    records = [append(14, 6, 7), mark(15), append(16, 8)]
    planned = plan(HEAD, *records)

    assert streamed(planned, *records, next_seq_nr=7) == ["7@14", "8@16"]
    assert streamed(planned, *records, next_seq_nr=6, times=2) == ["6@14", "7@14", "8@16"]


def test_of_the_log_that_is_taken_which_the_fold_takes():
    records = [
        append(12, 6, expect=seq(4)),  # another one was faster
        append(13, 6, expect=seq(5)),
        append(14, 5, 7),  # a fork: 7 alone is new
        append(15, 8, expect=NO_STREAM),
        append(16, 8, expect=seq(7)),
    ]

    assert streamed(plan(HEAD, *records), *records, next_seq_nr=6) == ["6@13", "7@14", "8@16"]


def test_events_of_an_earlier_life_within_the_stretch_are_not_told():
    ended = purge(14, expect=Expectation(seq_nr=6, record_id=HEAD.record_id))
    records = [append(12, 6), ended, append(16, 1), append(17, 2, expect=seq(1))]

    planned = plan(HEAD, *records)

    assert (planned.path, planned.state.record_id) == (ReadPath.LOG, life_at(16))
    assert streamed(planned, *records) == ["1@16", "2@17"]


def test_what_is_outside_the_stretch_or_not_wanted_is_not_even_read():
    broken = replace(append(13, 6).action, payload=b"{")
    planned = plan(HEAD, append(14, 7), append(15, 8), wanted=SeqRange(7, 7))
    reader = LogReader(planned, planned.log, next_seq_nr=7)

    assert list(reader.take(record(13, broken))) == []  # before it
    assert list(reader.take(record(25, broken))) == []  # behind it
    assert [row.record_id for row in reader.take(append(14, 7))] == [HEAD.record_id]
    assert reader.is_done
    assert list(reader.take(record(15, replace(broken, range=SeqRange(8, 8))))) == []


def test_events_that_are_wanted_and_cannot_be_read_are_an_error():
    broken = record(14, replace(append(14, 6).action, payload=b"{"))
    planned = plan(HEAD, broken)

    with pytest.raises(DecodeError, match="orders-0 offset 14"):
        streamed(planned, broken)


def test_the_part_from_the_log_ends_with_the_stretch_whatever_is_in_it():
    """Also where the last event that is wanted does not come in it."""
    planned = plan(HEAD, append(14, 6))
    reader = LogReader(planned, planned.log)

    assert list(reader.take(mark(18))) == []
    assert not reader.is_done
    assert list(reader.take(mark(19))) == []
    assert reader.is_done


# --- what happens meanwhile -------------------------------------------------------------------------------------------


def test_a_purge_that_the_store_may_have_carried_out_already_makes_the_reader_come_again():
    """It leaves no head that could tell. Without it the append that expected no journal would seem to hold."""
    records = [append(12, 1, expect=NO_STREAM), purge(13, expect=Expectation(seq_nr=5, record_id=life_at(4)))]

    assert plan(HEAD, *records).state is None
    with pytest.raises(Retriable, match="purge at offset 13 of orders-0"):
        plan(None, *records)
    settled = settle(summarize(TOPIC_PARTITION, records, start=11, end=20), None)
    with pytest.raises(Retriable):
        plan_read(KEY, EVERYTHING, head=None, summary=settled)


def test_a_purge_of_a_life_within_the_head_leaves_no_doubt():
    records = [append(12, 1), purge(13, expect=Expectation(seq_nr=1, record_id=life_at(12))), append(14, 1)]

    assert plan(None, *records).state == JournalState(1, 0, record_id=life_at(14))


def test_a_life_to_which_another_program_gave_an_id_is_read_like_ours():
    """kafka-journal's replicator draws ids at random, and is in the middle of a poll: the pointer has not moved yet."""
    records = [purge(11), append(12, 1), append(14, 2)]
    by_another = replace(HEAD, place=Place(0, 12), seq_nr=1, delete_to=None, record_id=life_at(777))
    summary = summarize(TOPIC_PARTITION, records, start=11, end=20).since(12)

    planned = plan_read(KEY, EVERYTHING, head=by_another, summary=summary)

    assert (planned.path, planned.store, planned.state.record_id) == (
        ReadPath.STORE_THEN_LOG,
        SeqRange(1, 2),
        life_at(777),
    )
    assert streamed(planned, *records, next_seq_nr=2) == ["2@14"]
