"""Producers that name their partitions beforehand, and are being verified: none of their batches overtakes another.

As Apache Kafka's ``VerificationStateEntry`` (KAFKA-14920). A partition that knows nothing of a producer takes whatever
sequence it begins with. So the lowest one that has come is kept: its batch may have been refused, and come again, when
a later one is let in.
"""

from collections.abc import Hashable

from exactlog.core.model.ids import ProducerEpoch
from exactlog.core.model.limits import OUTSTANDING_VERIFICATIONS_MAX


class OutstandingVerifications:
    """The lowest first sequences, by partition and producer."""

    def __init__(self) -> None:
        self._outstanding: dict[Hashable, tuple[ProducerEpoch, int]] = {}

    def note(self, key: Hashable, *, producer_epoch: ProducerEpoch, first_sequence: int) -> None:
        """A batch has come; below 0 it has no sequence. Where there are too many, the oldest is forgotten."""
        if first_sequence < 0:
            return
        found = self._outstanding.get(key)
        if found is None:
            if len(self._outstanding) >= OUTSTANDING_VERIFICATIONS_MAX:
                del self._outstanding[next(iter(self._outstanding))]
        elif found[0] > producer_epoch or (found[0] == producer_epoch and found[1] <= first_sequence):
            return
        self._outstanding[key] = producer_epoch, first_sequence

    def let_in(self, key: Hashable, *, first_sequence: int) -> int | None:
        """A batch is verified: gives what it may begin with at most, where its producer is not known; None: anything.

        Where it keeps to that, the partition knows from here on what comes next.
        """
        found = self._outstanding.get(key)
        if found is None:
            return None
        if first_sequence <= found[1]:
            del self._outstanding[key]
        return found[1]

    def end(self, key: Hashable) -> None:
        """Nothing of the producer will come again."""
        self._outstanding.pop(key, None)
