"""Journals whose replication stands still because of one record, while all others go on."""

from collections.abc import Iterable

from msgspec import Struct

from exactlog.core.model.ids import TopicPartition


class SkippedRecord(Struct, frozen=True):
    """A record that an operator has decided to pass over."""

    place: TopicPartition
    offset: int


class ParkedRecord(Struct, frozen=True):
    """A record that cannot be replicated. Later actions of its journal wait behind it.

    Attributes:
        place: the partition.
        offset: of the record.
        key_id: the journal; None: not even its id can be read.
        reason: what is wrong.
    """

    place: TopicPartition
    offset: int
    key_id: str | None
    reason: str


class ParkingLot:
    """What is parked in one partition, and what may be passed over."""

    def __init__(self, place: TopicPartition) -> None:
        self._place = place
        self._parked: dict[str | int, ParkedRecord] = {}
        self._skipped: set[int] = set()

    @property
    def parked(self) -> tuple[ParkedRecord, ...]:
        """In the order of their offsets."""
        return tuple(sorted(self._parked.values(), key=lambda parked: parked.offset))

    @property
    def first_offset(self) -> int | None:
        """Of what is parked; the pointer must not pass it. None: nothing is."""
        return min((parked.offset for parked in self._parked.values()), default=None)

    def skip(self, offset: int) -> None:
        """Pass over the record at this offset from now on."""
        self._skipped.add(offset)
        self._parked = {key: parked for key, parked in self._parked.items() if parked.offset != offset}

    def is_skipped(self, offset: int) -> bool:
        """Whether an operator has said so."""
        return offset in self._skipped

    def is_waiting(self, key_id: str, offset: int) -> bool:
        """Whether an action of a journal waits behind one that is parked."""
        parked = self._parked.get(key_id)
        return parked is not None and parked.offset <= offset

    def park(self, key_id: str | None, offset: int, reason: str) -> ParkedRecord:
        """Park a record; of a journal the first one counts."""
        parked = ParkedRecord(self._place, offset, key_id, reason)
        key: str | int = offset if key_id is None else key_id
        return self._parked.setdefault(key, parked)

    def restore(self, parked: Iterable[ParkedRecord] = ()) -> None:
        """Nothing is parked but these records: where a partition is read again, the rest is found again."""
        self._parked = {record.offset if record.key_id is None else record.key_id: record for record in parked}
