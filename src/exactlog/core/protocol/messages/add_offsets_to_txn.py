"""AddOffsetsToTxn (key 25), versions 0 to 4; flexible from 3.

2 PRODUCER_FENCED (KIP-588). 3 flexible. 4 TRANSACTION_ABORTABLE (KIP-890). Version 1 changed throttling only.
"""

from exactlog.core.codec.message_schema import Message
from exactlog.core.codec.wire_types import Int16, Int32, Int64, String


class AddOffsetsToTxnRequest(Message):
    """A group whose offsets the transaction is about to commit."""

    api_key = 25
    versions = "0-4"
    flexible = "3+"

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(Message):
    """Whether it may."""

    api_key = 25
    versions = "0-4"
    flexible = "3+"

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
