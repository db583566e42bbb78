"""A blocking client on a plain socket: our own codec, one frame at a time, nothing retried and nothing hidden."""

import itertools
import socket
import struct
import uuid
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from exactlog.core.codec.message_codec import decoder, encode_bytes
from exactlog.core.protocol.api_keys import APIS
from exactlog.core.protocol.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    response_header_version,
)
from exactlog.core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from exactlog.core.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from exactlog.core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from exactlog.core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from exactlog.core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import iter_headers
from exactlog.core.record.record_format import decode_records

ANSWER_TIMEOUT_S = 20
BY_NAME = 12
"""The highest version of Produce and Fetch that names topics."""
BY_ID = 13


class ConnectionClosed(Exception):  # noqa: N818  the ending a test asks for as often as not
    """The broker closed the connection."""


class Topic(NamedTuple):
    """A topic a test has made."""

    name: str
    topic_id: uuid.UUID


class RawClient:
    """One connection to a broker on this machine."""

    def __init__(self, port):
        self.patience_s = ANSWER_TIMEOUT_S
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_ids = itertools.count(1)
        self._asked = deque()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        self._socket.close()

    # --- requests and answers -----------------------------------------------------------------------------------

    def ask(self, request, version):
        """Sends a request and returns its response; every earlier answer must have been received."""
        self.send(request, version)
        return self.receive()

    def send(self, request, version, *, is_answered=True):
        """Sends a request; the answers come from `receive` in the order of their requests."""
        self.send_all((request, version), is_answered=is_answered)

    def send_all(self, *requests, is_answered=True):
        """Sends requests (with their versions) in one piece, before any answer is read."""
        self.send_bytes(b"".join(self._frame(request, version, is_answered) for request, version in requests))

    def _frame(self, request, version, is_answered):
        correlation_id = next(self._correlation_ids)
        if is_answered:
            self._asked.append((request.api_key, version, correlation_id))
        return frame(encode_request(request, version, correlation_id))

    def receive(self):
        """The next response. It must answer the oldest request, and its bytes must be those of its version, no more."""
        api_key, version, asked_id = self._asked.popleft()
        received = self.receive_frame()
        header_version = response_header_version(api_key, version)
        correlation_id, body = decode_response_header(received, header_version=header_version)
        assert correlation_id == asked_id, "the answer of another request"
        response, end = decoder(APIS[api_key].response, version)(received, body)
        assert end == len(received), f"{len(received) - end} bytes behind the response"
        return response

    # --- bytes --------------------------------------------------------------------------------------------------

    def send_bytes(self, content):
        self._socket.sendall(content)

    def receive_frame(self):
        """The next frame, without its size."""
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def finish_sending(self):
        """Ends the sending half, as a client that goes away."""
        self._socket.shutdown(socket.SHUT_WR)

    def has_answer(self):
        """Whether bytes have arrived that were not received yet."""
        self._socket.setblocking(False)
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False
        finally:
            self._socket.settimeout(ANSWER_TIMEOUT_S)

    def waits_for_answer(self):
        """Waits until bytes of an answer arrive, and leaves them there; False when the connection ends instead."""
        return bool(self._receive(1, socket.MSG_PEEK))

    def is_closed(self):
        """Waits for the end of the connection; False when anything else comes first."""
        try:
            return self._receive(1) == b""
        except ConnectionResetError:
            return True

    def _receive(self, size, flags=0):
        """As `recv` of the socket. Where a machine stands still for long, as a shared one may, one second passes."""
        self._socket.settimeout(1)
        try:
            for _ in range(self.patience_s):
                with suppress(TimeoutError):
                    return self._socket.recv(size, flags)
        finally:
            self._socket.settimeout(ANSWER_TIMEOUT_S)
        raise TimeoutError(f"nothing came within {self.patience_s} s")

    def _receive_exactly(self, size):
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self._receive(size - len(parts))
            except ConnectionResetError:
                part = b""
            if not part:
                raise ConnectionClosed
            parts += part
        return bytes(parts)

    # --- what most tests do ---------------------------------------------------------------------------------------

    def create_topic(self, name=None, *, partitions=1, **config):
        """A new topic. A key of `config` is spelled with underscores: `max_message_bytes`."""
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        configs = tuple(
            CreatableTopicConfig(name=key.replace("_", "."), value=str(value)) for key, value in config.items()
        )
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        (created,) = self.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), 7).topics
        assert created.error_code == 0, created.error_message
        return Topic(name, created.topic_id)

    def produce(self, topic, records, *, partition=0, acks=-1, version=BY_NAME, terms=None):
        """What became of one partition's records."""
        response = self.ask(produce_request(topic, records, partition=partition, acks=acks, terms=terms), version)
        (of_topic,) = response.responses
        (of_partition,) = of_topic.partition_responses
        return of_partition

    def fetch(self, topic, offset, *, version=BY_NAME, **limits):
        """What there is of one partition; see `fetch_request`."""
        (of_topic,) = self.ask(fetch_request(topic, offset, **limits), version).responses
        (of_partition,) = of_topic.partitions
        return of_partition

    def delete_records(self, topic, offset, *, partition=0, version=2):
        """The answer for one partition."""
        part = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=(DeleteRecordsTopic(name=topic.name, partitions=(part,)),))
        (of_topic,) = self.ask(request, version).topics
        (of_partition,) = of_topic.partitions
        return of_partition

    def list_offset(self, topic, timestamp, *, partition=0, version=11, isolation_level=0, leader_epoch=-1):
        """The answer for one partition."""
        part = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=leader_epoch)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=(ListOffsetsTopic(name=topic.name, partitions=(part,)),),
        )
        (of_topic,) = self.ask(request, version).topics
        (of_partition,) = of_topic.partitions
        return of_partition


def frame(content):
    """Bytes with their size in front."""
    return struct.pack(">i", len(content)) + bytes(content)


def encode_request(request, version, correlation_id=1, client_id="raw"):
    """A request with its header, without the size in front."""
    header = RequestHeader(
        api_key=request.api_key, api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return encode_request_header(header) + encode_bytes(request, version)


def produce_request(topic, records, *, partition=0, acks=-1, terms=None):
    """A Produce request for one partition, by name and by id."""
    part = PartitionProduceData(index=partition, records=records, terms=terms)
    data = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=(part,))
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=(data,))


def fetch_request(
    topic,
    offset,
    *,
    partition=0,
    max_wait_ms=0,
    min_bytes=1,
    max_bytes=2**31 - 1,
    partition_max_bytes=2**31 - 1,
    isolation_level=0,
    leader_epoch=-1,
):
    """A Fetch request for one partition, by name and by id."""
    part = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        current_leader_epoch=leader_epoch,
        partition_max_bytes=partition_max_bytes,
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        topics=(FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=(part,)),),
    )


def batch_of(*values, timestamp_ms=1_700_000_000_000, **fields):
    """A batch with a record for each value; `fields` are those of `build_batch`."""
    return build_batch([NewRecord(value, timestamp_ms=timestamp_ms) for value in values], **fields)


def sequenced(producer_id, sequence, *values, epoch=0, **fields):
    """A batch of an idempotent producer."""
    return batch_of(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def offsets_and_values(records):
    """What a reader finds in the records of a Fetch answer."""
    return [
        (record.offset, record.value)
        for position, header in iter_headers(records)
        for record in decode_records(records, position, header=header)
    ]


def base_offsets(records):
    """Where the batches of a Fetch answer begin."""
    return [header.base_offset for _, header in iter_headers(records)]
