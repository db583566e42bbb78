"""DescribeGroups (key 15), versions 0 to 6; flexible from 5.

1 throttle time. 3 authorized operations (KIP-430). 4 group instance id (KIP-345). 5 flexible. 6 GROUP_ID_NOT_FOUND and
an error message (KIP-1043). Version 2 changed throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Bytes, Field, Int16, Int32, String


class DescribeGroupsRequest(Message):
    """The groups asked about."""

    api_key = 15
    versions = "0-6"
    flexible = "5+"

    groups: tuple[String, ...] = ()
    include_authorized_operations: Annotated[Bool, Field("3+")] = False


class DescribedGroupMember(Structure):
    """One member."""

    member_id: String = ""
    group_instance_id: Annotated[String | None, Field("4+", ignorable=True)] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Structure):
    """One group."""

    error_code: Int16 = 0
    error_message: Annotated[String | None, Field("6+")] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: Annotated[Int32, Field("3+")] = -(2**31)


class DescribeGroupsResponse(Message):
    """The groups."""

    api_key = 15
    versions = "0-6"
    flexible = "5+"

    throttle_time_ms: Annotated[Int32, Field("1+", ignorable=True)] = 0
    groups: tuple[DescribedGroup, ...] = ()
