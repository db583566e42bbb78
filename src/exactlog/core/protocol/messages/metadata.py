"""Metadata (key 3), versions 0 to 13; flexible from 9.

0 an empty list of topics means all of them. 1 null means all, an empty list none; racks, the controller. 2 cluster id.
3 throttle time. 4 whether topics may be created. 5 offline replicas (KIP-112). 7 leader epochs (KIP-320). 8 authorized
operations (KIP-430). 9 flexible. 10 topic ids (KIP-516). 11 the cluster's authorized operations are DescribeCluster's
(KIP-700). 12 topics asked for by id. 13 an error for the whole answer (KIP-1102). Version 6 changed throttling only.
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Field, Int16, Int32, String, Uuid
from exactlog.core.model.ids import ZERO_UUID


class MetadataRequestTopic(Structure):
    """A topic asked about, by name or id."""

    topic_id: Annotated[Uuid, Field("10+", ignorable=True)] = ZERO_UUID
    name: Annotated[String | None, Field(nullable="10+")] = ""


class MetadataRequest(Message):
    """The topics asked about; null is all of them."""

    api_key = 3
    versions = "0-13"
    flexible = "9+"

    topics: Annotated[tuple[MetadataRequestTopic, ...] | None, Field(nullable="1+")] = ()
    allow_auto_topic_creation: Annotated[Bool, Field("4+")] = True
    include_cluster_authorized_operations: Annotated[Bool, Field("8-10")] = False
    include_topic_authorized_operations: Annotated[Bool, Field("8+")] = False


class MetadataResponseBroker(Structure):
    """One broker."""

    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, Field("1+", ignorable=True)] = None


class MetadataResponsePartition(Structure):
    """One partition."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, Field("7+", ignorable=True)] = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], Field("5+", ignorable=True)] = ()


class MetadataResponseTopic(Structure):
    """One topic."""

    error_code: Int16 = 0
    name: Annotated[String | None, Field(nullable="12+")] = ""
    topic_id: Annotated[Uuid, Field("10+", ignorable=True)] = ZERO_UUID
    is_internal: Annotated[Bool, Field("1+", ignorable=True)] = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: Annotated[Int32, Field("8+")] = -(2**31)


class MetadataResponse(Message):
    """The brokers and the topics."""

    api_key = 3
    versions = "0-13"
    flexible = "9+"

    throttle_time_ms: Annotated[Int32, Field("3+", ignorable=True)] = 0
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: Annotated[String | None, Field("2+", ignorable=True)] = None
    controller_id: Annotated[Int32, Field("1+", ignorable=True)] = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    cluster_authorized_operations: Annotated[Int32, Field("8-10")] = -(2**31)
    error_code: Annotated[Int16, Field("13+", ignorable=True)] = 0
