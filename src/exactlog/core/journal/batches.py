"""What a replicator applies to one journal: actions of one poll, drawn together (`batch_optimizer.py`).

A batch keeps what it needs to leave the same behind as its actions one by one, however a poll cut them: where the first
of them stood, which gives a new life its id, and how far those reach that it need not carry out, since a crash may have
left rows of them.
"""

from typing import TypeAlias

from msgspec import Struct

from exactlog.core.journal.actions import ActionRecord
from exactlog.core.journal.expectation import ANY, Expectation


class AppendBatch(Struct, frozen=True, kw_only=True):
    """Appends that stand in the log without another action between them.

    Attributes:
        records: what is to be written, in order; all are appends.
        offset: of the last one.
        first_offset: of the first action that was drawn together, one that need not be carried out included.
        first_seq_nr: the first number of the first append of those.
        expect: of the append, which then is alone.
    """

    records: tuple[ActionRecord, ...]
    offset: int
    first_offset: int
    first_seq_nr: int
    expect: Expectation = ANY


class DeleteBatch(Struct, frozen=True, kw_only=True):
    """Deletes that stand in the log without another action between them.

    Attributes:
        to: the greatest number that one of them names.
        to_offset: of the first one that names it.
        offset: of the last one.
        first_offset: of the first one, one that need not be carried out included.
        origin: who wrote the last one.
    """

    to: int
    to_offset: int
    offset: int
    first_offset: int
    origin: str | None = None
    expect: Expectation = ANY


class PurgeBatch(Struct, frozen=True, kw_only=True):
    """A purge, and everything before it, of which nothing else is to be seen.

    Attributes:
        offset: of the last purge.
        dropped_to: the greatest number of the appends before it that are not carried out; 0: there is none.
    """

    offset: int
    dropped_to: int = 0
    expect: Expectation = ANY


Batch: TypeAlias = AppendBatch | DeleteBatch | PurgeBatch
