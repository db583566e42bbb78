"""The APIs this broker serves: the only place where a handler is registered."""

from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from exactlog.broker.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from exactlog.broker.request_context import RequestContext
from exactlog.core.codec.message_schema import Message
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.messages.api_versions import ApiVersion

Answer = Message | None
Handler = Callable[[Any, RequestContext], Answer | Coroutine[None, None, Answer]]
"""Takes a request of its own type. Returns its response; or None, and answers through the context later; or a coroutine
of either, while which no further request of the connection is looked at."""


class BrokerApi(Struct, frozen=True):
    """One API as this broker serves it.

    Attributes:
        key: its number.
        name: as Kafka spells it.
        min_version: the lowest version that is named to clients; Produce names 0 and refuses 0 to 2.
        max_version: the highest version that is served.
        handler: what carries a request out.
        doc: what it does and does not do: the docstring of its module.
    """

    key: ApiKey
    name: str
    min_version: int
    max_version: int
    handler: Handler
    doc: str


def _serve(key: ApiKey, handler: Handler, doc: str | None) -> BrokerApi:
    api = APIS[key]
    return BrokerApi(key, api.name, api.advertised.lowest, api.advertised.highest, handler, doc or "")


API_TABLE: Final[Mapping[int, BrokerApi]] = MappingProxyType(
    {
        ApiKey.PRODUCE: _serve(ApiKey.PRODUCE, produce.handle, produce.__doc__),
        ApiKey.FETCH: _serve(ApiKey.FETCH, fetch.handle, fetch.__doc__),
        ApiKey.LIST_OFFSETS: _serve(ApiKey.LIST_OFFSETS, list_offsets.handle, list_offsets.__doc__),
        ApiKey.METADATA: _serve(ApiKey.METADATA, metadata.handle, metadata.__doc__),
        ApiKey.FIND_COORDINATOR: _serve(ApiKey.FIND_COORDINATOR, find_coordinator.handle, find_coordinator.__doc__),
        ApiKey.API_VERSIONS: _serve(ApiKey.API_VERSIONS, api_versions.handle, api_versions.__doc__),
        ApiKey.CREATE_TOPICS: _serve(ApiKey.CREATE_TOPICS, create_topics.handle, create_topics.__doc__),
        ApiKey.DELETE_TOPICS: _serve(ApiKey.DELETE_TOPICS, delete_topics.handle, delete_topics.__doc__),
        ApiKey.DELETE_RECORDS: _serve(ApiKey.DELETE_RECORDS, delete_records.handle, delete_records.__doc__),
        ApiKey.INIT_PRODUCER_ID: _serve(ApiKey.INIT_PRODUCER_ID, init_producer_id.handle, init_producer_id.__doc__),
        ApiKey.ADD_PARTITIONS_TO_TXN: _serve(
            ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions_to_txn.handle, add_partitions_to_txn.__doc__
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: _serve(
            ApiKey.ADD_OFFSETS_TO_TXN, add_offsets_to_txn.handle, add_offsets_to_txn.__doc__
        ),
        ApiKey.TXN_OFFSET_COMMIT: _serve(ApiKey.TXN_OFFSET_COMMIT, txn_offset_commit.handle, txn_offset_commit.__doc__),
        ApiKey.WRITE_TXN_MARKERS: _serve(ApiKey.WRITE_TXN_MARKERS, write_txn_markers.handle, write_txn_markers.__doc__),
        ApiKey.DESCRIBE_TRANSACTIONS: _serve(
            ApiKey.DESCRIBE_TRANSACTIONS, describe_transactions.handle, describe_transactions.__doc__
        ),
        ApiKey.LIST_TRANSACTIONS: _serve(ApiKey.LIST_TRANSACTIONS, list_transactions.handle, list_transactions.__doc__),
        ApiKey.END_TXN: _serve(ApiKey.END_TXN, end_txn.handle, end_txn.__doc__),
        ApiKey.DESCRIBE_CONFIGS: _serve(ApiKey.DESCRIBE_CONFIGS, describe_configs.handle, describe_configs.__doc__),
        ApiKey.ALTER_CONFIGS: _serve(ApiKey.ALTER_CONFIGS, alter_configs.handle, alter_configs.__doc__),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _serve(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs.handle, incremental_alter_configs.__doc__
        ),
        ApiKey.LIST_CONFIG_RESOURCES: _serve(
            ApiKey.LIST_CONFIG_RESOURCES, list_config_resources.handle, list_config_resources.__doc__
        ),
        ApiKey.CREATE_PARTITIONS: _serve(ApiKey.CREATE_PARTITIONS, create_partitions.handle, create_partitions.__doc__),
        ApiKey.DESCRIBE_CLUSTER: _serve(ApiKey.DESCRIBE_CLUSTER, describe_cluster.handle, describe_cluster.__doc__),
        ApiKey.OFFSET_COMMIT: _serve(ApiKey.OFFSET_COMMIT, offset_commit.handle, offset_commit.__doc__),
        ApiKey.OFFSET_FETCH: _serve(ApiKey.OFFSET_FETCH, offset_fetch.handle, offset_fetch.__doc__),
        ApiKey.JOIN_GROUP: _serve(ApiKey.JOIN_GROUP, join_group.handle, join_group.__doc__),
        ApiKey.HEARTBEAT: _serve(ApiKey.HEARTBEAT, heartbeat.handle, heartbeat.__doc__),
        ApiKey.LEAVE_GROUP: _serve(ApiKey.LEAVE_GROUP, leave_group.handle, leave_group.__doc__),
        ApiKey.SYNC_GROUP: _serve(ApiKey.SYNC_GROUP, sync_group.handle, sync_group.__doc__),
        ApiKey.DESCRIBE_GROUPS: _serve(ApiKey.DESCRIBE_GROUPS, describe_groups.handle, describe_groups.__doc__),
        ApiKey.LIST_GROUPS: _serve(ApiKey.LIST_GROUPS, list_groups.handle, list_groups.__doc__),
        ApiKey.DELETE_GROUPS: _serve(ApiKey.DELETE_GROUPS, delete_groups.handle, delete_groups.__doc__),
        ApiKey.OFFSET_DELETE: _serve(ApiKey.OFFSET_DELETE, offset_delete.handle, offset_delete.__doc__),
        ApiKey.DESCRIBE_LOG_DIRS: _serve(ApiKey.DESCRIBE_LOG_DIRS, describe_log_dirs.handle, describe_log_dirs.__doc__),
        ApiKey.DESCRIBE_PRODUCERS: _serve(
            ApiKey.DESCRIBE_PRODUCERS, describe_producers.handle, describe_producers.__doc__
        ),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _serve(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions.handle, describe_topic_partitions.__doc__
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _serve(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch.handle, offset_for_leader_epoch.__doc__
        ),
    }
)
"""Every API that is served, by key. Look up with any int: an `ApiKey` is one."""

ADVERTISED_VERSIONS: Final = tuple(
    ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version) for api in API_TABLE.values()
)
"""What ApiVersions tells."""
