"""Settings: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from exactlog.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from exactlog.core.protocol.messages.incremental_alter_configs import AlterableConfig as IncrementalConfig
from exactlog.core.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from exactlog.core.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from exactlog.core.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.conformance.differential.scenario import scenario

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

CONFIGS = (
    (("retention.ms", "60000"), ("cleanup.policy", "compact")),
    (("cleanup.policy", "compact,delete"),),
    (("cleanup.policy", " delete , compact "),),
    (("cleanup.policy", ""),),
    (("cleanup.policy", "neither"),),
    (("retention.ms", "-1"),),
    (("retention.ms", "-2"),),
    (("retention.ms", " 7 "),),
    (("retention.ms", "+7"),),
    (("retention.ms", "7.0"),),
    (("retention.ms", "seven"),),
    (("retention.ms", ""),),
    (("retention.ms", None),),
    (("retention.ms", "9223372036854775808"),),
    (("retention.ms", "1"), ("retention.ms", "2")),
    (("retention.bytes", "-1"),),
    (("retention.bytes", "-2"),),
    (("segment.bytes", "1048576"),),
    (("segment.bytes", "0"),),
    (("segment.bytes", "2147483648"),),
    (("segment.ms", "1"),),
    (("segment.ms", "0"),),
    (("max.message.bytes", "0"),),
    (("max.message.bytes", "-1"),),
    (("compression.type", "zstd"),),
    (("compression.type", "producer"),),
    (("compression.type", "brotli"),),
    (("message.timestamp.type", "LogAppendTime"),),
    (("message.timestamp.type", "logappendtime"),),
    (("min.insync.replicas", "1"),),
    (("min.insync.replicas", "0"),),
    (("min.insync.replicas", "2"),),
    (("unclean.leader.election.enable", "true"),),
    (("unclean.leader.election.enable", "TRUE"),),
    (("unclean.leader.election.enable", "yes"),),
    (("min.cleanable.dirty.ratio", "0.25"),),
    (("min.cleanable.dirty.ratio", "1.5"),),
    (("flush.messages", "0"),),
    (("flush.messages", "1"),),
    (("file.delete.delay.ms", "0"),),
    (("delete.retention.ms", "-1"),),
    (("max.compaction.lag.ms", "0"),),
    (("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "8")),
    (("message.timestamp.before.max.ms", "-1"),),
    (("no.such.setting", "1"),),
    (("", "1"),),
    (("flush.mode", "none"),),
)
"""Settings of a topic, a few good and many bad."""


def _described(peer, topic, *, synonyms=True):
    """Takes down all that is set on a topic itself."""
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic.name, configuration_keys=None)
    answer = peer.quietly(DescribeConfigsRequest(resources=(resource,)), 4)
    own = {config.name: config.value for config in answer.results[0].configs if config.config_source == 1}
    peer.take_down("settings", own)


@scenario(ApiKey.DESCRIBE_CONFIGS)
def all_settings_of_a_topic(peer):
    topic = peer.topic(retention_ms=60_000, cleanup_policy="compact", max_message_bytes=2_000)
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic.name, configuration_keys=None)
    peer.ask(
        DescribeConfigsRequest(
            resources=(resource,), include_synonyms=peer.version >= 1, include_documentation=peer.version >= 3
        )
    )


@scenario(ApiKey.DESCRIBE_CONFIGS)
def settings_of_resources_good_and_bad(peer):
    resources = (
        (TOPIC, peer.topic().name, ("retention.ms",)),
        (TOPIC, peer.name("nobody"), None),
        (TOPIC, "bad/name", None),
        (TOPIC, "", None),
        (BROKER, "7", None),
        (BROKER, "one", None),
        (0, "x", None),
        (99, "x", None),
        (-1, "x", None),
    )
    for kind, name, keys in resources:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        peer.ask(DescribeConfigsRequest(resources=(resource,)))


@scenario(ApiKey.DESCRIBE_CONFIGS)
def one_setting_of_the_broker(peer):
    for name in ("log.retention.ms", "auto.create.topics.enable", "message.max.bytes"):
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=(name,))
        peer.ask(DescribeConfigsRequest(resources=(resource,), include_synonyms=peer.version >= 1))


@scenario(ApiKey.DESCRIBE_CONFIGS)
def unknown_settings(peer):
    keys = ("no.such.setting", "", "retention.ms")
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=peer.topic().name, configuration_keys=keys)
    peer.ask(DescribeConfigsRequest(resources=(resource,)))


def _alter(kind, name, *configs, validate_only=False):
    settings = tuple(AlterableConfig(name=key, value=value) for key, value in configs)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=settings)
    return AlterConfigsRequest(resources=(resource,), validate_only=validate_only)


def _change(kind, name, *changes, validate_only=False):
    settings = tuple(
        IncrementalConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
    )
    resource = IncrementalResource(resource_type=kind, resource_name=name, configs=settings)
    return IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)


@scenario(ApiKey.ALTER_CONFIGS)
def settings_replaced(peer):
    topic = peer.topic(retention_ms=60_000, cleanup_policy="compact")
    peer.ask(_alter(TOPIC, topic.name, ("retention.ms", "70000")))
    peer.wait_for_config(topic, "retention.ms", "70000")
    _described(peer, topic)
    peer.ask(_alter(TOPIC, topic.name))
    peer.wait_for_config(topic, "retention.ms", "604800000")
    _described(peer, topic)


@scenario(ApiKey.ALTER_CONFIGS)
def settings_replaced_good_and_bad(peer):
    topic = peer.topic(segment_ms=60_000)
    for configs in CONFIGS:
        peer.ask(_alter(TOPIC, topic.name, *configs, validate_only=True))
        peer.ask(_alter(TOPIC, topic.name, *configs))


@scenario(ApiKey.ALTER_CONFIGS)
def settings_replaced_of_resources_good_and_bad(peer):
    for kind, name in (
        (TOPIC, peer.name("nobody")),
        (TOPIC, "bad/name"),
        (TOPIC, ""),
        (BROKER, "7"),
        (BROKER, "one"),
        (0, "x"),
        (99, "x"),
        (-1, "x"),
    ):
        peer.ask(_alter(kind, name, ("retention.ms", "1000")))


@scenario(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def settings_changed(peer):
    topic = peer.topic(retention_ms=60_000, cleanup_policy="delete")
    peer.ask(_change(TOPIC, topic.name, ("segment.ms", SET, "70000"), ("retention.ms", DELETE, None)))
    peer.wait_for_config(topic, "segment.ms", "70000")
    _described(peer, topic)
    peer.ask(_change(TOPIC, topic.name, ("cleanup.policy", APPEND, "compact")))
    peer.wait_for_config(topic, "cleanup.policy", "delete,compact")
    peer.ask(_change(TOPIC, topic.name, ("cleanup.policy", SUBTRACT, "delete")))
    peer.wait_for_config(topic, "cleanup.policy", "compact")
    _described(peer, topic)


@scenario(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def settings_changed_good_and_bad(peer):
    topic = peer.topic(segment_ms=60_000)
    for configs in CONFIGS:
        changes = tuple((name, SET, value) for name, value in configs)
        peer.ask(_change(TOPIC, topic.name, *changes, validate_only=True))
        peer.ask(_change(TOPIC, topic.name, *changes))


@scenario(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def changes_of_every_kind(peer):
    topic = peer.topic()
    for changes in (
        (("retention.ms", APPEND, "1"),),
        (("retention.ms", SUBTRACT, "1"),),
        (("retention.ms", 4, "1"),),
        (("retention.ms", -1, "1"),),
        (("retention.ms", DELETE, "1"),),
        (("no.such.setting", DELETE, None),),
        (("cleanup.policy", APPEND, "delete"),),
        (("cleanup.policy", APPEND, "neither"),),
        (("cleanup.policy", SUBTRACT, "compact"),),
        (("cleanup.policy", SUBTRACT, "delete"),),
        (("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
        (("retention.ms", SET, "1"), ("segment.ms", SET, "no number")),
        (),
    ):
        peer.ask(_change(TOPIC, topic.name, *changes))
    _described(peer, topic)


@scenario(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def changes_of_resources_good_and_bad(peer):
    for kind, name in (
        (TOPIC, peer.name("nobody")),
        (TOPIC, "bad/name"),
        (TOPIC, ""),
        (BROKER, "7"),
        (BROKER, "one"),
        (0, "x"),
        (99, "x"),
        (-1, "x"),
    ):
        peer.ask(_change(kind, name, ("retention.ms", SET, "1000")))


@scenario(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def a_resource_named_twice(peer):
    topic = peer.topic()
    (resource,) = _change(TOPIC, topic.name, ("retention.ms", SET, "1000")).resources
    (other,) = _change(TOPIC, topic.name, ("segment.ms", SET, "1000")).resources
    peer.ask(IncrementalAlterConfigsRequest(resources=(resource, other)))
    _described(peer, topic)


@scenario(ApiKey.LIST_CONFIG_RESOURCES)
def resources_of_every_type(peer):
    peer.topic()
    for types in ((), (TOPIC,), (BROKER,), (BROKER_LOGGER,), (CLIENT_METRICS,), (GROUP,), (TOPIC, BROKER), (0,), (99,)):
        if peer.version >= 1 or not types:
            peer.ask(ListConfigResourcesRequest(resource_types=types))
