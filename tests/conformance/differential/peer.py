"""One of the two brokers, as a scenario sees it."""

import time
import uuid
from typing import NamedTuple

from msgspec.structs import replace

from exactlog.core.codec.message_codec import decode
from exactlog.core.codec.message_schema import Structure, fields_of
from exactlog.core.protocol.api_keys import APIS
from exactlog.core.protocol.messages.api_versions import ApiVersionsRequest
from exactlog.core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from exactlog.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from exactlog.core.protocol.messages.describe_cluster import DescribeClusterRequest
from exactlog.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from exactlog.core.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from exactlog.core.protocol.messages.end_txn import EndTxnRequest
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from exactlog.core.protocol.messages.heartbeat import HeartbeatRequest
from exactlog.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from exactlog.core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from exactlog.core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from exactlog.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from exactlog.core.protocol.messages.produce import ProduceRequest
from exactlog.core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.conformance.differential.normal_form import Normaliser
from tests.support.raw_client import (
    ConnectionClosed,
    RawClient,
    Topic,
    fetch_request,
    frame,
    produce_request,
    sequenced,
)

CLOSED = "the connection is closed"
NOT_ANSWERED = "no answer"
NO_ERROR = 0
COORDINATOR_LOAD_IN_PROGRESS = 14
MEMBER_ID_REQUIRED = 79
REBALANCE_IN_PROGRESS = 27
LEADER_WAIT_SECONDS = 30
ANSWER_SECONDS = 5
"""What takes longer is taken for no answer; no scenario lets a broker wait that long."""


class Member(NamedTuple):
    """A member of a group."""

    group: str
    member_id: str
    generation: int


class NotServedError(Exception):
    """The broker does not serve an API that a scenario asks."""


class Broker:
    """A running broker, and what is its own about it.

    Attributes:
        name: what it is called in differences.
        versions: the lowest and highest version it serves, by API.
        epoch: the leader epoch that a new topic has.
        coordinator_epoch: what the markers of transactions carry.
        own: values that belong to it, by field name.

    Args:
        hold_markers: `(peer, transaction)`: sees to it that the transaction that is open stays prepared once it is
            ended; returns what lets it go.
        kill_and_restart: brings it back after a crash.
    """

    def __init__(self, name, port, *, hold_markers=None, kill_and_restart=None):
        self.name = name
        self.port = port
        self.hold_markers = hold_markers
        self.kill_and_restart = kill_and_restart
        self.look()

    def look(self):
        """Finds out what is the broker's own; waits until all of it is there."""
        with RawClient(self.port) as client:
            self.versions = {
                api.api_key: (max(api.min_version, APIS[api.api_key].versions.lowest), api.max_version)
                for api in client.ask(ApiVersionsRequest(), 0).api_keys
                if api.api_key in APIS
            }
            cluster = client.ask(DescribeClusterRequest(), 0)
            self.own = {"host": "127.0.0.1", "port": self.port, "cluster_id": cluster.cluster_id}
            self.epoch = 0
            topic = create_topics(client, [CreatableTopic(name=f"first-{uuid.uuid4().hex}", num_partitions=1)])[0]
            self.epoch = wait_for_leaders(client, [topic.name])[topic.name]
            for key_type in (0, 1):
                wait_for_coordinator(client, key_type)
            wait_for_producer_ids(client)
            self.coordinator_epoch = wait_for_marker(client, topic)


class Peer:
    """A broker within one scenario: its names, its connection, the normal forms of its answers.

    Attributes:
        broker: the broker.
        answers: the part of the scenario, a label and a normal form for each request that was asked, in order.
    """

    def __init__(self, broker, *, prefix, api_key, version, common_versions):
        self.broker = broker
        self.answers = []
        self._prefix = prefix
        self.part = ""
        self._parts = 0
        self.state = ""
        self._about = (api_key, version)
        self._common_versions = common_versions
        self._client = None
        self._others = []
        self._held = []
        self._one_topic = None
        self._normaliser = Normaliser(
            own=broker.own, epoch=broker.epoch, coordinator_epoch=broker.coordinator_epoch, prefix=prefix
        )

    def close(self):
        """Lets go what is held, and ends the connections."""
        for let_go in self._held:
            let_go()
        self._held.clear()
        for client in (*self._others, self._client):
            if client is not None:
                client.close()
        self._client = None

    # --- what is compared -----------------------------------------------------------------------------------------

    def ask(self, request, version=None):
        """Asks, takes down the answer, and returns it; None when the connection ends or nothing comes."""
        if isinstance(request, ProduceRequest) and request.acks == 0:
            return self.ask_without_answer(request, version)
        version = self.version_of(request, version)
        try:
            answer = self._connected().ask(fitting(request, version), version)
            form = self._normaliser.tree(answer, of=request)
        except (ConnectionClosed, TimeoutError, BrokenPipeError, ConnectionResetError) as ending:
            answer, form = None, NOT_ANSWERED if isinstance(ending, TimeoutError) else CLOSED
            self._reconnect()
        self.take_down(APIS[request.api_key].name, form)
        return answer

    def ask_without_answer(self, request, version=None):
        """Sends a request that is not answered; takes down whether the connection lives on."""
        version = self.version_of(request, version)
        client = self._connected()
        try:
            client.send(fitting(request, version), version, is_answered=False)
            client.ask(ApiVersionsRequest(), 0)
            form = "goes on"
        except (ConnectionClosed, BrokenPipeError, ConnectionResetError):
            form = CLOSED
            self._reconnect()
        self.take_down(APIS[request.api_key].name, form)

    def ask_bytes(self, content, response, version, body):
        """Sends a frame of these bytes; the answer is of that type, and its message begins at `body`."""
        client = self._connected()
        try:
            client.send_bytes(frame(content))
            form = self._normaliser.tree(decode(response, version, client.receive_frame(), body))
        except (ConnectionClosed, TimeoutError, BrokenPipeError, ConnectionResetError) as ending:
            form = NOT_ANSWERED if isinstance(ending, TimeoutError) else CLOSED
            self._reconnect()
        self.take_down("bytes", form)

    def begin(self, part):
        """Begins a part of the scenario, with names of its own."""
        self.part = part
        self._parts += 1
        self._one_topic = None
        self._normaliser.begin(self._parts)

    def about(self, part):
        """What is asked from now on is a part of its own; names and ids go on."""
        self.part = part

    def take_down(self, label, form):
        """Adds to what is compared."""
        number = 1 + sum(part == self.part for part, _, _ in self.answers)
        self.answers.append((self.part, f"{number}.{label}", form))

    # --- what is not ----------------------------------------------------------------------------------------------

    def quietly(self, request, version=None):
        """Asks; the answer is not compared."""
        version = self.version_of(request, version)
        return self._connected().ask(fitting(request, version), version)

    def version_of(self, request, version=None):
        """The version a request goes out in: that of the scenario, for another API the highest both brokers serve.

        Raises:
            NotServedError: exactlog does not serve the API.
        """
        if request.api_key not in self._common_versions:
            raise NotServedError(APIS[request.api_key].name)
        if version is not None:
            return version
        api_key, version = self._about
        return version if request.api_key == api_key else self._common_versions[request.api_key][-1]

    @property
    def version(self):
        """The version of the scenario."""
        return self._about[1]

    def name(self, suffix):
        """A name that no other scenario uses, and both brokers do."""
        return f"{self._prefix}{self._parts}-{suffix}"

    def topic(self, suffix="topic", *, partitions=1, **config):
        """A new topic. A key of `config` is spelled with underscores."""
        configs = tuple(
            CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in config.items()
        )
        creatable = CreatableTopic(name=self.name(suffix), num_partitions=partitions, configs=configs)
        (topic,) = create_topics(self._connected(), [creatable])
        wait_for_leaders(self._connected(), [topic.name])
        self._normaliser.name_id(topic.topic_id, f"id of ~{suffix}")
        return topic

    def one_topic(self):
        """The same topic of three partitions each time."""
        if self._one_topic is None:
            self._one_topic = self.topic("one", partitions=3)
        return self._one_topic

    def produce(self, topic, records, *, partition=0):
        """Stores records, which must work."""
        (of_topic,) = self.quietly(produce_request(topic, records, partition=partition), 12).responses
        (of_partition,) = of_topic.partition_responses
        assert of_partition.error_code == NO_ERROR, of_partition
        return of_partition

    def wait_for_leaders(self, topic):
        """Waits until all partitions of a topic answer for themselves."""
        wait_for_leaders(self._connected(), [topic.name])

    def until(self, is_so):
        """Asks until something is so: what a broker does in the background is not compared in the middle of it."""
        deadline = time.monotonic() + LEADER_WAIT_SECONDS
        while not is_so():
            assert time.monotonic() < deadline, "it never comes to that"

    def wait_for_config(self, topic, name, value):
        """Waits until a setting of a topic is described with that value."""
        resource = DescribeConfigsResource(resource_type=2, resource_name=topic.name, configuration_keys=(name,))

        def is_described():
            (described,) = self.quietly(DescribeConfigsRequest(resources=(resource,)), 4).results
            return [config.value for config in described.configs] == [value]

        self.until(is_described)

    def delete_topic(self, topic):
        """Deletes a topic, and waits until its name is gone."""
        request = DeleteTopicsRequest(topics=(DeleteTopicState(name=topic.name),), timeout_ms=10_000)
        (deleted,) = self.quietly(request, 6).responses
        assert deleted.error_code == NO_ERROR, deleted
        asked = MetadataRequest(topics=(MetadataRequestTopic(name=topic.name),), allow_auto_topic_creation=False)
        self.until(lambda: self.quietly(asked, 9).topics[0].error_code != NO_ERROR)

    def read(self, topic, offset=0, *, partition=0):
        """Takes down what is in a partition."""
        return self.ask(fetch_request(topic, offset, partition=partition), 12)

    def producer(self):
        """The id of a new producer."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = self.quietly(request, 4)
        assert answer.error_code == NO_ERROR, answer
        self.name_producer(answer.producer_id)
        return answer.producer_id

    def name_producer(self, producer_id):
        """Numbers a producer id that a broker has made up, as if it had appeared."""
        self._normaliser.tree(InitProducerIdResponse(producer_id=producer_id))

    def hold_markers(self, transaction):
        """Sees to it that a transaction, once it is ended, stays prepared until the end of the scenario."""
        self._held.append(self.broker.hold_markers(self, transaction))

    def kill_and_restart(self, topic):
        """Crashes the broker; waits until a topic and the coordinators are there again."""
        self._reconnect()
        self.broker.kill_and_restart()
        wait_for_leaders(self._connected(), [topic.name])
        self.broker.look()

    @property
    def holds_markers(self):
        """Whether transactions stay prepared."""
        return bool(self._held)

    def joined(self, group, *, instance=None, protocols=("range",)):
        """Joins an empty group, as its leader; the answer."""
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=b"wishes") for name in protocols),
        )
        joined = self.quietly(join, 9)
        if joined.error_code == MEMBER_ID_REQUIRED:
            joined = self.quietly(replace(join, member_id=joined.member_id), 9)
        assert joined.error_code == NO_ERROR, joined
        self._normaliser.tree(joined)
        return joined

    def member(self, group, *, instance=None, protocols=("range",), assignment=b"assigned"):
        """Joins an empty group, as its leader, and gives itself an assignment."""
        joined = self.joined(group, instance=instance, protocols=protocols)
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name=protocols[0],
            assignments=(SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment),),
        )
        synced = self.quietly(sync, 5)
        assert synced.error_code == NO_ERROR, synced
        return Member(group, joined.member_id, joined.generation_id)

    def until_rebalance(self, member):
        """Waits until a member is told to rejoin."""
        beat = HeartbeatRequest(group_id=member.group, generation_id=member.generation, member_id=member.member_id)
        self.until(lambda: self.quietly(beat, 4).error_code == REBALANCE_IN_PROGRESS)

    def fitting(self, request, version=None):
        """A request without what the version of the scenario, or another one, lacks."""
        return fitting(request, self.version if version is None else version)

    def commit(self, group, topic, offset, *, partition=0, metadata="so far"):
        """Commits an offset as somebody who is no member."""
        part = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        request = OffsetCommitRequest(
            group_id=group, topics=(OffsetCommitRequestTopic(name=topic.name, partitions=(part,)),)
        )
        (of_topic,) = self.quietly(request, 9).topics
        assert of_topic.partitions[0].error_code == NO_ERROR, of_topic

    def epoch(self, above=0):
        """The leader epoch that a new topic has, or one above or below it."""
        return self.broker.epoch + above

    def another_connection(self):
        """A connection of its own; answers on it are not compared unless `compare` is called with them."""
        self._others.append(RawClient(self.broker.port))
        return self._others[-1]

    def compare(self, label, message):
        """Takes down a message that came on another connection."""
        self.take_down(label, self._normaliser.tree(message))

    def _connected(self):
        if self._client is None:
            self._client = RawClient(self.broker.port)
            self._client.patience_s = ANSWER_SECONDS
        return self._client

    def _reconnect(self):
        if self._client is not None:
            self._client.close()
        self._client = None


def fitting(structure, version):
    """A request without what its version lacks."""
    changed = {}
    for field in fields_of(type(structure)):
        value = getattr(structure, field.name)
        if version not in field.versions:
            changed[field.name] = field.default
        elif isinstance(value, Structure):
            changed[field.name] = fitting(value, version)
        elif isinstance(value, tuple) and value and isinstance(value[0], Structure):
            changed[field.name] = tuple(fitting(item, version) for item in value)
    return replace(structure, **changed)


def create_topics(client, topics):
    """Makes topics; one replica each."""
    topics = tuple(
        CreatableTopic(name=t.name, num_partitions=t.num_partitions, replication_factor=1, configs=t.configs)
        for t in topics
    )
    answer = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
    assert all(topic.error_code == NO_ERROR for topic in answer.topics), answer
    return [Topic(topic.name, topic.topic_id) for topic in answer.topics]


def wait_for_leaders(client, names):
    """Waits until all partitions of topics answer for themselves: that is a little later than the topics are made.

    Returns:
        the leader epoch of each topic's first partition.
    """
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    metadata = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    deadline = time.monotonic() + LEADER_WAIT_SECONDS
    while time.monotonic() < deadline:
        described = client.ask(metadata, 9).topics
        if all(topic.error_code == NO_ERROR for topic in described) and _can_be_read(client, described):
            return {topic.name: topic.partitions[0].leader_epoch for topic in described}
    raise AssertionError(f"no leaders for {names}")


def _can_be_read(client, topics):
    asked = tuple(
        ListOffsetsTopic(
            name=topic.name,
            partitions=tuple(
                ListOffsetsPartition(partition_index=partition.partition_index, timestamp=-1)
                for partition in topic.partitions
            ),
        )
        for topic in topics
    )
    answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=asked), 5)
    return all(partition.error_code == NO_ERROR for topic in answer.topics for partition in topic.partitions)


def wait_for_coordinator(client, key_type):
    """Waits until keys of that type have a coordinator: Kafka makes its topic when it is first asked."""
    deadline = time.monotonic() + LEADER_WAIT_SECONDS
    while time.monotonic() < deadline:
        if client.ask(FindCoordinatorRequest(key="first", key_type=key_type), 1).error_code == NO_ERROR:
            return
    raise AssertionError(f"no coordinator of type {key_type}")


def wait_for_producer_ids(client):
    """Waits until there are producer ids: Kafka gets its first block of them when it is first asked."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    deadline = time.monotonic() + LEADER_WAIT_SECONDS
    while client.ask(request, 4).error_code == COORDINATOR_LOAD_IN_PROGRESS:
        assert time.monotonic() < deadline, "no producer ids"


def wait_for_marker(client, topic):
    """Ends a first transaction, and waits until its marker is in the topic.

    Returns:
        the epoch of the coordinator.
    """
    init = InitProducerIdRequest(transactional_id=topic.name, transaction_timeout_ms=60_000)
    deadline = time.monotonic() + LEADER_WAIT_SECONDS
    while (producer := client.ask(init, 4)).error_code != NO_ERROR:
        assert time.monotonic() < deadline, producer
    batch = sequenced(producer.producer_id, 0, b"first", epoch=producer.producer_epoch, is_transactional=True)
    request = replace(produce_request(topic, batch), transactional_id=topic.name)
    while (written := client.ask(request, 12).responses[0].partition_responses[0]).error_code != NO_ERROR:
        assert time.monotonic() < deadline, written
    end = EndTxnRequest(
        transactional_id=topic.name,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    answer = client.ask(end, 5)
    assert answer.error_code == NO_ERROR, answer
    asked = DescribeProducersTopic(name=topic.name, partition_indexes=(0,))
    while time.monotonic() < deadline:
        (partition,) = client.ask(DescribeProducersRequest(topics=(asked,)), 0).topics[0].partitions
        if (epoch := partition.active_producers[0].coordinator_epoch) >= 0:
            return epoch
    raise AssertionError("no marker")
