"""Named places between the steps of a transaction; `exactlog.testing.faults` arms them."""

from typing import Final

from exactlog.storage.fault_points import FaultPoint

ADD_BEFORE_DATA: Final = FaultPoint(
    "txn.add.before_data", "a write has made its partitions part of a transaction, and has not appended anything yet"
)
ADD_AFTER_DATA: Final = FaultPoint(
    "txn.add.after_data",
    "a write and what makes its partitions part of a transaction are appended, nothing is committed",
)
END_BEFORE_PREPARE: Final = FaultPoint(
    "txn.end.before_prepare", "all that a transaction wrote is committed, its outcome is not decided yet"
)
END_AFTER_PREPARE: Final = FaultPoint(
    "txn.end.after_prepare",
    "the outcome of a transaction is decided, and committed unless its markers share its round; none is appended",
)
MARKER_BEFORE: Final = FaultPoint("txn.marker.before", "a marker is about to be appended to a partition")
MARKER_AFTER_SOME: Final = FaultPoint(
    "txn.marker.after_some", "a marker is appended to a partition, and not yet to the next one; nothing is committed"
)
MARKER_AFTER_ALL: Final = FaultPoint(
    "txn.marker.after_all", "a marker is appended to every partition of a transaction, nothing is committed"
)
END_BEFORE_COMPLETE: Final = FaultPoint(
    "txn.end.before_complete", "the markers of a transaction are committed in all partitions, its end is not noted"
)
