"""The head of one partition, kept in mind: a summary of each journal with an action that is not replicated yet.

Whoever reads the partition adds what it polls; whoever asks the store moves the pointer. A reader whose mark is at some
offset then learns without reading the log what the log makes of its journal, or that the cache cannot tell.

It is bounded. When the summaries have more steps than it may keep, the oldest go, and the cache remembers from which
offset on it knows everything. A journal whose actions cannot be read, or are too many to keep apart, is marked: the
answer for it is that the cache cannot tell, and no other journal is touched.

Where the last actions of so many journals stand it remembers although they are replicated: a writer that knows its
journal as it was then asks whether anything has come since.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from exactlog.core.journal.actions import ActionRecord, Mark
from exactlog.core.journal.head_summary import HeadSummary, add_action, empty_summary
from exactlog.core.model.ids import TopicPartition

STEPS_MAX: Final = 10_000
"""Of all journals of a partition together: as many journals as kafka-journal keeps, some 3 MB."""
STEPS_PER_JOURNAL_MAX: Final = 256
"""Actions with expectations that wait for the state before them; each costs what it costs to copy the list."""
_NONE: Final = -1
DROPPED_SHARE: Final = 0.1
"""Of the steps, when there are too many: dropping one at a time would be dropping all the time."""


class Ahead(Struct, frozen=True):
    """The store has everything up to the offset that was asked for: the log is not needed."""


class Found(Struct, frozen=True):
    """What the log makes of the journal, in a stretch that begins at or before what is replicated."""

    summary: HeadSummary


class Unknown(Struct, frozen=True):
    """The cache cannot tell: the log has to be read. `reason` is a label of metrics: limited, unreadable, undecided."""

    reason: str


class Behind(Struct, frozen=True):
    """The cache has not come to that offset yet: a moment later it may tell."""


CacheAnswer: TypeAlias = Ahead | Found | Unknown | Behind


class _Entry:
    """What is kept of one journal: a summary that ends with its last action, or why there is none."""

    __slots__ = ("reason", "summary")

    def __init__(self, summary: HeadSummary, reason: str | None = None) -> None:
        self.summary = summary
        self.reason = reason

    @property
    def last_offset(self) -> int:
        return self.summary.end - 1

    @property
    def size(self) -> int:
        return 1 if self.reason else self.summary.size


class PartitionCache:
    """The summaries of one partition, from the first offset that was read on."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        start: int,
        steps_max: int = STEPS_MAX,
        dropped_share: float = DROPPED_SHARE,
    ) -> None:
        """An empty cache. `start` is the offset that will be read first: what is before it must be replicated."""
        self._topic_partition = topic_partition
        self._start = start
        self._end = start
        self._pointer = start - 1
        self._known_from = start
        self._steps_max = steps_max
        self._dropped_share = dropped_share
        self._steps = 0
        self._entries: dict[str, _Entry] = {}  # in the order of their last actions
        self._touched: dict[str, tuple[int, int]] = {}  # likewise: offsets of the last action, and of the one before
        self._touched_from = start

    @property
    def start(self) -> int:
        """The first offset that it knows everything from on."""
        return max(self._known_from, self._pointer + 1)

    @property
    def end(self) -> int:
        """The offset that is to be read next."""
        return max(self._end, self._pointer + 1)

    @property
    def steps(self) -> int:
        """How many steps it keeps, of all journals."""
        return self._steps

    def add(self, records: Iterable[ActionRecord], *, end: int) -> int:
        """What was read, up to, not including, `end`; the answer is by how much that is further than before.

        The records are in the order of the log. Those that were read before, or are replicated, are passed over.
        """
        read_from = self.end
        for record in records:
            if read_from <= record.offset < end and not isinstance(record.action, Mark):
                self._add(record)
        return self._move_end(end)

    def add_unreadable(self, key_id: str, *, offset: int) -> int:
        """A record of this journal that no action can be read from: until it is replicated the cache cannot tell."""
        if offset < self.end:
            return 0
        self._take(key_id)
        self._keep(key_id, self._marked("unreadable", offset))
        return self._move_end(offset + 1)

    def remove(self, pointer: int) -> int:
        """The store has everything up to this offset; the answer is by how much that is further than before."""
        moved = max(0, pointer - self._pointer)
        if pointer >= self._end:  # what lies between is never read
            self._touched_from = max(self._touched_from, pointer + 1)
        self._pointer = max(self._pointer, pointer)
        while self._entries:
            key_id, entry = next(iter(self._entries.items()))
            if entry.last_offset > pointer:
                break
            self._take(key_id)
        return moved

    def get(self, key_id: str, *, end: int) -> CacheAnswer:
        """What the log makes of a journal, for a reader that is to see every action before `end`."""
        if end <= self._pointer + 1:
            return Ahead()
        if end > self._end:
            return Behind()
        entry = self._entries.get(key_id)
        if entry is None:
            if self._known_from > self._pointer + 1:
                return Unknown("limited")
            return Found(empty_summary(self._topic_partition, self._pointer + 1, self._end))
        if entry.reason is not None:
            return Unknown(entry.reason)
        return Found(replace(entry.summary, end=self._end))

    def is_untouched(self, key_id: str, *, after: int, before: int) -> bool:
        """Whether it knows that no action of a journal lies behind one offset and before another one."""
        if after + 1 < self._touched_from or before > self.end:
            return False
        last, last_but_one = self._touched.get(key_id, (_NONE, _NONE))
        return last <= after or (last >= before and last_but_one <= after)

    def put_settled(self, key_id: str, summary: HeadSummary) -> None:
        """A summary that `get` gave, settled since by who knew the state before: it is smaller, and as true."""
        entry = self._entries.get(key_id)
        if entry is None or entry.reason is not None or summary.known is None:
            return
        has_all = summary.start <= entry.last_offset < summary.end
        if has_all and entry.summary.known is None:
            self._steps -= entry.size
            entry.summary = replace(summary, end=entry.summary.end)
            self._steps += entry.size

    def _add(self, record: ActionRecord) -> None:
        key_id, offset = record.key.id, record.offset
        entry = self._take(key_id)
        if entry is None:
            entry = _Entry(empty_summary(self._topic_partition, self.start, offset))
        if entry.reason is None:
            entry.summary = add_action(entry.summary, record)
            is_too_long = entry.summary.size > STEPS_PER_JOURNAL_MAX
            self._keep(key_id, self._marked("undecided", offset) if is_too_long else entry)
        else:
            self._keep(key_id, self._marked(entry.reason, offset))

    def _marked(self, reason: str, offset: int) -> _Entry:
        return _Entry(empty_summary(self._topic_partition, offset, offset + 1), reason)

    def _take(self, key_id: str) -> _Entry | None:
        entry = self._entries.pop(key_id, None)
        self._steps -= 0 if entry is None else entry.size
        return entry

    def _keep(self, key_id: str, entry: _Entry) -> None:
        """As the newest one."""
        self._touch(key_id, entry.last_offset)
        self._entries[key_id] = entry
        self._steps += entry.size
        if self._steps > self._steps_max:
            self._drop_oldest()

    def _touch(self, key_id: str, offset: int) -> None:
        last, _ = self._touched.pop(key_id, (_NONE, _NONE))
        self._touched[key_id] = offset, last
        if len(self._touched) > self._steps_max:
            last, _ = self._touched.pop(next(iter(self._touched)))
            self._touched_from = max(self._touched_from, last + 1)

    def _drop_oldest(self) -> None:
        steps_left = int(self._steps_max * (1 - self._dropped_share))
        while self._steps > steps_left and len(self._entries) > 1:
            key_id = next(iter(self._entries))
            dropped = self._take(key_id)
            assert dropped is not None
            self._known_from = max(self._known_from, dropped.last_offset + 1)

    def _move_end(self, end: int) -> int:
        grown = max(0, end - self._end)
        self._end = max(self._end, end)
        return grown
