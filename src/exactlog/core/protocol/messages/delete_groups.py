"""DeleteGroups (key 42), versions 0 to 3; flexible from 2.

2 flexible. 3 error message. Version 1 changed throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int16, Int32, String


class DeleteGroupsRequest(Message):
    """The groups to delete."""

    api_key = 42
    versions = "0-3"
    flexible = "2+"

    groups_names: tuple[String, ...] = ()


class DeletableGroupResult(Structure):
    """What became of one group."""

    group_id: String = ""
    error_code: Int16 = 0
    error_message: Annotated[String | None, Field("3+", ignorable=True)] = None


class DeleteGroupsResponse(Message):
    """What became of the groups."""

    api_key = 42
    versions = "0-3"
    flexible = "2+"

    throttle_time_ms: Int32 = 0
    results: tuple[DeletableGroupResult, ...] = ()
