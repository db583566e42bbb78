"""DescribeCluster (key 60), versions 0 to 2; flexible from 0.

1 brokers or controllers (KIP-919). 2 fenced brokers (KIP-1073).
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Field, Int8, Int16, Int32, String


class DescribeClusterRequest(Message):
    """Asks for the cluster; `endpoint_type` is 1 for brokers, 2 for controllers."""

    api_key = 60
    versions = "0-2"
    flexible = "0+"

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, Field("1+")] = 1
    include_fenced_brokers: Annotated[Bool, Field("2+")] = False


class DescribeClusterBroker(Structure):
    """One node."""

    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Annotated[Bool, Field("2+")] = False


class DescribeClusterResponse(Message):
    """The cluster and its nodes."""

    api_key = 60
    versions = "0-2"
    flexible = "0+"

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, Field("1+")] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: Int32 = -(2**31)
