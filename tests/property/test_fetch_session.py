"""Whatever a session leaves out, its reader knows of each partition what a full answer had told; none starves."""

import itertools

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from exactlog.core.log.fetch_session import FetchSession, FetchSessions, SessionPartition, Told
from exactlog.core.model.error_code import ErrorCode

KEYS = [("t", 0), ("t", 1), ("u", 0)]
keys = st.sampled_from(KEYS)
some = st.sets(keys)
FAILED = Told(-1, -1, -1)


class OneReader(RuleBasedStateMachine):
    """Three partitions and a reader with a session; `limit` is how many partitions' records fit into an answer."""

    def __init__(self):
        super().__init__()
        self.log = {key: Told(0, 0, 0) for key in KEYS}
        self.failing = set()
        ids = itertools.count(1)
        self.sessions = FetchSessions(sessions_max=1, partitions_max=100, new_id=lambda: next(ids))
        self.session_id, self.epoch = None, None
        self.offsets = {}  # of the partitions the reader wants
        self.known = {}  # what it was told of them
        self.turns_waited = {}  # answers with records of others only, though there were some of this one

    # --- the log ----------------------------------------------------------------------------------------------------

    @rule(key=keys, count=st.integers(1, 5))
    def append(self, key, count):
        end = self.log[key].high_watermark + count
        self.log[key] = self.log[key]._replace(high_watermark=end, last_stable_offset=end)

    @rule(key=keys)
    def delete_all_records(self, key):
        self.log[key] = self.log[key]._replace(log_start_offset=self.log[key].high_watermark)

    @rule(key=keys)
    def fail_or_recover(self, key):
        self.failing ^= {key}

    # --- the reader -------------------------------------------------------------------------------------------------

    @rule(limit=st.integers(0, 3), more=some)
    def open(self, limit, more):
        self.sessions.end(self.session_id)
        self.known, self.turns_waited = {}, {}
        self.offsets |= {key: self.offsets.get(key, 0) for key in sorted(more)}
        partitions = {key: SessionPartition(offset, None) for key, offset in self.offsets.items()}
        full = self.read(partitions, limit)
        for key, (told, _) in full.items():
            partitions[key].told = told
        session = self.sessions.open(partitions, takes_ids=False, now_ms=0)
        self.session_id, self.epoch = session.session_id, session.epoch
        self.take(full, full)

    @rule(limit=st.integers(0, 3), more=some, forgotten=some)
    def go_on(self, limit, more, forgotten):
        if self.session_id is None:
            return
        self.offsets |= {key: self.offsets.get(key, 0) for key in sorted(more)}
        asked = {key: SessionPartition(offset, None) for key, offset in self.offsets.items()}
        for key in forgotten:
            for kept in (self.offsets, self.known, self.turns_waited):
                kept.pop(key, None)
        session = self.sessions.resume(
            self.session_id, self.epoch, takes_ids=False, asked=asked, forgotten=forgotten, now_ms=0
        )
        if not self.offsets:
            assert session is None
            self.session_id = None
            return
        assert isinstance(session, FetchSession)
        assert {key: part.asked for key, part in session.partitions.items()} == self.offsets
        self.epoch = session.epoch
        full = self.read(session.partitions, limit)
        answer = {
            key: (told, has_records)
            for key, (told, has_records) in full.items()
            if session.tell(key, told, has_records=has_records, must_tell=told == FAILED)
        }
        self.take(full, answer)

    @rule()
    def send_the_last_request_again(self):
        if self.session_id is not None:
            again = self.sessions.resume(
                self.session_id, self.epoch - 1, takes_ids=False, asked={}, forgotten=[], now_ms=0
            )
            assert again is ErrorCode.INVALID_FETCH_SESSION_EPOCH

    def read(self, partitions, limit):
        """What there is of each partition, in their order."""
        full = {}
        for key in partitions:
            has_records = limit > 0 and self.has_records(key)
            limit -= has_records
            full[key] = FAILED if key in self.failing else self.log[key], has_records
        return full

    def has_records(self, key):
        offset = max(self.offsets[key], self.log[key].log_start_offset)
        return key not in self.failing and offset < self.log[key].high_watermark

    def take(self, full, answer):
        self.known |= {key: told for key, (told, _) in answer.items()}
        assert self.known == {key: told for key, (told, _) in full.items()}
        served = {key for key, (_, has_records) in answer.items() if has_records}
        assert served == {key for key, (_, has_records) in full.items() if has_records}
        assert {key for key in full if key in self.failing} <= set(answer)
        for key in full:
            waits = bool(served) and key not in served and self.has_records(key)
            self.turns_waited[key] = self.turns_waited.get(key, 0) + 1 if waits else 0
            assert self.turns_waited[key] < len(KEYS)
        for key in served:
            self.offsets[key] = self.log[key].high_watermark


test_one_reader = OneReader.TestCase
