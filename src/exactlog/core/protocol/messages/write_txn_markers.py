"""WriteTxnMarkers (key 27), versions 0 to 2; flexible from 1.

1 flexible. 2 the version of transactions that the markers belong to (KIP-1228). From coordinators to the leaders of
partitions, and from administrators who abort a hanging transaction.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Field, Int8, Int16, Int32, Int64, String


class WritableTxnMarkerTopic(Structure):
    """The partitions of one topic."""

    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class WritableTxnMarker(Structure):
    """The outcome of one transaction (true is commit) and where to write it."""

    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: tuple[WritableTxnMarkerTopic, ...] = ()
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, Field("2+", ignorable=True)] = 0


class WriteTxnMarkersRequest(Message):
    """Markers to write."""

    api_key = 27
    versions = "0-2"
    flexible = "1+"

    markers: tuple[WritableTxnMarker, ...] = ()


class WritableTxnMarkerPartitionResult(Structure):
    """What became of that in one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Structure):
    """What became of those in one topic."""

    name: String = ""
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = ()


class WritableTxnMarkerResult(Structure):
    """What became of those of one producer."""

    producer_id: Int64 = 0
    topics: tuple[WritableTxnMarkerTopicResult, ...] = ()


class WriteTxnMarkersResponse(Message):
    """What became of the markers."""

    api_key = 27
    versions = "0-2"
    flexible = "1+"

    markers: tuple[WritableTxnMarkerResult, ...] = ()
