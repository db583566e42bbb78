"""A plan for one journal in the store, as `plan_batches` (`key_journal.py`) makes it and a store carries it out."""

from msgspec import Struct

from exactlog.core.journal.keys import SeqRange
from exactlog.core.journal.rows import SEGMENT_SIZE_DEFAULT, HeadRow, Step
from exactlog.core.model.ids import TopicPartition


class Terms(Struct, frozen=True, kw_only=True):
    """Under which batches are applied.

    Attributes:
        topic_partition: they come from.
        now_ms: milliseconds since 1970; only for the `created` and `updated` of head rows.
        segment_size: of journals that begin now.
    """

    topic_partition: TopicPartition
    now_ms: int
    segment_size: int = SEGMENT_SIZE_DEFAULT


class Fork(Struct, frozen=True):
    """An append with numbers that its journal had given already: a second writer, or the same record once more.

    Attributes:
        offset: of the append.
        range: its numbers.
        last_seq_nr: the last number of the journal before it: those above it were taken.
    """

    offset: int
    range: SeqRange
    last_seq_nr: int


class KeyPlan(Struct, frozen=True, kw_only=True):
    """What is to become of one journal in the store.

    Attributes:
        steps: to be carried out in this order; all at once, where the store can.
        head: the head row then; None: there is none.
        forks: what came second.
        refused: offsets of the actions whose expectations failed.
    """

    steps: tuple[Step, ...] = ()
    head: HeadRow | None = None
    forks: tuple[Fork, ...] = ()
    refused: tuple[int, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.steps)
