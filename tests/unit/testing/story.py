"""Histories written by hand, a line at a time."""

from exactlog.testing import check
from exactlog.testing.history import join
from exactlog.testing.history_format import (
    Batch,
    Begin,
    Done,
    End,
    EndOffset,
    EndOffsetRead,
    Failed,
    Init,
    Initialised,
    LogRead,
    OffsetsRead,
    Place,
    PlaceOffset,
    Poll,
    Polled,
    ReadLog,
    ReadOffsets,
    Send,
    SendOffsets,
    Sent,
    Unknown,
)

DONE, FAILED, UNKNOWN = "done", "failed", "unknown"
PID = 7


def data(offset, *values, pid=PID, epoch=0, sequence=-1, is_transactional=True, leader_epoch=0):
    """A batch of a transaction."""
    return Batch(
        base_offset=offset,
        last_offset=offset + len(values) - 1,
        leader_epoch=leader_epoch,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
        values=values,
    )


def plain(offset, *values):
    """A batch of nobody's."""
    return data(offset, *values, pid=-1, epoch=-1, is_transactional=False)


def idempotent(offset, *values, pid=PID, epoch=0, sequence=0):
    """A batch of an idempotent producer."""
    return data(offset, *values, pid=pid, epoch=epoch, sequence=sequence, is_transactional=False)


def marker(offset, kind, *, pid=PID, epoch=1, coordinator_epoch=0, leader_epoch=0):
    """A marker; with transactions of version 2 its epoch is one above that of the data."""
    return Batch(
        base_offset=offset,
        last_offset=offset,
        leader_epoch=leader_epoch,
        producer_id=pid,
        producer_epoch=epoch,
        is_transactional=True,
        marker=kind,
        coordinator_epoch=coordinator_epoch,
    )


def commit(offset, **fields):
    return marker(offset, "commit", **fields)


def abort(offset, **fields):
    return marker(offset, "abort", **fields)


class Story:
    """What happened; each method is a request and its outcome, unless it is told to leave that for later."""

    def __init__(self):
        self.events = []
        self.op = 0

    def ask(self, kind, **fields):
        """A request whose outcome comes later, or never."""
        self.op += 1
        self.events.append(kind(op=self.op, worker=fields.pop("worker", "w"), **fields))
        return self.op

    def answer(self, kind, op, **fields):
        self.events.append(kind(op=op, **fields))
        return self

    def end_as(self, outcome, op, success, **fields):
        if outcome == FAILED:
            return self.answer(Failed, op, error="REFUSED")
        return self.answer(Unknown, op) if outcome == UNKNOWN else self.answer(success, op, **fields)

    def init(self, transactional_id="id", *, pid=PID, epoch=0):
        op = self.ask(Init, transactional_id=transactional_id)
        return self.answer(Initialised, op, producer_id=pid, producer_epoch=epoch)

    def begin(self, name, *, transactional_id="id", pid=PID, epoch=0, version=2):
        self.events.append(
            Begin(
                worker="w",
                transaction=name,
                transactional_id=transactional_id,
                producer_id=pid,
                producer_epoch=epoch,
                transaction_version=version,
            )
        )
        return self

    def send(self, *values, to=0, at=-1, within=None, outcome=DONE, topic="t", worker="w", sources=(), **fields):
        op = self.ask(
            Send,
            topic=topic,
            partition=to,
            values=values,
            transaction=within,
            worker=worker,
            sources=tuple(PlaceOffset(*source) for source in sources),
            **fields,
        )
        return self.end_as(outcome, op, Sent, base_offset=at)

    def send_offsets(self, offset, *, within=None, outcome=DONE, to=0, group="g"):
        op = self.ask(SendOffsets, group=group, offsets=(PlaceOffset("t", to, offset),), transaction=within)
        return self.end_as(outcome, op, Done)

    def end(self, name, *, is_commit=True, outcome=DONE):
        return self.end_as(outcome, self.ask(End, transaction=name, is_commit=is_commit), Done)

    def poll(self, *records, start=0, end=-1, of=0, is_committed=True, session="s", topic="t", **told):
        op = self.ask(Poll, session=session, topic=topic, partition=of, is_committed=is_committed, position=start)
        return self.answer(Polled, op, records=records, next_position=end, **told)

    def read_offsets(self, offset, *, is_stable=True, of=0, group="g"):
        op = self.ask(ReadOffsets, group=group, places=(Place("t", of),), is_stable=is_stable)
        return self.answer(OffsetsRead, op, offsets=(PlaceOffset("t", of, offset),))

    def end_offset(self, offset, *, is_committed=True):
        op = self.ask(EndOffset, topic="t", partition=0, is_committed=is_committed)
        return self.answer(EndOffsetRead, op, offset=offset)

    def log(self, *batches, of=0, start=None, end=None, stable=None, is_final=True, topic="t"):
        """A reading of a log; the high watermark is behind the last batch, the last stable offset there too."""
        first = batches[0].base_offset if batches else 0
        end = (batches[-1].next_offset if batches else 0) if end is None else end
        op = self.ask(ReadLog, topic=topic, partition=of, is_final=is_final)
        return self.answer(
            LogRead,
            op,
            log_start_offset=first if start is None else start,
            high_watermark=end,
            last_stable_offset=end if stable is None else stable,
            batches=batches,
        )

    def report(self):
        return check.events(join(enumerate(self.events, start=2)))

    @property
    def kinds(self):
        """What is found."""
        return {str(kind) for kind in self.report().kinds}


def transaction(*values, at=0, is_commit=True, **fields):
    """A story of one transaction in one partition, without the reading of its log."""
    story = Story().init().begin("a", **fields).send(*values, at=at, within="a")
    return story.end("a", is_commit=is_commit)
