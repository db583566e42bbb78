"""What the log says of transactional ids: the newest record of every key. There are two of it, head and committed."""

from collections.abc import Callable, Iterator, KeysView, ValuesView

from exactlog.core.model.decisions import CoordinatorRecord, UnknownRecord
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.ids import ProducerId
from exactlog.core.transaction.entry import TransactionEntry
from exactlog.core.transaction.transaction_record import AnyTransactionRecord, TransactionRecord


class TransactionTable:
    """Entries by transactional id and by producer id. The entries never change; two tables share them.

    Attributes:
        get: the entry of an id; None where there is none. Asked so often that it is the dictionary's own.
        open_partitions: how many partitions all open transactions have together.
    """

    def __init__(self) -> None:
        self._entries: dict[str, TransactionEntry] = {}
        self.get: Callable[[str], TransactionEntry | None] = self._entries.get
        self._by_producer_id: dict[ProducerId, str] = {}
        self._open: dict[str, None] = {}
        self._unknown: dict[bytes, bytes] = {}
        self.open_partitions = 0

    def __len__(self) -> int:
        return len(self._entries)

    def by_producer_id(self, producer_id: ProducerId) -> TransactionEntry | None:
        """The entry that has this producer id now; None where there is none."""
        transactional_id = self._by_producer_id.get(producer_id)
        return None if transactional_id is None else self._entries.get(transactional_id)

    def entries(self) -> ValuesView[TransactionEntry]:
        """All of them."""
        return self._entries.values()

    def open_ids(self) -> KeysView[str]:
        """The ids that have a transaction open or prepared."""
        return self._open.keys()

    def replay(self, record: CoordinatorRecord) -> None:
        """Takes a record in.

        Raises:
            InvariantError: it is a record of another coordinator.
        """
        if not isinstance(record, TransactionRecord):
            self._replay_unknown(record)
            return
        transactional_id, entry = record.transactional_id, record.entry
        before = self._entries.get(transactional_id)
        if before is not None:
            if entry is None or entry.producer_id != before.producer_id:
                self._by_producer_id.pop(before.producer_id, None)
            if before.state.is_open:
                self.open_partitions -= len(before.partitions)
                if entry is None or not entry.state.is_open:
                    del self._open[transactional_id]
        if entry is None:
            self._entries.pop(transactional_id, None)
            return
        self._entries[transactional_id] = entry
        self._by_producer_id[entry.producer_id] = transactional_id
        if entry.state.is_open:
            self._open[transactional_id] = None
            self.open_partitions += len(entry.partitions)

    def _replay_unknown(self, record: CoordinatorRecord) -> None:
        if not isinstance(record, UnknownRecord):
            raise InvariantError(f"no record of a transaction coordinator: {record!r}")
        self._unknown.pop(record.key, None)
        if record.value is not None:
            self._unknown[record.key] = record.value

    def live_records(self) -> Iterator[AnyTransactionRecord]:
        """One record for each key that has a value: replayed, they give this table."""
        for transactional_id, entry in self._entries.items():
            yield TransactionRecord(transactional_id, entry)
        for key, value in self._unknown.items():
            yield UnknownRecord(key, value)
