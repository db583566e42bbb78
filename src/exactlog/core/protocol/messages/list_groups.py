"""ListGroups (key 16), versions 0 to 5; flexible from 3.

1 throttle time. 3 flexible. 4 states (KIP-518). 5 types (KIP-848). Version 2 changed throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int16, Int32, String


class ListGroupsRequest(Message):
    """Which groups to list; an empty filter lets all pass."""

    api_key = 16
    versions = "0-5"
    flexible = "3+"

    states_filter: Annotated[tuple[String, ...], Field("4+")] = ()
    types_filter: Annotated[tuple[String, ...], Field("5+")] = ()


class ListedGroup(Structure):
    """One group."""

    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, Field("4+", ignorable=True)] = ""
    group_type: Annotated[String, Field("5+", ignorable=True)] = ""


class ListGroupsResponse(Message):
    """The groups."""

    api_key = 16
    versions = "0-5"
    flexible = "3+"

    throttle_time_ms: Annotated[Int32, Field("1+", ignorable=True)] = 0
    error_code: Int16 = 0
    groups: tuple[ListedGroup, ...] = ()
