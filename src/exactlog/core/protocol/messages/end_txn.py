"""EndTxn (key 26), versions 0 to 5; flexible from 3.

2 PRODUCER_FENCED (KIP-588). 3 flexible. 4 TRANSACTION_ABORTABLE (KIP-890). 5 the producer id and epoch of the next
transaction (KIP-890, second part). Version 1 changed throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message
from exactlog.core.codec.wire_types import Bool, Field, Int16, Int32, Int64, String


class EndTxnRequest(Message):
    """Commits or aborts the transaction."""

    api_key = 26
    versions = "0-5"
    flexible = "3+"

    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(Message):
    """Whether the outcome is decided."""

    api_key = 26
    versions = "0-5"
    flexible = "3+"

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, Field("5+", ignorable=True)] = -1
    producer_epoch: Annotated[Int16, Field("5+", ignorable=True)] = -1
