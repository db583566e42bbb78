"""The answer to a writer whose expectation failed."""

from collections.abc import Sequence

from exactlog.core.journal.errors import JournalError
from exactlog.core.journal.expectation import Expectation
from exactlog.core.journal.keys import JournalKey


class Conflict(JournalError):  # noqa: N818  its name in the interface
    """The journal was not as the writer expected it: nothing of the append is seen by anybody.

    Attributes:
        key: the journal.
        expected: what the writer said.
        actual: its last sequence number at that place in the log; None where there was no journal.
        events: what came instead: the events behind the expected number, where they were asked for.
    """

    code = "version-conflict"

    def __init__(
        self, key: JournalKey, *, expected: Expectation, actual: int | None, events: Sequence[object] = ()
    ) -> None:
        found = "there is no such journal" if actual is None else f"its last event is {actual}"
        super().__init__(
            f"journal {key}: expected {expected}, but {found}",
            hint="read the journal, decide again, and append with what you found",
        )
        self.key = key
        self.expected = expected
        self.actual = actual
        self.events = tuple(events)
