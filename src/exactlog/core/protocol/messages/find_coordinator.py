"""FindCoordinator (key 10), versions 0 to 6; flexible from 3.

1 type of the key (0 group, 1 transactional id, KIP-98), error message, throttle time. 3 flexible. 4 many keys at once
(KIP-699). 5 TRANSACTION_ABORTABLE (KIP-890). 6 type 2, share group (KIP-932). Version 2 changed throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int8, Int16, Int32, String


class FindCoordinatorRequest(Message):
    """Whose coordinator is asked for: `key`, or from version 4 `coordinator_keys`."""

    api_key = 10
    versions = "0-6"
    flexible = "3+"

    key: Annotated[String, Field("0-3")] = ""
    key_type: Annotated[Int8, Field("1+")] = 0
    coordinator_keys: Annotated[tuple[String, ...], Field("4+")] = ()


class Coordinator(Structure):
    """The coordinator of one key."""

    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class FindCoordinatorResponse(Message):
    """The coordinator, or from version 4 `coordinators`."""

    api_key = 10
    versions = "0-6"
    flexible = "3+"

    throttle_time_ms: Annotated[Int32, Field("1+", ignorable=True)] = 0
    error_code: Annotated[Int16, Field("0-3")] = 0
    error_message: Annotated[String | None, Field("1-3", ignorable=True)] = ""
    node_id: Annotated[Int32, Field("0-3")] = 0
    host: Annotated[String, Field("0-3")] = ""
    port: Annotated[Int32, Field("0-3")] = 0
    coordinators: Annotated[tuple[Coordinator, ...], Field("4+")] = ()
