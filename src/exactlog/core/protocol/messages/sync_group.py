"""SyncGroup (key 14), versions 0 to 5; flexible from 4.

1 throttle time. 3 group instance id (KIP-345). 4 flexible. 5 the type and name of the protocol (KIP-559). Version 2
changed throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bytes, Field, Int16, Int32, String


class SyncGroupRequestAssignment(Structure):
    """What the leader gives one member."""

    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Message):
    """Asks for the member's assignment; the leader brings all of them."""

    api_key = 14
    versions = "0-5"
    flexible = "4+"

    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, Field("3+")] = None
    protocol_type: Annotated[String | None, Field("5+", ignorable=True)] = None
    protocol_name: Annotated[String | None, Field("5+", ignorable=True)] = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


class SyncGroupResponse(Message):
    """The member's assignment."""

    api_key = 14
    versions = "0-5"
    flexible = "4+"

    throttle_time_ms: Annotated[Int32, Field("1+", ignorable=True)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[String | None, Field("5+", ignorable=True)] = None
    protocol_name: Annotated[String | None, Field("5+", ignorable=True)] = None
    assignment: Bytes = b""
