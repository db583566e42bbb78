"""IncrementalAlterConfigs (key 44), versions 0 to 1; flexible from 1 (KIP-339).

1 flexible.
"""

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Int8, Int16, Int32, String


class AlterableConfig(Structure):
    """One change: 0 set, 1 delete, 2 append, 3 subtract."""

    name: String = ""
    config_operation: Int8 = 0
    value: String | None = ""


class AlterConfigsResource(Structure):
    """Changes to those of one resource: 2 topic, 4 broker."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[AlterableConfig, ...] = ()


class IncrementalAlterConfigsRequest(Message):
    """Changes to the settings of resources."""

    api_key = 44
    versions = "0-1"
    flexible = "1+"

    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: Bool = False


class AlterConfigsResourceResponse(Structure):
    """What became of one resource."""

    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(Message):
    """What became of the resources."""

    api_key = 44
    versions = "0-1"
    flexible = "1+"

    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()
