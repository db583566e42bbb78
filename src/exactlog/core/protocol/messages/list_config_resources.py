"""ListConfigResources (key 74), versions 0 to 1; flexible from 0.

0 client metrics resources only (KIP-714, then named ListClientMetricsResources). 1 any type of resource (KIP-1142).
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Field, Int8, Int16, Int32, String


class ListConfigResourcesRequest(Message):
    """Which types of resources to list; none is all of them."""

    api_key = 74
    versions = "0-1"
    flexible = "0+"

    resource_types: Annotated[tuple[Int8, ...], Field("1+")] = ()


class ConfigResource(Structure):
    """One resource."""

    resource_name: String = ""
    resource_type: Annotated[Int8, Field("1+", ignorable=True)] = 16


class ListConfigResourcesResponse(Message):
    """The resources."""

    api_key = 74
    versions = "0-1"
    flexible = "0+"

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: tuple[ConfigResource, ...] = ()
