"""AlterConfigs (key 33), versions 0 to 2; flexible from 2.

2 flexible. Version 1 changed throttling only. Settings that are not named fall back to their defaults.
"""

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Int8, Int16, Int32, String


class AlterableConfig(Structure):
    """One setting."""

    name: String = ""
    value: String | None = ""


class AlterConfigsResource(Structure):
    """The settings of one resource: 2 topic, 4 broker."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[AlterableConfig, ...] = ()


class AlterConfigsRequest(Message):
    """The settings resources shall have."""

    api_key = 33
    versions = "0-2"
    flexible = "2+"

    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: Bool = False


class AlterConfigsResourceResponse(Structure):
    """What became of one resource."""

    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(Message):
    """What became of the resources."""

    api_key = 33
    versions = "0-2"
    flexible = "2+"

    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()
