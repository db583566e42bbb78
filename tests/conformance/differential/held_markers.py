"""How a transaction is made to stay prepared: in each of the two brokers by its own means."""

from exactlog.testing import faults
from tests.conformance.differential.transaction import ABORT, markers_request

AHEAD = 1_000
"""So many epochs, which no scenario comes to."""


def overtake_markers(peer, transaction):
    """Apache Kafka: a marker of a far newer epoch in a partition, after which it takes none of the transaction.

    The coordinator takes that for a sign that somebody else has taken over, and leaves it at that.
    """
    newer = transaction.identity.at(transaction.identity.producer_epoch + AHEAD)
    answer = peer.quietly(markers_request(transaction.marker(ABORT, 0, identity=newer)), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0, answer
    return lambda: None


def stop_markers(_peer, _transaction):
    """exactlog in this process: nothing is appended, however often it is tried."""
    point = next(point for point in faults.points() if point.name == "txn.end.after_prepare")

    def refuse():
        point.arm(refuse)
        raise OSError("markers are held")

    point.arm(refuse)
    return point.disarm
