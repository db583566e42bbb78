"""Heartbeat (key 12), versions 0 to 4; flexible from 4.

1 throttle time. 3 group instance id (KIP-345). 4 flexible. Version 2 changed throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message
from exactlog.core.codec.wire_types import Field, Int16, Int32, String


class HeartbeatRequest(Message):
    """Says that a member is there."""

    api_key = 12
    versions = "0-4"
    flexible = "4+"

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, Field("3+")] = None


class HeartbeatResponse(Message):
    """Whether it still is one, and whether it has to rejoin."""

    api_key = 12
    versions = "0-4"
    flexible = "4+"

    throttle_time_ms: Annotated[Int32, Field("1+", ignorable=True)] = 0
    error_code: Int16 = 0
