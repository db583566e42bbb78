"""DescribeConfigs (key 32), versions 0 to 4; flexible from 4.

1 sources and synonyms of settings (KIP-226). 3 types and documentation (KIP-569). 4 flexible. Version 2 changed
throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Field, Int8, Int16, Int32, String


class DescribeConfigsResource(Structure):
    """A resource asked about: 2 topic, 4 broker; null as keys is all of them."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: tuple[String, ...] | None = ()


class DescribeConfigsRequest(Message):
    """The resources asked about."""

    api_key = 32
    versions = "0-4"
    flexible = "4+"

    resources: tuple[DescribeConfigsResource, ...] = ()
    include_synonyms: Annotated[Bool, Field("1+")] = False
    include_documentation: Annotated[Bool, Field("3+")] = False


class DescribeConfigsSynonym(Structure):
    """Where else the setting is set, the strongest first."""

    name: String = ""
    value: String | None = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Structure):
    """One setting."""

    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    is_default: Annotated[Bool, Field("0")] = False
    config_source: Annotated[Int8, Field("1+", ignorable=True)] = -1
    is_sensitive: Bool = False
    synonyms: Annotated[tuple[DescribeConfigsSynonym, ...], Field("1+", ignorable=True)] = ()
    config_type: Annotated[Int8, Field("3+", ignorable=True)] = 0
    documentation: Annotated[String | None, Field("3+", ignorable=True)] = ""


class DescribeConfigsResult(Structure):
    """The settings of one resource."""

    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


class DescribeConfigsResponse(Message):
    """The settings."""

    api_key = 32
    versions = "0-4"
    flexible = "4+"

    throttle_time_ms: Int32 = 0
    results: tuple[DescribeConfigsResult, ...] = ()
