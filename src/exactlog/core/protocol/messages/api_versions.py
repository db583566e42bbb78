"""ApiVersions (key 18), versions 0 to 5; flexible from 3.

1 throttle time. 3 flexible; name and version of the client (KIP-511); features (KIP-584). 4 features whose lowest
version is 0 (KAFKA-17011). 5 the cluster and the node the client means to talk to (KIP-1242). Version 2 changed
throttling only.

The header of the answer is always version 0 and a version the broker does not know is answered in version 0, so that
any client can read it (KIP-511).
"""

from typing import Annotated

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Bool, Field, Int16, Int32, Int64, String


class ApiVersionsRequest(Message):
    """Who the client is."""

    api_key = 18
    versions = "0-5"
    flexible = "3+"

    client_software_name: Annotated[String, Field("3+", ignorable=True)] = ""
    client_software_version: Annotated[String, Field("3+", ignorable=True)] = ""
    cluster_id: Annotated[String | None, Field("5+", ignorable=True)] = None
    node_id: Annotated[Int32, Field("5+", ignorable=True)] = -1


class ApiVersion(Structure):
    """The versions of one API."""

    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Structure):
    """The levels of a feature that the broker can work at."""

    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Structure):
    """The level of a feature that the cluster works at."""

    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Message):
    """What the broker serves."""

    api_key = 18
    versions = "0-5"
    flexible = "3+"

    error_code: Int16 = 0
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: Annotated[Int32, Field("1+", ignorable=True)] = 0
    supported_features: Annotated[tuple[SupportedFeatureKey, ...], Field("3+", tag=0, ignorable=True)] = ()
    finalized_features_epoch: Annotated[Int64, Field("3+", tag=1, ignorable=True)] = -1
    finalized_features: Annotated[tuple[FinalizedFeatureKey, ...], Field("3+", tag=2, ignorable=True)] = ()
    zk_migration_ready: Annotated[Bool, Field("3+", tag=3, ignorable=True)] = False
