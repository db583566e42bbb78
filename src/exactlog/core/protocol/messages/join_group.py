"""JoinGroup (key 11), versions 0 to 9; flexible from 6.

1 a time limit for the others to rejoin (KIP-62). 2 throttle time. 4 a first join is sent back with the member's id
(KIP-394). 5 group instance id (KIP-345). 6 flexible. 7 the type and name of the protocol in the answer (KIP-559). 8
the reason (KIP-800). 9 the leader may skip the assignment (KIP-814). Version 3 changed throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Bytes, Field, Int16, Int32, String


class JoinGroupRequestProtocol(Structure):
    """A protocol the member can work with, the best first."""

    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Message):
    """Asks to be a member of a group."""

    api_key = 11
    versions = "0-9"
    flexible = "6+"

    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, Field("1+", ignorable=True)] = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, Field("5+")] = None
    protocol_type: String = ""
    protocols: tuple[JoinGroupRequestProtocol, ...] = ()
    reason: Annotated[String | None, Field("8+", ignorable=True)] = None


class JoinGroupResponseMember(Structure):
    """One member, as the leader sees it."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, Field("5+", ignorable=True)] = None
    metadata: Bytes = b""


class JoinGroupResponse(Message):
    """The member's id, the generation, and for the leader the members."""

    api_key = 11
    versions = "0-9"
    flexible = "6+"

    throttle_time_ms: Annotated[Int32, Field("2+", ignorable=True)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, Field("7+", ignorable=True)] = None
    protocol_name: Annotated[String | None, Field(nullable="7+")] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, Field("9+")] = False
    member_id: String = ""
    members: tuple[JoinGroupResponseMember, ...] = ()
