"""What a writer expects of a journal, judged at the place of its action in the log.

An expectation travels in the action header. Whoever folds actions (a reader, a cache, a replicator) judges it by the
state that the actions before it make, and ignores the action where it fails. All see the same log, so all come to the
same answer, and of two writers that expect the same one wins, on any broker.
"""

from typing import Final
from uuid import UUID

from msgspec import Struct

from exactlog.core.journal.errors import JournalInputError
from exactlog.core.journal.keys import SeqNr, check_seq_nr
from exactlog.core.journal.state import JournalState


class Expectation(Struct, frozen=True):
    """What must be so; whatever is None may be as it likes.

    Attributes:
        exists: whether there is a journal.
        seq_nr: its last sequence number; there is a journal then.
        record_id: the life it is in: that of an earlier or a later journal of the same id does not do.
    """

    exists: bool | None = None
    seq_nr: SeqNr | None = None
    record_id: UUID | None = None

    @property
    def is_any(self) -> bool:
        """Whether anything will do."""
        return self == ANY

    def holds(self, state: JournalState | None) -> bool:
        """Whether a journal in this state is as expected; None: there is no journal."""
        if state is None:
            return not self.exists and self.seq_nr is None and self.record_id is None
        return (
            self.exists is not False
            and self.seq_nr in {None, state.seq_nr}
            and self.record_id in {None, state.record_id}
        )

    def __str__(self) -> str:
        if self.is_any:
            return "anything"
        life = "" if self.record_id is None else f" in life {self.record_id}"
        if self.seq_nr is not None:
            return f"its last event to be {self.seq_nr}{life}"
        return "no journal" if self.exists is False else f"a journal{life}"


ANY: Final = Expectation()
"""Whatever the journal is like."""
NO_STREAM: Final = Expectation(exists=False)
"""There is no journal: it was never written to, or was purged."""
EXISTS: Final = Expectation(exists=True)
"""There is a journal, even one whose events are all deleted."""


def expectation_of(expect: Expectation | int) -> Expectation:
    """What a caller means: a number is the last sequence number.

    Raises:
        JournalInputError: the number is below 1 or above 2^63-1.
    """
    if isinstance(expect, Expectation):
        return expect
    if expect == 0:
        raise JournalInputError("the last event of a journal cannot be 0", hint="expect NO_STREAM for a new journal")
    return Expectation(seq_nr=check_seq_nr(expect, what="the expected last event"))
