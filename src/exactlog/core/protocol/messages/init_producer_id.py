"""InitProducerId (key 22), versions 0 to 5; flexible from 2.

2 flexible. 3 the id and epoch the producer has, so that it can go on with the next epoch (KIP-360). 4 PRODUCER_FENCED
(KIP-588). 5 TRANSACTION_ABORTABLE (KIP-890). Version 1 changed throttling only. Version 6 (two-phase commit, KIP-939)
is not stable.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message
from exactlog.core.codec.wire_types import Field, Int16, Int32, Int64, String


class InitProducerIdRequest(Message):
    """Asks for a producer id; null as transactional id asks for one without transactions."""

    api_key = 22
    versions = "0-5"
    flexible = "2+"

    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Field("3+")] = -1
    producer_epoch: Annotated[Int16, Field("3+")] = -1


class InitProducerIdResponse(Message):
    """The producer id and its epoch."""

    api_key = 22
    versions = "0-5"
    flexible = "2+"

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
