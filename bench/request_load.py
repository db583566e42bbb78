"""Requests a second: one small load generator for any Kafka-compatible broker, over many connections at once.

Each connection sends one request after the other, made beforehand, and looks at nothing of the answer but its length,
so that what is measured is the broker. Prints one line of JSON.
"""

import argparse
import asyncio
import json
import statistics
import struct
import sys
import time
import uuid
from contextlib import AsyncExitStack
from functools import partial

from exactlog.client.ports import ClientSettings
from exactlog.client.wire.addresses import Address
from exactlog.client.wire.connection import WireConnection
from exactlog.core.codec.message_codec import encode_bytes
from exactlog.core.codec.message_schema import Message
from exactlog.core.model.ids import TimestampMs
from exactlog.core.protocol.headers import RequestHeader, encode_request_header
from exactlog.core.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from exactlog.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from exactlog.core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from exactlog.core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from exactlog.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from exactlog.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from exactlog.core.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from exactlog.core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from exactlog.core.record.batch_builder import NewRecord, build_batch

WARM_UP_S = 0.5
VALUE_BYTES = 100
REBALANCE_ERROR = 27
COORDINATOR_TRIES = 100
HEARTBEAT_S = 0.02
"""How often a member of the rebalancing group asks whether it is to rejoin: far more often than real ones."""

SIZE = struct.Struct(">i")


class LoadError(Exception):
    """The broker did not do what the measurement needs."""


class Requester(asyncio.Protocol):
    """One connection: sends the same frame again whenever an answer is complete."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._buffer = bytearray()
        self._sent_at = 0.0
        self._transport: asyncio.WriteTransport | None = None
        self.times: list[float] = []
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first one."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        """Count whole answers."""
        self._buffer += data
        if len(self._buffer) < SIZE.size:
            return
        size = SIZE.size + SIZE.unpack_from(self._buffer)[0]
        if len(self._buffer) < size:
            return
        del self._buffer[:size]
        self.times.append(time.perf_counter() - self._sent_at)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  a protocol's signature
        """The broker has had enough, or we have."""
        self.is_lost = True

    def _send(self) -> None:
        assert self._transport is not None
        self._sent_at = time.perf_counter()
        self._transport.write(self._frame)

    def close(self) -> None:
        """Stop."""
        if self._transport is not None:
            self._transport.close()


def address_of(text: str) -> Address:
    """HOST:PORT."""
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


def frame_of(request: Message, version: int) -> bytes:
    """A request as it goes over the wire."""
    header = RequestHeader(api_key=request.api_key, api_version=version, correlation_id=1, client_id="bench")
    content = encode_request_header(header) + encode_bytes(request, version)
    return SIZE.pack(len(content)) + content


async def run_load(address: str, frames: list[bytes], seconds: float) -> dict[str, float]:
    """Requests a second and their times, over one connection for each frame."""
    place = address_of(address)
    loop = asyncio.get_running_loop()
    requesters = []
    for frame in frames:
        _, requester = await loop.create_connection(partial(Requester, frame), place.host, place.port)
        requesters.append(requester)
    await asyncio.sleep(WARM_UP_S)
    for requester in requesters:
        requester.times.clear()
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    elapsed = time.perf_counter() - began
    times = [each for requester in requesters for each in requester.times]
    if not times or any(requester.is_lost for requester in requesters):
        raise LoadError("the broker closed a connection, or answered nothing")
    for requester in requesters:
        requester.close()
    percentiles = statistics.quantiles(times, n=100)
    return {
        "requests_per_s": len(times) / elapsed,
        "p50_ms": percentiles[49] * 1000,
        "p99_ms": percentiles[98] * 1000,
    }


# --- what is sent ----------------------------------------------------------------------------------------------


class Setting:
    """A topic, and what its requests need."""

    def __init__(self, connection: WireConnection) -> None:
        self.connection = connection
        self.topic = f"bench-{uuid.uuid4().hex}"

    async def make_topic(self) -> None:
        """Create it, and wait until it has a leader."""
        topic = CreatableTopic(name=self.topic, num_partitions=1, replication_factor=1)
        await self.connection.request(
            CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), CreateTopicsResponse, version=5
        )
        for _ in range(COORDINATOR_TRIES):
            answer = await self.connection.request(self.metadata(), MetadataResponse, version=9)
            if answer.topics[0].error_code == 0:
                return
            await asyncio.sleep(0.05)
        raise LoadError(f"topic {self.topic} has no leader")

    def metadata(self) -> MetadataRequest:
        """Asks about the topic."""
        return MetadataRequest(topics=(MetadataRequestTopic(name=self.topic),), allow_auto_topic_creation=False)

    def produce(self) -> ProduceRequest:
        """One record of 100 bytes, `acks=all`."""
        batch = build_batch([NewRecord(b"x" * VALUE_BYTES, timestamp_ms=TimestampMs(int(time.time() * 1000)))])
        data = TopicProduceData(name=self.topic, partition_data=(PartitionProduceData(index=0, records=bytes(batch)),))
        return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(data,))

    def fetch(self) -> FetchRequest:
        """The first record, at once."""
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        topic = FetchTopic(topic=self.topic, partitions=(partition,))
        return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, topics=(topic,))

    def commit(self, member: "Member") -> OffsetCommitRequest:
        """One offset of one group."""
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        return OffsetCommitRequest(
            group_id=member.group_id,
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            topics=(OffsetCommitRequestTopic(name=self.topic, partitions=(partition,)),),
        )


class Member:
    """A member of a group that does nothing but take part."""

    def __init__(self, connection: WireConnection, group_id: str) -> None:
        self._connection = connection
        self.group_id = group_id
        self.member_id = ""
        self.generation_id = -1
        self.is_stable = False

    async def find_coordinator(self) -> None:
        """Wait until there is one."""
        for _ in range(COORDINATOR_TRIES):
            request = FindCoordinatorRequest(key=self.group_id, key_type=0)
            answer = await self._connection.request(request, FindCoordinatorResponse, version=3)
            if answer.error_code == 0:
                return
            await asyncio.sleep(0.1)
        raise LoadError(f"group {self.group_id} has no coordinator")

    async def join(self) -> None:
        """Join and sync, until the group is stable with this member in it."""
        self.is_stable = False
        for _ in range(COORDINATOR_TRIES):
            request = JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=60_000,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
            )
            joined = await self._connection.request(request, JoinGroupResponse, version=5)
            self.member_id = joined.member_id or self.member_id
            if joined.error_code:
                await asyncio.sleep(0.01)
                continue
            self.generation_id = joined.generation_id
            given = tuple(
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"x") for each in joined.members
            )
            sync = SyncGroupRequest(
                group_id=self.group_id, generation_id=self.generation_id, member_id=self.member_id, assignments=given
            )
            synced = await self._connection.request(sync, SyncGroupResponse, version=3)
            if synced.error_code == 0:
                self.is_stable = True
                return
        raise LoadError(f"group {self.group_id} does not come together")

    async def follow(self) -> None:
        """Rejoin whenever told to, for ever."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            answer = await self._connection.request(self.heartbeat(), HeartbeatResponse, version=3)
            if answer.error_code == REBALANCE_ERROR:
                await self.join()

    def heartbeat(self) -> HeartbeatRequest:
        """Alive."""
        return HeartbeatRequest(group_id=self.group_id, generation_id=self.generation_id, member_id=self.member_id)


async def open_connection(stack: AsyncExitStack, address: str) -> WireConnection:
    """One that is closed in the end."""
    connection = await WireConnection.open(address_of(address), ClientSettings(request_timeout_ms=90_000))
    stack.push_async_callback(connection.close)
    return connection


async def measure_requests(address: str, what: str, *, connections: int, seconds: float) -> dict[str, float]:
    """One kind of request over so many connections; every connection has a group of its own where groups matter."""
    async with AsyncExitStack() as stack:
        setting = Setting(await open_connection(stack, address))
        await setting.make_topic()
        if what == "metadata":
            return await run_load(address, [frame_of(setting.metadata(), 9)] * connections, seconds)
        if what == "produce":
            return await run_load(address, [frame_of(setting.produce(), 8)] * connections, seconds)
        if what == "fetch":
            await setting.connection.request(setting.produce(), ProduceResponse, version=8)
            return await run_load(address, [frame_of(setting.fetch(), 11)] * connections, seconds)
        members = []
        for _ in range(connections):
            member = Member(setting.connection, f"bench-{uuid.uuid4().hex}")
            await member.find_coordinator()
            await member.join()
            members.append(member)
        if what == "heartbeat":
            return await run_load(address, [frame_of(member.heartbeat(), 3) for member in members], seconds)
        return await run_load(address, [frame_of(setting.commit(member), 7) for member in members], seconds)


async def measure_rebalance(address: str, *, members: int, repetitions: int) -> dict[str, float]:
    """How long it takes until a group of so many is stable again after one more has come, in ms: the median."""
    times = []
    for _ in range(repetitions):
        async with AsyncExitStack() as stack:
            group_id = f"bench-{uuid.uuid4().hex}"
            group = [Member(await open_connection(stack, address), group_id) for _ in range(members)]
            await group[0].find_coordinator()
            await group[0].join()
            following = [asyncio.create_task(group[0].follow())]
            stack.callback(partial(_cancel, following))
            for member in group[1:]:
                await member.join()
                following.append(asyncio.create_task(member.follow()))
            await _wait_until_stable(group)
            newcomer = Member(await open_connection(stack, address), group_id)
            began = time.perf_counter()
            await newcomer.join()
            await _wait_until_stable([*group, newcomer])
            times.append((time.perf_counter() - began) * 1000)
    return {"rebalance_ms": statistics.median(times)}


def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()


async def _wait_until_stable(group: list[Member]) -> None:
    def is_stable() -> bool:
        return all(member.is_stable for member in group) and len({member.generation_id for member in group}) == 1

    while not is_stable():  # noqa: ASYNC110  ten members that each say so would be more
        await asyncio.sleep(0.001)


def main() -> int:
    """Measure one thing and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("what", choices=["metadata", "produce", "fetch", "offset-commit", "heartbeat", "rebalance"])
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.what == "rebalance":
        work = measure_rebalance(arguments.address, members=arguments.members, repetitions=arguments.repetitions)
    else:
        work = measure_requests(
            arguments.address, arguments.what, connections=arguments.connections, seconds=arguments.seconds
        )
    try:
        print(json.dumps(asyncio.run(work)))
    except LoadError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
