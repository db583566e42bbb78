"""The numbers that a replicator keeps about itself."""

from collections.abc import Callable
from typing import Final

from exactlog.core.model.metrics import Registry

_LATENCY_BOUNDS_S: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 600, 3600)


class ReplicationMetrics:
    """The instruments of one `Replicator`.

    Attributes:
        registry: all of them.
        records: that were seen to.
        actions: that were carried out, or had been before.
        refused: actions whose expectation failed.
        forks: appends with numbers that were given already.
        polls: groups of records that were read at once.
        restarts: topics that were begun anew after a failure.
        latency: seconds from the time of a record to when it was replicated.
    """

    def __init__(self, registry: Registry | None = None, *, count_parked: Callable[[], float] = lambda: 0) -> None:
        self.registry = registry or Registry()
        counter = self.registry.counter
        self.records = counter("exactlog_replicator_records_total", "Records that were seen to.")
        self.actions = counter("exactlog_replicator_actions_total", "Actions that were carried out.")
        self.refused = counter("exactlog_replicator_refused_total", "Actions whose expectation failed.")
        self.forks = counter("exactlog_replicator_forks_total", "Appends with numbers that were given already.")
        self.polls = counter("exactlog_replicator_polls_total", "Groups of records that were read at once.")
        self.restarts = counter("exactlog_replicator_restarts_total", "Topics that were begun anew after a failure.")
        self.latency = self.registry.histogram(
            "exactlog_replicator_latency_seconds", "From the time of a record to the store.", _LATENCY_BOUNDS_S
        )
        self.registry.gauge("exactlog_replicator_parked", "Records that cannot be replicated.", read=count_parked)

    def snapshot(self) -> dict[str, float]:
        """Every series by its name."""
        return self.registry.snapshot()
