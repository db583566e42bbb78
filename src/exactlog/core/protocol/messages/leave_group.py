"""LeaveGroup (key 13), versions 0 to 5; flexible from 4.

1 throttle time. 3 many members at once, by member or group instance id (KIP-345). 4 flexible. 5 the reason (KIP-800).
Version 2 changed throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int16, Int32, String


class MemberIdentity(Structure):
    """A member that leaves."""

    member_id: String = ""
    group_instance_id: String | None = None
    reason: Annotated[String | None, Field("5+", ignorable=True)] = None


class LeaveGroupRequest(Message):
    """Who leaves: `member_id`, or from version 3 `members`."""

    api_key = 13
    versions = "0-5"
    flexible = "4+"

    group_id: String = ""
    member_id: Annotated[String, Field("0-2")] = ""
    members: Annotated[tuple[MemberIdentity, ...], Field("3+")] = ()


class MemberResponse(Structure):
    """Whether one has left."""

    member_id: String = ""
    group_instance_id: String | None = ""
    error_code: Int16 = 0


class LeaveGroupResponse(Message):
    """Whether they have left."""

    api_key = 13
    versions = "0-5"
    flexible = "4+"

    throttle_time_ms: Annotated[Int32, Field("1+", ignorable=True)] = 0
    error_code: Int16 = 0
    members: Annotated[tuple[MemberResponse, ...], Field("3+")] = ()
