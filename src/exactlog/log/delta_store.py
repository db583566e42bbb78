"""A partition under the names of seed 000 §3.2 (`Store`)."""

from collections.abc import Iterable
from types import TracebackType
from typing import Self, Unpack

from exactlog.core.deltalog.table_state import TableSnapshot
from exactlog.log.errors import InvalidArgumentError
from exactlog.log.new_records import RecordLike
from exactlog.log.partition import AppendOptions, Partition, Transaction
from exactlog.log.table_writer import Outcome


class DeltaStore:
    """The delta log of a partition: the same calls, and the same errors, as `Partition` has.

    Leaving its context closes the partition.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    def current_version(self) -> int:
        """The newest delta version."""
        return self.partition.current_version()

    def begin_transaction(self, records: Iterable[RecordLike] = ()) -> Transaction:
        """A transaction, with records or to be filled by its `append`; nobody sees them before it is committed."""
        return self.partition.append_transactional(records)

    def commit(self, transaction: Transaction, **options: Unpack[AppendOptions]) -> Outcome:
        """Makes the transaction the next version, if it holds what is expected; see `Transaction.commit`."""
        self._check_own(transaction)
        return transaction.commit(**options)

    def abort(self, transaction: Transaction) -> None:
        """Drops the transaction; see `Transaction.abort`."""
        self._check_own(transaction)
        transaction.abort()

    def load_state(self) -> TableSnapshot:
        """The table as of its newest version."""
        return self.partition.load_state()

    def maybe_checkpoint(self) -> bool:
        """Writes a checkpoint, if one has been due since the last; whether it did."""
        return self.partition.maybe_checkpoint()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.partition.close()

    def _check_own(self, transaction: Transaction) -> None:
        if transaction.partition is not self.partition:
            raise InvalidArgumentError("the transaction was begun on another partition")
