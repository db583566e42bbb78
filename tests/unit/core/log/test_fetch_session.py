"""Fetch sessions: which request they take, what they tell, and who must go when there is no room (KIP-227)."""

import itertools

import pytest

from exactlog.core.log.fetch_session import FetchSessions, SessionPartition, Told, next_epoch
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.limits import FETCH_SESSION_IDLE_MS

NOW = 1_000_000
LATER = NOW + FETCH_SESSION_IDLE_MS + 1
A, B, C = ("t", 0), ("t", 1), ("u", 0)


def sessions(*, sessions_max=2, partitions_max=100, ids=None):
    source = ids or itertools.count(1)
    return FetchSessions(sessions_max=sessions_max, partitions_max=partitions_max, new_id=lambda: next(source))


def asking(*keys, offset=0):
    return {key: SessionPartition(offset, "t") for key in keys}


def numbered(count):
    return asking(*(("t", index) for index in range(count)))


def resume(kept, session, *, asked=None, forgotten=(), now_ms=NOW, **changed):
    taken = {"session_id": session.session_id, "epoch": session.epoch, "takes_ids": session.takes_ids} | changed
    return kept.resume(
        taken["session_id"],
        taken["epoch"],
        takes_ids=taken["takes_ids"],
        asked=asked or {},
        forgotten=forgotten,
        now_ms=now_ms,
    )


def tell(session, key, end, *, has_records=False, must_tell=False):
    return session.tell(key, Told(end, end, 0), has_records=has_records, must_tell=must_tell)


# --- requests -----------------------------------------------------------------------------------------------------


def test_each_request_of_a_session_carries_the_next_epoch_and_an_old_one_is_refused():
    kept = sessions()
    session = kept.open(asking(A), takes_ids=False, now_ms=NOW)

    taken = [session.epoch, resume(kept, session), session.epoch, resume(kept, session, epoch=1), session.epoch]

    assert taken == [1, session, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH, 2]


def test_after_the_greatest_epoch_comes_1_since_0_opens_a_session():
    kept = sessions()
    session = kept.open(asking(A), takes_ids=False, now_ms=NOW)
    session.epoch = 2**31 - 1

    resume(kept, session)

    assert session.epoch == 1
    assert [next_epoch(epoch) for epoch in (0, 1, 2**31 - 2)] == [1, 2, 2**31 - 1]


def test_a_session_that_is_not_there_or_has_ended_is_refused():
    kept = sessions()
    session = kept.open(asking(A), takes_ids=False, now_ms=NOW)
    kept.end(session.session_id)
    kept.end(77)

    assert resume(kept, session) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(kept), kept.partition_count) == (0, 0)


@pytest.mark.parametrize("takes_ids", [False, True])
def test_a_session_of_names_takes_no_ids_and_one_of_ids_no_names(takes_ids):
    kept = sessions()
    session = kept.open(asking(A), takes_ids=takes_ids, now_ms=NOW)

    assert resume(kept, session, takes_ids=not takes_ids) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert resume(kept, session) is session


def test_partitions_are_added_changed_and_forgotten():
    kept = sessions()
    session = kept.open(asking(A, B), takes_ids=False, now_ms=NOW)

    resume(kept, session, asked=asking(C) | asking(B, offset=5), forgotten=[A])

    assert [(key, part.asked) for key, part in session.partitions.items()] == [(B, 5), (C, 0)]
    assert kept.partition_count == 2


def test_what_is_asked_for_and_forgotten_at_once_is_forgotten():
    kept = sessions()
    session = kept.open(asking(A), takes_ids=False, now_ms=NOW)

    resume(kept, session, asked=asking(B), forgotten=[B])

    assert list(session.partitions) == [A]


def test_a_session_with_nothing_left_ends():
    kept = sessions()
    session = kept.open(asking(A), takes_ids=False, now_ms=NOW)

    assert resume(kept, session, forgotten=[A]) is None
    assert resume(kept, session) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_that_is_asked_again_keeps_what_it_was_told():
    kept = sessions()
    session = kept.open(asking(A), takes_ids=False, now_ms=NOW)
    tell(session, A, 7)

    resume(kept, session, asked=asking(A, offset=7))

    assert not tell(session, A, 7)


def test_an_id_is_not_given_twice():
    kept = sessions(ids=iter([5, 5, 5, 6]))

    ids = [kept.open(asking(A), takes_ids=False, now_ms=NOW).session_id for _ in range(2)]

    assert ids == [5, 6]


# --- what is told -------------------------------------------------------------------------------------------------


def test_only_what_is_new_is_told():
    session = sessions().open(asking(A), takes_ids=False, now_ms=NOW)

    told = [tell(session, A, end) for end in (4, 4, 5)]

    assert told == [True, False, True]


@pytest.mark.parametrize("changed", [Told(5, 4, 0), Told(4, 5, 0), Told(4, 4, 1)])
def test_each_of_the_three_offsets_is_news(changed):
    session = sessions().open(asking(A), takes_ids=False, now_ms=NOW)
    session.tell(A, Told(4, 4, 0), has_records=False, must_tell=False)

    assert session.tell(A, changed, has_records=False, must_tell=False)


def test_records_are_told_each_time_they_are_there():
    session = sessions().open(asking(A), takes_ids=False, now_ms=NOW)

    assert [tell(session, A, 4, has_records=True) for _ in range(2)] == [True, True]


def test_an_error_is_told_each_time_and_so_is_its_end():
    session = sessions().open(asking(A), takes_ids=False, now_ms=NOW)
    tell(session, A, 4)

    told = [tell(session, A, -1, must_tell=True), tell(session, A, -1, must_tell=True), tell(session, A, 4)]

    assert told == [True, True, True]


def test_whose_records_were_told_goes_behind_the_others():
    session = sessions().open(asking(A, B, C), takes_ids=False, now_ms=NOW)

    tell(session, A, 4, has_records=True)
    tell(session, B, 4)

    assert list(session.partitions) == [B, C, A]


def test_nothing_is_told_of_a_partition_that_was_forgotten_meanwhile():
    session = sessions().open(asking(A), takes_ids=False, now_ms=NOW)

    assert not tell(session, B, 4, has_records=True)
    assert list(session.partitions) == [A]


# --- room ---------------------------------------------------------------------------------------------------------


def test_without_room_there_is_no_session_and_the_others_go_on():
    kept = sessions(sessions_max=1)
    first = kept.open(asking(A), takes_ids=False, now_ms=NOW)

    assert kept.open(asking(A, B), takes_ids=False, now_ms=NOW + FETCH_SESSION_IDLE_MS) is None
    assert resume(kept, first) is first
    assert kept.evictions == 0


def test_a_session_that_was_not_used_for_two_minutes_makes_room():
    kept = sessions(sessions_max=2)
    idle = kept.open(numbered(9), takes_ids=False, now_ms=NOW)
    used = kept.open(numbered(9), takes_ids=False, now_ms=NOW)
    resume(kept, used, now_ms=LATER)

    newcomer = kept.open(asking(A), takes_ids=False, now_ms=LATER)

    assert resume(kept, idle) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (resume(kept, used), resume(kept, newcomer)) == (used, newcomer)
    assert kept.evictions == 1


@pytest.mark.parametrize(("size", "has_room"), [(2, False), (3, False), (4, True)])
def test_a_smaller_one_that_is_two_minutes_old_makes_room_though_it_is_in_use(size, has_room):
    kept = sessions(sessions_max=2)
    large = kept.open(numbered(9), takes_ids=False, now_ms=NOW)
    small = kept.open(numbered(3), takes_ids=False, now_ms=NOW)
    for session in (large, small):
        resume(kept, session, now_ms=LATER)

    newcomer = kept.open(numbered(size), takes_ids=False, now_ms=LATER)

    assert (newcomer is not None) == has_room
    assert resume(kept, large) is large
    assert (resume(kept, small) is small) == (not has_room)


def test_all_sessions_together_hold_so_many_partitions():
    kept = sessions(sessions_max=9, partitions_max=10)

    found = [kept.open(numbered(size), takes_ids=False, now_ms=NOW) is not None for size in (11, 6, 5, 4)]

    assert found == [False, True, False, True]
    assert kept.partition_count == 10


def test_a_session_that_grows_beyond_the_room_ends_as_if_it_had_been_evicted():
    kept = sessions(partitions_max=3)
    session = kept.open(numbered(2), takes_ids=False, now_ms=NOW)

    assert resume(kept, session, asked=numbered(4)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert kept.partition_count == 0
    assert kept.open(numbered(3), takes_ids=False, now_ms=NOW) is not None


def test_with_no_slots_there_are_no_sessions():
    assert sessions(sessions_max=0).open(asking(A), takes_ids=False, now_ms=NOW) is None


def test_a_name_that_no_topic_can_have_is_not_kept():
    kept = sessions()
    oversized = asking(("x" * 250, 0))

    assert kept.open(oversized, takes_ids=False, now_ms=NOW) is None
    session = kept.open(asking(("x" * 249, 0)), takes_ids=False, now_ms=NOW)
    assert resume(kept, session, asked=oversized) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(kept), kept.partition_count) == (0, 0)
