"""Topics, the cluster and offsets, against a toy cluster."""

from uuid import UUID

import msgspec
import pytest

from exactlog.client.adapters import connect
from exactlog.client.ports import (
    EARLIEST,
    HIGH_WATERMARK,
    LATEST,
    BrokerAddress,
    ClientSettings,
    ClusterDescription,
    ConfigEntry,
    ConfigSource,
    IsolationLevel,
    ListedOffset,
    LogDirectory,
    TopicListing,
)
from exactlog.core.codec.wire_types import Versions
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import DecodeError, KafkaError, NotFoundError, UnavailableError, UnsupportedError
from exactlog.core.model.ids import TopicPartition
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.create_partitions import CreatePartitionsRequest
from exactlog.core.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from exactlog.core.protocol.messages.delete_records import DeleteRecordsRequest
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest
from exactlog.core.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from exactlog.core.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.client.toy_broker import SETTINGS, HangUpError, ToyCluster, running
from tests.unit.network.harness import serving


def hang_up(*_):
    raise HangUpError


# --- cluster --------------------------------------------------------------------------------------------------


async def test_the_cluster_is_described():
    cluster = ToyCluster(broker_count=2)
    async with running(cluster) as client:
        described = await client.describe_cluster()
    brokers = tuple(BrokerAddress(broker.id, "127.0.0.1", broker.port) for broker in cluster.brokers)
    assert described == ClusterDescription("toy", 1, brokers)


async def test_a_cluster_without_a_controller_has_none():
    cluster = ToyCluster()
    cluster.controller_id = -1
    async with running(cluster) as client:
        assert (await client.describe_cluster()).controller_id is None
        assert (await client.create_topic("orders")).name == "orders"


async def test_the_second_bootstrap_address_serves_when_the_first_does_not():
    cluster = ToyCluster(broker_count=2)
    async with running(cluster) as client:
        await cluster.brokers[0].server.stop(drain_ms=0)
        assert (await client.describe_cluster()).cluster_id == "toy"


async def test_a_lost_connection_is_opened_again():
    cluster = ToyCluster()
    async with running(cluster) as client:
        await client.describe_cluster()
        cluster.scripts[ApiKey.METADATA].extend([hang_up, hang_up])
        assert (await client.describe_cluster()).cluster_id == "toy"


async def test_no_broker_at_all_ends_at_the_deadline_and_says_why():
    async with serving() as served:
        host, port = served.address
        await served.server.stop(drain_ms=0)
        settings = ClientSettings(deadline_ms=300, backoff_ms=1)
        async with connect(f"kafka://{host}:{port}", settings) as client:
            with pytest.raises(
                UnavailableError, match=r"describe the cluster: gave up after 300 ms: .*refused"
            ) as error:
                await client.describe_cluster()
    assert "exactlog serve" in error.value.hint


async def test_a_broker_that_never_answers_ends_at_the_deadline():
    cluster = ToyCluster()
    cluster.scripts[ApiKey.METADATA].append(lambda *_: None)
    async with running(cluster, ClientSettings(deadline_ms=30)) as client:
        with pytest.raises(UnavailableError, match="describe the cluster: gave up after 30 ms: no answer"):
            await client.describe_cluster()


async def test_the_last_refusal_is_named_when_the_deadline_passes():
    cluster = ToyCluster()
    cluster.add_topic("orders", leaders=(-1,))
    async with running(cluster, ClientSettings(deadline_ms=300, backoff_ms=1)) as client:
        with pytest.raises(UnavailableError, match="gave up after 300 ms: find the leader of orders-0") as error:
            await client.list_offsets({TopicPartition("orders", 0): LATEST})
    assert error.value.kafka_error is ErrorCode.LEADER_NOT_AVAILABLE


# --- topics ---------------------------------------------------------------------------------------------------


async def test_topics_are_listed_by_name_internal_ones_on_request():
    cluster = ToyCluster()
    cluster.add_topic("b", leaders=(1, 1))
    cluster.add_topic("__internal", is_internal=True)
    cluster.add_topic("a")
    async with running(cluster) as client:
        assert await client.list_topics() == (
            TopicListing("a", UUID(int=3), 1, is_internal=False),
            TopicListing("b", UUID(int=1), 2, is_internal=False),
        )
        assert [topic.name for topic in await client.list_topics(include_internal=True)] == ["__internal", "a", "b"]


@pytest.mark.parametrize("highest", [0, 1, 9, 13])
async def test_all_topics_are_listed_in_every_version(highest):
    cluster = ToyCluster(versions={ApiKey.METADATA: Versions(0, highest)})
    cluster.add_topic("a")
    async with running(cluster) as client:
        (listing,) = await client.list_topics()
    assert listing.name == "a"
    assert listing.topic_id == (UUID(int=1) if highest >= 10 else None)


async def test_a_topic_is_described_with_partitions_in_order_and_its_settings():
    cluster = ToyCluster(broker_count=2)
    topic = cluster.add_topic("orders", leaders=(1, -1, 2))
    topic.configs = {"retention.ms": "60000"}
    async with running(cluster) as client:
        described = await client.describe_topic("orders")
    assert [(partition.partition, partition.leader_id) for partition in described.partitions] == [
        (0, 1),
        (1, None),
        (2, 2),
    ]
    assert described.topic_id == topic.topic_id
    assert described.configs == (
        ConfigEntry("retention.ms", "60000", ConfigSource.DYNAMIC_TOPIC_CONFIG, is_read_only=False, is_sensitive=False),
        ConfigEntry("segment.bytes", "1024", ConfigSource.DEFAULT_CONFIG, is_read_only=False, is_sensitive=False),
    )


@pytest.mark.parametrize("highest", [0, 1, 4])
async def test_settings_are_told_from_defaults_in_every_version(highest):
    cluster = ToyCluster(versions={ApiKey.DESCRIBE_CONFIGS: Versions(0, highest)})
    cluster.add_topic("orders").configs = {"retention.ms": "60000"}
    async with running(cluster) as client:
        described = await client.describe_topic("orders")
    assert [config.is_default for config in described.configs] == [False, True]


async def test_a_source_that_nobody_knows_yet_is_unknown():
    cluster = ToyCluster()
    cluster.add_topic("orders")
    config = DescribeConfigsResourceResult(name="new.key", config_source=99)
    result = DescribeConfigsResult(resource_name="orders", configs=(config,))
    cluster.scripts[ApiKey.DESCRIBE_CONFIGS].append(lambda *_: DescribeConfigsResponse(results=(result,)))
    async with running(cluster) as client:
        described = await client.describe_topic("orders")
    assert [config.source for config in described.configs] == [ConfigSource.UNKNOWN]


async def test_settings_are_set_and_taken_back():
    cluster = ToyCluster()
    topic = cluster.add_topic("orders")
    topic.configs = {"retention.ms": "1", "segment.ms": "2"}
    async with running(cluster) as client:
        await client.alter_topic_configs("orders", {"retention.ms": "3", "segment.ms": None})
        assert topic.configs == {"retention.ms": "3"}
        with pytest.raises(NotFoundError):
            await client.alter_topic_configs("others", {"retention.ms": "3"})


async def test_a_topic_grows_and_can_be_used_at_once():
    cluster = ToyCluster(broker_count=2)
    cluster.controller_id = 2
    cluster.add_topic("orders")
    cluster.scripts[ApiKey.METADATA].extend([cluster.answer_metadata] * 2)
    async with running(cluster) as client:
        assert (await client.create_partitions("orders", 3)).partition_count == 3
        assert (await client.list_offsets({TopicPartition("orders", 2): LATEST}))[
            TopicPartition("orders", 2)
        ].offset == 0
        with pytest.raises(KafkaError, match="let topic orders have 2 partitions: INVALID_PARTITIONS"):
            await client.create_partitions("orders", 2)
        with pytest.raises(NotFoundError):
            await client.create_partitions("others", 2)
    assert cluster.brokers[0].requests_of(CreatePartitionsRequest) == []


async def test_growing_ends_when_the_broker_that_is_asked_knows_of_it():
    def as_before(broker, request, version):
        answer = cluster.answer_metadata(broker, request, version)
        (topic,) = answer.topics
        return msgspec.structs.replace(
            answer, topics=(msgspec.structs.replace(topic, partitions=topic.partitions[-1:]),)
        )

    cluster = ToyCluster()
    cluster.add_topic("orders")
    async with running(cluster) as client:
        await client.describe_cluster()
        cluster.scripts[ApiKey.METADATA].extend([as_before, as_before])
        assert (await client.create_partitions("orders", 2)).partition_count == 2


async def test_log_directories_are_told_for_every_broker():
    cluster = ToyCluster(broker_count=2)
    fill = cluster.add_topic("orders").logs[0]
    fill.batches += b"12345"
    place = TopicPartition("orders", 0)
    async with running(cluster) as client:
        assert await client.describe_log_dirs() == (
            LogDirectory(1, "/1", 100, 50, {place: 5}),
            LogDirectory(2, "/2", 100, 50, {place: 5}),
        )


async def test_an_old_broker_does_not_tell_how_large_its_disk_is():
    cluster = ToyCluster(versions={ApiKey.DESCRIBE_LOG_DIRS: Versions(0, 3)})
    async with running(cluster) as client:
        assert await client.describe_log_dirs() == (LogDirectory(1, "/1", None, None, {}),)


async def test_a_broker_without_describe_configs_still_describes_topics():
    cluster = ToyCluster()
    del cluster.versions[ApiKey.DESCRIBE_CONFIGS]
    cluster.add_topic("orders")
    async with running(cluster) as client:
        assert (await client.describe_topic("orders")).configs == ()


async def test_a_topic_that_is_not_there_is_not_found_and_not_created():
    cluster = ToyCluster()
    async with running(cluster) as client:
        with pytest.raises(NotFoundError, match="topic orders does not exist") as error:
            await client.describe_topic("orders")
    assert error.value.kafka_error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error.value.code == "not-found"
    assert cluster.topics == {}


async def test_a_topic_is_created_and_usable_when_that_returns():
    cluster = ToyCluster()
    cluster.scripts[ApiKey.METADATA].extend(
        [
            cluster.answer_metadata,  # who is the controller
            lambda broker, request, version: MetadataResponse(
                topics=(cluster._topic_metadata("not yet", version),), controller_id=1
            ),
        ]
    )
    async with running(cluster) as client:
        listing = await client.create_topic("orders", partition_count=3, configs={"retention.ms": "1000"})
    assert listing == TopicListing("orders", UUID(int=1), 3, is_internal=False)
    (request,) = cluster.requests_of(CreateTopicsRequest)
    assert request.topics[0].replication_factor == -1
    assert cluster.topics["orders"].configs == {"retention.ms": "1000"}
    assert len(cluster.requests_of(MetadataRequest)) == 3


async def test_a_topic_that_is_there_already_is_refused_in_the_brokers_words():
    cluster = ToyCluster()
    cluster.add_topic("orders")
    async with running(cluster) as client:
        with pytest.raises(
            KafkaError, match=r"create topic orders: TOPIC_ALREADY_EXISTS \(it is there already\)"
        ) as error:
            await client.create_topic("orders")
    assert error.value.kafka_error is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_defaults_for_a_topic_need_a_broker_that_has_them():
    cluster = ToyCluster(versions={ApiKey.CREATE_TOPICS: Versions(0, 3)})
    async with running(cluster) as client:
        with pytest.raises(UnsupportedError, match="serves CreateTopics 0 to 3; needed is 4 to 7"):
            await client.create_topic("orders")
        assert (await client.create_topic("orders", partition_count=2, replication_factor=1)).partition_count == 2


async def test_a_broker_that_is_no_longer_the_controller_sends_the_client_to_the_one_that_is():
    def not_controller(broker, request, version):
        cluster.controller_id = 2
        result = CreatableTopicResult(name="orders", error_code=ErrorCode.NOT_CONTROLLER)
        return CreateTopicsResponse(topics=(result,))

    cluster = ToyCluster(broker_count=2)
    cluster.scripts[ApiKey.CREATE_TOPICS].append(not_controller)
    async with running(cluster) as client:
        await client.create_topic("orders")
    assert len(cluster.brokers[1].requests_of(CreateTopicsRequest)) == 1


async def test_an_answer_about_nothing_is_malformed():
    cluster = ToyCluster()
    cluster.scripts[ApiKey.CREATE_TOPICS].append(lambda *_: CreateTopicsResponse())
    async with running(cluster) as client:
        with pytest.raises(DecodeError, match="create topic orders: the broker answered about 0 things"):
            await client.create_topic("orders")


@pytest.mark.parametrize("highest", [0, 5, 6])
async def test_a_topic_is_deleted_by_name_in_every_version(highest):
    cluster = ToyCluster(versions={ApiKey.DELETE_TOPICS: Versions(0, highest)})
    cluster.add_topic("orders")
    async with running(cluster) as client:
        await client.delete_topic("orders")
        assert cluster.topics == {}
        with pytest.raises(NotFoundError, match="topic orders does not exist"):
            await client.delete_topic("orders")
    assert len(cluster.requests_of(DeleteTopicsRequest)) == 2


async def test_an_error_code_from_the_future_is_told_by_its_number():
    result = CreatableTopicResult(name="orders", error_code=9_999)
    cluster = ToyCluster()
    cluster.scripts[ApiKey.CREATE_TOPICS].append(lambda *_: CreateTopicsResponse(topics=(result,)))
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match="error 9999, which this client does not know") as error:
            await client.create_topic("orders")
    assert error.value.kafka_error is ErrorCode.UNKNOWN_SERVER_ERROR


# --- offsets --------------------------------------------------------------------------------------------------


def with_offsets() -> tuple[ToyCluster, list[TopicPartition]]:
    cluster = ToyCluster(broker_count=2)
    topic = cluster.add_topic("orders", leaders=(1, 2))
    for log, (start, stable, end) in zip(topic.logs, [(2, 5, 9), (0, 0, 0)], strict=True):
        log.log_start, log.last_stable_offset, log.log_end = start, stable, end
    return cluster, [TopicPartition("orders", partition) for partition in (0, 1)]


async def test_offsets_are_asked_of_each_leader():
    cluster, places = with_offsets()
    async with running(cluster) as client:
        for timestamp, isolation, expected in [
            (EARLIEST, IsolationLevel.READ_UNCOMMITTED, [2, 0]),
            (LATEST, IsolationLevel.READ_UNCOMMITTED, [9, 0]),
            (LATEST, IsolationLevel.READ_COMMITTED, [5, 0]),
            (123_456, IsolationLevel.READ_UNCOMMITTED, [None, None]),
        ]:
            found = await client.list_offsets(dict.fromkeys(places, timestamp), isolation=isolation)
            assert [found[place].offset for place in places] == expected
        assert found[places[0]] == ListedOffset(None, -1, -1)
        assert await client.list_offsets({}) == {}
    assert [len(broker.requests_of(ListOffsetsRequest)) for broker in cluster.brokers] == [4, 4]


async def test_only_what_was_refused_is_asked_again_and_of_the_new_leader():
    cluster, places = with_offsets()
    async with running(cluster) as client:
        await client.list_offsets(dict.fromkeys(places, LATEST))
        cluster.topics["orders"].logs[0].leader_id = 2
        found = await client.list_offsets(dict.fromkeys(places, LATEST))
        assert [found[place].offset for place in places] == [9, 0]
    (last,) = cluster.brokers[1].requests_of(ListOffsetsRequest)[-1].topics
    assert [partition.partition_index for partition in last.partitions] == [0]


async def test_offsets_of_a_partition_that_is_not_there_are_not_found():
    cluster, _ = with_offsets()
    async with running(cluster) as client:
        with pytest.raises(NotFoundError, match="topic orders has 2 partitions; there is no partition 7"):
            await client.list_offsets({TopicPartition("orders", 7): LATEST})


async def test_a_broker_that_leaves_a_partition_out_is_found_out():
    cluster, places = with_offsets()
    cluster.scripts[ApiKey.LIST_OFFSETS].append(lambda *_: ListOffsetsResponse())
    async with running(cluster) as client:
        with pytest.raises(DecodeError, match="left orders-0 out"):
            await client.list_offsets({places[0]: LATEST})


@pytest.mark.parametrize(
    ("highest", "isolation", "message"), [(0, 0, "needed is 1 to 11"), (1, 1, "needed is 2 to 11")]
)
async def test_offsets_that_an_old_broker_cannot_tell_are_unsupported(highest, isolation, message):
    cluster, places = with_offsets()
    cluster.versions[ApiKey.LIST_OFFSETS] = Versions(0, highest)
    async with running(cluster, SETTINGS) as client:
        with pytest.raises(UnsupportedError, match=message):
            await client.list_offsets({places[0]: LATEST}, isolation=IsolationLevel(isolation))


# --- where logs begin -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("highest", [0, 1, 2])
async def test_records_are_deleted_by_each_leader_in_every_version(highest):
    cluster, places = with_offsets()
    cluster.versions[ApiKey.DELETE_RECORDS] = Versions(0, highest)
    async with running(cluster) as client:
        assert await client.delete_records({places[0]: 5, places[1]: HIGH_WATERMARK}) == {places[0]: 5, places[1]: 0}
        assert await client.delete_records({places[0]: 3}) == {places[0]: 5}
        assert await client.delete_records({places[0]: HIGH_WATERMARK}) == {places[0]: 9}
        assert await client.delete_records({}) == {}
    assert [len(broker.requests_of(DeleteRecordsRequest)) for broker in cluster.brokers] == [3, 1]


async def test_records_below_an_offset_that_is_not_there_are_refused_and_the_rest_is_counted():
    cluster, places = with_offsets()
    async with running(cluster) as client:
        with pytest.raises(KafkaError, match="delete records of orders-1: OFFSET_OUT_OF_RANGE") as error:
            await client.delete_records({places[0]: 5, places[1]: 1})
        assert error.value.hint == "the records of 1 of 2 partitions were deleted for certain"
        with pytest.raises(KafkaError) as alone:
            await client.delete_records({places[0]: 10})
        assert (alone.value.kafka_error, alone.value.hint) == (ErrorCode.OFFSET_OUT_OF_RANGE, "")
        with pytest.raises(NotFoundError, match="there is no partition 7"):
            await client.delete_records({TopicPartition("orders", 7): 0})


async def test_the_new_leader_deletes_what_the_old_one_refused():
    cluster, places = with_offsets()
    async with running(cluster) as client:
        await client.delete_records(dict.fromkeys(places, HIGH_WATERMARK))
        cluster.topics["orders"].logs[0].leader_id = 2
        assert await client.delete_records(dict.fromkeys(places, 0)) == {places[0]: 9, places[1]: 0}
    (last,) = cluster.brokers[1].requests_of(DeleteRecordsRequest)[-1].topics
    assert [partition.partition_index for partition in last.partitions] == [0]
