"""ListTransactions (key 66), versions 0 to 2; flexible from 0 (KIP-664).

1 only those that have been open for some milliseconds (KIP-994). 2 only those whose id matches a pattern (KIP-1152).
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int16, Int32, Int64, String


class ListTransactionsRequest(Message):
    """Which transactions to list; an empty filter lets all pass."""

    api_key = 66
    versions = "0-2"
    flexible = "0+"

    state_filters: tuple[String, ...] = ()
    producer_id_filters: tuple[Int64, ...] = ()
    duration_filter: Annotated[Int64, Field("1+")] = -1
    transactional_id_pattern: Annotated[String | None, Field("2+")] = None


class ListedTransaction(Structure):
    """One transaction, its state by name."""

    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(Message):
    """The transactions."""

    api_key = 66
    versions = "0-2"
    flexible = "0+"

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: tuple[String, ...] = ()
    transaction_states: tuple[ListedTransaction, ...] = ()
