"""The numbers that journals keep about themselves, under the names that Prometheus would show."""

from enum import Enum
from typing import Final

from exactlog.core.journal.read_plan import ReadPath
from exactlog.core.model.metrics import Counter, Registry

_SPARED: Final = "exactlog_journal_spared_total"
_SPARED_TEXT: Final = "What a read did not have to do, by what spared it."


class Spared(Enum):
    """The optimisations of a read (seed 003), by what each spares."""

    LOG = "log"
    """The mark was at or before what is replicated: the log was not read at all."""
    WAIT_FOR_MARK = "wait_for_mark"
    """The store had answered before the mark was in the log."""
    SECOND_READ = "second_read"
    """The events came from what the look for deletes had kept."""
    SECOND_CONSUMER = "second_consumer"
    """What was in the log had been replicated while the store was read."""
    SCAN = "scan"
    """The head cache knew what the head makes of the journal."""
    PARTITIONS = "partitions"
    """Partitions of the topic that were not read, for the key is in one of them."""
    DECODING = "decoding"
    """Records of other journals, of which nothing but the key was looked at."""


class JournalMetrics:
    """The instruments of one `Journals`.

    Attributes:
        registry: all of them.
        spared: by optimisation.
        reads: by path.
        scans: looks at the head in the log itself.
        log_reads: streams of events from the log.
        decoded: action records that were read whole.
        appends: records of events that were written.
        conflicts: appends that found the journal otherwise than expected.
        forks: appends with numbers that were given already.
        renumbered: appends that were written anew behind another one.
    """

    def __init__(self, registry: Registry | None = None) -> None:
        self.registry = registry or Registry()
        counter = self.registry.counter
        self.spared: dict[Spared, Counter] = {
            spared: counter(_SPARED, _SPARED_TEXT, {"what": spared.value}) for spared in Spared
        }
        self.reads: dict[ReadPath, Counter] = {
            path: counter("exactlog_journal_reads_total", "Reads of events, by where these were.", {"path": path.value})
            for path in ReadPath
        }
        self.scans = counter("exactlog_journal_head_scans_total", "Heads that were looked for in the log itself.")
        self.log_reads = counter("exactlog_journal_log_reads_total", "Streams of events from the log.")
        self.decoded = counter("exactlog_journal_actions_decoded_total", "Action records that were read whole.")
        self.appends = counter("exactlog_journal_appends_total", "Appends that were written to the log.")
        self.conflicts = counter("exactlog_journal_conflicts_total", "Appends whose expectation failed.")
        self.forks = counter("exactlog_journal_forks_total", "Appends with numbers that were given already.")
        self.renumbered = counter("exactlog_journal_renumbered_total", "Appends that were numbered anew.")

    def cache_answer(self, answer: str) -> None:
        """Count what the head cache has said: found, gap, ahead, behind, limited, unreadable, undecided."""
        self.registry.counter(
            "exactlog_journal_cache_answers_total", "What the head cache was asked and said.", {"answer": answer}
        ).inc()

    def snapshot(self) -> dict[str, float]:
        """Every series by its name."""
        return self.registry.snapshot()
