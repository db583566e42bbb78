"""What a check of a history can find."""

from collections import Counter
from enum import StrEnum
from typing import Final

import msgspec


class Kind(StrEnum):
    """What is wrong; docs/checking.md explains each."""

    # records
    ABORTED_READ = "aborted-read"
    EARLY_READ = "early-read"
    UNSTABLE_READ = "unstable-read"
    LOST_WRITE = "lost-write"
    SKIPPED_RECORD = "skipped-record"
    DUPLICATE = "duplicate"
    PHANTOM_RECORD = "phantom-record"
    REFUSED_WRITE = "refused-write"
    WRONG_OFFSET = "wrong-offset"
    REORDERED = "reordered"
    NONMONOTONIC_READ = "nonmonotonic-read"
    REPLAY_DIFFERS = "replay-differs"
    # transactions
    TORN_TRANSACTION = "torn-transaction"
    CONTRADICTING_ENDS = "contradicting-ends"
    FENCED_WRITE = "fenced-write"
    FENCED_COMMIT = "fenced-commit"
    # the log
    MISSING_MARKER = "missing-marker"
    EXTRA_MARKER = "extra-marker"
    WRONG_MARKER = "wrong-marker"
    EPOCH_BACK = "epoch-back"
    SEQUENCE_BROKEN = "sequence-broken"
    OFFSETS_BROKEN = "offsets-broken"
    # what the broker says of a partition
    STABLE_OFFSET_BACK = "stable-offset-back"
    HIGH_WATERMARK_BACK = "high-watermark-back"
    LOG_START_BACK = "log-start-back"
    STABLE_OFFSET_TOO_HIGH = "stable-offset-too-high"
    STABLE_OFFSET_BEHIND = "stable-offset-behind"
    ABORTED_LIST_WRONG = "aborted-list-wrong"
    ABORTED_LIST_UNSORTED = "aborted-list-unsorted"
    # offsets of groups, and what rests on them
    ABORTED_OFFSET = "aborted-offset"
    LOST_OFFSET = "lost-offset"
    STALE_OFFSET = "stale-offset"
    PHANTOM_OFFSET = "phantom-offset"
    COPY_MISSING = "copy-missing"
    COPY_TWICE = "copy-twice"
    COPY_UNCOUNTED = "copy-uncounted"
    COPY_OF_NOTHING = "copy-of-nothing"


class Finding(msgspec.Struct, frozen=True):
    """One thing that a right broker does not do.

    Attributes:
        kind: what is wrong.
        where: the partition, transaction or group, with the offset where there is one.
        what: a sentence.
        lines: of the history that show it, counted from 1.
    """

    kind: Kind
    where: str
    what: str
    lines: tuple[int, ...] = ()

    def __str__(self) -> str:
        shown = "" if not self.lines else f" (line {', '.join(map(str, self.lines))})"
        return f"{self.kind}: {self.where}: {self.what}{shown}"


_SHOWN_MAX: Final = 20


class Report(msgspec.Struct, frozen=True):
    """What was found: nothing, where all that happened is allowed. `str` of it is for people."""

    findings: tuple[Finding, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def kinds(self) -> frozenset[Kind]:
        """What is wrong, each once."""
        return frozenset(finding.kind for finding in self.findings)

    def __str__(self) -> str:
        if self.is_clean:
            return "nothing found"
        counts = Counter(finding.kind for finding in self.findings)
        rest = len(self.findings) - _SHOWN_MAX
        return "\n".join(
            [
                f"{len(self.findings)} findings: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()),
                *map(str, self.findings[:_SHOWN_MAX]),
                *([f"and {rest} more"] if rest > 0 else []),
            ]
        )
